//! What to do when a producer's node does not know a partition.

use std::fmt;

use super::view::SubpartitionRequest;
use crate::stream::BoxFuture;

/// Asks whoever knows (the JobMaster) how the producer of a missing partition is.
///
/// A missing partition hides its cause: the producer may still be deploying, or may have failed. The question is asked
/// in the channel's task and may take its time.
pub trait ProducerCheck: fmt::Debug + Send + Sync + 'static {
    /// The producer's node did not have the partition within its time.
    fn on_partition_not_found(&self, request: SubpartitionRequest) -> BoxFuture<'static, Verdict>;
}

/// The answer of a [`ProducerCheck`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The producer is deploying, running or finished: request once more.
    RequestAgain,
    /// The gate fails with [`ExchangeError::PartitionNotFound`](super::ExchangeError::PartitionNotFound).
    Fail,
}
