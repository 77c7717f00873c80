//! The shared connections of a node, without a type parameter: what the exchange and the RPC layer build on.

use std::{fmt, net::SocketAddr, sync::Arc};

use tokio::runtime::Handle;

use crate::{
    addr::ConnectionId,
    error::ConnectionError,
    handler::{Peer, PeerStream, StreamHandler, StreamKind, TransportError},
    identity::ResourceId,
    proto::hello::Agreement,
    shutdown::Shutdown,
    stream::BoxFuture,
    transport::ConnectionStats,
};

/// The shared connections of a node. `Node` implements it; tests may put something else in its place.
///
/// At most one dial per [`ConnectionId`] is under way at any time, and at most one connection per ConnectionId is kept;
/// every waiter of a dial gets its own answer; a failed or cancelled dial is never remembered; a cached connection that
/// died is replaced before anyone gets it. A connection that is older than `max_connection_age` is *drained*: the next
/// acquire dials a new one, and those who hold the old one go on.
pub trait Connections: fmt::Debug + Send + Sync + 'static {
    /// The node itself.
    fn id(&self) -> &ResourceId;

    /// Where the node listens.
    fn local_addr(&self) -> SocketAddr;

    /// `host:port` that other nodes dial.
    fn advertised(&self) -> String;

    /// Gets the connection for this ConnectionId, dialling if need be, and counts a reference to it.
    ///
    /// May be awaited on any runtime. Dropping the future gives the claim up; a dial that nobody waits for any more is
    /// cancelled or its late connection closed.
    fn acquire(
        &self,
        connection: ConnectionId,
    ) -> BoxFuture<'static, Result<Lease, TransportError>>;

    /// Closes the connection, or cancels the dial, if nobody holds or waits for it.
    fn close_unused(&self, connection: &ConnectionId);

    /// Connections that this node dialled and that an acquire could get, dials under way included. Those that are being
    /// drained are not counted, so that it is never more than `connections_per_peer` for each peer; the
    /// [snapshot](Self::snapshot) has them too.
    fn active(&self) -> usize;

    /// Counters of every live connection, dialled and accepted.
    fn snapshot(&self) -> Vec<ConnectionSnapshot>;

    /// Names the code that serves streams of a kind. Replaces an earlier one. Dropped at once after the shutdown.
    fn register(&self, kind: StreamKind, handler: Arc<dyn StreamHandler>);

    /// The runtime of the network thread: tasks that read and write streams run fastest there, and must never block.
    fn runtime(&self) -> &Handle;

    /// The owner of such tasks; cancelled when the node shuts down.
    fn tasks(&self) -> &Shutdown;
}

/// A counted reference to a connection; dropping it releases the reference. Streams that it opened count as well.
///
/// Without references a connection is kept for reuse, or closed if `reuse_connections` is off or it is
/// [draining](Self::draining). It closes a second after the last reference is gone, so that what was sent last arrives. A
/// stream that was finished counts until the peer has all of it, for `write_timeout` at most.
///
/// Who holds a lease for long, with streams that never end by themselves, has to watch [`draining`](Self::draining) and
/// move to a new connection: a draining one that is still used is closed with [`REPLACED`](crate::ErrorCode::REPLACED) when
/// it has drained for `max_connection_age`, however much is under way on it.
#[derive(Debug)]
pub struct Lease(Box<dyn LeasedConnection>);

impl Lease {
    /// Wraps what a [`Connections`] hands out.
    #[must_use]
    pub fn new(connection: Box<dyn LeasedConnection>) -> Self {
        Self(connection)
    }

    /// Who is at the other end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        self.0.peer()
    }

    /// What both nodes agreed upon in their hellos, and the peer's limits; `None` where there was no hello.
    #[must_use]
    pub fn agreement(&self) -> Option<&Agreement> {
        self.0.agreement()
    }

    /// Opens a stream of this kind; the bytes that name the kind go out with the first write.
    ///
    /// # Errors
    /// The connection's end, told apart into local and remote.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub async fn open(&self, kind: StreamKind) -> Result<PeerStream, TransportError> {
        self.0.open(kind).await
    }

    /// Why the connection ended, or `None` while it lives.
    #[must_use]
    pub fn close_reason(&self) -> Option<ConnectionError> {
        self.0.close_reason()
    }

    /// Waits for the connection's end.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub async fn closed(&self) -> ConnectionError {
        self.0.closed().await
    }

    /// Whether the connection is too old for new work: an acquire of the same ConnectionId gets a new one.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.0.is_draining()
    }

    /// Waits until the connection is too old for new work; for ever if it ends before.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub async fn draining(&self) {
        self.0.draining().await;
    }
}

/// What stands behind a [`Lease`]; dropping it releases the reference.
pub trait LeasedConnection: fmt::Debug + Send + Sync {
    /// Who is at the other end.
    fn peer(&self) -> &Peer;
    /// What both nodes agreed upon in their hellos.
    fn agreement(&self) -> Option<&Agreement> {
        None
    }
    /// Opens a stream of this kind.
    fn open(&self, kind: StreamKind) -> BoxFuture<'_, Result<PeerStream, TransportError>>;
    /// Why the connection ended, or `None` while it lives.
    fn close_reason(&self) -> Option<ConnectionError>;
    /// Waits for the connection's end.
    fn closed(&self) -> BoxFuture<'_, ConnectionError>;
    /// Whether the connection is too old for new work.
    fn is_draining(&self) -> bool {
        false
    }
    /// Waits until the connection is too old for new work.
    fn draining(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// One live connection, for status pages and metrics.
#[derive(Debug, Clone, PartialEq)]
pub struct ConnectionSnapshot {
    /// The node at the other end.
    pub peer: Peer,
    /// Whether this node dialled it.
    pub dialled: bool,
    /// Whether it is too old for new work, and lives on for what is under way. Only the node that dialled it knows.
    pub draining: bool,
    /// Counters.
    pub stats: ConnectionStats,
}
