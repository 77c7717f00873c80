//! What travels between producer and consumer: buffers with records, and events in order with them.

use bytes::Bytes;

use super::error::ExchangeError;
use crate::proto::{DataType, MAX_EVENT_BYTES};

/// An event; it keeps its place between the records and costs no buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// An event after which the producer's side of the channel waits until the consumer resumes it.
    Barrier(Bytes),
    /// No more records; events may follow.
    EndOfData,
    /// The last item of a channel; sent by `finish`.
    EndOfPartition,
    /// An event of the embedding engine, at most [`MAX_EVENT_BYTES`].
    User(Bytes),
}

impl Event {
    pub(super) fn into_wire(self) -> Result<(DataType, Bytes), ExchangeError> {
        let (data_type, payload) = match self {
            Self::Barrier(payload) => (DataType::AlignedBarrier, payload),
            Self::EndOfData => (DataType::EndOfData, Bytes::new()),
            Self::EndOfPartition => (DataType::EndOfPartition, Bytes::new()),
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

impl BufferOrEvent {
    /// `None` for a data type that is reserved.
    pub(super) fn from_wire(data_type: DataType, payload: Bytes) -> Option<Self> {
        Some(match data_type {
            DataType::Data => Self::Buffer(payload),
            DataType::Event => Self::Event(Event::User(payload)),
            DataType::AlignedBarrier => Self::Event(Event::Barrier(payload)),
            DataType::EndOfData => Self::Event(Event::EndOfData),
            DataType::EndOfPartition => Self::Event(Event::EndOfPartition),
            DataType::PrioritizedEvent
            | DataType::TimeoutableBarrier
            | DataType::RecoveryCompletion => return None,
        })
    }
}
