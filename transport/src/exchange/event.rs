//! What travels between producer and consumer: buffers with records, and events in order with them.

use bytes::Bytes;

use super::error::ExchangeError;
use crate::proto::{DataType, MAX_EVENT_BYTES};

/// An event; it keeps its place between the records, unless it is of priority, and costs no buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Made by the channel when a [`TimeoutableBarrier`](Self::TimeoutableBarrier) has come: its bytes, before
    /// everything that is queued in front of it. Cannot be sent.
    Announcement(Bytes),
    /// An event after which the producer's side of the channel waits until the consumer resumes it.
    Barrier(Bytes),
    /// No more records; events may follow.
    EndOfData,
    /// The last item of a channel; sent by `finish`.
    EndOfPartition,
    /// An event that overtakes all data and events that wait at the producer and in the channel, but for earlier
    /// priority events. Its channel is read before others.
    Priority(Bytes),
    /// The end of what the producer had kept in flight before a failure. Blocks as a barrier does.
    RecoveryCompletion,
    /// A barrier that announces itself to the consumer as soon as it has come, so that the consumer may set itself a
    /// time for its arrival in order. Blocks as a barrier does.
    TimeoutableBarrier(Bytes),
    /// An event of the embedding engine, at most [`MAX_EVENT_BYTES`].
    User(Bytes),
}

impl Event {
    pub(super) fn into_wire(self) -> Result<(DataType, Bytes), ExchangeError> {
        let (data_type, payload) = match self {
            Self::Announcement(_) => {
                return Err(ExchangeError::InvalidState {
                    what: "an announcement".to_owned(),
                    reason: "it is made by the channel and cannot be sent",
                });
            }
            Self::Barrier(payload) => (DataType::AlignedBarrier, payload),
            Self::EndOfData => (DataType::EndOfData, Bytes::new()),
            Self::EndOfPartition => (DataType::EndOfPartition, Bytes::new()),
            Self::Priority(payload) => (DataType::PrioritizedEvent, payload),
            Self::RecoveryCompletion => (DataType::RecoveryCompletion, Bytes::new()),
            Self::TimeoutableBarrier(payload) => (DataType::TimeoutableBarrier, payload),
            Self::User(payload) => (DataType::Event, payload),
        };
        if payload.len() > MAX_EVENT_BYTES {
            return Err(ExchangeError::TooLarge {
                what: "event",
                bytes: payload.len() as u64,
                limit: MAX_EVENT_BYTES as u64,
            });
        }
        Ok((data_type, payload))
    }
}

/// One item of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BufferOrEvent {
    /// A part of the channel's byte stream of records; its memory goes back to its pool when it is dropped.
    Buffer(Bytes),
    /// An event.
    Event(Event),
}
