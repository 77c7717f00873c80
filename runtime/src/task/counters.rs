//! Live counters of a task.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

use thalweg_transport::exchange::{GateHandle, ResultPartition};

use crate::job::TaskMetrics;

/// What a task has done so far, readable from any thread while it runs. Clones share it.
///
/// Every number has one writer, so that counting is a plain store; who reads puts them together.
#[derive(Debug, Clone, Default)]
pub(crate) struct TaskCounters(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Parts per 10,000, or [`UNKNOWN`].
    progress: AtomicU32,
    sources: Mutex<Sources>,
}

#[derive(Debug, Default)]
struct Sources {
    records_in: Vec<Arc<AtomicU64>>,
    gates: Vec<GateHandle>,
    partitions: Vec<Arc<ResultPartition>>,
    streams: u64,
    /// The last values, once there is nothing left to read.
    last: Option<TaskMetrics>,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            progress: AtomicU32::new(UNKNOWN),
            sources: Mutex::default(),
        }
    }
}

impl TaskCounters {
    /// Counts what comes through a gate that opens so many streams; the answer is where its records are counted.
    pub(crate) fn add_gate(&self, gate: GateHandle, streams: u64) -> Arc<AtomicU64> {
        let records = Arc::new(AtomicU64::new(0));
        let mut sources = self.lock();
        sources.records_in.push(Arc::clone(&records));
        sources.gates.push(gate);
        sources.streams += streams;
        records
    }

    /// Counts what goes into a partition.
    pub(crate) fn add_partition(&self, partition: Arc<ResultPartition>) {
        self.lock().partitions.push(partition);
    }

    pub(crate) fn set_progress(&self, parts: u32) {
        self.0
            .progress
            .store(parts.min(COMPLETE), Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> TaskMetrics {
        let sources = self.lock();
        let mut metrics = sources.last.unwrap_or_else(|| sources.read());
        let progress = self.0.progress.load(Ordering::Relaxed);
        metrics.progress = (progress != UNKNOWN).then_some(progress);
        metrics
    }

    /// Keeps the last values and lets go of gates and partitions.
    pub(crate) fn freeze(&self) {
        let mut sources = self.lock();
        let last = sources.last.unwrap_or_else(|| sources.read());
        let old = std::mem::replace(
            &mut *sources,
            Sources {
                last: Some(last),
                ..Sources::default()
            },
        );
        drop(sources);
        // Their memory may go back to pools now, which takes other locks.
        drop(old);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Sources> {
        self.0
            .sources
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sources {
    fn read(&self) -> TaskMetrics {
        let mut metrics = TaskMetrics {
            streams: self.streams,
            ..TaskMetrics::default()
        };
        for records in &self.records_in {
            metrics.records_in += records.load(Ordering::Relaxed);
        }
        for gate in &self.gates {
            let stats = gate.stats();
            metrics.bytes_remote += stats.bytes_remote;
            metrics.bytes_local += stats.bytes_local;
        }
        for partition in &self.partitions {
            metrics.records_out += partition.stats().records;
        }
        metrics
    }
}

/// Progress of a task that is done.
const COMPLETE: u32 = 10_000;

/// A task that has not said how far it is.
const UNKNOWN: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_unknown_until_it_is_told_and_at_most_complete() {
        let counters = TaskCounters::default();
        assert_eq!(counters.snapshot().progress, None);
        counters.set_progress(5_000);
        assert_eq!(counters.snapshot().progress, Some(5_000));
        counters.set_progress(1_000_000);
        assert_eq!(counters.snapshot().progress, Some(10_000));
        counters.freeze();
        assert_eq!(counters.snapshot().progress, Some(10_000));
    }
}
