//! Frames of the partition protocol: one 16-byte header for both directions, then the payload.
//!
//! All numbers are big endian.
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 1 | kind | table below |
//! | 1 | 1 | tag | buffer: data type; error: error kind; else 0 |
//! | 2 | 2 | flags | buffer: bit 0 compressed; else 0 |
//! | 4 | 4 | length | bytes of payload that follow the header |
//! | 8 | 4 | first | request: initial credit; add credit: credit; new buffer size: bytes; buffer: sequence number; else 0 |
//! | 12 | 4 | second | request: consumer's buffer size; buffer and announcement: backlog; else 0 |
//!
//! | kind | frame | direction | payload |
//! |---|---|---|---|
//! | 1 | request | consumer to producer, first | 56 bytes: data set 16, number 4, subpartition 4, producer attempt 16, consumer attempt 16 |
//! | 2 | add credit | consumer to producer | none |
//! | 3 | resume consumption | consumer to producer | none |
//! | 4 | all records acknowledged | consumer to producer, repeated without effect | none |
//! | 5 | new buffer size | consumer to producer | none |
//! | 6 | task event | consumer to producer | the event's bytes, at most [`MAX_EVENT_BYTES`] |
//! | 64 | buffer | producer to consumer | the buffer's bytes |
//! | 65 | backlog announcement | producer to consumer | none |
//! | 66 | error | producer to consumer, last | UTF-8 text |
//! | 67 | opened | producer to consumer, once, with the first task event that is delivered | none |
//!
//! Frames of the consumer that come while the producer still waits for its partition: credit and resumes count, a new
//! buffer size and task events wait (the latter together at most four of the longest), and an acknowledgement, which
//! cannot be true yet, is a violation.
//!
//! A consumer whose first answer is that the partition was not found may request it again on a new stream. It repeats
//! there the task events and the buffer size of the old one. After any other answer it does not: its producer had the
//! partition, and has delivered what came. A producer that has nothing else to say yet says so with "opened".

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;

use super::{
    data_type::DataType,
    ids::{ExecutionAttemptId, PartitionId, SubpartitionIndex},
};

/// Bytes of every frame's header.
pub const FRAME_HEADER_BYTES: usize = 16;

/// Bytes of a request's payload.
pub const REQUEST_BODY_BYTES: usize = 56;

/// Longest event: it is held outside the buffer pool, so it has a bound of its own.
pub const MAX_EVENT_BYTES: usize = 64 * 1024;

/// Longest text of an error frame; a longer one is cut.
pub const MAX_ERROR_BYTES: usize = 1024;

/// Flag of a compressed buffer: an LZ4 block that makes at most a buffer of the consumer. Only data is compressed, and
/// only for a peer that has said in its hello that it can decompress ([`FEATURE_LZ4`](super::hello::FEATURE_LZ4)).
pub const FLAG_COMPRESSED: u16 = 1;

/// Why a producer ends a stream with an error frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ErrorKind {
    /// The partition did not appear in time or is released.
    PartitionNotFound = 1,
    /// The producing task failed; the text is its cause.
    ProducerFailed = 2,
    /// Anything else.
    Internal = 3,
}

/// The request that opens a subpartition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionRequest {
    /// Which partition.
    pub partition: PartitionId,
    /// Which part of it.
    pub subpartition: SubpartitionIndex,
    /// Buffers that the consumer already holds for it.
    pub initial_credit: u32,
    /// Payload bytes that one buffer of the consumer takes; larger ones are sent in parts.
    pub buffer_size: u32,
    /// The attempt that the consumer expects to produce it.
    pub producer: ExecutionAttemptId,
    /// The attempt that consumes it.
    pub consumer: ExecutionAttemptId,
}

impl PartitionRequest {
    /// Header and payload.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(FRAME_HEADER_BYTES + REQUEST_BODY_BYTES);
        Frame::Request {
            initial_credit: self.initial_credit,
            buffer_size: self.buffer_size,
        }
        .encode(&mut out);
        out.put_u128(self.partition.dataset);
        out.put_u32(self.partition.number);
        out.put_u32(self.subpartition.0);
        out.put_u128(self.producer.0);
        out.put_u128(self.consumer.0);
        out.freeze()
    }

    /// Reads the payload that follows the header of a request.
    #[must_use]
    pub fn decode(initial_credit: u32, buffer_size: u32, body: &[u8; REQUEST_BODY_BYTES]) -> Self {
        let mut body = body.as_slice();
        let dataset = body.get_u128();
        let number = body.get_u32();
        let subpartition = SubpartitionIndex(body.get_u32());
        Self {
            partition: PartitionId { dataset, number },
            subpartition,
            initial_credit,
            buffer_size,
            producer: ExecutionAttemptId(body.get_u128()),
            consumer: ExecutionAttemptId(body.get_u128()),
        }
    }
}

