//! Frame headers and control frames as bytes.

use bytes::{BufMut, Bytes, BytesMut};

use super::violation::Violation;
use crate::error::ErrorCode;

/// First bytes of each side: the name of the protocol and the version of the wire format.
pub const MAGIC: [u8; 8] = *b"THALWEG\x01";

/// Bytes of a frame header.
pub const HEADER_BYTES: usize = 8;

/// Longest payload of a data frame that is accepted: the largest `buffer_size`. What is sent is shorter.
pub const MAX_DATA_BYTES: u32 = 1024 * 1024;

/// Longest reason in a CLOSE frame.
pub const MAX_REASON_BYTES: u32 = 1024;

/// Largest window of a stream, so that sums stay far from overflow.
pub const MAX_WINDOW: u32 = 1 << 30;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Bytes of a stream.
    Data = 0x00,
    /// Bytes of a stream, and its end.
    DataFin = 0x01,
    /// The sender gave its half up.
    Reset = 0x02,
    /// The receiver wants no more.
    Stop = 0x03,
    /// More bytes may be sent.
    Window = 0x04,
    /// Everything up to the end was read.
    Consumed = 0x05,
    /// More streams may be opened.
    MaxStreams = 0x06,
    /// To be answered.
    Ping = 0x07,
    /// The answer to a ping.
    Pong = 0x08,
    /// The end of the connection.
    Close = 0x09,
    /// Windows and limits of the sender of this frame.
    Settings = 0x0a,
    /// The sender has more than the window lets it send.
    Blocked = 0x0b,
}

impl Kind {
    fn from_byte(byte: u8) -> Result<Self, Violation> {
        Ok(match byte {
            0x00 => Self::Data,
            0x01 => Self::DataFin,
            0x02 => Self::Reset,
            0x03 => Self::Stop,
            0x04 => Self::Window,
            0x05 => Self::Consumed,
            0x06 => Self::MaxStreams,
            0x07 => Self::Ping,
            0x08 => Self::Pong,
            0x09 => Self::Close,
            0x0a => Self::Settings,
            0x0b => Self::Blocked,
            other => return Err(Violation::UnknownKind(other)),
        })
    }

    /// Shortest and longest payload.
    fn lengths(self) -> (u32, u32) {
        match self {
            Self::Data => (1, MAX_DATA_BYTES),
            Self::DataFin => (0, MAX_DATA_BYTES),
            Self::Reset | Self::Stop | Self::Window | Self::MaxStreams => (4, 4),
            Self::Blocked | Self::Consumed => (0, 0),
            Self::Ping | Self::Pong => (8, 8),
            Self::Close => (4, 4 + MAX_REASON_BYTES),
            Self::Settings => (8, 64),
        }
    }

    fn is_of_stream(self) -> bool {
        matches!(
            self,
            Self::Blocked
                | Self::Consumed
                | Self::Data
                | Self::DataFin
                | Self::Reset
                | Self::Stop
                | Self::Window
        )
    }
}

/// A frame header whose kind, length and stream id fit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the frame is.
    pub kind: Kind,
    /// Payload bytes.
    pub length: u32,
    /// The stream, 0 for frames of the connection.
    pub stream: u32,
}

impl Header {
    /// Reads and checks a header, before anything is allocated for the payload.
    ///
    /// # Errors
    /// [`Violation::UnknownKind`], [`Violation::Length`], [`Violation::StreamId`].
    pub fn decode(bytes: [u8; HEADER_BYTES]) -> Result<Self, Violation> {
        let [kind, l0, l1, l2, s0, s1, s2, s3] = bytes;
        let kind = Kind::from_byte(kind)?;
        let length = u32::from_be_bytes([0, l0, l1, l2]);
        let stream = u32::from_be_bytes([s0, s1, s2, s3]);
        let (min, max) = kind.lengths();
        if !(min..=max).contains(&length) {
            return Err(Violation::Length {
                kind,
                length,
                min,
                max,
            });
        }
        if kind.is_of_stream() == (stream == 0) {
            return Err(Violation::StreamId { kind, stream });
        }
        Ok(Self {
            kind,
            length,
            stream,
        })
    }

    /// The header as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let [_, l0, l1, l2] = self.length.to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.to_be_bytes();
        [self.kind as u8, l0, l1, l2, s0, s1, s2, s3]
    }
}

/// What a side announces at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Receive window of each stream at its start, in bytes.
    pub window: u32,
    /// Streams that the other side may open before it hears of more.
    pub streams: u32,
}

