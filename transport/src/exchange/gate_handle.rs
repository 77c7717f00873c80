//! What steers a gate from any thread, beside the one consumer that reads it.

use std::{fmt, sync::Arc};

use super::{
    channel::ChannelSource, credit_task::send_credit, error::ExchangeError, gate::GateContext,
    gate_core::GateCore, gate_stats::GateStats, local_input::LocalChannel, remote::RemoteChannel,
};
use crate::proto::ExecutionAttemptId;

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
        self.context
            .tasks
            .spawn_on(send_credit(self.core.clone()), &self.context.runtime);
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
            resumed.unsent_resume = true;
        }
        let dirty = state.set_dirty(channel);
        drop(state);
        self.core.wake_credit(dirty);
        Ok(())
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

    fn start(&self, index: usize, source: ChannelSource) {
        let (tasks, runtime) = (&self.context.tasks, &self.context.runtime);
        match source {
            ChannelSource::Unknown => {}
            ChannelSource::Local(request) => {
                let channel = LocalChannel {
                    core: self.core.clone(),
                    index,
                    partitions: self.context.partitions.clone(),
                    check: self.context.producer_check.clone(),
                    request,
                };
                tasks.spawn_on(channel.open(), runtime);
            }
            ChannelSource::Remote {
                connection,
                request,
            } => {
                let channel = RemoteChannel {
                    core: self.core.clone(),
                    index,
                    connections: self.context.connections.clone(),
                    check: self.context.producer_check.clone(),
                    connection,
                    request,
                    consumer: self.consumer,
                    initial_credit: self.context.exclusive_buffers,
                };
                tasks.spawn_on(channel.run(), runtime);
            }
        }
    }

    fn invalid(&self, reason: &'static str) -> ExchangeError {
        ExchangeError::InvalidState {
            what: self.core.name.clone(),
            reason,
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
