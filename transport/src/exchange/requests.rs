//! How often a channel requests its subpartition.

use std::{sync::Arc, time::Duration};

use super::{
    error::ExchangeError,
    producer_check::{ProducerCheck, Verdict},
    view::SubpartitionRequest,
};

/// The requests of one channel, near or far, and who is asked before one is repeated.
#[derive(Debug)]
pub(super) struct Requests {
    left: u32,
    check: Option<Arc<dyn ProducerCheck>>,
}

impl Requests {
    /// At most so many; 0 counts as 1.
    pub(super) fn new(most: u32, check: Option<Arc<dyn ProducerCheck>>) -> Self {
        Self {
            left: most.saturating_sub(1),
            check,
        }
    }

    /// Whether to request once more after this answer.
    pub(super) async fn again(
        &mut self,
        request: SubpartitionRequest,
        answer: &ExchangeError,
    ) -> bool {
        let Some(check) = &self.check else {
            return false;
        };
        if self.left == 0 || !matches!(answer, ExchangeError::PartitionNotFound { .. }) {
            return false;
        }
        self.left -= 1;
        check.on_partition_not_found(request).await == Verdict::RequestAgain
    }
}

/// Requests for one subpartition where each of them waits so long for its partition. One that waits for nothing would be
/// repeated as soon as it was answered, and find nothing new.
pub(super) fn most_requests(partition_request_timeout: Duration) -> u32 {
    if partition_request_timeout.is_zero() {
        1
    } else {
        2
    }
}
