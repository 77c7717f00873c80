//! A channel whose partition is produced in the same node: read through its view, without network, credit or copy.

use std::sync::{Arc, Weak};

use super::{
    error::ExchangeError,
    gate_core::{GateCore, wake},
    requests::Requests,
    task_events::{TaskEvent, TaskEventDispatcher},
    view::{
        AvailabilityListener, Item, ResultPartitionProvider, SubpartitionRequest, SubpartitionView,
    },
};

use crate::proto::PartitionId;

/// What opens a local channel.
pub(super) struct LocalChannel {
    pub(super) core: Arc<GateCore>,
    pub(super) index: usize,
    pub(super) partitions: Arc<dyn ResultPartitionProvider>,
    pub(super) requests: Requests,
    pub(super) events: Arc<TaskEventDispatcher>,
    pub(super) request: SubpartitionRequest,
}

impl LocalChannel {
    /// Opens the view, waiting for its partition as a remote request would at the producer.
    pub(super) async fn open(mut self) {
        let cancel = self.core.cancel.clone();
        if let Some(Err(error)) = cancel.run_until_cancelled(self.find()).await {
            self.core.fail(error);
        }
    }

    async fn find(&mut self) -> Result<(), ExchangeError> {
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
                    self.core
                        .attach_view(self.index, view, |event| self.publish(&event));
                    return Ok(());
                }
                Err(error) => error,
            };
            if !self.requests.again(self.request, &error).await {
                return Err(error);
            }
        }
    }

    fn publish(&self, event: &TaskEvent) {
        let (partition, producer) = (self.request.partition, self.request.producer);
        if !self.events.publish(partition, producer, event) {
            self.core.fail(no_receiver(partition));
        }
    }
}

/// A task event for a partition that is not registered for any.
pub(super) fn no_receiver(partition: PartitionId) -> ExchangeError {
    ExchangeError::InvalidState {
        what: format!("partition {partition}"),
        reason: "task event receiver not found",
    }
}

impl GateCore {
    /// Takes back a view that the consumer has used outside the lock, with what it gave.
    pub(super) fn return_view(
        &self,
        index: usize,
        mut view: Box<dyn SubpartitionView>,
        taken: Result<(), ExchangeError>,
        items: &mut Vec<Item>,
    ) {
        let mut state = self.lock();
        loop {
            if state.closed {
                drop(state);
                items.clear();
                return;
            }
            let channel = &mut state.channels[index];
            channel.extend(items.drain(..));
            let size = channel.outbox.buffer_size.take();
            let acknowledged = std::mem::take(&mut channel.outbox.acknowledged);
            if size.is_none() && !acknowledged {
                break;
            }
            drop(state);
            if let Some(bytes) = size {
                view.announce_buffer_size(bytes);
            }
            if acknowledged {
                view.acknowledge_all_records();
            }
            state = self.lock();
        }
        let channel = &mut state.channels[index];
        let done = if channel.ended {
            // The end was taken while the view was out: nobody asks it again, and it holds its subpartition.
            Some(view)
        } else {
            channel.view.replace(view)
        };
        drop(state);
        drop(done);
        if let Err(error) = taken {
            self.fail(error);
        }
    }

    /// Hands what is in a local channel's outbox to its view. If the consumer uses the view just now, it does so when
    /// it is back.
    pub(super) fn instruct_view(&self, index: usize) {
        let view = self.lock().channels[index].view.take();
        if let Some(view) = view {
            self.give_view_back(index, view);
        }
    }

    /// Takes back a view that somebody else than the consumer has used outside the lock.
    pub(super) fn give_view_back(&self, index: usize, view: Box<dyn SubpartitionView>) {
        self.return_view(index, view, Ok(()), &mut Vec::new());
        // The consumer may have missed the view meanwhile.
        self.on_available(index);
    }

    /// A local channel's view is open: it hears of the buffer size, and `publish` takes the task events, that came
    /// before it.
    pub(super) fn attach_view(
        &self,
        index: usize,
        mut view: Box<dyn SubpartitionView>,
        mut publish: impl FnMut(TaskEvent),
    ) {
        let mut state = self.lock();
        loop {
            if state.closed {
                drop(state);
                return;
            }
            let outbox = &mut state.channels[index].outbox;
            let (events, size) = (outbox.take_events(), outbox.buffer_size.take());
            if events.is_empty() && size.is_none() {
                break;
            }
            drop(state);
            events.into_iter().for_each(&mut publish);
            if let Some(bytes) = size {
                view.announce_buffer_size(bytes);
            }
            state = self.lock();
        }
        let channel = &mut state.channels[index];
        (channel.view, channel.opened) = (Some(view), true);
        state.set_available(index);
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

    fn on_priority_available(&self) {
        if let Some(core) = self.core.upgrade() {
            core.lock().channels[self.index].overtaken = true;
            core.on_available(self.index);
        }
    }
}
