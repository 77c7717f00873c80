//! The output of one task, one subpartition for each consumer.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use bytes::Bytes;

use super::{
    acknowledgement::Acknowledgement,
    blocking::{BlockingContext, BlockingCore},
    error::ExchangeError,
    kind::{Consumption, PartitionKind, ReleasedBy},
    local_pool::LocalPool,
    manager::ReleaseHook,
    pipelined_view::PipelinedView,
    pool::BufferPool,
    subpartition::Subpartition,
    view::{AvailabilityListener, SubpartitionView},
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

    /// Whether views can be made. While they cannot, requests wait; a partition that changes its mind after its
    /// registration says so with [`ReleaseHook::consumable`].
    fn is_consumable(&self) -> bool {
        true
    }

    /// Frees what it holds; readers hear the error. Must not block.
    fn release(&self, error: ExchangeError);

    /// It was registered; a partition that knows when nobody needs it any more uses the hook then.
    fn on_registered(&self, _hook: ReleaseHook) {}
}

/// A result partition of one of the kinds of [`PartitionKind`].
///
/// The queues of a pipelined one hold no more than the buffers of its local pool; a producer that is faster than its
/// consumers waits. The pool is one for all subpartitions, so that a fast consumer may use all of it, and so may one that
/// stalls: then the writer waits for that one. A share per subpartition would not help, as the one writer would wait at
/// the next record for the stalled consumer anyway. It is released when the producer has finished or failed and every
/// subpartition was consumed or given up.
///
/// A blocking one is on disk. It is consumed when it is [`finished`](Self::finished), as often as somebody wants, and
/// released by its owner, never by consumption.
///
/// ```
/// use std::time::Duration;
///
/// use thalweg_transport::{
///     TransportConfig,
///     exchange::{BufferPool, ExchangeError, ResultPartition, ResultPartitionManager},
///     proto::{ExecutionAttemptId, PartitionId},
/// };
///
/// let pool = BufferPool::new(&TransportConfig::default());
/// let partitions = ResultPartitionManager::new(Duration::from_secs(10));
/// let (id, attempt) = (PartitionId::new(1, 0), ExecutionAttemptId(1));
/// let partition = ResultPartition::pipelined_bounded(id, attempt, 2, &pool)?;
/// partitions.register(partition.clone())?;
/// let mut writer = partition.writer()?;
/// assert!(writer.try_emit(1, b"record")?);
/// writer.finish()?;
/// assert_eq!(partition.stats().records, 1);
/// assert_eq!(partition.inflight(1), [&b"\0\0\0\x06record"[..]]);
/// partitions.release_partition(id, attempt);
/// assert_eq!((partitions.registered(), pool.stats().used), (0, 0));
/// # Ok::<(), ExchangeError>(())
/// ```
#[derive(Debug)]
pub struct ResultPartition {
    id: PartitionId,
    producer: ExecutionAttemptId,
    kind: PartitionKind,
    body: Body,
    pool: LocalPool,
    /// Of a pipelined one: the subpartitions that are not released, and the writer.
    users: AtomicUsize,
    writer_taken: AtomicBool,
    release: OnceLock<ReleaseHook>,
    pub(super) acknowledgement: Acknowledgement,
    pub(super) counters: PartitionCounters,
}

impl ResultPartition {
    /// A pipelined partition with a guaranteed buffer per subpartition and one more, which may use whatever the node has
    /// free.
    ///
    /// # Errors
    /// [`ExchangeError::Buffers`] if the node cannot guarantee them, [`ExchangeError::InvalidState`] for no subpartition.
    pub fn pipelined(
        id: PartitionId,
        producer: ExecutionAttemptId,
        subpartitions: usize,
        pool: &BufferPool,
    ) -> Result<Arc<Self>, ExchangeError> {
        Self::in_memory(PartitionKind::Pipelined, id, producer, subpartitions, pool)
    }

    /// A pipelined partition with the same guarantee, which may use eight buffers per subpartition and
    /// [`EXTRA_BUFFERS`](super::EXTRA_BUFFERS) more.
    ///
    /// # Errors
    /// As [`pipelined`](Self::pipelined).
    pub fn pipelined_bounded(
        id: PartitionId,
        producer: ExecutionAttemptId,
        subpartitions: usize,
        pool: &BufferPool,
    ) -> Result<Arc<Self>, ExchangeError> {
        let kind = PartitionKind::PipelinedBounded;
        Self::in_memory(kind, id, producer, subpartitions, pool)
    }

