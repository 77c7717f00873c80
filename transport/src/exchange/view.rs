//! How a consumer, near or far, reads one subpartition.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use super::error::ExchangeError;
use crate::{
    proto::{DataType, ExecutionAttemptId, PartitionId, SubpartitionIndex},
    stream::BoxFuture,
};

/// Reads one subpartition in order. Dropping it releases the subpartition.
pub trait SubpartitionView: fmt::Debug + Send {
    /// Appends items that are ready to `out`: at most `max`, as many of them data as `credit` allows, in order. Stops
    /// after a blocking event, and before data without credit. Appending none means that nothing may be sent now.
    ///
    /// # Errors
    /// Why the partition will give no more: [`ExchangeError::ProducerFailed`], [`ExchangeError::PartitionNotFound`]
    /// after a release.
    fn take(
        &mut self,
        credit: Credit,
        max: usize,
        out: &mut Vec<Item>,
    ) -> Result<(), ExchangeError>;

    /// Appends the priority events that are ready, and nothing else, to `out`: for a reader that still holds items that
    /// it has taken before, and that those overtake. [`take`](Self::take) gives them first, too.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    fn take_priority(&mut self, _out: &mut Vec<Item>) -> Result<(), ExchangeError> {
        Ok(())
    }

    /// Data buffers that wait.
    fn backlog(&self) -> u32;

    /// The consumer has processed every record before the end of data. A consumer says so once at most.
    fn acknowledge_all_records(&mut self) {}

    /// The consumer decompresses buffers itself, into buffers of so many bytes: a producer that has compressed ones of at
    /// most that size may hand them out as they are. Said before the first item is taken, if at all.
    fn accept_compressed(&mut self, _buffer_bytes: usize) {}

    /// The consumer asks for buffers of about so many bytes, never 0, from now on. A producer that cannot need not.
    fn announce_buffer_size(&mut self, _bytes: u32) {}
}

/// How many data items a reader can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credit {
    /// Of a consumer on another node: it has so many buffers for them.
    Buffers(u32),
    /// Of a consumer of this node: its task takes what there is, when it is there to take it.
    Unlimited,
}

impl Credit {
    /// Whether there is some; of a limited one it is used up by that.
    pub(super) fn spend(&mut self) -> bool {
        match self {
            Self::Unlimited => true,
            Self::Buffers(left) => match left.checked_sub(1) {
                Some(rest) => {
                    *left = rest;
                    true
                }
                None => false,
            },
        }
    }
}

/// One item of a subpartition.
#[derive(Debug, Clone)]
pub struct Item {
    /// What it is.
    pub data_type: DataType,
    /// A buffer, or an event's bytes.
    pub payload: Bytes,
    /// The payload is an LZ4 block: only after [`accept_compressed`](SubpartitionView::accept_compressed).
    pub compressed: bool,
    /// Data buffers that wait behind it.
    pub backlog: u32,
}

/// Hears that a view that had nothing has something, or that it failed. Called on any thread, under no lock.
pub trait AvailabilityListener: fmt::Debug + Send + Sync {
    /// There is something to take. Must not block.
    fn on_available(&self);

    /// There is a priority event, where there was none, to take before all else. Must not block.
    fn on_priority_available(&self) {
        self.on_available();
    }
}

/// Which subpartition a consumer wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SubpartitionRequest {
    /// The partition.
    pub partition: PartitionId,
    /// The attempt that produces it; another attempt's partition is another partition.
    pub producer: ExecutionAttemptId,
    /// The part.
    pub subpartition: SubpartitionIndex,
}

/// Finds the partitions that this node produces.
pub trait ResultPartitionProvider: fmt::Debug + Send + Sync + 'static {
    /// Opens a view, waiting a limited time for the partition to appear. Dropping the future ends the wait.
    ///
    /// # Errors
    /// [`ExchangeError::PartitionNotFound`], [`ExchangeError::ProducerFailed`], [`ExchangeError::Subpartition`].
    fn create_subpartition_view(
        &self,
        request: SubpartitionRequest,
        listener: Arc<dyn AvailabilityListener>,
    ) -> BoxFuture<'static, Result<Box<dyn SubpartitionView>, ExchangeError>>;
}