/// A decoded header. Its payload, if it has one, follows in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// Opens the subpartition; [`REQUEST_BODY_BYTES`] follow.
    Request {
        /// Buffers that the consumer holds.
        initial_credit: u32,
        /// Payload bytes of one of them.
        buffer_size: u32,
    },
    /// More credit; never 0.
    AddCredit {
        /// How much.
        credit: u32,
    },
    /// Goes on after a blocking event.
    ResumeConsumption,
    /// The consumer has processed every record before the end of data.
    AllRecordsAcknowledged,
    /// The producer should finish buffers at this size from now on; never 0.
    NewBufferSize {
        /// In bytes of payload.
        bytes: u32,
    },
    /// An event for the task that produces the partition; `length` bytes follow.
    TaskEvent {
        /// Its bytes.
        length: u32,
    },
    /// A buffer or event; `length` bytes follow.
    Buffer {
        /// What it holds.
        data_type: DataType,
        /// Payload bytes.
        length: u32,
        /// Counts the items of the stream from 0, wrapping.
        sequence: u32,
        /// Data buffers that wait at the producer behind it.
        backlog: u32,
    },
    /// A data buffer whose payload is compressed: kind buffer with [`FLAG_COMPRESSED`]; `length` bytes follow.
    CompressedBuffer {
        /// Payload bytes, as they are sent.
        length: u32,
        /// As in `Buffer`.
        sequence: u32,
        /// As in `Buffer`.
        backlog: u32,
    },
    /// Data waits at a producer without credit.
    BacklogAnnouncement {
        /// Data buffers that wait.
        backlog: u32,
    },
    /// The partition is there, and the task events that came were delivered.
    Opened,
    /// The stream ends with an error; `length` bytes of text follow.
    Error {
        /// What kind.
        kind: ErrorKind,
        /// Bytes of text.
        length: u32,
    },
}

impl Frame {
    /// Appends the 16 bytes of the header.
    pub fn encode(&self, out: &mut BytesMut) {
        let (kind, tag, length, first, second) = match *self {
            Self::Request {
                initial_credit,
                buffer_size,
            } => (KIND_REQUEST, 0, REQUEST_LENGTH, initial_credit, buffer_size),
            Self::AddCredit { credit } => (KIND_ADD_CREDIT, 0, 0, credit, 0),
            Self::ResumeConsumption => (KIND_RESUME, 0, 0, 0, 0),
            Self::AllRecordsAcknowledged => (KIND_ACKNOWLEDGED, 0, 0, 0, 0),
            Self::NewBufferSize { bytes } => (KIND_BUFFER_SIZE, 0, 0, bytes, 0),
            Self::TaskEvent { length } => (KIND_TASK_EVENT, 0, length, 0, 0),
            Self::Buffer {
                data_type,
                length,
                sequence,
                backlog,
            } => (KIND_BUFFER, data_type as u8, length, sequence, backlog),
            Self::CompressedBuffer {
                length,
                sequence,
                backlog,
            } => (KIND_BUFFER, DataType::Data as u8, length, sequence, backlog),
            Self::BacklogAnnouncement { backlog } => (KIND_BACKLOG, 0, 0, 0, backlog),
            Self::Opened => (KIND_OPENED, 0, 0, 0, 0),
            Self::Error { kind, length } => (KIND_ERROR, kind as u8, length, 0, 0),
        };
        out.put_u8(kind);
        out.put_u8(tag);
        out.put_u16(match self {
            Self::CompressedBuffer { .. } => FLAG_COMPRESSED,
            _ => 0,
        });
        out.put_u32(length);
        out.put_u32(first);
        out.put_u32(second);
    }

