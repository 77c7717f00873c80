//! A channel whose partition is produced in the same node: read through its view, without network, credit or copy.

use std::sync::{Arc, Weak};

use super::{
    error::ExchangeError,
    gate_core::{GateCore, wake},
    producer_check::{ProducerCheck, Verdict},
    view::{
        AvailabilityListener, Item, ResultPartitionProvider, SubpartitionRequest, SubpartitionView,
    },
};

/// What opens a local channel.
pub(super) struct LocalChannel {
    pub(super) core: Arc<GateCore>,
    pub(super) index: usize,
    pub(super) partitions: Arc<dyn ResultPartitionProvider>,
    pub(super) check: Option<Arc<dyn ProducerCheck>>,
    pub(super) request: SubpartitionRequest,
}

impl LocalChannel {
    /// Opens the view, waiting for its partition as a remote request would at the producer.
    pub(super) async fn open(self) {
        let cancel = self.core.cancel.clone();
        if let Some(Err(error)) = cancel.run_until_cancelled(self.find()).await {
            self.core.fail(error);
        }
    }

    async fn find(&self) -> Result<(), ExchangeError> {
        let mut requests = 1;
        loop {
            let listener = Arc::new(GateListener {
                core: Arc::downgrade(&self.core),
                index: self.index,
            });
            let error = match self
                .partitions
                .create_subpartition_view(self.request, listener)
                .await
            {
                Ok(view) => {
                    self.core.attach_view(self.index, view);
                    return Ok(());
                }
                Err(error) => error,
            };
            if requests < MAX_REQUESTS
                && matches!(error, ExchangeError::PartitionNotFound { .. })
                && let Some(check) = &self.check
                && check.on_partition_not_found(self.request).await == Verdict::RequestAgain
            {
                requests += 1;
                continue;
            }
            return Err(error);
        }
    }
}

impl GateCore {
    /// Takes back a view that the consumer has used outside the lock, with what it gave.
    pub(super) fn return_view(
        &self,
        index: usize,
        view: Box<dyn SubpartitionView>,
        taken: Result<(), ExchangeError>,
        items: &mut Vec<Item>,
    ) {
        let mut state = self.lock();
        if state.closed {
            drop(state);
            items.clear();
            return;
        }
        let channel = &mut state.channels[index];
        channel.view = Some(view);
        channel.extend(items.drain(..));
        if !channel.queue.is_empty() {
            state.set_ready(index);
        }
        drop(state);
        if let Err(error) = taken {
            self.fail(error);
        }
    }

    /// A local channel's view is open.
    pub(super) fn attach_view(&self, index: usize, view: Box<dyn SubpartitionView>) {
        let mut state = self.lock();
        if state.closed {
            drop(state);
            return;
        }
        state.channels[index].view = Some(view);
        state.set_ready(index);
        let waker = state.waker.take();
        drop(state);
        wake(waker);
    }
}

#[derive(Debug)]
struct GateListener {
    core: Weak<GateCore>,
    index: usize,
}

impl AvailabilityListener for GateListener {
    fn on_available(&self) {
        if let Some(core) = self.core.upgrade() {
            core.on_available(self.index);
        }
    }
}

/// Requests for one subpartition, as for a remote one.
const MAX_REQUESTS: u32 = 2;
