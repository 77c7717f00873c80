//! The transport of one node: its endpoints, and dialling.

use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use quinn::{Endpoint, crypto::rustls::QuicClientConfig};
use tokio::time::timeout;

use super::{
    connection::QuicConnection,
    error::{connect_error, dial_error},
    handshake::admit,
    listener::{ListenerSettings, QuicListener},
    profile::PathSettings,
    socket::open_endpoint,
};
use crate::{
    addr::BindAddr,
    awaited::Awaited,
    config::{ConfigError, TransportConfig},
    error::ConnectError,
    handshakes::Handshakes,
    identity::{Admission, Credentials, ResourceId, SERVER_NAME},
    shutdown::Shutdown,
    system,
    transport::{Listener, Transport},
};

/// QUIC on one UDP socket.
///
/// The socket is the listener's: dials leave from the port on which the node listens. A node that does not listen, or
/// dials another address family than it listens on, gets a socket with a free port on its first dial.
///
/// Each dial and each accepted handshake uses the configurations that the [`Credentials`] give at that moment.
///
/// ```
/// use std::sync::Arc;
///
/// use thalweg_transport::{
///     ConnectionId, Connections, Node, Profile, ResourceId, TransportConfig, quic::QuicTransport,
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
/// // Both nodes are on this machine. Packet sizes, windows and congestion control follow from that.
/// config.profile = Profile::Loopback;
///
/// // `credentials` makes `RustlsCredentials` of a certificate of the cluster.
/// let start = async |name: &str| -> Result<Node, Box<dyn std::error::Error>> {
///     let transport = QuicTransport::new(&config, credentials(&ca, name)?)?;
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
pub struct QuicTransport {
    path: PathSettings,
    quic: Arc<quinn::TransportConfig>,
    credentials: Arc<dyn Credentials>,
    config: TransportConfig,
    endpoints: Arc<Mutex<Endpoints>>,
    /// Dials under way, of which the sockets know when something comes.
    awaited: Arc<Awaited>,
    /// Owns the waits for the connections of listeners that are gone.
    tasks: Shutdown,
}

impl QuicTransport {
    /// Makes the settings; opens no socket.
    ///
    /// # Errors
    /// [`ConfigError`] if the configuration is not [valid](TransportConfig::validate).
    pub fn new(
        config: &TransportConfig,
        credentials: Arc<dyn Credentials>,
    ) -> Result<Self, ConfigError> {
        config.validate()?;
        system::prepare();
        let path = PathSettings::of(config.profile);
        Ok(Self {
            path,
            quic: path.transport_config(config)?,
            credentials,
            config: config.clone(),
            endpoints: Arc::default(),
            awaited: Arc::default(),
            tasks: Shutdown::new(),
        })
    }

    /// A quinn endpoint of its own with the very settings of this transport: socket, packet sizes, offload, windows,
    /// congestion control, certificates. It accepts and, by [`connect`](Endpoint::connect), dials.
    ///
    /// For measurements beside quinn itself; nothing that this crate does on a connection happens on it: peers are not
    /// asked who they are beyond their certificate chain, and nobody raises the 100 streams that a peer may open. It runs
    /// on the current tokio runtime.
    ///
    /// # Errors
    /// [`ConnectError::Bind`] if the socket cannot be opened, [`ConnectError::Tls`] if the certificates are not fit for
    /// QUIC.
    #[cfg(feature = "raw-quic")]
    pub fn raw_endpoint(&self, bind: SocketAddr) -> Result<Endpoint, ConnectError> {
        let failed = |reason: String| ConnectError::Bind {
            address: bind.to_string(),
            reason,
        };
        let server = super::listener::server_config(self.credentials.server_config(), &self.quic)
            .map_err(failed)?;
        let client = self.client_config(bind)?;
        let mut endpoint = open_endpoint(bind, &self.path, Some(server), &self.awaited)
            .map_err(|error| failed(error.to_string()))?;
        endpoint.set_default_client_config(client);
        Ok(endpoint)
    }

    /// The endpoint to dial from: the listener's if it can reach the address, else one that only dials.
    fn endpoint_for(&self, address: SocketAddr) -> Result<Endpoint, ConnectError> {
        let mut endpoints = lock(&self.endpoints);
        if let Some((local, endpoint)) = &endpoints.listening
            && local.is_ipv4() == address.is_ipv4()
            && (!local.ip().is_loopback() || address.ip().is_loopback())
        {
            return Ok(endpoint.clone());
        }
        let (slot, any): (_, SocketAddr) = if address.is_ipv4() {
            let any = (Ipv4Addr::UNSPECIFIED, 0).into();
            (&mut endpoints.dialling_v4, any)
        } else {
            let any = (Ipv6Addr::UNSPECIFIED, 0).into();
            (&mut endpoints.dialling_v6, any)
        };
        if let Some(endpoint) = slot {
            return Ok(endpoint.clone());
        }
        let opened = open_endpoint(any, &self.path, None, &self.awaited);
        let endpoint = opened.map_err(|error| system::failed(address, Arc::new(error)))?;
        Ok(slot.insert(endpoint).clone())
    }

    fn client_config(&self, address: SocketAddr) -> Result<quinn::ClientConfig, ConnectError> {
        let crypto =
            QuicClientConfig::try_from(self.credentials.client_config()).map_err(|error| {
                ConnectError::Tls {
                    address: address.to_string(),
                    reason: format!("the client configuration is not fit for QUIC: {error}"),
                }
            })?;
        let mut config = quinn::ClientConfig::new(Arc::new(crypto));
        config.transport_config(Arc::clone(&self.quic));
        Ok(config)
    }

