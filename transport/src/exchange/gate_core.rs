//! What the consumer of a gate, its network tasks and the owners of its buffers share.
//!
//! One lock guards it. Under it only the pool's lock is taken; wakers are called, and buffers, views and streams are
//! dropped, after it is released.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    buffer::BufferMut,
    channel::{Channel, ChannelSource, CreditBuffer},
    error::{BufferError, ExchangeError},
    event::BufferOrEvent,
    gate_state::GateState,
    gate_stats::GateCounters,
    local_pool::LocalPool,
    view::Credit,
};
use crate::{
    error::ErrorCode,
    proto::{CreditViolation, DataType, PartitionId, Recycled},
};

/// The shared state of a gate.
#[derive(Debug)]
pub(super) struct GateCore {
    pub(super) name: String,
    pub(super) pool: LocalPool,
    pub(super) floating: u32,
    pub(super) cancel: CancellationToken,
    pub(super) credit_wake: Notify,
    pub(super) counters: GateCounters,
    /// As much as a buffer, from the first compressed buffer on.
    scratch: Mutex<Vec<u8>>,
    state: Mutex<GateState>,
}

impl GateCore {
    pub(super) fn new(
        name: String,
        pool: LocalPool,
        floating: u32,
        cancel: CancellationToken,
        channels: Vec<Channel>,
        free: Vec<BufferMut>,
        spare: Option<BufferMut>,
    ) -> Self {
        Self {
            name,
            pool,
            floating,
            cancel,
            credit_wake: Notify::new(),
            counters: GateCounters::default(),
            scratch: Mutex::default(),
            state: Mutex::new(GateState {
                credit_batch: credit_batch(free.len(), floating),
                channels,
                free,
                spare,
                ..GateState::default()
            }),
        }
    }

    /// Memory to decompress into.
    pub(super) fn scratch(&self) -> MutexGuard<'_, Vec<u8>> {
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next item of any channel, or `None` when all have ended.
    pub(super) fn poll_next(
        &self,
        waker: Option<&mut Context<'_>>,
    ) -> Poll<Result<Option<(usize, BufferOrEvent)>, ExchangeError>> {
        let mut items = Vec::new();
        loop {
            let mut state = self.lock();
            if state.ended == state.channels.len() {
                return Poll::Ready(Ok(None));
            }
            if let Some(error) = &state.error {
                return Poll::Ready(Err(error.clone()));
            }
            let Some(index) = state.next_ready() else {
                state.measure(false);
                // Before the consumer waits, its producers hear of all that it has given back.
                let dirty = !state.dirty.is_empty();
                let waker = waker.map(|context| context.waker().clone());
                let replaced = waker.and_then(|waker| state.waker.replace(waker));
                drop(state);
                drop(replaced);
                self.wake_credit(dirty);
                return Poll::Pending;
            };
            let channel = &mut state.channels[index];
            if !channel.blocked
                && (channel.overtaken || channel.queue.is_empty())
                && let Some(mut view) = channel.view.take()
            {
                let overtaken = std::mem::take(&mut channel.overtaken);
                drop(state);
                let taken = if overtaken {
                    view.take_priority(&mut items)
                } else {
                    view.take(Credit::Unlimited, LOCAL_BATCH, &mut items)
                };
                let gave = !items.is_empty();
                self.return_view(index, view, taken, &mut items);
                state = self.lock();
                if state.error.is_some() {
                    continue;
                }
                // It is still this channel's turn. What was overtaken keeps its turn, too, and so does a view that gave
                // nothing but empty buffers: it may have more, and says so only after it was found empty.
                if overtaken || (gave && state.channels[index].queue.is_empty()) {
                    state.set_available(index);
                }
            }
            if let Some(item) = self.pop(state, index) {
                return Poll::Ready(Ok(Some((index, item))));
            }
        }
    }

