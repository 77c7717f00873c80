//! What a peer can do wrong.

use thiserror::Error;

use super::frame::{Kind, MAX_WINDOW};

/// A peer broke the rules of the multiplex. The connection ends with it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// A kind that this version does not know.
    #[error("unknown frame kind {0:#04x}")]
    UnknownKind(u8),
    /// A payload length that the kind does not allow.
    #[error("{kind:?} frame with {length} payload bytes: {min} to {max} are allowed")]
    Length {
        /// The kind.
        kind: Kind,
        /// The length in the header.
        length: u32,
        /// Shortest allowed payload.
        min: u32,
        /// Longest allowed payload.
        max: u32,
    },
    /// A frame of the connection with a stream id, or a frame of a stream without.
    #[error("{kind:?} frame with stream id {stream}")]
    StreamId {
        /// The kind.
        kind: Kind,
        /// The id in the header.
        stream: u32,
    },
    /// A frame for a stream that was never opened, or a stream opened out of order.
    #[error("{kind:?} frame for stream {stream}, which was never opened")]
    NeverOpened {
        /// The kind.
        kind: Kind,
        /// The id in the header.
        stream: u32,
    },
    /// More streams than allowed.
    #[error("stream {stream} exceeds the limit of {limit} streams")]
    StreamLimit {
        /// The id in the header.
        stream: u32,
        /// Streams allowed since the start.
        limit: u32,
    },
    /// More bytes than the stream's window.
    #[error("{length} bytes on stream {stream} exceed its window of {window} bytes")]
    WindowExceeded {
        /// The stream.
        stream: u32,
        /// Payload bytes of the frame.
        length: u32,
        /// What was left of the window.
        window: u32,
    },
    /// A window increment of zero, or a window above the largest one.
    #[error(
        "window of stream {stream} raised by {increment}: 1 byte up to a window of {MAX_WINDOW} bytes is allowed"
    )]
    WindowIncrement {
        /// The stream, 0 for the initial window of all streams.
        stream: u32,
        /// The increment.
        increment: u32,
    },
    /// Data after the end of the stream.
    #[error("data on stream {stream} after its end")]
    AfterEnd {
        /// The stream.
        stream: u32,
    },
    /// SETTINGS that are not the first frame.
    #[error("second settings frame")]
    SecondSettings,
}
