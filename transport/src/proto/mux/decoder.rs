//! Bytes in any portions become headers, payload slices and control frames.

use super::{
    frame::{Control, HEADER_BYTES, Header, Kind},
    violation::Violation,
};

/// Takes frames out of what was read, whatever its portions.
///
/// Payload of data frames is passed on as slices of the input as it comes; only a control frame that is cut by the end
/// of a portion is copied together, at most 1,028 bytes.
#[derive(Debug, Default)]
pub struct Decoder {
    state: State,
}

/// A part of what the peer sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A data frame begins; its payload follows in [`Piece::Data`].
    Begin {
        /// The stream.
        stream: u32,
        /// Payload bytes of the whole frame.
        length: u32,
        /// Whether the sender's half ends with the frame.
        fin: bool,
    },
    /// Payload of the data frame that began last.
    Data {
        /// The stream.
        stream: u32,
        /// Bytes; empty only for a frame without payload.
        bytes: &'a [u8],
        /// Whether the sender's half ends with these bytes.
        end: bool,
    },
    /// A whole control frame.
    Control(Control),
}

#[derive(Debug)]
enum State {
    Header {
        bytes: [u8; HEADER_BYTES],
        have: usize,
    },
    Control {
        header: Header,
        payload: Vec<u8>,
    },
    Data {
        stream: u32,
        left: usize,
        fin: bool,
    },
}

impl Default for State {
    fn default() -> Self {
        Self::Header {
            bytes: [0; HEADER_BYTES],
            have: 0,
        }
    }
}

impl Decoder {
    /// A decoder at the start of a frame.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next piece off the front of `input`, what was read next; `None` when it has taken all.
    ///
    /// # Errors
    /// A [`Violation`] of the header or of a control payload. The decoder is of no use after it.
    pub fn piece<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Piece<'a>>, Violation> {
        loop {
            match &mut self.state {
                State::Header { bytes, have } => {
                    let part = take(input, HEADER_BYTES - *have);
                    bytes[*have..*have + part.len()].copy_from_slice(part);
                    *have += part.len();
                    if *have < HEADER_BYTES {
                        return Ok(None);
                    }
                    let header = Header::decode(*bytes)?;
                    let Header {
                        kind,
                        length,
                        stream,
                    } = header;
                    if matches!(kind, Kind::Data | Kind::DataFin) {
                        let fin = kind == Kind::DataFin;
                        self.state = State::Data {
                            stream,
                            left: length as usize,
                            fin,
                        };
                        return Ok(Some(Piece::Begin {
                            stream,
                            length,
                            fin,
                        }));
                    }
                    self.state = State::Control {
                        header,
                        payload: Vec::new(),
                    };
                }
                State::Control { header, payload } => {
                    let header = *header;
                    let part = take(input, header.length as usize - payload.len());
                    let whole = if part.len() == header.length as usize {
                        Control::decode(header, part)?
                    } else {
                        payload.extend_from_slice(part);
                        if payload.len() < header.length as usize {
                            return Ok(None);
                        }
                        Control::decode(header, payload)?
                    };
                    self.state = State::default();
                    if let Some(control) = whole {
                        return Ok(Some(Piece::Control(control)));
                    }
                }
                State::Data { stream, left, fin } => {
                    if input.is_empty() && *left > 0 {
                        return Ok(None);
                    }
                    let bytes = take(input, *left);
                    *left -= bytes.len();
                    let last = *left == 0;
                    let piece = Piece::Data {
                        stream: *stream,
                        bytes,
                        end: last && *fin,
                    };
                    if last {
                        self.state = State::default();
                    }
                    return Ok(Some(piece));
                }
            }
        }
    }

    /// Whether the input ended inside a frame.
    #[must_use]
    pub fn is_inside_frame(&self) -> bool {
        !matches!(self.state, State::Header { have: 0, .. })
    }
}

/// Up to `most` bytes off the front.
fn take<'a>(input: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (part, rest) = input.split_at(most.min(input.len()));
    *input = rest;
    part
}
