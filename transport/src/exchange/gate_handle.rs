//! What steers a gate from any thread, beside the one consumer that reads it.

use std::{fmt, future::Future, sync::Arc};

use bytes::Bytes;

use super::{
    channel::{Channel, ChannelSource},
    credit_task::send_credit,
    debloat_task::debloat,
    error::ExchangeError,
    gate::GateContext,
    gate_core::GateCore,
    gate_stats::GateStats,
    local_input::{LocalChannel, no_receiver},
    outbox::MAX_UNSENT_EVENT_BYTES,
    remote::RemoteChannel,
    requests::Requests,
    task_events::TaskEvent,
};
use crate::proto::{ExecutionAttemptId, MAX_EVENT_BYTES};

/// Steers an [`InputGate`](super::InputGate) from any thread. Cloning is cheap; it does not keep the gate open.
#[derive(Clone)]
pub struct GateHandle {
    pub(super) core: Arc<GateCore>,
    pub(super) consumer: ExecutionAttemptId,
    pub(super) context: Arc<GateContext>,
}

impl GateHandle {
    /// As [`InputGate::request_partitions`](super::InputGate::request_partitions).
    pub fn request_partitions(&self) {
        let sources: Vec<_> = {
            let mut state = self.core.lock();
            if state.closed || std::mem::replace(&mut state.requested, true) {
                return;
            }
            let channels = state.channels.iter();
            channels.map(|channel| channel.source.clone()).collect()
        };
        self.spawn(send_credit(self.core.clone()));
        if self.context.buffer_debloating {
            self.spawn(debloat(self.clone()));
        }
        for (index, source) in sources.into_iter().enumerate() {
            self.start(index, source);
        }
    }

    /// Says where an unknown channel gets its items; if the gate has requested its partitions, this one is at once.
    ///
    /// # Errors
    /// [`ExchangeError::InvalidState`] if the channel does not exist, is known, or `source` says nothing;
    /// [`ExchangeError::Cancelled`] after `close`.
    pub fn update_channel(
        &self,
        channel: usize,
        source: ChannelSource,
    ) -> Result<(), ExchangeError> {
        let mut guard = self.core.lock();
        let state = &mut *guard;
        if state.closed {
            return Err(self.core.cancelled());
        }
        let known = state.channels.get(channel).map(|channel| &channel.source);
        match (known, &source) {
            (None, _) => return Err(self.invalid("there is no such channel")),
            (_, ChannelSource::Unknown) => return Err(self.invalid("a channel stays unknown")),
            (Some(ChannelSource::Unknown), _) => {}
            _ => return Err(self.invalid("the channel is known already")),
        }
        state.channels[channel].source = source.clone();
        let mut surplus = Vec::new();
        let dirty = matches!(source, ChannelSource::Local(_))
            && state.end_credit_and_offer(channel, &mut surplus);
        let requested = state.requested;
        drop(guard);
        drop(surplus);
        self.core.wake_credit(dirty);
        if requested {
            self.start(channel, source);
        }
        Ok(())
    }

    /// As [`InputGate::resume_consumption`](super::InputGate::resume_consumption).
    ///
    /// # Errors
    /// As there.
    pub fn resume_consumption(&self, channel: usize) -> Result<(), ExchangeError> {
        let mut state = self.core.lock();
        if state.closed {
            return Err(self.core.cancelled());
        }
        let Some(resumed) = state.channels.get_mut(channel) else {
            return Err(self.invalid("there is no such channel"));
        };
        if matches!(resumed.source, ChannelSource::Local(_)) {
            resumed.blocked = false;
            drop(state);
            self.core.on_available(channel);
            return Ok(());
        }
        if resumed.credit.is_blocked() {
            resumed.credit.on_resume();
            resumed.outbox.resume = true;
        }
        let dirty = state.set_dirty(channel);
        drop(state);
        self.core.wake_credit(dirty);
        Ok(())
    }

