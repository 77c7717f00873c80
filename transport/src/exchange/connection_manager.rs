//! Who brings a task to the partitions of other nodes, and other nodes to ours.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{
    client::PartitionRequestClient,
    error::ExchangeError,
    server::{PartitionServer, ServerStats},
    task_events::TaskEventDispatcher,
    view::ResultPartitionProvider,
};
use crate::{
    addr::ConnectionId, config::TransportConfig, connections::Connections, handler::StreamKind,
    stream::BoxFuture,
};

/// The counterpart of Flink's `ConnectionManager`, operation by operation.
///
/// ```
/// use std::{sync::Arc, time::Duration};
///
/// use thalweg_transport::{
///     ConnectionId, Connections, Node, ResourceId, TransportConfig,
///     exchange::{
///         ConnectionManager, NetworkConnectionManager, ResultPartitionManager, TaskEventDispatcher,
///     },
///     mem::{MemNetwork, MemTransport},
/// };
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let (network, config) = (MemNetwork::new(), TransportConfig::default());
/// let start = async |name: &str| -> Result<Node, Box<dyn std::error::Error>> {
///     let transport = MemTransport::new(network.clone(), None);
///     Ok(Node::builder(ResourceId::new(name)?, config.clone()).start(transport).await?)
/// };
/// let (east, west) = (start("east").await?, start("west").await?);
///
/// // East serves its partitions, west asks for some of them.
/// let serving = NetworkConnectionManager::new(Arc::new(east.clone()), config.clone());
/// let partitions = ResultPartitionManager::new(Duration::from_secs(10));
/// serving.start(Arc::new(partitions), Arc::new(TaskEventDispatcher::new()))?;
/// assert_eq!(serving.data_port(), Some(east.local_addr().port()));
///
/// let asking = NetworkConnectionManager::new(Arc::new(west.clone()), config.clone());
/// let to_east = ConnectionId::new(east.id().clone(), east.advertised());
/// let client = asking.create_partition_request_client(to_east.clone()).await?;
/// assert_eq!(client.peer().id, *east.id());
/// assert_eq!(asking.number_of_active_connections(), 1);
///
/// asking.shutdown();
/// assert!(asking.create_partition_request_client(to_east).await.is_err());
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(run()).unwrap();
/// ```
pub trait ConnectionManager: fmt::Debug + Send + Sync + 'static {
    /// Begins to serve this node's partitions, and to deliver the task events of their consumers.
    ///
    /// # Errors
    /// [`ExchangeError::InvalidState`] the second time.
    fn start(
        &self,
        provider: Arc<dyn ResultPartitionProvider>,
        dispatcher: Arc<TaskEventDispatcher>,
    ) -> Result<(), ExchangeError>;

    /// Gets a client for a peer, connecting if need be. Dropping the future gives the claim up.
    ///
    /// # Errors
    /// [`ExchangeError::Transport`]; [`ExchangeError::NoNetwork`] without a network or after `shutdown`.
    fn create_partition_request_client(
        &self,
        connection: ConnectionId,
    ) -> BoxFuture<'static, Result<PartitionRequestClient, ExchangeError>>;

    /// Closes the connection, or cancels the dial, if nobody uses or waits for it: called when a channel is closed
    /// before it got its client.
    fn close_open_channel_connections(&self, connection: &ConnectionId);

    /// Connections that this node dialled, dials under way included.
    fn number_of_active_connections(&self) -> usize;

    /// The port where this node's partitions are reached, or `None` without a network.
    fn data_port(&self) -> Option<u16>;

    /// Refuses new clients. The connections end with the node that owns them.
    fn shutdown(&self);
}

/// The exchange over the shared connections of a node.
#[derive(Debug)]
pub struct NetworkConnectionManager {
    connections: Arc<dyn Connections>,
    config: TransportConfig,
    server: OnceLock<Arc<PartitionServer>>,
    closed: AtomicBool,
}

impl NetworkConnectionManager {
    /// Uses the connections of a node.
    #[must_use]
    pub fn new(connections: Arc<dyn Connections>, config: TransportConfig) -> Self {
        Self {
            connections,
            config,
            server: OnceLock::new(),
            closed: AtomicBool::new(false),
        }
    }

    /// Counters of the partition server; all 0 before `start`.
    #[must_use]
    pub fn server_stats(&self) -> ServerStats {
        self.server
            .get()
            .map(|server| server.stats())
            .unwrap_or_default()
    }
}

impl ConnectionManager for NetworkConnectionManager {
    fn start(
        &self,
        provider: Arc<dyn ResultPartitionProvider>,
        dispatcher: Arc<TaskEventDispatcher>,
    ) -> Result<(), ExchangeError> {
        let server = Arc::new(PartitionServer::new(provider, dispatcher, &self.config));
        if self.server.set(server.clone()).is_err() {
            return Err(ExchangeError::InvalidState {
                what: "the connection manager".to_owned(),
                reason: "it was started already",
            });
        }
        self.connections.register(StreamKind::PARTITION, server);
        Ok(())
    }

    fn create_partition_request_client(
        &self,
        connection: ConnectionId,
    ) -> BoxFuture<'static, Result<PartitionRequestClient, ExchangeError>> {
        if self.closed.load(Ordering::Acquire) {
            return refused(&connection, "the connection manager is shut down");
        }
        let acquire = self.connections.acquire(connection.clone());
        Box::pin(async move { Ok(PartitionRequestClient::new(connection, acquire.await?)) })
    }

    fn close_open_channel_connections(&self, connection: &ConnectionId) {
        self.connections.close_unused(connection);
    }

    fn number_of_active_connections(&self) -> usize {
        self.connections.active()
    }

    fn data_port(&self) -> Option<u16> {
        Some(self.connections.local_addr().port())
    }

    fn shutdown(&self) {
        self.closed.store(true, Ordering::Release);
    }
}

/// No network: for a cluster of one node in one process. Partitions are reached as local channels only.
#[derive(Debug, Default)]
pub struct LocalConnectionManager;

impl ConnectionManager for LocalConnectionManager {
    fn start(
        &self,
        _provider: Arc<dyn ResultPartitionProvider>,
        _dispatcher: Arc<TaskEventDispatcher>,
    ) -> Result<(), ExchangeError> {
        Ok(())
    }

    fn create_partition_request_client(
        &self,
        connection: ConnectionId,
    ) -> BoxFuture<'static, Result<PartitionRequestClient, ExchangeError>> {
        refused(&connection, "this node has no network")
    }

    fn close_open_channel_connections(&self, _connection: &ConnectionId) {}

    fn number_of_active_connections(&self) -> usize {
        0
    }

    fn data_port(&self) -> Option<u16> {
        None
    }

    fn shutdown(&self) {}
}

fn refused<T>(
    connection: &ConnectionId,
    reason: &'static str,
) -> BoxFuture<'static, Result<T, ExchangeError>>
where
    T: Send + 'static,
{
    let error = ExchangeError::NoNetwork {
        connection: connection.to_string(),
        reason,
    };
    Box::pin(std::future::ready(Err(error)))
}
