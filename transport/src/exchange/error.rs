//! Why the exchange of a partition failed.

use thiserror::Error;

use super::spill_error::SpillError;
use crate::{
    error::ErrorCode,
    handler::TransportError,
    proto::{ErrorKind, MAX_ERROR_BYTES, PartitionId},
};

/// Why a partition cannot be produced or consumed. The first error of a gate wins, and every later call repeats it.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The partition did not appear in time, or is released.
    #[error("partition {partition} was not found")]
    PartitionNotFound {
        /// Which one.
        partition: PartitionId,
    },
    /// The task that produces the partition failed.
    #[error("producer of partition {partition} failed: {cause}")]
    ProducerFailed {
        /// Which partition.
        partition: PartitionId,
        /// The cause that the producer gave.
        cause: String,
    },
    /// The connection to the producer failed; the local and the remote side are told apart.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// Network memory is short.
    #[error(transparent)]
    Buffers(#[from] BufferError),
    /// The disk of a blocking partition failed.
    #[error(transparent)]
    Spill(#[from] SpillError),
    /// The gate, the partition or the node was closed.
    #[error("{what} was cancelled")]
    Cancelled {
        /// What.
        what: String,
    },
    /// The peer of this one stream broke the protocol, or bytes cannot be read as records.
    #[error("partition {partition}: {reason}")]
    Protocol {
        /// Which partition.
        partition: PartitionId,
        /// What was wrong.
        reason: String,
        /// What the peer hears.
        code: ErrorCode,
    },
    /// Something inside the producer's node failed; its log says what.
    #[error("partition {partition} failed at the producer's node: {message}")]
    Internal {
        /// Which partition.
        partition: PartitionId,
        /// What the peer said.
        message: String,
    },
    /// A partition with this id is there already.
    #[error("partition {partition} is already registered")]
    AlreadyRegistered {
        /// Which one.
        partition: PartitionId,
    },
    /// A subpartition of a pipelined partition can be consumed once only, and has to exist.
    #[error("subpartition {subpartition} of partition {partition} cannot be consumed: {reason}")]
    Subpartition {
        /// Which partition.
        partition: PartitionId,
        /// Which part.
        subpartition: u32,
        /// Why.
        reason: &'static str,
    },
    /// The node has no network, or it was not started.
    #[error("no connection to {connection}: {reason}")]
    NoNetwork {
        /// Who was to be reached.
        connection: String,
        /// Why not.
        reason: &'static str,
    },
    /// A call that does not fit the state.
    #[error("{what}: {reason}")]
    InvalidState {
        /// The object.
        what: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// The record or event is longer than the exchange allows.
    #[error("{what} of {bytes} bytes is too large: at most {limit} bytes are allowed")]
    TooLarge {
        /// A record or an event.
        what: &'static str,
        /// Its length.
        bytes: u64,
        /// What is allowed.
        limit: u64,
    },
}

impl ExchangeError {
    /// Whether the same request may succeed later without anybody changing anything.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::PartitionNotFound { .. } => true,
            Self::Transport(error) => error.is_retryable(),
            Self::Buffers(error) => error.is_retryable(),
            _ => false,
        }
    }

    /// The code that describes the failure.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::PartitionNotFound { .. } => ErrorCode::PARTITION_NOT_FOUND,
            Self::ProducerFailed { .. } => ErrorCode::PRODUCER_FAILED,
            Self::Transport(error) => error.code(),
            Self::Cancelled { .. } => ErrorCode::CANCELLED,
            Self::Protocol { code, .. } => *code,
            Self::Buffers(_) | Self::TooLarge { .. } => ErrorCode::LIMIT_EXCEEDED,
            _ => ErrorCode::INTERNAL,
        }
    }

    /// How the producer's node tells the consumer: kind and text, cut to what a frame may carry.
    pub(super) fn to_wire(&self) -> (ErrorKind, String) {
        let (kind, mut text) = match self {
            Self::PartitionNotFound { .. } => (ErrorKind::PartitionNotFound, String::new()),
            Self::ProducerFailed { cause, .. } => (ErrorKind::ProducerFailed, cause.clone()),
            Self::Internal { message, .. } => (ErrorKind::Internal, message.clone()),
            other => (ErrorKind::Internal, other.to_string()),
        };
        text.truncate(text.floor_char_boundary(MAX_ERROR_BYTES));
        (kind, text)
    }

    /// What the consumer makes of an error frame.
    pub(super) fn from_wire(partition: PartitionId, kind: ErrorKind, text: &[u8]) -> Self {
        let message = crate::error::sanitize(text);
        match kind {
            ErrorKind::PartitionNotFound => Self::PartitionNotFound { partition },
            ErrorKind::ProducerFailed => Self::ProducerFailed {
                partition,
                cause: message,
            },
            ErrorKind::Internal => Self::Internal { partition, message },
        }
    }

    pub(super) fn protocol(partition: PartitionId, reason: impl ToString) -> Self {
        Self::Protocol {
            partition,
            reason: reason.to_string(),
            code: ErrorCode::STREAM_PROTOCOL,
        }
    }
}

/// Why a buffer, or a pool of them, cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BufferError {
    /// The guaranteed minimums of all pools would exceed the node's buffers.
    #[error(
        "insufficient network buffers: {required} required, {available} of {total} available; raise transport.buffer_pool ({buffer_bytes} bytes are needed per buffer)"
    )]
    Insufficient {
        /// The guarantee that was asked for.
        required: usize,
        /// Buffers not promised to others.
        available: usize,
        /// Buffers of the node.
        total: usize,
        /// Bytes of one buffer.
        buffer_bytes: usize,
    },
    /// A guaranteed buffer did not come in time, because others hold more than their guarantee.
    #[error(
        "no network buffer for {seconds} s: the pool holds {used} of its guaranteed {guaranteed}, the node uses {node_used} of {total}; raise transport.buffer_pool or transport.buffer_request_timeout"
    )]
    TimedOut {
        /// The limit that passed.
        seconds: u64,
        /// What the asking pool uses.
        used: usize,
        /// What it was promised.
        guaranteed: usize,
        /// What the node uses.
        node_used: usize,
        /// Buffers of the node.
        total: usize,
    },
    /// The pool was closed.
    #[error("the buffer pool is closed")]
    Closed,
}

impl BufferError {
    /// Whether waiting may help.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::TimedOut { .. } | Self::Insufficient { .. })
    }
}
