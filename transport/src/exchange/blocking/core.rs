//! The state of a blocking partition: being written, finished, or ended.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::sync::Notify;

use super::{
    context::BlockingContext,
    file::SpillFile,
    read_pool::ReadPool,
    reader::BlockReader,
    region::{Layout, RegionWriter},
    view::{BlockingView, ViewCore},
    writer::BlockingWriter,
};
use crate::{
    exchange::{
        error::ExchangeError,
        io_manager::IoManager,
        local_pool::LocalPool,
        manager::ReleaseHook,
        spill_error::SpillError,
        view::{AvailabilityListener, SubpartitionView},
    },
    proto::PartitionId,
};

/// What the writer, the readers and the owner of a blocking partition share.
///
/// ```text
///   Writing ──finish──► Finished ──release──► Ended
///      └────────fail, release───────────────────┘
/// ```
#[derive(Debug)]
pub(in crate::exchange) struct BlockingCore {
    id: PartitionId,
    subpartitions: usize,
    context: BlockingContext,
    pub(super) reads: Arc<ReadPool>,
    /// Of the writer.
    pool: LocalPool,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    hook: Option<ReleaseHook>,
    /// Why the disk failed, for the writer.
    spill: Option<SpillError>,
    views: BTreeMap<u64, Weak<ViewCore>>,
    next_view: u64,
}

#[derive(Debug)]
enum Stage {
    Writing,
    Finished(Arc<Layout>),
    Ended(ExchangeError),
}

impl BlockingCore {
    pub(in crate::exchange) fn new(
        id: PartitionId,
        subpartitions: usize,
        context: BlockingContext,
        pool: LocalPool,
    ) -> Result<Self, ExchangeError> {
        Ok(Self {
            id,
            subpartitions,
            reads: context.reads()?,
            context,
            pool,
            state: Mutex::new(State {
                stage: Stage::Writing,
                hook: None,
                spill: None,
                views: BTreeMap::new(),
                next_view: 0,
            }),
            changed: Notify::new(),
        })
    }

    pub(in crate::exchange) fn subpartitions(&self) -> usize {
        self.subpartitions
    }

    pub(in crate::exchange) fn writer(self: &Arc<Self>) -> BlockingWriter {
        let regions = RegionWriter::new(
            Arc::new(SpillFile::new(self.io().clone())),
            self.subpartitions,
            self.pool.buffer_bytes(),
            self.context.compression(),
        );
        BlockingWriter::new(self.clone(), self.pool.clone(), regions)
    }

    pub(in crate::exchange) fn is_finished(&self) -> bool {
        matches!(self.lock().stage, Stage::Finished(_))
    }

    pub(in crate::exchange) fn is_ended(&self) -> bool {
        matches!(self.lock().stage, Stage::Ended(_))
    }

    /// Open readers.
    pub(in crate::exchange) fn readers(&self) -> usize {
        self.lock().views.len()
    }

    pub(in crate::exchange) fn on_registered(&self, hook: ReleaseHook) {
        let mut state = self.lock();
        state.hook = Some(hook.clone());
        // One that failed meanwhile tells its consumers why.
        let settled = !matches!(state.stage, Stage::Writing);
        drop(state);
        if settled {
            hook.consumable();
        }
    }

    /// Everything is on disk.
    pub(super) fn finish(&self, layout: Layout) {
        let mut state = self.lock();
        if !matches!(state.stage, Stage::Writing) {
            drop(state);
            drop(layout);
            return;
        }
        state.stage = Stage::Finished(Arc::new(layout));
        let hook = state.hook.clone();
        drop(state);
        self.pool.close();
        self.changed.notify_waiters();
        if let Some(hook) = hook {
            hook.consumable();
        }
    }

    /// The writer could not write.
    pub(super) fn fail(&self, error: &SpillError) {
        let cause = error.to_string();
        let hook = {
            let mut state = self.lock();
            if matches!(state.stage, Stage::Ended(_)) {
                return;
            }
            state.spill = Some(error.clone());
            state.hook.clone()
        };
        tracing::warn!(partition = %self.id, %error, "a blocking partition cannot be written");
        self.end(&ExchangeError::ProducerFailed {
            partition: self.id,
            cause: cause.clone(),
        });
        if let Some(hook) = hook {
            hook.fail(&cause);
        }
    }

    /// Something is lent to a task that the partition waits for.
    pub(super) fn lend(self: &Arc<Self>) -> Lent {
        Lent(Some(self.clone()))
    }

    /// Ends it: readers hear the error, the file goes with the last of them. The first error stays.
    pub(in crate::exchange) fn end(&self, error: &ExchangeError) {
        let mut state = self.lock();
        if matches!(state.stage, Stage::Ended(_)) {
            return;
        }
        let stage = std::mem::replace(&mut state.stage, Stage::Ended(error.clone()));
        let views = std::mem::take(&mut state.views);
        drop(state);
        drop(stage);
        self.pool.close();
        self.changed.notify_waiters();
        for view in views.into_values().filter_map(|view| view.upgrade()) {
            view.fail(error);
        }
    }

    /// What stops the writer.
    pub(in crate::exchange) fn check(&self) -> Result<(), ExchangeError> {
        let state = self.lock();
        match (&state.spill, &state.stage) {
            (Some(error), _) => Err(error.clone().into()),
            (None, Stage::Ended(error)) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Waits until everything is on disk.
    pub(in crate::exchange) async fn finished(&self) -> Result<(), ExchangeError> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the state is looked at, so that no change is missed.
            changed.as_mut().enable();
            self.check()?;
            if self.is_finished() {
                return Ok(());
            }
            changed.await;
        }
    }

    pub(in crate::exchange) fn create_view(
        self: &Arc<Self>,
        subpartition: u32,
        listener: Arc<dyn AvailabilityListener>,
    ) -> Result<Box<dyn SubpartitionView>, ExchangeError> {
        let refused = |reason| ExchangeError::Subpartition {
            partition: self.id,
            subpartition,
            reason,
        };
        if subpartition as usize >= self.subpartitions {
            return Err(refused("there is no such subpartition"));
        }
        let mut state = self.lock();
        let layout = match &state.stage {
            Stage::Writing => return Err(refused("it is not finished")),
            Stage::Ended(error) => return Err(error.clone()),
            Stage::Finished(layout) => layout.clone(),
        };
        let id = state.next_view;
        state.next_view += 1;
        let total = layout.totals[subpartition as usize];
        let reader = BlockReader {
            layout,
            subpartition,
            buffer_bytes: self.context.pool().buffer_bytes(),
            keep_compressed: false,
            open: None,
        };
        let view = Arc::new(ViewCore::new(self.clone(), id, listener, reader, total));
        state.views.insert(id, Arc::downgrade(&view));
        drop(state);
        Ok(Box::new(BlockingView(view)))
    }

    pub(super) fn forget_view(&self, id: u64) {
        self.lock().views.remove(&id);
    }

    pub(super) fn io(&self) -> &IoManager {
        self.context.io()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Held by a task that the partition waits for: fails the partition if the task goes away undone, because it panicked, or
/// because its runtime has ended.
#[derive(Debug)]
pub(super) struct Lent(Option<Arc<BlockingCore>>);

impl Lent {
    pub(super) fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(core) = self.0.take() {
            core.fail(&SpillError::Closed);
        }
    }
}