    /// The header alone.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(FRAME_HEADER_BYTES);
        self.encode(&mut out);
        out.freeze()
    }

    /// Reads a header. Limits on `length` that depend on the receiver (its buffer size) are the receiver's to check.
    ///
    /// # Errors
    /// [`FrameError`] for an unknown kind, type or flag, for a length that the kind does not allow, and for a credit or buffer size of 0.
    pub fn decode(header: &[u8; FRAME_HEADER_BYTES]) -> Result<Self, FrameError> {
        let mut rest = header.as_slice();
        let (kind, tag, flags) = (rest.get_u8(), rest.get_u8(), rest.get_u16());
        let (length, first, second) = (rest.get_u32(), rest.get_u32(), rest.get_u32());
        let compressed =
            flags == FLAG_COMPRESSED && kind == KIND_BUFFER && tag == DataType::Data as u8;
        if flags != 0 && !compressed {
            return Err(FrameError::Flags { kind, flags });
        }
        let allow = |max: usize| {
            if length as usize > max {
                Err(FrameError::Length { kind, length })
            } else {
                Ok(())
            }
        };
        let frame = match kind {
            KIND_REQUEST if length as usize == REQUEST_BODY_BYTES => Self::Request {
                initial_credit: first,
                buffer_size: second,
            },
            KIND_REQUEST => return Err(FrameError::Length { kind, length }),
            KIND_ADD_CREDIT => {
                allow(0)?;
                if first == 0 {
                    return Err(FrameError::ZeroCredit);
                }
                Self::AddCredit { credit: first }
            }
            KIND_RESUME => {
                allow(0)?;
                Self::ResumeConsumption
            }
            KIND_ACKNOWLEDGED => {
                allow(0)?;
                Self::AllRecordsAcknowledged
            }
            KIND_BUFFER_SIZE => {
                allow(0)?;
                if first == 0 {
                    return Err(FrameError::ZeroBufferSize);
                }
                Self::NewBufferSize { bytes: first }
            }
            KIND_TASK_EVENT => {
                allow(MAX_EVENT_BYTES)?;
                Self::TaskEvent { length }
            }
            KIND_BUFFER if compressed => Self::CompressedBuffer {
                length,
                sequence: first,
                backlog: second,
            },
            KIND_BUFFER => {
                let data_type = DataType::from_wire(tag).ok_or(FrameError::DataType { tag })?;
                if !data_type.is_data() {
                    allow(MAX_EVENT_BYTES)?;
                }
                Self::Buffer {
                    data_type,
                    length,
                    sequence: first,
                    backlog: second,
                }
            }
            KIND_BACKLOG => {
                allow(0)?;
                Self::BacklogAnnouncement { backlog: second }
            }
            KIND_OPENED => {
                allow(0)?;
                Self::Opened
            }
            KIND_ERROR => {
                allow(MAX_ERROR_BYTES)?;
                let kind = match tag {
                    1 => ErrorKind::PartitionNotFound,
                    2 => ErrorKind::ProducerFailed,
                    _ => ErrorKind::Internal,
                };
                Self::Error { kind, length }
            }
            _ => return Err(FrameError::Kind { kind }),
        };
        Ok(frame)
    }
}

/// Collects a header that may straddle reads.
#[derive(Debug, Default)]
pub struct HeaderDecoder {
    header: [u8; FRAME_HEADER_BYTES],
    filled: usize,
}

impl HeaderDecoder {
    /// Takes from the front of `input` what the header still lacks; gives the header when it is whole.
    ///
    /// # Errors
    /// As [`Frame::decode`].
    pub fn decode(&mut self, input: &mut impl Buf) -> Result<Option<Frame>, FrameError> {
        let take = (FRAME_HEADER_BYTES - self.filled).min(input.remaining());
        input.copy_to_slice(&mut self.header[self.filled..self.filled + take]);
        self.filled += take;
        if self.filled < FRAME_HEADER_BYTES {
            return Ok(None);
        }
        self.filled = 0;
        Frame::decode(&self.header).map(Some)
    }

    /// Whether no header is half read: the only place where a stream may end.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }
}

/// A header that cannot be right. Ends its stream, not the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// No such kind.
    #[error("unknown frame kind {kind}")]
    Kind {
        /// The number.
        kind: u8,
    },
    /// A flag that its kind and type do not have.
    #[error("frame of kind {kind} has flags {flags:#06x}, which it may not have")]
    Flags {
        /// The frame's kind.
        kind: u8,
        /// All its flags.
        flags: u16,
    },
    /// A payload of this length is not allowed.
    #[error("frame of kind {kind} announces {length} bytes, which its kind does not allow")]
    Length {
        /// The frame's kind.
        kind: u8,
        /// What it announces.
        length: u32,
    },
    /// No such data type.
    #[error("unknown data type {tag}")]
    DataType {
        /// The number.
        tag: u8,
    },
    /// Credit of nothing.
    #[error("credit of 0 was announced")]
    ZeroCredit,
    /// Buffers of nothing.
    #[error("a buffer size of 0 bytes was announced")]
    ZeroBufferSize,
}

/// [`REQUEST_BODY_BYTES`] as it stands in the header.
const REQUEST_LENGTH: u32 = 56;

const KIND_REQUEST: u8 = 1;
const KIND_ADD_CREDIT: u8 = 2;
const KIND_RESUME: u8 = 3;
const KIND_ACKNOWLEDGED: u8 = 4;
const KIND_BUFFER_SIZE: u8 = 5;
const KIND_TASK_EVENT: u8 = 6;
const KIND_BUFFER: u8 = 64;
const KIND_BACKLOG: u8 = 65;
const KIND_ERROR: u8 = 66;
const KIND_OPENED: u8 = 67;

#[cfg(test)]
mod tests;