    fn pop(&self, mut guard: MutexGuard<'_, GateState>, index: usize) -> Option<BufferOrEvent> {
        let state = &mut *guard;
        let channel = &mut state.channels[index];
        let entry = channel.queue.pop()?;
        state.measure(true);
        let channel = &mut state.channels[index];
        let receiver = if channel.queue.has_room() {
            channel.receiver.take()
        } else {
            None
        };
        channel.end_of_data |= entry.is(DataType::EndOfData);
        let local = matches!(channel.source, ChannelSource::Local(_));
        let mut view = None;
        if entry.is(DataType::EndOfPartition) {
            channel.ended = true;
            view = channel.view.take();
            state.ended += 1;
        } else if local && entry.is_blocking() {
            channel.blocked = true;
        }
        // A local channel's view may have more, and says so only after it was found empty.
        if !channel.ended && (local || !channel.queue.is_empty()) {
            state.set_available(index);
        }
        let dirty = state.announce(index);
        drop(guard);
        drop(view);
        self.wake_credit(dirty);
        wake(receiver);
        let item = entry.into_item();
        self.counters.on_consumed(&item, local);
        Some(item)
    }

    /// Data buffers of a channel that are queued, and that its producer has announced beyond the exclusive ones. Of a
    /// local channel those that wait at its producer.
    pub(super) fn buffers_in_use(&self, index: usize) -> u32 {
        let mut state = self.lock();
        let Some(channel) = state.channels.get_mut(index) else {
            return 0;
        };
        let queued = u32::try_from(channel.queue.buffers().count()).unwrap_or(u32::MAX);
        if !matches!(channel.source, ChannelSource::Local(_)) {
            return queued.saturating_add(channel.credit.expected());
        }
        let Some(view) = channel.view.take() else {
            return queued;
        };
        drop(state);
        let backlog = view.backlog();
        self.give_view_back(index, view);
        queued.saturating_add(backlog)
    }

    /// The channel may have something.
    pub(super) fn on_available(&self, index: usize) {
        let mut state = self.lock();
        let waker = if !state.closed && state.set_available(index) {
            state.waker.take()
        } else {
            None
        };
        drop(state);
        wake(waker);
    }

    /// The header of a data frame came: the buffer that its payload goes into.
    pub(super) fn on_data(
        self: &Arc<Self>,
        index: usize,
        partition: PartitionId,
        sequence: u32,
        backlog: u32,
    ) -> Result<CreditBuffer, ExchangeError> {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.channels[index].credit_ended {
            drop(guard);
            return Err(self.cancelled());
        }
        state.channels[index]
            .credit
            .on_data(sequence, backlog)
            .map_err(|violation| credit_error(partition, violation))?;
        let buffer = state.free.pop();
        let dirty = state.want_floating(index, self);
        drop(guard);
        self.wake_credit(dirty);
        let buffer = buffer.ok_or(BufferError::Closed)?;
        Ok(CreditBuffer::new(buffer, self.clone(), index))
    }

