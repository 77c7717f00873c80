//! What the consuming end counts while it runs.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use hdrhistogram::Histogram;

/// Bytes of each channel, and how long calls took. Read by the command while others write.
#[derive(Debug)]
pub(crate) struct Counters {
    channels: Box<[AtomicU64]>,
    calls: Mutex<Histogram<u64>>,
}

impl Counters {
    pub(crate) fn new(channels: u32) -> Self {
        let calls = Histogram::new_with_bounds(1, SLOWEST_NANOS, DIGITS)
            .expect("the bounds are in order and the digits below 6");
        Self {
            channels: (0..channels).map(|_| AtomicU64::new(0)).collect(),
            calls: Mutex::new(calls),
        }
    }

    /// Counts payload of a channel. Once per buffer, by one thread.
    pub(crate) fn add(&self, channel: usize, bytes: usize) {
        if let Some(counter) = self.channels.get(channel) {
            // Nobody else writes: a load and a store cost less than a locked addition.
            counter.store(counter.load(Relaxed) + bytes as u64, Relaxed);
        }
    }

    /// Bytes of the first channels so far.
    pub(crate) fn bytes(&self, channels: usize) -> u64 {
        let counted = self.channels.iter().take(channels);
        counted.map(|counter| counter.load(Relaxed)).sum()
    }

    pub(crate) fn add_call(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.calls().saturating_record(nanos);
    }

    /// Begins to count calls anew.
    pub(crate) fn reset_calls(&self) {
        self.calls().reset();
    }

    /// How long calls took since the last reset, in nanoseconds.
    pub(crate) fn call_times(&self) -> Histogram<u64> {
        self.calls().clone()
    }

    fn calls(&self) -> MutexGuard<'_, Histogram<u64>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Longer calls count as this: a minute.
const SLOWEST_NANOS: u64 = 60_000_000_000;

/// Of each call time.
const DIGITS: u8 = 3;
