//! All inputs of one consuming task.

use std::{fmt, future::poll_fn, sync::Arc};

use tokio::runtime::Handle;

use super::{
    channel::{Channel, ChannelSource},
    connection_manager::ConnectionManager,
    credit_task::send_credit,
    error::ExchangeError,
    event::BufferOrEvent,
    gate_core::GateCore,
    gate_stats::GateStats,
    local_input::LocalChannel,
    pool::BufferPool,
    producer_check::ProducerCheck,
    remote::RemoteChannel,
    view::ResultPartitionProvider,
};
use crate::{config::TransportConfig, proto::ExecutionAttemptId, shutdown::Shutdown};

/// What a node lends to its gates. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct GateContext {
    /// The way to other nodes.
    pub connections: Arc<dyn ConnectionManager>,
    /// This node's own partitions.
    pub partitions: Arc<dyn ResultPartitionProvider>,
    /// The node's buffers.
    pub pool: BufferPool,
    /// Where the channels' tasks run: the network thread.
    pub runtime: Handle,
    /// Who owns those tasks; the gates fail when it is cancelled.
    pub tasks: Shutdown,
    /// Who is asked about missing partitions; without one a missing partition fails the gate.
    pub producer_check: Option<Arc<dyn ProducerCheck>>,
    /// Initial credit of each remote channel. May be 0.
    pub exclusive_buffers: u32,
    /// Buffers that the remote channels share by backlog, at least 1.
    pub floating_buffers: u32,
}

impl GateContext {
    /// Collects the parts; buffers per channel and gate come from the configuration.
    #[must_use]
    pub fn new(
        config: &TransportConfig,
        connections: Arc<dyn ConnectionManager>,
        partitions: Arc<dyn ResultPartitionProvider>,
        pool: BufferPool,
        runtime: Handle,
        tasks: Shutdown,
    ) -> Self {
        Self {
            connections,
            partitions,
            pool,
            runtime,
            tasks,
            producer_check: None,
            exclusive_buffers: config.exclusive_buffers_per_channel,
            floating_buffers: config.floating_buffers_per_gate.max(1),
        }
    }
}

/// Reads the channels of a task in turn. One consumer owns it, on any thread and runtime; dropping it closes it.
///
/// Memory: `exclusive_buffers` per remote or unknown channel and one floating buffer are held from
/// [`setup`](Self::setup) on, and up to `floating_buffers` in all while producers have a backlog. Buffers that the
/// consumer holds count: a consumer that keeps all buffers that a channel may have gets no more from it.
#[derive(Debug)]
pub struct InputGate {
    handle: GateHandle,
}

impl InputGate {
    /// Makes a gate and takes its exclusive buffers. Nothing is requested yet. `name` stands in errors.
    ///
    /// # Errors
    /// [`ExchangeError::Buffers`] if the node cannot guarantee the buffers, or they do not come in time.
    ///
    /// # Cancel safety
    /// Cancel-safe: buffers taken so far go back.
    pub async fn setup(
        name: impl Into<String>,
        consumer: ExecutionAttemptId,
        channels: Vec<ChannelSource>,
        context: GateContext,
    ) -> Result<Self, ExchangeError> {
        let (exclusive, floating) = (context.exclusive_buffers, context.floating_buffers.max(1));
        let of = |source: &ChannelSource| match source {
            ChannelSource::Local(_) => 0,
            _ => exclusive,
        };
        let reserved: usize = channels.iter().map(|source| of(source) as usize).sum();
        let networked = channels
            .iter()
            .any(|source| !matches!(source, ChannelSource::Local(_)));
        // One floating buffer is guaranteed and held, so that a gate without exclusive ones always gets on.
        let min = reserved + usize::from(networked);
        let pool = context.pool.local(min, reserved + floating as usize)?;
        let mut free = Vec::with_capacity(min);
        for _ in 0..min {
            free.push(pool.request().await?);
        }
        let spare = if networked { free.pop() } else { None };
        let channels = channels
            .into_iter()
            .map(|source| {
                let exclusive = of(&source);
                Channel::new(source, exclusive)
            })
            .collect();
        let cancel = context.tasks.token().child_token();
        let core = GateCore::new(name.into(), pool, floating, cancel, channels, free, spare);
        Ok(Self {
            handle: GateHandle {
                core: Arc::new(core),
                consumer,
                context: Arc::new(context),
            },
        })
    }

    /// A handle for other threads.
    #[must_use]
    pub fn handle(&self) -> GateHandle {
        self.handle.clone()
    }

    /// Requests every known channel; later calls do nothing. Channels that become known afterwards request at once.
    pub fn request_partitions(&self) {
        self.handle.request_partitions();
    }

    /// The next buffer or event and the index of its channel, round robin over the channels that have one; `None` when
    /// every channel has given its end of partition.
    ///
    /// # Errors
    /// The first error of any channel, every time. [`ExchangeError::Cancelled`] after `close`.
    ///
    /// # Cancel safety
    /// Cancel-safe: nothing is lost.
    pub async fn next(&mut self) -> Result<Option<(usize, BufferOrEvent)>, ExchangeError> {
        let core = &self.handle.core;
        poll_fn(|context| core.poll_next(Some(context))).await
    }

    /// As [`next`](Self::next) without waiting: the outer `None` says that nothing is there now.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn try_next(&mut self) -> Option<Result<Option<(usize, BufferOrEvent)>, ExchangeError>> {
        match self.handle.core.poll_next(None) {
            std::task::Poll::Ready(item) => Some(item),
            std::task::Poll::Pending => None,
        }
    }

    /// Goes on with a channel after its barrier.
    ///
    /// # Errors
    /// [`ExchangeError::InvalidState`] for a wrong index, [`ExchangeError::Cancelled`] after `close`.
    pub fn resume_consumption(&mut self, channel: usize) -> Result<(), ExchangeError> {
        self.handle.resume_consumption(channel)
    }

    /// Counters so far.
    #[must_use]
    pub fn stats(&self) -> GateStats {
        self.handle.stats()
    }

    /// Gives every buffer and stream back. Producers hear that they are not wanted.
    pub fn close(&mut self) {
        self.handle.close();
    }
}

impl Drop for InputGate {
    fn drop(&mut self) {
        self.handle.close();
    }
}

/// Steers an [`InputGate`] from any thread. Cloning is cheap; it does not keep the gate open.
#[derive(Clone)]
pub struct GateHandle {
    core: Arc<GateCore>,
    consumer: ExecutionAttemptId,
    context: Arc<GateContext>,
}

impl GateHandle {
    /// As [`InputGate::request_partitions`].
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

    /// As [`InputGate::resume_consumption`].
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

    /// As [`InputGate::close`].
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