    /// The header of an event came.
    pub(super) fn on_event(
        &self,
        index: usize,
        partition: PartitionId,
        data_type: DataType,
        sequence: u32,
        backlog: u32,
    ) -> Result<(), ExchangeError> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let channel = &mut state.channels[index];
        if channel.credit_ended {
            return Ok(());
        }
        let released = channel
            .credit
            .on_event(data_type, sequence, backlog)
            .map_err(|violation| credit_error(partition, violation))?;
        let mut dirty = false;
        let mut surplus = Vec::new();
        if released > 0 {
            channel.outbox.credit = 0;
            for _ in 0..released {
                let buffer = state.free.pop();
                dirty |= buffer.is_some_and(|buffer| state.offer(buffer, &mut surplus));
            }
        }
        dirty |= state.want_floating(index, self);
        drop(guard);
        drop(surplus);
        self.wake_credit(dirty);
        Ok(())
    }

    /// A backlog announcement came.
    pub(super) fn on_backlog(&self, index: usize, backlog: u32) {
        let mut state = self.lock();
        if state.channels[index].credit_ended {
            return;
        }
        state.channels[index].credit.on_backlog(backlog);
        let dirty = state.want_floating(index, self);
        drop(state);
        self.wake_credit(dirty);
    }

    /// Queues what was received. Whether the channel has room for more.
    pub(super) fn deliver(&self, index: usize, items: &mut Vec<(DataType, Bytes)>) -> bool {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.closed {
            drop(guard);
            items.clear();
            return true;
        }
        let ended = items
            .last()
            .is_some_and(|(data_type, _)| *data_type == DataType::EndOfPartition);
        let channel = &mut state.channels[index];
        for (data_type, payload) in items.drain(..) {
            channel.queue.push(data_type, payload);
        }
        let has_room = channel.queue.has_room();
        let unsent = ended.then(|| std::mem::take(&mut channel.outbox));
        let mut surplus = Vec::new();
        let dirty = ended && state.end_credit_and_offer(index, &mut surplus);
        let waker = if state.set_available(index) {
            state.waker.take()
        } else {
            None
        };
        drop(guard);
        drop((surplus, unsent));
        self.wake_credit(dirty);
        wake(waker);
        has_room
    }

    /// A buffer comes back from the consumer.
    pub(super) fn recycle(&self, index: usize, mut buffer: BufferMut) {
        buffer.clear();
        let mut guard = self.lock();
        let state = &mut *guard;
        let others_wait = !state.waiting.is_empty();
        let mut surplus = Vec::new();
        let mut dirty;
        if state.closed {
            surplus.push(buffer);
            dirty = false;
        } else if state.channels[index].credit_ended {
            dirty = state.offer(buffer, &mut surplus);
        } else {
            dirty = match state.channels[index].credit.on_recycled(others_wait) {
                Recycled::Kept => {
                    state.free.push(buffer);
                    state.announce(index)
                }
                Recycled::Floating => state.offer(buffer, &mut surplus),
            };
            dirty |= state.want_floating(index, self);
        }
        drop(guard);
        drop(surplus);
        self.wake_credit(dirty);
    }

    /// The first error stays, and always wakes the consumer.
    pub(super) fn fail(&self, error: ExchangeError) {
        let mut state = self.lock();
        if state.error.is_none() {
            state.error = Some(error);
        }
        let waker = state.waker.take();
        drop(state);
        wake(waker);
    }

    /// Ends the gate: what is queued or held goes back, tasks stop.
    pub(super) fn close(&self) {
        self.cancel.cancel();
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.closed {
            return;
        }
        state.closed = true;
        if state.error.is_none() {
            state.error = Some(self.cancelled());
        }
        let mut dropped = Vec::new();
        let mut buffers = Vec::new();
        for index in 0..state.channels.len() {
            buffers.extend(state.end_credit(index));
            let channel = &mut state.channels[index];
            dropped.push((
                std::mem::take(&mut channel.queue),
                channel.view.take(),
                std::mem::take(&mut channel.outbox),
                std::mem::take(&mut channel.told),
            ));
        }
        state.waiting.clear();
        state.ready.clear();
        state.urgent.clear();
        buffers.append(&mut state.free);
        buffers.extend(state.spare.take());
        let waker = state.waker.take();
        drop(guard);
        drop((dropped, buffers));
        self.pool.close();
        wake(waker);
    }

    pub(super) fn cancelled(&self) -> ExchangeError {
        ExchangeError::Cancelled {
            what: self.name.clone(),
        }
    }

    pub(super) fn wake_credit(&self, dirty: bool) {
        if dirty {
            self.credit_wake.notify_one();
        }
    }
}

fn credit_error(partition: PartitionId, violation: CreditViolation) -> ExchangeError {
    let code = match violation {
        CreditViolation::Sequence { .. } | CreditViolation::WhileBlocked { .. } => {
            ErrorCode::STREAM_PROTOCOL
        }
        _ => ErrorCode::CREDIT_VIOLATION,
    };
    ExchangeError::Protocol {
        partition,
        reason: violation.to_string(),
        code,
    }
}

pub(super) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// A quarter of the gate's buffers, so that its producers never stand still for it.
fn credit_batch(exclusive: usize, floating: u32) -> u32 {
    let exclusive = u32::try_from(exclusive).unwrap_or(u32::MAX);
    (exclusive.saturating_add(floating) / 4).clamp(1, MAX_CREDIT_BATCH)
}

/// More saves no packets: as many buffers fill some that have to be acknowledged anyway.
const MAX_CREDIT_BATCH: u32 = 8;

/// Items that a local channel takes at a time.
const LOCAL_BATCH: usize = 8;
