//! The backend itself: dialling and listening.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Once},
};

use tokio::{net::TcpStream, time::timeout};

use super::{connection::TcpConnection, handshake, listener::TcpListener, reader::LINGER};
use crate::{
    addr::BindAddr,
    awaited::Awaited,
    config::TransportConfig,
    error::ConnectError,
    identity::{Credentials, ResourceId},
    proto::mux::{Growth, Settings},
    shutdown::Shutdown,
    system,
    transport::Transport,
};

/// TCP with TLS 1.3, or without on explicit demand.
///
/// ```
/// use std::sync::Arc;
///
/// use thalweg_transport::{
///     ConnectionId, Connections, Node, ResourceId, TransportConfig, TcpTransport,
/// };
///
/// # fn credentials(
/// #     ca: &thalweg_certs::CertificateAuthority,
/// #     name: &str,
/// # ) -> Result<Arc<thalweg_transport::RustlsCredentials>, Box<dyn std::error::Error>> {
/// #     use thalweg_transport::{ErrorCode, Refusal, ResourceId, VerifiedPeer};
/// #     let role = thalweg_certs::Role::TaskManager;
/// #     let identity = thalweg_certs::Identity::new(ca.cluster(), role, name)?;
/// #     let own = ca.issue(&thalweg_certs::IssueRequest::new(identity))?.credentials()?;
/// #     let refuse = |error: &dyn std::error::Error| Refusal {
/// #         code: ErrorCode::UNIDENTIFIED,
/// #         reason: error.to_string(),
/// #     };
/// #     Ok(Arc::new(thalweg_transport::RustlsCredentials::new(
/// #         Arc::unwrap_or_clone(own.server_config(&[])),
/// #         Arc::unwrap_or_clone(own.client_config(&[])),
/// #         move |certificate| {
/// #             let identity = thalweg_certs::identity_of(certificate).map_err(|e| refuse(&e))?;
/// #             Ok(VerifiedPeer {
/// #                 id: ResourceId::new(identity.id()).map_err(|e| refuse(&e))?,
/// #                 role: identity.role().as_str().into(),
/// #                 uri: identity.to_string().into(),
/// #                 expires_at: u64::MAX,
/// #             })
/// #         },
/// #     )))
/// # }
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let ca = thalweg_certs::CertificateAuthority::generate("staging", 1)?;
/// let mut config = TransportConfig::default();
/// // What a peer may leave unread on one connection; profiles are QUIC's.
/// config.max_unread_bytes = 16 * 1024 * 1024;
///
/// // `credentials` makes `RustlsCredentials` of a certificate of the cluster.
/// let start = async |name: &str| -> Result<Node, Box<dyn std::error::Error>> {
///     let transport = TcpTransport::new(&config, Some(credentials(&ca, name)?));
///     Ok(Node::builder(ResourceId::new(name)?, config.clone()).start(transport).await?)
/// };
/// let (east, west) = (start("east").await?, start("west").await?);
/// let to_east = ConnectionId::new(east.id().clone(), east.advertised());
/// let lease = west.acquire(to_east).await?;
/// assert!(lease.peer().identity.verified().is_some());
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(run()).unwrap();
/// ```
#[derive(Debug)]
pub struct TcpTransport {
    pub(super) shared: Arc<Setup>,
}

/// What the listener's handshakes need too.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) config: TransportConfig,
    pub(super) credentials: Option<Arc<dyn Credentials>>,
    /// Owns the connections' tasks; each ends with its connection.
    pub(super) tasks: Shutdown,
    /// Dials whose TCP handshake is under way.
    awaited: Arc<Awaited>,
    /// Held by every connection, to be counted.
    pub(super) open: Arc<()>,
}

impl TcpTransport {
    /// A backend with these settings.
    ///
    /// Without credentials connections are **plaintext**: anyone on the network can read, change and forge what they
    /// carry, and every peer is [`Unverified`](crate::PeerIdentity::Unverified). A warning is logged, once per process.
    #[must_use]
    pub fn new(config: &TransportConfig, credentials: Option<Arc<dyn Credentials>>) -> Self {
        if credentials.is_none() {
            static WARNED: Once = Once::new();
            WARNED.call_once(|| {
                tracing::warn!(
                    "TLS is off: anybody who reaches this node's TCP port can read, change and forge its data"
                );
            });
        }
        system::prepare();
        Self {
            shared: Arc::new(Setup {
                config: config.clone(),
                credentials,
                tasks: Shutdown::new(),
                awaited: Arc::default(),
                open: Arc::default(),
            }),
        }
    }
}

