//! The output of one task: a pipelined, bounded partition, one subpartition for each consumer.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use bytes::Bytes;

use super::{
    acknowledgement::Acknowledgement,
    error::ExchangeError,
    local_pool::LocalPool,
    manager::ReleaseHook,
    pool::BufferPool,
    subpartition::Subpartition,
    view::{AvailabilityListener, Item, SubpartitionView},
    writer::PartitionWriter,
};
use crate::proto::{ExecutionAttemptId, PartitionId, SubpartitionIndex};

/// A partition that a [`ResultPartitionManager`](super::ResultPartitionManager) can hold.
pub trait PartitionSource: std::fmt::Debug + Send + Sync + 'static {
    /// Its name.
    fn id(&self) -> PartitionId;

    /// The attempt that produces it.
    fn producer(&self) -> ExecutionAttemptId;

    /// Opens a subpartition for reading.
    ///
    /// # Errors
    /// [`ExchangeError::Subpartition`] if it does not exist or may not be read (again).
    fn create_view(
        self: Arc<Self>,
        index: SubpartitionIndex,
        listener: Arc<dyn AvailabilityListener>,
    ) -> Result<Box<dyn SubpartitionView>, ExchangeError>;

    /// Frees what it holds; readers hear the error.
    fn release(&self, error: ExchangeError);

    /// It was registered; a partition that knows when nobody needs it any more uses the hook then.
    fn on_registered(&self, _hook: ReleaseHook) {}
}

/// A pipelined, bounded result partition: consumed while it is produced, each subpartition once.
///
/// Its queues hold no more than the buffers of its local pool; a producer that is faster than its consumers waits. The
/// pool is one for all subpartitions, so that a fast consumer may use all of it, and so may one that stalls: then the
/// writer waits for that one. A share per subpartition would not help, as the one writer would wait at the next record
/// for the stalled consumer anyway.
///
/// It is released when the producer has finished or failed and every subpartition was consumed or given up.
#[derive(Debug)]
pub struct ResultPartition {
    id: PartitionId,
    producer: ExecutionAttemptId,
    subpartitions: Box<[Subpartition]>,
    pool: LocalPool,
    /// The subpartitions that are not released, and the writer.
    users: AtomicUsize,
    writer_taken: AtomicBool,
    release: OnceLock<ReleaseHook>,
    acknowledgement: Acknowledgement,
    pub(super) counters: PartitionCounters,
}

impl ResultPartition {
    /// A partition with buffers of its own: a guaranteed one per subpartition and one more, at most two per
    /// subpartition and [`EXTRA_BUFFERS`] more.
    ///
    /// # Errors
    /// [`ExchangeError::Buffers`] if the node cannot guarantee them, [`ExchangeError::InvalidState`] for no subpartition.
    pub fn pipelined(
        id: PartitionId,
        producer: ExecutionAttemptId,
        subpartitions: usize,
        pool: &BufferPool,
    ) -> Result<Arc<Self>, ExchangeError> {
        let local = pool.local(subpartitions + 1, subpartitions * 2 + EXTRA_BUFFERS)?;
        Self::with_pool(id, producer, subpartitions, local)
    }

    /// A partition that uses this local pool alone.
    ///
    /// # Errors
    /// [`ExchangeError::InvalidState`] for no subpartition, more than 2^32, or a pool that may be empty.
    pub fn with_pool(
        id: PartitionId,
        producer: ExecutionAttemptId,
        subpartitions: usize,
        pool: LocalPool,
    ) -> Result<Arc<Self>, ExchangeError> {
        let invalid = |reason| {
            Err(ExchangeError::InvalidState {
                what: format!("partition {id}"),
                reason,
            })
        };
        if subpartitions == 0 || u32::try_from(subpartitions).is_err() {
            return invalid("it needs 1 to 2^32 - 1 subpartitions");
        }
        if pool.max() == 0 {
            return invalid("its pool may hold no buffer");
        }
        Ok(Arc::new(Self {
            id,
            producer,
            subpartitions: (0..subpartitions)
                .map(|_| Subpartition::default())
                .collect(),
            pool,
            users: AtomicUsize::new(subpartitions + 1),
            writer_taken: AtomicBool::new(false),
            release: OnceLock::new(),
            acknowledgement: Acknowledgement::new(subpartitions),
            counters: PartitionCounters::default(),
        }))
    }

    /// The one writer.
    ///
    /// # Errors
    /// [`ExchangeError::InvalidState`] the second time.
    pub fn writer(self: &Arc<Self>) -> Result<PartitionWriter, ExchangeError> {
        if self.writer_taken.swap(true, Ordering::AcqRel) {
            return Err(ExchangeError::InvalidState {
                what: format!("partition {}", self.id),
                reason: "its writer was taken already",
            });
        }
        Ok(PartitionWriter::new(self.clone()))
    }

    /// Ends it with an error: queued data is dropped, and consumers hear [`ExchangeError::ProducerFailed`], those too
    /// that request it later. A writer that waits for a buffer hears that the pool is closed.
    pub fn fail(&self, cause: &str) {
        PartitionSource::release(
            self,
            ExchangeError::ProducerFailed {
                partition: self.id,
                cause: cause.to_owned(),
            },
        );
        if let Some(hook) = self.release.get() {
            hook.fail(cause);
        }
    }