    /// Tells the producer of a channel that all records before its end of data are processed. Once is enough; for a
    /// channel that has ended it is no longer needed.
    ///
    /// # Errors
    /// [`ExchangeError::InvalidState`] for a wrong index, and before the consumer has taken the end of data;
    /// [`ExchangeError::Cancelled`] after `close`.
    pub fn acknowledge_all_records(&self, channel: usize) -> Result<(), ExchangeError> {
        self.instruct(channel, |told| {
            if !told.end_of_data {
                return Err("its end of data was not taken");
            }
            if !std::mem::replace(&mut told.acknowledged, true) {
                told.outbox.acknowledged = true;
            }
            Ok(())
        })
    }

    /// Asks the producer of a channel for buffers of about so many bytes from now on. If its partition is not there yet,
    /// it begins with them.
    ///
    /// # Errors
    /// [`ExchangeError::InvalidState`] for a wrong index and for 0 bytes, [`ExchangeError::Cancelled`] after `close`.
    pub fn announce_buffer_size(&self, channel: usize, bytes: u32) -> Result<(), ExchangeError> {
        self.instruct(channel, |told| {
            if bytes == 0 {
                return Err("a buffer size of 0 bytes is not allowed");
            }
            told.outbox.buffer_size = Some(bytes);
            Ok(())
        })
    }

    /// The data buffers that are queued in a channel, in order: what is in flight there. They are shared, not copied, and
    /// count as taken by the consumer until they are dropped. Of a local channel only what has left its partition.
    ///
    /// # Errors
    /// [`ExchangeError::InvalidState`] for a wrong index, [`ExchangeError::Cancelled`] after `close`.
    pub fn inflight(&self, channel: usize) -> Result<Vec<Bytes>, ExchangeError> {
        let state = self.core.lock();
        if state.closed {
            return Err(self.core.cancelled());
        }
        match state.channels.get(channel) {
            Some(channel) => Ok(channel.queue.buffers().cloned().collect()),
            None => Err(self.invalid("there is no such channel")),
        }
    }

    /// Data buffers of a channel that are queued in it, or wait at its producer as far as that has told. 0 for a channel
    /// that does not exist.
    #[must_use]
    pub fn buffers_in_use(&self, channel: usize) -> u32 {
        self.core.buffers_in_use(channel)
    }