impl Transport for TcpTransport {
    type Connection = TcpConnection;
    type Listener = TcpListener;

    fn name(&self) -> &'static str {
        "tcp"
    }

    async fn listen(&self, bind: &BindAddr) -> Result<TcpListener, ConnectError> {
        TcpListener::bind(bind, self.shared.clone()).await
    }

    async fn connect(
        &self,
        address: SocketAddr,
        expected: Option<&ResourceId>,
    ) -> Result<TcpConnection, ConnectError> {
        let Setup {
            config,
            credentials,
            awaited,
            ..
        } = &*self.shared;
        let timed_out = |reason: &str| ConnectError::TimedOut {
            address: address.to_string(),
            reason: reason.to_owned(),
        };
        let awaits = awaited.begin(address);
        let tcp = timeout(config.connect_timeout, TcpStream::connect(address))
            .await
            .map_err(|_| timed_out(UNANSWERED))?
            .and_then(prepare)
            .map_err(|error| {
                let connections = Some(self.shared.connections());
                let ours = system::refused(address, &error, connections);
                ours.unwrap_or_else(|| ConnectError::Unreachable {
                    address: address.to_string(),
                    reason: error.to_string(),
                })
            })?;
        drop(awaits);
        let dial = handshake::dial(
            tcp,
            address,
            expected,
            credentials.as_ref(),
            self.shared.settings(),
        );
        let established = timeout(config.handshake_timeout, dial)
            .await
            .map_err(|_| timed_out("the TLS handshake or the peer's first frame"))??;
        Ok(TcpConnection::start(established, &self.shared))
    }

    fn unanswered(&self, address: SocketAddr) -> Option<String> {
        let is_silent = self.shared.awaited.is_silent(address);
        is_silent.then(|| UNANSWERED.to_owned())
    }

    /// Waits for the tasks of all connections, so for those that nobody closed too, but never longer than closed ones
    /// take.
    async fn drained(&self) {
        if let Err(left) = self.shared.tasks.finish(LINGER * 2).await {
            tracing::debug!(
                left,
                "connections were not closed, or their peers do not read"
            );
        }
    }
}

impl Setup {
    /// Connections of this transport that live.
    pub(super) fn connections(&self) -> usize {
        Arc::strong_count(&self.open) - 1
    }

    /// What this side announces.
    pub(super) fn settings(&self) -> Settings {
        Settings {
            window: START_WINDOW,
            streams: FIRST_STREAMS.min(self.config.max_streams_per_connection),
        }
    }
}

/// How the receive windows of a connection's streams grow.
pub(super) fn growth(config: &TransportConfig) -> Growth {
    Growth {
        first: FIRST_GROWTH,
        max: STREAM_WINDOW,
        budget: config.max_unread_bytes,
    }
}

/// Sets what every socket needs. Buffer sizes are left to the kernel: fixed ones gained nothing.
pub(super) fn prepare(tcp: TcpStream) -> io::Result<TcpStream> {
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

/// Of a dial that gets no answer to its first packet.
const UNANSWERED: &str =
    "no answer to the TCP handshake: the machine is down, or a firewall drops packets to the port";

/// Receive window of a stream at its start, which it never falls below: one TLS record. It is what a peer can make this
/// side hold for each of its streams, 1 GiB for 65,536 of them; calls and requests hardly ever need more.
const START_WINDOW: u32 = 16 * 1024;

/// What the window grows to when a sender has used it up for the first time: bulk.
const FIRST_GROWTH: u32 = 256 * 1024;

/// Largest receive window of a stream: above what the credits of a lone channel allow (42 buffers of 32 KiB, and a
/// quarter of the window that is read and not yet announced), so that credits bind first.
const STREAM_WINDOW: u32 = 2 * 1024 * 1024;

/// Streams that a peer may open before it is allowed more.
const FIRST_STREAMS: u32 = 100;