    /// Waits until the consumers have processed all records: each has acknowledged its subpartition, or has released it
    /// (to its end or not), so that nothing of it will be processed any more.
    ///
    /// A producer that has sent [`Event::EndOfData`](super::Event::EndOfData) and must know that nothing of it is under
    /// way any more, for a last checkpoint say, waits here before it finishes.
    ///
    /// # Errors
    /// Why the partition failed or was released before.
    ///
    /// # Cancel safety
    /// Cancel-safe; several may wait.
    pub async fn all_records_acknowledged(&self) -> Result<(), ExchangeError> {
        self.acknowledgement.wait().await
    }

    /// How many subpartitions there are.
    #[must_use]
    pub fn subpartition_count(&self) -> usize {
        self.subpartitions.len()
    }

    /// The data buffers that wait in a subpartition, in order: what is in flight there. They are shared, not copied, and
    /// belong to the partition's pool until they are dropped. Empty for a subpartition that does not exist.
    #[must_use]
    pub fn inflight(&self, subpartition: usize) -> Vec<Bytes> {
        self.subpartition(subpartition)
            .map(Subpartition::buffers)
            .unwrap_or_default()
    }

    /// Whether every consumer is done or gone, so that writing is of no use.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.subpartitions.iter().all(Subpartition::is_released)
    }

    /// Counters so far.
    #[must_use]
    pub fn stats(&self) -> PartitionStats {
        PartitionStats {
            buffers: self.counters.buffers.load(Ordering::Relaxed),
            bytes: self.counters.bytes.load(Ordering::Relaxed),
            records: self.counters.records.load(Ordering::Relaxed),
            backlog: self
                .subpartitions
                .iter()
                .map(|s| u64::from(s.backlog()))
                .sum(),
            pool_used: self.pool.used(),
        }
    }

    pub(super) fn pool(&self) -> &LocalPool {
        &self.pool
    }

    pub(super) fn subpartition(&self, index: usize) -> Option<&Subpartition> {
        self.subpartitions.get(index)
    }

    pub(super) fn subpartitions(&self) -> &[Subpartition] {
        &self.subpartitions
    }

    /// A reader or the writer is gone.
    pub(super) fn on_user_gone(&self) {
        if self.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.pool.close();
            if let Some(release) = self.release.get() {
                release.release();
            }
        }
    }
}

impl PartitionSource for ResultPartition {
    fn id(&self) -> PartitionId {
        self.id
    }

    fn producer(&self) -> ExecutionAttemptId {
        self.producer
    }

    fn create_view(
        self: Arc<Self>,
        index: SubpartitionIndex,
        listener: Arc<dyn AvailabilityListener>,
    ) -> Result<Box<dyn SubpartitionView>, ExchangeError> {
        let refused = |reason| ExchangeError::Subpartition {
            partition: self.id,
            subpartition: index.0,
            reason,
        };
        let at = index.0 as usize;
        let subpartition = self
            .subpartitions
            .get(at)
            .ok_or_else(|| refused("there is no such subpartition"))?;
        subpartition.claim(listener).map_err(refused)?;
        Ok(Box::new(PipelinedView {
            partition: self.clone(),
            index: at,
        }))
    }

    fn release(&self, error: ExchangeError) {
        // Before the readers: what they release then is no acknowledgement.
        self.acknowledgement.fail(&error);
        for subpartition in &self.subpartitions {
            subpartition.fail(&error);
        }
        self.pool.close();
    }

    fn on_registered(&self, hook: ReleaseHook) {
        // A second registration is refused before this is called.
        let _ = self.release.set(hook);
    }
}

/// Counters of a [`ResultPartition`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PartitionStats {
    /// Buffers finished; a broadcast one counts once.
    pub buffers: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Records written; a broadcast one counts once.
    pub records: u64,
    /// Data buffers that wait in all subpartitions.
    pub backlog: u64,
    /// Buffers of its pool in use: open, queued, or in flight.
    pub pool_used: usize,
}

#[derive(Debug, Default)]
pub(super) struct PartitionCounters {
    pub(super) buffers: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) records: AtomicU64,
}

#[derive(Debug)]
struct PipelinedView {
    partition: Arc<ResultPartition>,
    index: usize,
}

impl SubpartitionView for PipelinedView {
    fn take(&mut self, credit: u32, max: usize, out: &mut Vec<Item>) -> Result<(), ExchangeError> {
        self.partition.subpartitions[self.index].take(credit, max, out)
    }

    fn backlog(&self) -> u32 {
        self.partition.subpartitions[self.index].backlog()
    }

    fn take_priority(&mut self, out: &mut Vec<Item>) -> Result<(), ExchangeError> {
        self.partition.subpartitions[self.index].take_priority(out)
    }

    fn acknowledge_all_records(&mut self) {
        if self.partition.subpartitions[self.index].acknowledge() {
            self.partition.acknowledgement.on_subpartition();
        }
    }

    fn announce_buffer_size(&mut self, bytes: u32) {
        self.partition.subpartitions[self.index].announce_buffer_size(bytes);
    }
}

impl Drop for PipelinedView {
    fn drop(&mut self) {
        self.partition.subpartitions[self.index].release();
        self.acknowledge_all_records();
        self.partition.on_user_gone();
    }
}

/// Buffers that a partition may use beyond two per subpartition: as many as a gate's floating ones, so that a lone fast
/// channel is not starved by the producer's side.
pub const EXTRA_BUFFERS: usize = 64;
