//! Counters of a gate.

use std::sync::atomic::{AtomicU64, Ordering};

use super::event::BufferOrEvent;

/// Counters of an [`InputGate`](super::InputGate).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct GateStats {
    /// Buffers that the consumer took from local channels.
    pub buffers_local: u64,
    /// Buffers that the consumer took from remote channels.
    pub buffers_remote: u64,
    /// Bytes in the local ones.
    pub bytes_local: u64,
    /// Bytes in the remote ones.
    pub bytes_remote: u64,
    /// Events that the consumer took.
    pub events: u64,
    /// Credit messages sent.
    pub credit_messages: u64,
    /// Credit in them.
    pub credit_sent: u64,
    /// Buffers received and not taken.
    pub queued: usize,
    /// Buffers of its pool in use: free ones promised as credit, queued, or held by the consumer.
    pub pool_used: usize,
    /// Channels that have not ended.
    pub open_channels: usize,
}

#[derive(Debug, Default)]
pub(super) struct GateCounters {
    buffers_local: AtomicU64,
    buffers_remote: AtomicU64,
    bytes_local: AtomicU64,
    bytes_remote: AtomicU64,
    events: AtomicU64,
    credit_messages: AtomicU64,
    credit_sent: AtomicU64,
}

impl GateCounters {
    pub(super) fn on_consumed(&self, item: &BufferOrEvent, local: bool) {
        let BufferOrEvent::Buffer(payload) = item else {
            self.events.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let (buffers, sum) = match local {
            true => (&self.buffers_local, &self.bytes_local),
            false => (&self.buffers_remote, &self.bytes_remote),
        };
        buffers.fetch_add(1, Ordering::Relaxed);
        sum.fetch_add(payload.len() as u64, Ordering::Relaxed);
    }

    pub(super) fn on_credit_sent(&self, credit: u32) {
        self.credit_messages.fetch_add(1, Ordering::Relaxed);
        self.credit_sent
            .fetch_add(u64::from(credit), Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> GateStats {
        GateStats {
            buffers_local: self.buffers_local.load(Ordering::Relaxed),
            buffers_remote: self.buffers_remote.load(Ordering::Relaxed),
            bytes_local: self.bytes_local.load(Ordering::Relaxed),
            bytes_remote: self.bytes_remote.load(Ordering::Relaxed),
            events: self.events.load(Ordering::Relaxed),
            credit_messages: self.credit_messages.load(Ordering::Relaxed),
            credit_sent: self.credit_sent.load(Ordering::Relaxed),
            ..GateStats::default()
        }
    }
}
