//! What the tests of the multiplex share.

mod codec;
mod growth;
mod model;
mod passing;
mod rules;

use bytes::{Bytes, BytesMut};

use super::*;

const WINDOW: u32 = 64 * 1024;

fn config(window: u32, streams: u32) -> MuxConfig {
    let settings = Settings { window, streams };
    MuxConfig {
        local: settings,
        peer: settings,
        frame_bytes: 32 * 1024,
        queue_bytes: 128 * 1024,
        growth: Growth {
            first: window,
            max: window,
            budget: 0,
        },
    }
}

/// Two machines and the wire between them.
struct Pair {
    dialler: Mux,
    acceptor: Mux,
    decoders: [Decoder; 2],
}

impl Pair {
    fn new(config: MuxConfig) -> Self {
        Self {
            dialler: Mux::new(Side::Dialler, config),
            acceptor: Mux::new(Side::Acceptor, config),
            decoders: [Decoder::new(), Decoder::new()],
        }
    }

    /// Carries everything over until both sides are quiet.
    fn settle(&mut self) {
        while self.carry(0, usize::MAX) + self.carry(1, usize::MAX) > 0 {}
    }

    /// Carries one batch, cut into portions, from side 0 or 1 to the other one.
    fn carry(&mut self, from: usize, portion: usize) -> usize {
        let (sender, receiver) = match from {
            0 => (&mut self.dialler, &mut self.acceptor),
            _ => (&mut self.acceptor, &mut self.dialler),
        };
        let wire = transmit(sender, 64 * 1024);
        for part in wire.chunks(portion.max(1)) {
            let (decoder, mut part) = (&mut self.decoders[from], part);
            while let Some(piece) = decoder.piece(&mut part).unwrap() {
                receiver.receive(piece).unwrap();
            }
        }
        wire.len()
    }
}

fn transmit(mux: &mut Mux, budget: usize) -> Vec<u8> {
    let mut batch = Batch::new();
    mux.transmit(&mut batch, budget);
    let mut wire = Vec::new();
    while !batch.is_written() {
        let mut slices = [std::io::IoSlice::new(&[]); 4];
        let filled = batch.slices(&mut slices);
        let part: Vec<u8> = slices[..filled]
            .iter()
            .flat_map(|slice| slice.iter().copied())
            .collect();
        batch.advance(part.len());
        wire.extend(part);
    }
    wire
}

fn pieces(wire: &[u8], portion: usize) -> Result<Vec<Piece<'_>>, Violation> {
    let mut decoder = Decoder::new();
    let mut pieces = Vec::new();
    for mut part in wire.chunks(portion.max(1)) {
        while let Some(piece) = decoder.piece(&mut part)? {
            pieces.push(piece);
        }
    }
    Ok(pieces)
}

/// What a data frame carries: its stream, the bytes, and whether they are the last.
type Payload = (u32, Vec<u8>, bool);

/// The pieces that are no payload, and what each data frame carries, whatever its portions.
fn joined(pieces: Vec<Piece<'_>>) -> (Vec<Piece<'_>>, Vec<Payload>) {
    let (mut others, mut frames) = (Vec::new(), Vec::<Payload>::new());
    for piece in pieces {
        match (frames.last_mut(), piece) {
            (Some((_, whole, end)), Piece::Data { bytes, end: is, .. }) => {
                whole.extend_from_slice(bytes);
                *end = is;
            }
            (_, piece) => {
                if let Piece::Begin { stream, .. } = piece {
                    frames.push((stream, Vec::new(), false));
                }
                others.push(piece);
            }
        }
    }
    (others, frames)
}

fn write(mux: &mut Mux, key: Key, bytes: &[u8]) {
    let mut chunks = [Bytes::copy_from_slice(bytes)];
    assert!(mux.write(key, &mut chunks).unwrap(), "queue is full");
}

fn read_all(mux: &mut Mux, key: Key) -> (Vec<u8>, bool) {
    let mut all = Vec::new();
    loop {
        match mux.read(key, 1000).unwrap() {
            Read::Chunk(chunk) => all.extend_from_slice(&chunk),
            Read::End => return (all, true),
            Read::Blocked => return (all, false),
        }
    }
}

fn receive(mux: &mut Mux, wire: &[u8]) -> Result<(), Violation> {
    for piece in pieces(wire, usize::MAX)? {
        mux.receive(piece)?;
    }
    Ok(())
}

fn data(stream: u32, payload: &[u8], fin: bool) -> Vec<u8> {
    let header = Header {
        kind: if fin { Kind::DataFin } else { Kind::Data },
        length: u32::try_from(payload.len()).unwrap(),
        stream,
    };
    [&header.encode()[..], payload].concat()
}

fn control(control: &Control) -> Vec<u8> {
    let mut out = BytesMut::new();
    control.encode(&mut out);
    assert_eq!(out.len(), control.wire_bytes());
    out.to_vec()
}
