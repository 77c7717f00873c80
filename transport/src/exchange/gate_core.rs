//! What the consumer of a gate, its network tasks and the owners of its buffers share.
//!
//! One lock guards it. Under it only the pool's lock is taken; wakers are called, and buffers, views and streams are
//! dropped, after it is released.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    buffer::BufferMut,
    channel::{Channel, ChannelSource, Control, CreditBuffer},
    error::{BufferError, ExchangeError},
    event::BufferOrEvent,
    gate_stats::GateCounters,
    local_pool::LocalPool,
    view::SubpartitionView,
};
use crate::{
    error::ErrorCode,
    proto::{CreditViolation, DataType, PartitionId, Recycled, floating_share},
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
    ) -> Self {
        Self {
            name,
            pool,
            floating,
            cancel,
            credit_wake: Notify::new(),
            counters: GateCounters::default(),
            state: Mutex::new(GateState {
                channels,
                free,
                ..GateState::default()
            }),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next item of any channel, or `None` when all have ended.
    #[expect(
        clippy::type_complexity,
        reason = "the shape that the gate's users see"
    )]
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
            let Some(index) = state.ready.pop_front() else {
                if let Some(context) = waker {
                    let replaced = state.waker.replace(context.waker().clone());
                    drop(state);
                    drop(replaced);
                }
                return Poll::Pending;
            };
            state.channels[index].in_ready = false;
            if state.channels[index].queue.is_empty() {
                let channel = &mut state.channels[index];
                if channel.blocked {
                    continue;
                }
                let Some(mut view) = channel.view.take() else {
                    continue;
                };
                drop(state);
                let taken = view.take(u32::MAX, LOCAL_BATCH, &mut items);
                self.return_view(index, view, taken, &mut items);
                continue;
            }
            if let Some(item) = self.pop(state, index) {
                return Poll::Ready(item.map(|item| Some((index, item))));
            }
        }
    }

    fn pop(
        &self,
        mut guard: MutexGuard<'_, GateState>,
        index: usize,
    ) -> Option<Result<BufferOrEvent, ExchangeError>> {
        let state = &mut *guard;
        let channel = &mut state.channels[index];
        let (data_type, payload) = channel.queue.pop_front()?;
        let local = matches!(channel.source, ChannelSource::Local(_));
        let mut view = None;
        if data_type == DataType::EndOfPartition {
            channel.ended = true;
            view = channel.view.take();
            state.ended += 1;
        } else if local && data_type.is_blocking() {
            channel.blocked = true;
        }
        // A local channel's view may have more, and says so only after it was found empty.
        if !channel.ended && (local || !channel.queue.is_empty()) {
            state.set_ready(index);
        }
        let dirty = state.announce(index);
        drop(guard);
        drop(view);
        self.wake_credit(dirty);
        self.counters.on_consumed(data_type, payload.len(), local);
        let item = BufferOrEvent::from_wire(data_type, payload);
        Some(item.ok_or_else(|| ExchangeError::InvalidState {
            what: self.name.clone(),
            reason: "a local producer sent an event of a reserved type",
        }))
    }

    fn return_view(
        &self,
        index: usize,
        view: Box<dyn SubpartitionView>,
        taken: Result<(), ExchangeError>,
        items: &mut Vec<super::view::Item>,
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

    /// The channel may have something.
    pub(super) fn on_available(&self, index: usize) {
        let mut state = self.lock();
        let waker = if !state.closed && state.set_ready(index) {
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
            channel.unsent_credit = 0;
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

    /// Queues what was received.
    pub(super) fn deliver(&self, index: usize, items: &mut Vec<(DataType, Bytes)>) {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.closed {
            drop(guard);
            items.clear();
            return;
        }
        let ended = items
            .last()
            .is_some_and(|(data_type, _)| *data_type == DataType::EndOfPartition);
        state.channels[index].queue.extend(items.drain(..));
        let surplus = if ended {
            state.end_credit(index)
        } else {
            Vec::new()
        };
        let waker = if state.set_ready(index) {
            state.waker.take()
        } else {
            None
        };
        drop(guard);
        drop(surplus);
        wake(waker);
    }

    /// A buffer comes back from the consumer.
    pub(super) fn recycle(&self, index: usize, mut buffer: BufferMut) {
        buffer.clear();
        let mut guard = self.lock();
        let state = &mut *guard;
        let channel = &mut state.channels[index];
        let others_wait = !state.waiting.is_empty();
        if channel.credit_ended {
            drop(guard);
            drop(buffer);
            return;
        }
        let mut surplus = Vec::new();
        let mut dirty = match channel.credit.on_recycled(others_wait) {
            Recycled::Kept => {
                state.free.push(buffer);
                state.announce(index)
            }
            Recycled::Floating => state.offer(buffer, &mut surplus),
        };
        dirty |= state.want_floating(index, self);
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
            dropped.push((std::mem::take(&mut channel.queue), channel.view.take()));
        }
        state.waiting.clear();
        state.ready.clear();
        buffers.append(&mut state.free);
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

/// What the lock guards.
#[derive(Debug, Default)]
pub(super) struct GateState {
    pub(super) channels: Vec<Channel>,
    /// Channels with something to take, in turn.
    ready: VecDeque<usize>,
    /// Channels that want floating buffers and got none, in turn.
    waiting: VecDeque<usize>,
    /// Channels with credit or a resume to send.
    pub(super) dirty: Vec<usize>,
    /// The free buffers of all channels together.
    free: Vec<BufferMut>,
    /// Channels that hold or want floating buffers.
    sharing: u32,
    ended: usize,
    waker: Option<Waker>,
    pub(super) error: Option<ExchangeError>,
    pub(super) closed: bool,
    pub(super) requested: bool,
}

impl GateState {
    /// Whether the channel was not in line before.
    pub(super) fn set_ready(&mut self, index: usize) -> bool {
        let channel = &mut self.channels[index];
        if channel.in_ready || channel.ended {
            return false;
        }
        channel.in_ready = true;
        self.ready.push_back(index);
        true
    }

    /// Puts the channel in line for the credit task if it has something due. Whether that task must be woken.
    pub(super) fn announce(&mut self, index: usize) -> bool {
        let channel = &mut self.channels[index];
        if let Some(credit) = channel.credit.poll_announcement(channel.queue.is_empty()) {
            channel.unsent_credit += credit;
        }
        self.set_dirty(index)
    }

    pub(super) fn set_dirty(&mut self, index: usize) -> bool {
        let channel = &mut self.channels[index];
        let due = channel.unsent_credit > 0 || channel.unsent_resume;
        if !due || channel.in_dirty || !matches!(channel.control, Control::Idle(_)) {
            return false;
        }
        channel.in_dirty = true;
        self.dirty.push(index);
        true
    }

    /// Takes the floating buffers that the channel wants and that there are; puts it in line for the rest.
    fn want_floating(&mut self, index: usize, core: &GateCore) -> bool {
        let share = self.share(index, core.floating);
        let mut wanted = self.channels[index].credit.wanted(share);
        let mut got = 0;
        while wanted > 0 {
            let Ok(Some(buffer)) = core.pool.try_request() else {
                break;
            };
            self.free.push(buffer);
            (wanted, got) = (wanted - 1, got + 1);
        }
        let channel = &mut self.channels[index];
        channel.credit.on_floating(got);
        if wanted > 0 && !channel.in_waiting {
            channel.in_waiting = true;
            self.waiting.push_back(index);
        }
        self.update_sharing(index);
        self.announce(index)
    }

    /// Gives a floating buffer to the channel that has waited longest, or to `surplus` if none waits.
    fn offer(&mut self, buffer: BufferMut, surplus: &mut Vec<BufferMut>) -> bool {
        while let Some(index) = self.waiting.pop_front() {
            let channel = &mut self.channels[index];
            channel.in_waiting = false;
            if channel.credit_ended || channel.credit.wanted(u32::MAX) == 0 {
                self.update_sharing(index);
                continue;
            }
            channel.credit.on_floating(1);
            self.free.push(buffer);
            if self.channels[index].credit.wanted(u32::MAX) > 0 {
                self.channels[index].in_waiting = true;
                self.waiting.push_back(index);
            }
            self.update_sharing(index);
            return self.announce(index);
        }
        surplus.push(buffer);
        false
    }

    /// Closes the credit accounts of a channel; gives its free buffers.
    pub(super) fn end_credit(&mut self, index: usize) -> Vec<BufferMut> {
        let channel = &mut self.channels[index];
        if channel.credit_ended {
            return Vec::new();
        }
        channel.credit_ended = true;
        channel.unsent_credit = 0;
        let count = channel.credit.on_end() as usize;
        self.update_sharing(index);
        self.free.split_off(self.free.len().saturating_sub(count))
    }

    fn share(&self, index: usize, floating: u32) -> u32 {
        let joins = u32::from(!self.channels[index].shares);
        floating_share(floating, self.sharing + joins)
    }

    fn update_sharing(&mut self, index: usize) {
        let channel = &mut self.channels[index];
        let shares = !channel.credit_ended && (channel.in_waiting || channel.credit.floating() > 0);
        match (channel.shares, shares) {
            (false, true) => self.sharing += 1,
            (true, false) => self.sharing -= 1,
            _ => {}
        }
        channel.shares = shares;
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

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Items that a local channel takes at a time.
const LOCAL_BATCH: usize = 8;