    async fn dial(
        &self,
        address: SocketAddr,
        expected: Option<&ResourceId>,
    ) -> Result<QuicConnection, ConnectError> {
        let connection = self
            .endpoint_for(address)?
            .connect_with(self.client_config(address)?, address, SERVER_NAME)
            .map_err(|error| dial_error(error, address))?
            .await
            .map_err(|error| connect_error(&error, address))?;
        let admission = Admission::Dialled(expected);
        let peer = admit(&*self.credentials, &connection, admission).map_err(|refusal| {
            ConnectError::PeerRejected {
                address: address.to_string(),
                code: refusal.code,
                reason: refusal.reason,
            }
        })?;
        Ok(QuicConnection::new(connection, peer))
    }
}

impl fmt::Debug for QuicTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicTransport")
            .field("path", &self.path)
            .field("credentials", &self.credentials)
            .finish_non_exhaustive()
    }
}

impl Transport for QuicTransport {
    type Connection = QuicConnection;
    type Listener = QuicListener;

    fn name(&self) -> &'static str {
        "quic"
    }

    async fn listen(&self, bind: &BindAddr) -> Result<QuicListener, ConnectError> {
        let settings = ListenerSettings {
            credentials: Arc::clone(&self.credentials),
            quic: Arc::clone(&self.quic),
            tasks: self.tasks.clone(),
            awaited: Arc::clone(&self.awaited),
        };
        let handshakes = Handshakes::new(&self.config);
        let endpoints = Arc::clone(&self.endpoints);
        let listener = QuicListener::bind(bind, &self.path, settings, handshakes, endpoints)?;
        lock(&self.endpoints).listening = Some((listener.local_addr(), listener.endpoint()));
        Ok(listener)
    }

    /// As the trait says. A peer that refuses our certificate is noticed only after the handshake, since TLS 1.3 lets
    /// the dialler finish first: the connection then ends with [`ConnectionError::Protocol`] and the alert in words.
    ///
    /// [`ConnectionError::Protocol`]: crate::ConnectionError::Protocol
    async fn connect(
        &self,
        address: SocketAddr,
        expected: Option<&ResourceId>,
    ) -> Result<QuicConnection, ConnectError> {
        let limit = self.config.handshake_timeout;
        let _awaits = self.awaited.begin(address);
        let mut outcome = timeout(limit, self.dial(address, expected))
            .await
            .unwrap_or_else(|_| {
                Err(ConnectError::TimedOut {
                    address: address.to_string(),
                    reason: format!("no handshake within {limit:?}"),
                })
            });
        if let Err(ConnectError::TimedOut { reason, .. }) = &mut outcome
            && let Some(more) = self.unanswered(address)
        {
            reason.push_str("; ");
            reason.push_str(&more);
        }
        outcome
    }

    fn unanswered(&self, address: SocketAddr) -> Option<String> {
        let is_silent = self.awaited.is_silent(address);
        is_silent.then(|| silence(&self.path, address))
    }

    /// Waits until the last connection of every socket has gone through its closing period, at most a second, and so for
    /// those that nobody closed too.
    async fn drained(&self) {
        let endpoints = lock(&self.endpoints).all();
        let idle = async {
            for endpoint in endpoints {
                endpoint.wait_idle().await;
            }
            self.tasks.finish(LINGER).await
        };
        if !matches!(timeout(LINGER, idle).await, Ok(Ok(()))) {
            tracing::debug!("some connections were not closed, or their closing takes longer");
        }
    }
}

/// What it may mean that no packet came from an address.
fn silence(path: &PathSettings, address: SocketAddr) -> String {
    let mut words = format!(
        "no packet came from {address}: nobody listens there (`ss -uln` on that machine shows who does), or UDP is \
         blocked on the way, as many firewalls let TCP alone pass; the tcp backend needs no UDP"
    );
    if path.initial_mtu > ETHERNET_PAYLOAD && !address.ip().is_loopback() {
        words.push_str(&format!(
            "; or the path does not carry the packets of {} bytes that this profile begins with: the lan profile finds \
             out what it carries",
            path.initial_mtu
        ));
    }
    words
}

/// The sockets of one node. The listener takes its own away when it is dropped.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    pub(super) listening: Option<(SocketAddr, Endpoint)>,
    dialling_v4: Option<Endpoint>,
    dialling_v6: Option<Endpoint>,
}

impl Endpoints {
    fn all(&self) -> Vec<Endpoint> {
        let listening = self.listening.as_ref().map(|(_, endpoint)| endpoint);
        let dialling = self.dialling_v4.iter().chain(&self.dialling_v6);
        listening.into_iter().chain(dialling).cloned().collect()
    }
}

/// Poisoning is ignored: each change is one assignment.
pub(super) fn lock(endpoints: &Mutex<Endpoints>) -> MutexGuard<'_, Endpoints> {
    endpoints.lock().unwrap_or_else(PoisonError::into_inner)
}

/// UDP payload of a 1,500-byte frame with IPv4: what any path of today carries.
const ETHERNET_PAYLOAD: u16 = 1_472;

/// How long the end waits for closed connections. Their closing period, in which the close is sent again to a peer that
/// has not heard it, takes three probe time-outs (RFC 9000 section 10.2): some 100 ms, and less than this up to a round
/// trip of 200 ms.
const LINGER: Duration = Duration::from_secs(1);
