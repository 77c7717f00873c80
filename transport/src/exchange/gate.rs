//! All inputs of one consuming task.

use std::{future::poll_fn, sync::Arc};

use tokio::runtime::Handle;

use super::{
    channel::{Channel, ChannelSource},
    connection_manager::ConnectionManager,
    error::ExchangeError,
    event::BufferOrEvent,
    gate_core::GateCore,
    gate_handle::GateHandle,
    gate_stats::GateStats,
    pool::BufferPool,
    producer_check::ProducerCheck,
    requests::most_requests,
    task_events::TaskEventDispatcher,
    view::ResultPartitionProvider,
};
use crate::{
    config::TransportConfig,
    proto::{ExecutionAttemptId, debloat::ThroughputMeter},
    shutdown::Shutdown,
};

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
    /// Requests for one subpartition at most, at least 1; each waits at the producer for its
    /// `partition_request_timeout`. 2 unless set, and 1 where that time is 0.
    pub partition_requests: u32,
    /// Where task events for this node's own partitions go: the dispatcher that the connection manager was started
    /// with. An empty one, where events of local channels find no receiver, if it is not set.
    pub task_events: Arc<TaskEventDispatcher>,
    /// Initial credit of each remote channel. May be 0.
    pub exclusive_buffers: u32,
    /// Buffers that up to eight remote channels share by backlog, at least 1; a gate with more channels has an eighth of
    /// it for each.
    pub floating_buffers: u32,
    /// Free buffers that a remote channel in use wants from the floating ones at least, however short its backlog is;
    /// [`READY_BUFFERS`] unless set. Without effect on channels without exclusive buffers.
    pub ready_buffers: u32,
    /// Whether the size of buffers follows the throughput of the gate.
    pub buffer_debloating: bool,
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
            partition_requests: most_requests(config.partition_request_timeout),
            task_events: Arc::default(),
            exclusive_buffers: config.exclusive_buffers_per_channel,
            floating_buffers: config.floating_buffers_per_gate.max(1),
            ready_buffers: READY_BUFFERS,
            buffer_debloating: config.buffer_debloating,
        }
    }
}

/// Reads the channels of a task in turn. One consumer owns it, on any thread and runtime; dropping it closes it.
///
/// Memory: `exclusive_buffers` per remote or unknown channel and one floating buffer are held from
/// [`setup`](Self::setup) on, and up to `floating_buffers` for every eight of them, begun ones included, in all while
/// they are in use. Buffers that the
/// consumer holds count: a consumer that keeps all buffers that a channel may have gets no more from it.
///
/// ```
/// use std::{sync::Arc, time::Duration};
///
/// use thalweg_transport::{
///     Shutdown, TransportConfig,
///     exchange::{
///         BufferOrEvent, BufferPool, ChannelSource, Event, GateContext, InputGate, LocalConnectionManager,
///         ResultPartition, ResultPartitionManager, SubpartitionRequest,
///     },
///     proto::{ExecutionAttemptId, PartitionId, SubpartitionIndex},
/// };
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let (config, tasks) = (TransportConfig::default(), Shutdown::new());
/// let pool = BufferPool::new(&config);
/// let partitions = ResultPartitionManager::new(config.partition_request_timeout);
/// let context = GateContext::new(
///     &config,
///     Arc::new(LocalConnectionManager),
///     Arc::new(partitions.clone()),
///     pool.clone(),
///     tokio::runtime::Handle::current(),
///     tasks.clone(),
/// );
///
/// let (partition, producer) = (PartitionId::new(1, 0), ExecutionAttemptId(1));
/// let request = SubpartitionRequest { partition, producer, subpartition: SubpartitionIndex(0) };
/// let sources = vec![ChannelSource::Local(request)];
/// let mut gate = InputGate::setup("sink", ExecutionAttemptId(2), sources, context).await?;
/// gate.request_partitions();
///
/// // The request waits for its partition.
/// let output = ResultPartition::pipelined(partition, producer, 1, &pool)?;
/// partitions.register(output.clone())?;
/// let mut writer = output.writer()?;
/// writer.emit(0, b"x").await?;
/// writer.finish()?;
///
/// let mut items = Vec::new();
/// while let Some((channel, item)) = gate.next().await? {
///     assert_eq!(channel, 0);
///     items.push(item);
/// }
/// let record = BufferOrEvent::Buffer(b"\0\0\0\x01x"[..].into());
/// assert_eq!(items, [record, BufferOrEvent::Event(Event::EndOfPartition)]);
/// # tasks.cancel();
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(run()).unwrap();
/// ```
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
        let exclusive = context.exclusive_buffers;
        let of = |source: &ChannelSource| match source {
            ChannelSource::Local(_) => 0,
            _ => exclusive,
        };
        let reserved: usize = channels.iter().map(|source| of(source) as usize).sum();
        let networked = channels
            .iter()
            .filter(|source| !matches!(source, ChannelSource::Local(_)))
            .count();
        let floating = floating_of(context.floating_buffers, networked);
        // One floating buffer is guaranteed and held, so that a gate without exclusive ones always gets on.
        let min = reserved + usize::from(networked > 0);
        let pool = context.pool.local(min, reserved + floating as usize)?;
        let mut free = Vec::with_capacity(min);
        for _ in 0..min {
            free.push(pool.request().await?);
        }
        let spare = if networked > 0 { free.pop() } else { None };
        let channels = channels
            .into_iter()
            .map(|source| {
                let exclusive = of(&source);
                // Buffers promised to a channel without data do not come back. Others that have none of their own, and
                // nothing else to live on, would wait for them for ever.
                let ready = if exclusive > 0 {
                    context.ready_buffers
                } else {
                    0
                };
                Channel::new(source, exclusive, ready)
            })
            .collect();
        let cancel = context.tasks.token().child_token();
        let core = GateCore::new(name.into(), pool, floating, cancel, channels, free, spare);
        if context.buffer_debloating {
            core.lock().meter = Some(ThroughputMeter::new(crate::now()));
        }
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

    /// As [`GateHandle::acknowledge_all_records`].
    ///
    /// # Errors
    /// As there.
    pub fn acknowledge_all_records(&mut self, channel: usize) -> Result<(), ExchangeError> {
        self.handle.acknowledge_all_records(channel)
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

/// Floating buffers of a gate with so many remote channels.
///
/// 64 channels with 1 floating buffer each took 0.51 CPU seconds per GB on QUIC, with 8 each 0.39 (raw: 0.31).
fn floating_of(floating: u32, channels: usize) -> u32 {
    let eights = u32::try_from(channels.div_ceil(8)).unwrap_or(u32::MAX);
    floating.max(1).saturating_mul(eights.max(1))
}

/// Free buffers of a channel in use, so that credit comes four at a time: with 3 buffers each, 8 channels took a credit
/// message and a wake-up of the producer for every 1.3 buffers, 14,000 instructions a buffer beside the copy; with 8, one for
/// every 4 buffers and 11,000 (both ends together, over the in-memory backend).
pub const READY_BUFFERS: u32 = 8;
