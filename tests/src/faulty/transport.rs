//! The in-memory transport with a fault: transport, listener and connection.

use std::{any::Any, net::SocketAddr, sync::Arc};

use thalweg_transport::{
    BindAddr, ConnectError, Connection, ConnectionError, ConnectionStats, ErrorCode, Listener,
    PeerIdentity, ResourceId, Transport,
    mem::{MemConnection, MemListener, MemNetwork, MemRecvStream, MemSendStream, MemTransport},
};
use tokio::sync::Semaphore;

use super::{
    fault::Fault,
    stream::{FaultyRecv, FaultySend},
};
use crate::{conformance::Backend, harness::MemBackend};

/// The in-memory backend with one fault, or with none as the counter-proof that the wrapper itself is sound.
#[derive(Debug)]
pub struct FaultyBackend {
    network: MemNetwork,
    context: Context,
}

impl FaultyBackend {
    /// A backend with this fault.
    #[must_use]
    pub fn new(fault: Fault) -> Self {
        Self::with(Some(fault))
    }

    /// The same wrapper without a fault: passes every check.
    #[must_use]
    pub fn sound() -> Self {
        Self::with(None)
    }

    fn with(fault: Option<Fault>) -> Self {
        let network = if fault == Some(Fault::UnboundedBuffer) {
            MemNetwork::with_window(usize::MAX)
        } else {
            MemNetwork::new()
        };
        Self {
            network,
            context: Context {
                fault,
                window: Arc::new(Semaphore::new(SHARED_WINDOW)),
            },
        }
    }
}

impl Backend for FaultyBackend {
    type Transport = FaultyTransport;

    fn transport(&self, node: &str) -> FaultyTransport {
        let identity = self.proves_identity().then(|| MemBackend::identity(node));
        FaultyTransport {
            inner: MemTransport::new(self.network.clone(), identity),
            network: self.network.clone(),
            context: self.context.clone(),
        }
    }

    fn proves_identity(&self) -> bool {
        !self.context.has(Fault::ClaimsIdentity)
    }

    async fn dial_silently(&self, address: SocketAddr) -> Box<dyn Any + Send> {
        let dial = self.network.dial_silently(address);
        Box::new(dial.expect("a listener at the address"))
    }

    fn vanish(&self, connection: &FaultyConnection) {
        connection.inner.sever();
    }
}

/// [`MemTransport`] with a fault.
#[derive(Debug)]
pub struct FaultyTransport {
    inner: MemTransport,
    network: MemNetwork,
    context: Context,
}

impl Transport for FaultyTransport {
    type Connection = FaultyConnection;
    type Listener = FaultyListener;

    fn name(&self) -> &'static str {
        "faulty"
    }

    async fn listen(&self, bind: &BindAddr) -> Result<FaultyListener, ConnectError> {
        Ok(FaultyListener {
            inner: self.inner.listen(bind).await?,
            network: self.network.clone(),
            context: self.context.clone(),
        })
    }

    async fn connect(
        &self,
        address: SocketAddr,
        expected: Option<&ResourceId>,
    ) -> Result<FaultyConnection, ConnectError> {
        let inner = self.inner.connect(address, expected).await?;
        Ok(FaultyConnection::new(inner, self.context.clone()))
    }
}

/// [`MemListener`] with a fault.
#[derive(Debug)]
pub struct FaultyListener {
    inner: MemListener,
    network: MemNetwork,
    context: Context,
}

impl Listener for FaultyListener {
    type Connection = FaultyConnection;

    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    async fn accept(&mut self) -> Result<FaultyConnection, ConnectError> {
        if self.context.has(Fault::AcceptWaitsForSilentPeers) {
            while self.network.handshakes_in_progress(self.local_addr()) > 0 {
                tokio::task::yield_now().await;
            }
        }
        let inner = self.inner.accept().await?;
        Ok(FaultyConnection::new(inner, self.context.clone()))
    }
}

/// [`MemConnection`] with a fault.
#[derive(Debug, Clone)]
pub struct FaultyConnection {
    inner: MemConnection,
    claimed: PeerIdentity,
    context: Context,
}

impl FaultyConnection {
    fn new(inner: MemConnection, context: Context) -> Self {
        if context.has(Fault::OpenIgnoresLimit) {
            inner.allow_streams(u32::MAX);
        }
        let claimed = if context.has(Fault::ClaimsIdentity) {
            PeerIdentity::Verified(MemBackend::identity("claimed"))
        } else {
            inner.peer().clone()
        };
        Self {
            inner,
            claimed,
            context,
        }
    }

    fn wrap(&self, (send, recv): (MemSendStream, MemRecvStream)) -> (FaultySend, FaultyRecv) {
        (
            FaultySend::new(send, self.context.clone()),
            FaultyRecv::new(recv, self.context.clone()),
        )
    }

    fn end(&self, error: ConnectionError) -> ConnectionError {
        match error {
            ConnectionError::ClosedByPeer { reason, .. }
                if self.context.has(Fault::CloseCodeDiffers) =>
            {
                ConnectionError::ClosedByPeer {
                    code: ErrorCode::INTERNAL,
                    reason,
                }
            }
            error => error,
        }
    }
}

impl Connection for FaultyConnection {
    type Send = FaultySend;
    type Recv = FaultyRecv;

    async fn open(&self) -> Result<(FaultySend, FaultyRecv), ConnectionError> {
        let opened = if self.context.has(Fault::CancelledOpenTakesStream) {
            let inner = self.inner.clone();
            let opening = tokio::spawn(async move { inner.open().await });
            opening.await.expect("opening does not panic")
        } else {
            self.inner.open().await
        };
        opened
            .map(|halves| self.wrap(halves))
            .map_err(|error| self.end(error))
    }

    async fn accept(&self) -> Result<(FaultySend, FaultyRecv), ConnectionError> {
        let accepted = self.inner.accept().await;
        accepted
            .map(|halves| self.wrap(halves))
            .map_err(|error| self.end(error))
    }

    fn peer(&self) -> &PeerIdentity {
        &self.claimed
    }

    fn remote_addr(&self) -> SocketAddr {
        self.inner.remote_addr()
    }

    fn close(&self, code: ErrorCode, reason: &str) {
        if !self.context.has(Fault::CloseWakesNobody) {
            self.inner.close(code, reason);
        }
    }

    async fn closed(&self) -> ConnectionError {
        let error = self.inner.closed().await;
        self.end(error)
    }

    fn allow_streams(&self, count: u32) {
        self.inner.allow_streams(count);
    }

    fn stats(&self) -> ConnectionStats {
        if self.context.has(Fault::StatsStandStill) {
            ConnectionStats::default()
        } else {
            self.inner.stats()
        }
    }
}

/// The fault, and what all nodes of a backend share to commit it.
#[derive(Debug, Clone)]
pub(super) struct Context {
    fault: Option<Fault>,
    /// The one window of [`Fault::SharedWindow`].
    pub(super) window: Arc<Semaphore>,
}

impl Context {
    pub(super) fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }
}

/// Bytes that all streams together may have under way, with [`Fault::SharedWindow`].
const SHARED_WINDOW: usize = 128 * 1024;
