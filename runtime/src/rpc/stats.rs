//! Counters of a service.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of an [`RpcService`](super::RpcService) since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RpcStats {
    /// Calls of peers that were taken.
    pub calls_served: u64,
    /// Calls of peers that were refused because a bound per peer was reached.
    pub overloaded: u64,
    /// Calls and messages of peers that were refused because they came more often than their method allows.
    pub rate_limited: u64,
    /// Answers that came after their call was settled, and were ignored.
    pub late_answers: u64,
    /// Messages without answer that were refused: unknown, not allowed, not decodable, or no room.
    pub dropped_tells: u64,
    /// Times that a client moved to a new connection because its own was drained.
    pub gateways_moved: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) calls_served: Counter,
    pub(super) overloaded: Counter,
    pub(super) rate_limited: Counter,
    pub(super) late_answers: Counter,
    pub(super) dropped_tells: Counter,
    pub(super) gateways_moved: Counter,
}

#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(super) fn snapshot(&self) -> RpcStats {
        RpcStats {
            calls_served: self.calls_served.value(),
            overloaded: self.overloaded.value(),
            rate_limited: self.rate_limited.value(),
            late_answers: self.late_answers.value(),
            dropped_tells: self.dropped_tells.value(),
            gateways_moved: self.gateways_moved.value(),
        }
    }
}