    /// A blocking partition; the buffers that its writer needs do not depend on the number of subpartitions.
    ///
    /// # Errors
    /// [`ExchangeError::Buffers`] if the node cannot guarantee them, [`ExchangeError::InvalidState`] for no subpartition.
    pub fn blocking(
        id: PartitionId,
        producer: ExecutionAttemptId,
        subpartitions: usize,
        context: &BlockingContext,
    ) -> Result<Arc<Self>, ExchangeError> {
        let size = PartitionKind::Blocking.pool_size(subpartitions);
        let pool = context.pool().local(size.min, size.max)?;
        Self::blocking_with_pool(id, producer, subpartitions, context, pool)
    }

    /// A blocking partition whose writer uses this local pool alone.
    ///
    /// # Errors
    /// As [`with_pool`](Self::with_pool), [`ExchangeError::Buffers`] if the node cannot guarantee the buffers of its
    /// readers, and [`ExchangeError::TooLarge`] if the pool is of another node and has longer buffers than those: nobody
    /// could read what is written with it.
    pub fn blocking_with_pool(
        id: PartitionId,
        producer: ExecutionAttemptId,
        subpartitions: usize,
        context: &BlockingContext,
        pool: LocalPool,
    ) -> Result<Arc<Self>, ExchangeError> {
        let (bytes, limit) = (pool.buffer_bytes(), context.pool().buffer_bytes());
        if bytes > limit {
            return Err(ExchangeError::TooLarge {
                what: "buffer of the writer's pool",
                bytes: bytes as u64,
                limit: limit as u64,
            });
        }
        let core = BlockingCore::new(id, subpartitions, context.clone(), pool.clone())?;
        let body = Body::Blocking(Arc::new(core));
        let kind = PartitionKind::Blocking;
        Self::new(kind, id, producer, subpartitions, body, pool)
    }

    /// A pipelined partition that uses this local pool alone.
    ///
    /// # Errors
    /// [`ExchangeError::InvalidState`] for no subpartition, more than 2^32, or a pool that may be empty.
    pub fn with_pool(
        id: PartitionId,
        producer: ExecutionAttemptId,
        subpartitions: usize,
        pool: LocalPool,
    ) -> Result<Arc<Self>, ExchangeError> {
        let kind = PartitionKind::PipelinedBounded;
        let body = Body::pipelined(subpartitions);
        Self::new(kind, id, producer, subpartitions, body, pool)
    }

    fn in_memory(
        kind: PartitionKind,
        id: PartitionId,
        producer: ExecutionAttemptId,
        subpartitions: usize,
        pool: &BufferPool,
    ) -> Result<Arc<Self>, ExchangeError> {
        let size = kind.pool_size(subpartitions);
        let local = pool.local(size.min, size.max)?;
        let body = Body::pipelined(subpartitions);
        Self::new(kind, id, producer, subpartitions, body, local)
    }

    fn new(
        kind: PartitionKind,
        id: PartitionId,
        producer: ExecutionAttemptId,
        subpartitions: usize,
        body: Body,
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
            kind,
            body,
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
        if self.kind.consumption() == Consumption::AfterFinish {
            return Err(ExchangeError::InvalidState {
                what: format!("partition {}", self.id),
                reason: "its consumers come when it is finished",
            });
        }
        self.acknowledgement.wait().await
    }

    /// Waits until what the writer has [`finish`](PartitionWriter::finish)ed is where consumers find it: at once for a
    /// pipelined partition; for a blocking one when all of it is on disk. A task whose output is blocking is done then,
    /// and not before.
    ///
    /// # Errors
    /// [`ExchangeError::Spill`] if the disk failed, or its runtime has ended, and whatever the partition was ended with.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub async fn finished(&self) -> Result<(), ExchangeError> {
        match &self.body {
            Body::Pipelined(_) => Ok(()),
            Body::Blocking(core) => core.finished().await,
        }
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> PartitionKind {
        self.kind
    }

    /// How many subpartitions there are.
    #[must_use]
    pub fn subpartition_count(&self) -> usize {
        match &self.body {
            Body::Pipelined(subpartitions) => subpartitions.len(),
            Body::Blocking(core) => core.subpartitions(),
        }
    }

