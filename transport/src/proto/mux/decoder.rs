//! Bytes in any portions become headers, payload slices and control frames.

use bytes::{Buf, Bytes};

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
    input: Bytes,
    state: State,
}

/// A part of what the peer sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
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
        bytes: Bytes,
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

    /// Gives it what was read next. What was pushed before must have been taken out: [`piece`](Self::piece) gave
    /// `None`.
    pub fn push(&mut self, bytes: Bytes) {
        debug_assert!(self.input.is_empty(), "earlier input was not taken out");
        self.input = bytes;
    }

    /// The next piece, or `None` until more is pushed.
    ///
    /// # Errors
    /// A [`Violation`] of the header or of a control payload. The decoder is of no use after it.
    pub fn piece(&mut self) -> Result<Option<Piece>, Violation> {
        loop {
            match &mut self.state {
                State::Header { bytes, have } => {
                    let take = (HEADER_BYTES - *have).min(self.input.len());
                    self.input.copy_to_slice(&mut bytes[*have..*have + take]);
                    *have += take;
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
                    let take = (header.length as usize - payload.len()).min(self.input.len());
                    let whole = if payload.is_empty() && take == header.length as usize {
                        let control = Control::decode(header, &self.input[..take])?;
                        self.input.advance(take);
                        control
                    } else {
                        payload.extend_from_slice(&self.input[..take]);
                        self.input.advance(take);
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
                    let take = (*left).min(self.input.len());
                    if take == 0 && *left > 0 {
                        return Ok(None);
                    }
                    let bytes = self.input.split_to(take);
                    *left -= take;
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