/// A frame that is not data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// The sender gave its half of the stream up.
    Reset {
        /// The stream.
        stream: u32,
        /// Why.
        code: ErrorCode,
    },
    /// The receiver wants no more of the stream.
    Stop {
        /// The stream.
        stream: u32,
        /// Why.
        code: ErrorCode,
    },
    /// So many more bytes may be sent.
    Window {
        /// The stream.
        stream: u32,
        /// Bytes.
        increment: u32,
    },
    /// More waits to be sent than the window allows.
    Blocked {
        /// The stream.
        stream: u32,
    },
    /// Everything up to the end was read.
    Consumed {
        /// The stream.
        stream: u32,
    },
    /// Streams that may be opened since the start.
    MaxStreams {
        /// How many.
        count: u32,
    },
    /// To be answered with the same token.
    Ping {
        /// The token.
        token: u64,
    },
    /// The answer to a ping.
    Pong {
        /// The ping's token.
        token: u64,
    },
    /// The end of the connection.
    Close {
        /// Why, as a number.
        code: ErrorCode,
        /// Why, in words; cut at [`MAX_REASON_BYTES`] when encoded.
        reason: Bytes,
    },
    /// Windows and limits.
    Settings(Settings),
}

impl Control {
    /// Bytes of the frame on the wire.
    #[must_use]
    pub fn wire_bytes(&self) -> usize {
        HEADER_BYTES
            + match self {
                Self::Blocked { .. } | Self::Consumed { .. } => 0,
                Self::Reset { .. }
                | Self::Stop { .. }
                | Self::Window { .. }
                | Self::MaxStreams { .. } => 4,
                Self::Ping { .. } | Self::Pong { .. } | Self::Settings(_) => 8,
                Self::Close { reason, .. } => 4 + reason.len().min(MAX_REASON_BYTES as usize),
            }
    }

    /// Appends the frame.
    pub fn encode(&self, out: &mut BytesMut) {
        let mut header = |kind, length, stream| {
            out.put_slice(
                &Header {
                    kind,
                    length,
                    stream,
                }
                .encode(),
            );
        };
        match self {
            Self::Reset { stream, code } => {
                header(Kind::Reset, 4, *stream);
                out.put_u32(code.0);
            }
            Self::Stop { stream, code } => {
                header(Kind::Stop, 4, *stream);
                out.put_u32(code.0);
            }
            Self::Window { stream, increment } => {
                header(Kind::Window, 4, *stream);
                out.put_u32(*increment);
            }
            Self::Blocked { stream } => header(Kind::Blocked, 0, *stream),
            Self::Consumed { stream } => header(Kind::Consumed, 0, *stream),
            Self::MaxStreams { count } => {
                header(Kind::MaxStreams, 4, 0);
                out.put_u32(*count);
            }
            Self::Ping { token } => {
                header(Kind::Ping, 8, 0);
                out.put_u64(*token);
            }
            Self::Pong { token } => {
                header(Kind::Pong, 8, 0);
                out.put_u64(*token);
            }
            Self::Close { code, reason } => {
                let cut = reason.len().min(MAX_REASON_BYTES as usize);
                let length = u32::try_from(4 + cut).expect("a reason has at most 1,024 bytes");
                header(Kind::Close, length, 0);
                out.put_u32(code.0);
                out.put_slice(&reason[..cut]);
            }
            Self::Settings(settings) => {
                header(Kind::Settings, 8, 0);
                out.put_u32(settings.window);
                out.put_u32(settings.streams);
            }
        }
    }

    /// Reads the payload of a control frame; `None` if the header is one of data or the payload is shorter than it
    /// says.
    ///
    /// # Errors
    /// [`Violation::WindowIncrement`].
    pub fn decode(header: Header, payload: &[u8]) -> Result<Option<Self>, Violation> {
        if payload.len() != header.length as usize {
            return Ok(None);
        }
        let stream = header.stream;
        let word = |at: usize| {
            payload
                .get(at..at + 4)
                .and_then(|bytes| bytes.try_into().ok())
                .map(u32::from_be_bytes)
        };
        let long = || payload.try_into().ok().map(u64::from_be_bytes);
        Ok(match header.kind {
            Kind::Data | Kind::DataFin => None,
            Kind::Reset => word(0).map(|code| Self::Reset {
                stream,
                code: ErrorCode(code),
            }),
            Kind::Stop => word(0).map(|code| Self::Stop {
                stream,
                code: ErrorCode(code),
            }),
            Kind::Window => match word(0) {
                Some(increment) if increment == 0 || increment > MAX_WINDOW => {
                    return Err(Violation::WindowIncrement { stream, increment });
                }
                increment => increment.map(|increment| Self::Window { stream, increment }),
            },
            Kind::Blocked => Some(Self::Blocked { stream }),
            Kind::Consumed => Some(Self::Consumed { stream }),
            Kind::MaxStreams => word(0).map(|count| Self::MaxStreams { count }),
            Kind::Ping => long().map(|token| Self::Ping { token }),
            Kind::Pong => long().map(|token| Self::Pong { token }),
            Kind::Close => word(0).map(|code| Self::Close {
                code: ErrorCode(code),
                reason: Bytes::copy_from_slice(&payload[4..]),
            }),
            Kind::Settings => match (word(0), word(4)) {
                (Some(window), _) if window > MAX_WINDOW => {
                    return Err(Violation::WindowIncrement {
                        stream: 0,
                        increment: window,
                    });
                }
                (Some(window), Some(streams)) => Some(Self::Settings(Settings { window, streams })),
                _ => None,
            },
        })
    }
}
