//! Many streams on one ordered, reliable connection: the multiplex of the TCP backend, without its socket.
//!
//! # Wire format
//!
//! All integers are big endian. Each side begins with the eight bytes of [`MAGIC`], whose last byte is the version of
//! this format, and one SETTINGS frame, without waiting for the other side; a CLOSE frame in its place is a refusal.
//! Then frames follow. A frame has a header of eight bytes and a payload:
//!
//! ```text
//! +---------+--------------------+---------------------------+
//! | kind u8 | payload length u24 | stream id u32             |
//! +---------+--------------------+---------------------------+
//! ```
//!
//! | kind | name        | stream | payload                       | meaning |
//! |------|-------------|--------|-------------------------------|---------|
//! | 0x00 | DATA        | id     | 1 to 1,048,576 bytes          | bytes of the stream; the first one opens it |
//! | 0x01 | DATA_FIN    | id     | 0 to 1,048,576 bytes          | the same, and the sender's half ends after them |
//! | 0x02 | RESET       | id     | code u32                      | the sender gave its half up |
//! | 0x03 | STOP        | id     | code u32                      | the receiver wants no more |
//! | 0x04 | WINDOW      | id     | increment u32, 1 to 2^30      | so many more bytes may be sent |
//! | 0x05 | CONSUMED    | id     | none                          | the receiver has read everything up to the end |
//! | 0x06 | MAX_STREAMS | 0      | count u32                     | streams that may be opened, counted from the start |
//! | 0x07 | PING        | 0      | token u64                     | to be answered |
//! | 0x08 | PONG        | 0      | token u64                     | the answer; several pings may share the last one's |
//! | 0x09 | CLOSE       | 0      | code u32, 0 to 1,024 bytes    | the end of the connection, and why |
//! | 0x0a | SETTINGS    | 0      | window u32, streams u32, 0 to 56 ignored bytes | once, first |
//! | 0x0b | BLOCKED     | id     | none                          | the sender has more than the window allows |
//!
//! # Rules
//!
//! - The side that dialled numbers its streams 1, 3, 5, …; the other one 2, 4, 6, …. A number is given when the first
//!   frame of a stream is sent, so that a side's numbers appear on the wire in order without a gap, and what is below
//!   the next number and not in the table is a closed stream: late frames for it are ignored, at no cost in memory.
//! - A stream's window starts at what the receiver's SETTINGS say, and counts payload bytes of DATA and DATA_FIN. There
//!   is no window for the connection: one that unread streams can use up stops every other stream with them.
//! - A sender that has used its window up and has more to send says BLOCKED, once until it gets a WINDOW. A receiver
//!   whose reader waits for it then raises the window beyond what it started with, see [`Growth`].
//! - MAX_STREAMS counts streams since the start, as in QUIC (RFC 9000 section 4.6), because a number of concurrent
//!   streams would need both sides to agree on when a stream is over.
//! - A direction is over after CONSUMED, RESET or STOP. A stream is forgotten when both are.
//! - Every violation closes the connection: after one, the position of the next frame cannot be trusted.
//!
//! # Bounds
//!
//! Work per frame is constant (logarithmic in the number of streams for the look-up). What a peer can make this side
//! hold is, per stream that it may open, the window of the start and at most five control frames (the permission for a
//! further stream is queued behind the answers that the earlier ones caused), and [`Growth::budget`] for all streams
//! together: what is granted beyond the window of the start comes out of it. A stream never has less than that window, so
//! that no number of unread streams stops another.

mod batch;
mod decoder;
mod frame;
mod growth;
mod liveness;
mod local;
mod machine;
mod passing;
mod recv;
mod schedule;
mod send;
mod transmit;
mod violation;

#[cfg(test)]
mod tests;

pub use batch::Batch;
pub use decoder::{Decoder, Piece};
pub use frame::{
    Control, HEADER_BYTES, Header, Kind, MAGIC, MAX_DATA_BYTES, MAX_REASON_BYTES, MAX_WINDOW,
    Settings,
};
pub use growth::Growth;
pub use liveness::{Liveness, Verdict};
pub use local::OpenError;
pub use machine::{Counters, Event, Key, Mux, MuxConfig, Side};
pub use passing::Passing;
pub use recv::Read;
pub use violation::Violation;