    /// The data buffers that wait in a subpartition, in order: what is in flight there. They are shared, not copied, and
    /// belong to the partition's pool until they are dropped. Empty for a subpartition that does not exist.
    #[must_use]
    pub fn inflight(&self, subpartition: usize) -> Vec<Bytes> {
        self.subpartition(subpartition)
            .map(Subpartition::buffers)
            .unwrap_or_default()
    }

    /// Whether writing is of no use: every consumer is done or gone, or the partition was ended.
    #[must_use]
    pub fn is_released(&self) -> bool {
        match &self.body {
            Body::Pipelined(subpartitions) => subpartitions.iter().all(Subpartition::is_released),
            Body::Blocking(core) => core.is_ended(),
        }
    }

    /// Counters so far.
    #[must_use]
    pub fn stats(&self) -> PartitionStats {
        PartitionStats {
            buffers: self.counters.buffers.load(Ordering::Relaxed),
            bytes: self.counters.bytes.load(Ordering::Relaxed),
            records: self.counters.records.load(Ordering::Relaxed),
            backlog: self
                .subpartitions()
                .iter()
                .map(|s| u64::from(s.backlog()))
                .sum(),
            readers: self.blocking_core().map_or(0, |core| core.readers()),
            pool_used: self.pool.used(),
        }
    }

    pub(super) fn pool(&self) -> &LocalPool {
        &self.pool
    }

    pub(super) fn subpartition(&self, index: usize) -> Option<&Subpartition> {
        self.subpartitions().get(index)
    }

    /// Those of a pipelined partition; a blocking one has none in memory.
    pub(super) fn subpartitions(&self) -> &[Subpartition] {
        match &self.body {
            Body::Pipelined(subpartitions) => subpartitions,
            Body::Blocking(_) => &[],
        }
    }

    pub(super) fn blocking_core(&self) -> Option<&Arc<BlockingCore>> {
        match &self.body {
            Body::Pipelined(_) => None,
            Body::Blocking(core) => Some(core),
        }
    }

    /// A reader or the writer is gone.
    pub(super) fn on_user_gone(&self) {
        if self.kind.released_by() == ReleasedBy::Owner {
            return;
        }
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
        if let Body::Blocking(core) = &self.body {
            return core.create_view(index.0, listener);
        }
        let refused = |reason| ExchangeError::Subpartition {
            partition: self.id,
            subpartition: index.0,
            reason,
        };
        let at = index.0 as usize;
        let subpartition = self
            .subpartition(at)
            .ok_or_else(|| refused("there is no such subpartition"))?;
        subpartition.claim(listener).map_err(refused)?;
        Ok(Box::new(PipelinedView::new(self.clone(), at)))
    }

    fn is_consumable(&self) -> bool {
        match &self.body {
            Body::Pipelined(_) => true,
            // One that has ended gives the reason instead of a view.
            Body::Blocking(core) => core.is_finished() || core.is_ended(),
        }
    }

    fn release(&self, error: ExchangeError) {
        // Before the readers: what they release then is no acknowledgement.
        self.acknowledgement.fail(&error);
        match &self.body {
            Body::Pipelined(subpartitions) => {
                for subpartition in subpartitions {
                    subpartition.fail(&error);
                }
            }
            Body::Blocking(core) => core.end(&error),
        }
        self.pool.close();
    }

    fn on_registered(&self, hook: ReleaseHook) {
        if let Body::Blocking(core) = &self.body {
            core.on_registered(hook.clone());
        }
        // A second registration is refused before this is called.
        let _ = self.release.set(hook);
    }
}

/// Where a partition has its data.
#[derive(Debug)]
enum Body {
    Pipelined(Box<[Subpartition]>),
    Blocking(Arc<BlockingCore>),
}

impl Body {
    fn pipelined(subpartitions: usize) -> Self {
        Self::Pipelined(
            (0..subpartitions)
                .map(|_| Subpartition::default())
                .collect(),
        )
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
    /// Data buffers that wait in all subpartitions; 0 for a blocking partition, where they wait on disk.
    pub backlog: u64,
    /// Open readers of a blocking partition; 0 for a pipelined one.
    pub readers: usize,
    /// Buffers of its pool in use: open, queued, or in flight.
    pub pool_used: usize,
}

#[derive(Debug, Default)]
pub(super) struct PartitionCounters {
    pub(super) buffers: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) records: AtomicU64,
}
