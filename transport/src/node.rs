//! A node: one identity, one port, and the connections to other nodes.

mod builder;
mod network;

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

pub use builder::{NodeBuilder, NodeError};
use network::Life;
pub use network::NetworkRuntime;
use tokio::{runtime::Handle, time::timeout};

use crate::{
    addr::ConnectionId,
    config::TransportConfig,
    connections::{ConnectionSnapshot, Connections, Lease},
    handler::{StreamHandler, StreamKind, TransportError},
    identity::ResourceId,
    link::{Accepted, Local, Pool},
    shutdown::Shutdown,
    stream::BoxFuture,
};

/// A node: listens on one port, dials other nodes, and shares the connections. Clones share it.
///
/// End it with [`shutdown`](Self::shutdown). Dropping the last clone is the abrupt way: it does not wait, but tells
/// peers the same and ends the network thread within a second. A handler, or a task of [`tasks`](Connections::tasks),
/// that holds the node keeps it alive until `shutdown`.
///
/// ```
/// use std::time::Duration;
///
/// use thalweg_transport::{
///     ConnectionId, Connections, Node, ResourceId, TransportConfig,
///     mem::{MemNetwork, MemTransport},
/// };
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let (network, config) = (MemNetwork::new(), TransportConfig::default());
/// let east = Node::builder(ResourceId::new("east")?, config.clone())
///     .start(MemTransport::new(network.clone(), None))
///     .await?;
/// let west = Node::builder(ResourceId::new("west")?, config)
///     .start(MemTransport::new(network, None))
///     .await?;
///
/// // Everybody who asks for the same connection gets the same one.
/// let to_east = ConnectionId::new(east.id().clone(), east.advertised());
/// let first = west.acquire(to_east.clone()).await?;
/// let second = west.acquire(to_east).await?;
/// assert_eq!(second.peer().id, *east.id());
/// assert_eq!(west.active(), 1);
///
/// drop((first, second));
/// west.shutdown(Duration::from_secs(2)).await?;
/// east.shutdown(Duration::from_secs(2)).await?;
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(run()).unwrap();
/// ```
#[derive(Clone)]
pub struct Node {
    shared: Arc<Shared>,
}

impl Node {
    /// Prepares a node of this name.
    pub fn builder(id: ResourceId, config: TransportConfig) -> NodeBuilder {
        NodeBuilder::new(id, config)
    }

    /// The node's settings.
    #[must_use]
    pub fn config(&self) -> &TransportConfig {
        &self.shared.local.config
    }

    /// Ends the node: accepts no more, refuses pending and new acquires, closes every connection with
    /// [`SHUTTING_DOWN`](crate::ErrorCode::SHUTTING_DOWN), waits for its tasks, and ends the network thread.
    ///
    /// Tasks that do not stop by the deadline are dropped with the network thread; with [`NetworkRuntime::Current`] they
    /// go on. Of several calls the first one's deadline counts, and all wait for the same end. Not to be called from a
    /// handler: its connection ends, and the handler with it, before this returns.
    ///
    /// # Errors
    /// [`NodeError::Unfinished`] if tasks still ran at the deadline, [`NodeError::Stuck`] if something blocks the
    /// network thread.
    ///
    /// # Cancel safety
    /// Cancel-safe: the node ends all the same.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn shutdown(&self, deadline: Duration) -> Result<(), NodeError> {
        let life = &self.shared.life;
        life.request_stop(deadline);
        let ended = timeout(deadline.saturating_add(STOP_GRACE), life.ended()).await;
        match ended {
            Ok(0) => Ok(()),
            Ok(tasks) => Err(NodeError::Unfinished { tasks, deadline }),
            Err(_) => Err(NodeError::Stuck { deadline }),
        }
    }

    /// The connection that an id stands for: its index reduced.
    fn reduce(&self, mut connection: ConnectionId) -> ConnectionId {
        connection.index %= self.config().connections_per_peer;
        connection
    }
}

impl Connections for Node {
    fn id(&self) -> &ResourceId {
        self.shared.local.id()
    }

    fn local_addr(&self) -> SocketAddr {
        self.shared.local_addr
    }

    fn advertised(&self) -> String {
        self.shared.advertised.clone()
    }

    fn acquire(
        &self,
        connection: ConnectionId,
    ) -> BoxFuture<'static, Result<Lease, TransportError>> {
        Box::pin(Arc::clone(&self.shared.pool).acquire(self.reduce(connection)))
    }

    fn close_unused(&self, connection: &ConnectionId) {
        self.shared
            .pool
            .close_unused(&self.reduce(connection.clone()));
    }

    fn active(&self) -> usize {
        self.shared.pool.active()
    }

    fn snapshot(&self) -> Vec<ConnectionSnapshot> {
        let mut all = self.shared.pool.snapshot();
        all.extend(self.shared.accepted.snapshot());
        all
    }

    fn register(&self, kind: StreamKind, handler: Arc<dyn StreamHandler>) {
        self.shared.local.handlers.register(kind, handler);
    }

    fn runtime(&self) -> &Handle {
        &self.shared.runtime
    }

    fn tasks(&self) -> &Shutdown {
        &self.shared.tasks
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("id", self.id())
            .field("local_addr", &self.shared.local_addr)
            .field("active", &self.active())
            .finish_non_exhaustive()
    }
}

struct Shared {
    local: Arc<Local>,
    pool: Arc<Pool>,
    accepted: Arc<Accepted>,
    local_addr: SocketAddr,
    advertised: String,
    runtime: Handle,
    tasks: Shutdown,
    life: Life,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.life.request_stop(DROP_DEADLINE);
    }
}

/// Time of the tasks to end when the last handle was dropped: they are told at once, and nobody waits for the result.
const DROP_DEADLINE: Duration = Duration::from_secs(1);

/// How much longer than its deadline a shutdown may take before the network thread counts as blocked: its last work is
/// to drop what is left.
const STOP_GRACE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
