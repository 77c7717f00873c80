//! What unread pieces keep of the buffers that they came in.

use super::*;
use crate::proto::mux::machine::MAX_SLICES;

/// As the reader of a connection has them.
const BUFFER_BYTES: usize = 64 * 1024;

/// A connection on which every stream has sent one piece, each in a read buffer of its own.
struct Unread {
    mux: Mux,
    buffers: Vec<Bytes>,
}

impl Unread {
    fn new() -> Self {
        Self {
            mux: Mux::new(Side::Acceptor, config(WINDOW, 10_000)),
            buffers: Vec::new(),
        }
    }

    /// The next stream's piece, or one more on a stream.
    fn piece(&mut self, stream: u32, length: usize) {
        let fill = u8::try_from(self.buffers.len() % 251).unwrap();
        let buffer = Bytes::from(vec![fill; BUFFER_BYTES]);
        for piece in [
            Piece::Begin {
                stream,
                length: u32::try_from(length).unwrap(),
                fin: false,
            },
            Piece::Data {
                stream,
                bytes: buffer.slice(..length),
                end: false,
            },
        ] {
            self.mux.receive(piece).unwrap();
        }
        self.buffers.push(buffer);
    }

    fn kept(&self) -> usize {
        let kept = self.buffers.iter().filter(|buffer| !buffer.is_unique());
        kept.count()
    }
}

fn stream(at: usize) -> u32 {
    1 + 2 * u32::try_from(at).unwrap()
}

#[test]
fn pieces_that_lie_unread_keep_no_read_buffers_alive_but_the_latest() {
    for length in [1, 4 * 1024, 5000, 15 * 1024 - 1] {
        let mut unread = Unread::new();
        for at in 0..500 {
            unread.piece(stream(at), length);
        }
        assert!(unread.kept() <= MAX_SLICES, "{} of {length}", unread.kept());
        for at in 0..500 {
            let key = unread.mux.accept().unwrap();
            let (bytes, _) = read_all(&mut unread.mux, key);
            assert_eq!(bytes, vec![u8::try_from(at % 251).unwrap(); length]);
        }
        assert_eq!(unread.kept(), 0);
    }
}

#[test]
fn what_is_copied_keeps_its_place_between_pieces_of_all_sizes() {
    let mut unread = Unread::new();
    let mut expected = Vec::new();
    for (at, length) in [20_000, 5000, 100, 6000, 3000, 9000, 20]
        .into_iter()
        .enumerate()
    {
        unread.piece(1, length);
        expected.extend(vec![u8::try_from(at).unwrap(); length]);
    }
    let key = unread.mux.accept().unwrap();
    let Read::Chunk(first) = unread.mux.read(key, 21_000).unwrap() else {
        panic!("nothing to read");
    };
    let Read::Chunk(second) = unread.mux.read(key, 1000).unwrap() else {
        panic!("nothing to read");
    };
    // A part of the second piece is read, the rest and the others are not when they are old.
    for at in 0..MAX_SLICES {
        unread.piece(stream(at + 1), 5000);
    }
    assert_eq!(
        unread.kept(),
        MAX_SLICES + 2,
        "{first:?} and {second:?} are held here"
    );
    drop((first, second));
    let (rest, _) = read_all(&mut unread.mux, key);
    assert_eq!(rest, expected[21_000..]);
}

#[test]
fn what_is_read_promptly_is_never_copied() {
    let mut unread = Unread::new();
    unread.piece(1, 8000);
    let key = unread.mux.accept().unwrap();
    for _ in 0..2 * MAX_SLICES {
        let Read::Chunk(chunk) = unread.mux.read(key, usize::MAX).unwrap() else {
            panic!("nothing to read");
        };
        let buffer = unread.buffers.pop().unwrap();
        assert_eq!(chunk.as_ptr(), buffer.as_ptr());
        transmit(&mut unread.mux, 1024);
        unread.piece(1, 8000);
    }
}
