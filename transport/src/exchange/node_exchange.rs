//! Everything that one node's exchange consists of, put together.

use std::sync::Arc;

use super::{
    channel::ChannelSource,
    connection_manager::{ConnectionManager, NetworkConnectionManager},
    error::ExchangeError,
    gate::{GateContext, InputGate},
    manager::ResultPartitionManager,
    partition::ResultPartition,
    pool::BufferPool,
    task_events::TaskEventDispatcher,
    writer::PartitionWriter,
};
use crate::{
    config::TransportConfig,
    connections::Connections,
    proto::{ExecutionAttemptId, PartitionId},
};

/// The exchange of one node: its buffers, its partitions, and its ways to the partitions of other nodes.
///
/// A convenience for engines that take the parts as they are; each can also be made and replaced by itself. Cloning is
/// cheap; clones share the parts. The connections belong to the node, so shut the node down after the exchange.
///
/// ```
/// use std::sync::Arc;
///
/// use bytes::Bytes;
/// use thalweg_transport::{
///     ConnectionId, Connections, Node, ResourceId, TransportConfig,
///     exchange::{BufferOrEvent, ChannelSource, NodeExchange, SubpartitionRequest},
///     mem::{MemNetwork, MemTransport},
///     proto::{ExecutionAttemptId, PartitionId, SubpartitionIndex},
/// };
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let (network, config) = (MemNetwork::new(), TransportConfig::default());
/// let start = async |name: &str| -> Result<_, Box<dyn std::error::Error>> {
///     let transport = MemTransport::new(network.clone(), None);
///     Ok(Node::builder(ResourceId::new(name)?, config.clone()).start(transport).await?)
/// };
/// let (east, west) = (start("east").await?, start("west").await?);
/// let producing = NodeExchange::start(Arc::new(east.clone()), &config)?;
/// let consuming = NodeExchange::start(Arc::new(west.clone()), &config)?;
///
/// let (partition, producer) = (PartitionId::new(1, 0), ExecutionAttemptId(1));
/// let mut writer = producing.publish(partition, producer, 1)?;
/// writer.emit_bytes(0, &mut Bytes::from_static(b"downstream")).await?;
/// writer.finish()?;
///
/// let channel = ChannelSource::Remote {
///     connection: ConnectionId::new(east.id().clone(), east.advertised()),
///     request: SubpartitionRequest { partition, producer, subpartition: SubpartitionIndex(0) },
/// };
/// let mut gate = consuming.gate("sink", ExecutionAttemptId(2), vec![channel]).await?;
/// while let Some((_, item)) = gate.next().await? {
///     if let BufferOrEvent::Buffer(bytes) = item {
///         assert_eq!(bytes, "downstream");
///     }
/// }
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(run()).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct NodeExchange {
    config: TransportConfig,
    connections: Arc<dyn Connections>,
    manager: Arc<NetworkConnectionManager>,
    partitions: ResultPartitionManager,
    task_events: Arc<TaskEventDispatcher>,
    pool: BufferPool,
}

impl NodeExchange {
    /// Makes the parts and begins to serve partitions to other nodes. `connections` is the
    /// [`Node`](crate::Node).
    ///
    /// # Errors
    /// As [`ConnectionManager::start`].
    pub fn start(
        connections: Arc<dyn Connections>,
        config: &TransportConfig,
    ) -> Result<Self, ExchangeError> {
        let partitions = ResultPartitionManager::new(config.partition_request_timeout);
        let manager = NetworkConnectionManager::new(connections.clone(), config.clone());
        let task_events = Arc::new(TaskEventDispatcher::new());
        manager.start(Arc::new(partitions.clone()), task_events.clone())?;
        Ok(Self {
            config: config.clone(),
            connections,
            manager: Arc::new(manager),
            partitions,
            task_events,
            pool: BufferPool::new(config),
        })
    }

    /// Makes a pipelined partition, registers it, and gives its writer.
    ///
    /// # Errors
    /// [`ExchangeError::Buffers`] if its buffers cannot be guaranteed, [`ExchangeError::AlreadyRegistered`], and
    /// [`ExchangeError::InvalidState`] for no subpartition.
    pub fn publish(
        &self,
        partition: PartitionId,
        producer: ExecutionAttemptId,
        subpartitions: usize,
    ) -> Result<PartitionWriter, ExchangeError> {
        let partition =
            ResultPartition::pipelined_bounded(partition, producer, subpartitions, &self.pool)?;
        self.partitions.register(partition.clone())?;
        partition.writer()
    }

    /// Makes a gate and requests its channels.
    ///
    /// # Errors
    /// As [`InputGate::setup`]. A channel that cannot be had is an error of the gate's `next`.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub async fn gate(
        &self,
        name: impl Into<String>,
        consumer: ExecutionAttemptId,
        channels: Vec<ChannelSource>,
    ) -> Result<InputGate, ExchangeError> {
        let gate = InputGate::setup(name, consumer, channels, self.gate_context()).await?;
        gate.request_partitions();
        Ok(gate)
    }

    /// What gates need of this node.
    #[must_use]
    pub fn gate_context(&self) -> GateContext {
        let mut context = GateContext::new(
            &self.config,
            self.manager.clone(),
            Arc::new(self.partitions.clone()),
            self.pool.clone(),
            self.connections.runtime().clone(),
            self.connections.tasks().clone(),
        );
        context.task_events = self.task_events.clone();
        context
    }

    /// The node's buffers.
    #[must_use]
    pub fn pool(&self) -> &BufferPool {
        &self.pool
    }

    /// The node's own partitions.
    #[must_use]
    pub fn partitions(&self) -> &ResultPartitionManager {
        &self.partitions
    }

    /// The way to other nodes.
    #[must_use]
    pub fn connection_manager(&self) -> &Arc<NetworkConnectionManager> {
        &self.manager
    }

    /// Where producers hear of their consumers' events.
    #[must_use]
    pub fn task_events(&self) -> &Arc<TaskEventDispatcher> {
        &self.task_events
    }

    /// Releases every partition and refuses new ones and new clients. Gates end with the node.
    pub fn shutdown(&self) {
        self.partitions.shutdown();
        self.manager.shutdown();
        self.task_events.clear_all();
    }
}
