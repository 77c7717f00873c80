//! What steers and watches a task.

use super::{cancellation::Cancellation, counters::TaskCounters, pace::Pace};

/// The order to stop, the counters and the pace of one task, for all parts of it. Clones share the first two.
#[derive(Debug, Clone)]
pub(crate) struct Controls {
    pub(crate) cancellation: Cancellation,
    pub(crate) counters: TaskCounters,
    /// With which each input and output begins.
    pub(crate) pace: Pace,
}

impl Controls {
    pub(crate) fn new(pace: Pace) -> Self {
        Self {
            cancellation: Cancellation::default(),
            counters: TaskCounters::default(),
            pace,
        }
    }
}