    /// Sends an event to the tasks that produce the input, one for each channel that has not ended. A channel that is
    /// not known or not connected yet keeps it until it is, and tells it again if it has to repeat its request: each
    /// producer hears each event once, in order.
    ///
    /// # Errors
    /// The first of: [`ExchangeError::TooLarge`] for more than 64 KiB, or if that many events wait in a channel, or at a
    /// producer that has not got its partition yet, that no more fit (some 256 KiB); [`ExchangeError::InvalidState`] if a partition of this node has no receiver;
    /// [`ExchangeError::Cancelled`] after `close`. But for an event that is too large itself and for a closed gate the
    /// other channels have got it. A remote producer without a receiver fails the gate instead.
    pub fn send_task_event(&self, event: &TaskEvent) -> Result<(), ExchangeError> {
        let too_large = |what, bytes: usize, limit: usize| ExchangeError::TooLarge {
            what,
            bytes: bytes as u64,
            limit: limit as u64,
        };
        if event.0.len() > MAX_EVENT_BYTES {
            return Err(too_large("task event", event.0.len(), MAX_EVENT_BYTES));
        }
        let (mut first, mut dirty, mut here) = (None, false, Vec::new());
        let mut state = self.core.lock();
        if state.closed {
            return Err(self.core.cancelled());
        }
        for index in 0..state.channels.len() {
            let channel = &mut state.channels[index];
            let local = match &channel.source {
                ChannelSource::Local(request) => Some((request.partition, request.producer)),
                _ => None,
            };
            let told = channel.told.event_bytes();
            match local {
                _ if channel.ended => {}
                Some(produced) if channel.opened => here.push(produced),
                // All was received: the producer does not listen any more.
                None if channel.credit_ended => {}
                _ if channel.outbox.add_event(event.clone(), told) => {
                    dirty |= state.set_dirty(index)
                }
                _ => {
                    let limit = MAX_UNSENT_EVENT_BYTES;
                    first = Some(too_large(
                        "queue of task events",
                        limit + event.0.len(),
                        limit,
                    ));
                }
            }
        }
        drop(state);
        self.core.wake_credit(dirty);
        for (partition, producer) in here {
            let events = &self.context.task_events;
            if !events.publish(partition, producer, event) {
                first.get_or_insert_with(|| no_receiver(partition));
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// Counters so far.
    #[must_use]
    pub fn stats(&self) -> GateStats {
        let mut stats = self.core.counters.snapshot();
        stats.pool_used = self.core.pool.used();
        let state = self.core.lock();
        for channel in &state.channels {
            stats.queued += channel.queue.len();
            stats.open_channels += usize::from(!channel.ended);
        }
        stats
    }

    /// As [`InputGate::close`](super::InputGate::close).
    pub fn close(&self) {
        self.core.close();
    }

    /// Puts something into the outbox of a channel that has not ended, and sends it on its way.
    fn instruct(
        &self,
        index: usize,
        tell: impl FnOnce(&mut Channel) -> Result<(), &'static str>,
    ) -> Result<(), ExchangeError> {
        let mut state = self.core.lock();
        if state.closed {
            return Err(self.core.cancelled());
        }
        let Some(channel) = state.channels.get_mut(index) else {
            return Err(self.invalid("there is no such channel"));
        };
        let local = matches!(channel.source, ChannelSource::Local(_));
        if channel.ended || (channel.credit_ended && !local) {
            return Ok(());
        }
        tell(channel).map_err(|reason| self.invalid(reason))?;
        if local {
            drop(state);
            self.core.instruct_view(index);
            return Ok(());
        }
        let dirty = state.set_dirty(index);
        drop(state);
        self.core.wake_credit(dirty);
        Ok(())
    }

    fn start(&self, index: usize, source: ChannelSource) {
        let check = self.context.producer_check.clone();
        let requests = Requests::new(self.context.partition_requests, check);
        match source {
            ChannelSource::Unknown => {}
            ChannelSource::Local(request) => {
                let channel = LocalChannel {
                    core: self.core.clone(),
                    index,
                    partitions: self.context.partitions.clone(),
                    requests,
                    events: self.context.task_events.clone(),
                    request,
                };
                self.spawn(channel.open());
            }
            ChannelSource::Remote {
                connection,
                request,
            } => {
                let channel = RemoteChannel {
                    core: self.core.clone(),
                    index,
                    connections: self.context.connections.clone(),
                    requests,
                    connection,
                    request,
                    consumer: self.consumer,
                    initial_credit: self.context.exclusive_buffers,
                };
                self.spawn(channel.run());
            }
        }
    }

    /// Spawns a task without which the consumer would wait for ever.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let needed = Needed(Some(self.core.clone()));
        let task = async move {
            task.await;
            needed.done();
        };
        self.context.tasks.spawn_on(task, &self.context.runtime);
    }

    fn invalid(&self, reason: &'static str) -> ExchangeError {
        ExchangeError::InvalidState {
            what: self.core.name.clone(),
            reason,
        }
    }
}

/// Fails the gate if the task that holds it goes away before its end: it panicked, or its runtime has ended.
struct Needed(Option<Arc<GateCore>>);

impl Needed {
    fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for Needed {
    fn drop(&mut self) {
        if let Some(core) = self.0.take() {
            core.fail(core.cancelled());
        }
    }
}

impl fmt::Debug for GateHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateHandle")
            .field("name", &self.core.name)
            .finish_non_exhaustive()
    }
}
