//! The crate's backends, ready for the conformance suite.

use std::{any::Any, net::SocketAddr, sync::Arc, time::Duration};

use thalweg_transport::{
    Profile, ResourceId, Transport, TransportConfig, VerifiedPeer,
    mem::{MemConnection, MemNetwork, MemTransport},
    quic::QuicTransport,
    tcp::TcpTransport,
};
use tokio::{
    net::{TcpStream, UdpSocket},
    task::JoinSet,
};

use super::certificates::TestAuthority;
use crate::conformance::Backend;

/// [`MemTransport`] on a network of its own.
#[derive(Debug, Default)]
pub struct MemBackend {
    network: MemNetwork,
    anonymous: bool,
}

impl MemBackend {
    /// Nodes with identities.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Nodes without identities, as over a connection without TLS.
    #[must_use]
    pub fn anonymous() -> Self {
        Self {
            anonymous: true,
            ..Self::default()
        }
    }

    /// The network that all nodes are on.
    #[must_use]
    pub fn network(&self) -> &MemNetwork {
        &self.network
    }

    /// The identity of a node of this name.
    ///
    /// # Panics
    /// If the name is no resource id.
    #[must_use]
    pub fn identity(node: &str) -> VerifiedPeer {
        VerifiedPeer {
            id: ResourceId::new(node).expect("a resource id"),
            role: "taskmanager".into(),
            uri: format!("spiffe://conformance/taskmanager/{node}").into(),
            expires_at: u64::MAX,
        }
    }
}

impl Backend for MemBackend {
    type Transport = MemTransport;

    fn transport(&self, node: &str) -> MemTransport {
        let identity = (!self.anonymous).then(|| Self::identity(node));
        MemTransport::new(self.network.clone(), identity)
    }

    fn proves_identity(&self) -> bool {
        !self.anonymous
    }

    async fn dial_silently(&self, address: SocketAddr) -> Box<dyn Any + Send> {
        let dial = self.network.dial_silently(address);
        Box::new(dial.expect("a listener at the address"))
    }

    fn vanish(&self, connection: &MemConnection) {
        connection.sever();
    }
}

/// [`QuicTransport`] with certificates of one authority.
#[derive(Debug)]
pub struct QuicBackend {
    authority: TestAuthority,
    config: TransportConfig,
}

impl QuicBackend {
    /// Nodes with this profile. Silent peers are given up after three seconds, so that tests of that are quick.
    #[must_use]
    pub fn new(profile: Profile) -> Self {
        let mut config = TransportConfig::default();
        config.profile = profile;
        config.keep_alive = Duration::from_secs(1);
        config.idle_timeout = Duration::from_secs(3);
        Self::with_config(config)
    }

    /// Nodes with this configuration.
    #[must_use]
    pub fn with_config(config: TransportConfig) -> Self {
        Self {
            authority: TestAuthority::new("conformance"),
            config,
        }
    }
}

impl Backend for QuicBackend {
    type Transport = QuicTransport;

    fn transport(&self, node: &str) -> QuicTransport {
        QuicTransport::new(&self.config, Arc::new(self.authority.node(node)))
            .expect("a valid configuration")
    }

    /// A real client whose first packet, and nothing after it, reaches the listener.
    async fn dial_silently(&self, address: SocketAddr) -> Box<dyn Any + Send> {
        let relay = UdpSocket::bind((address.ip(), 0)).await.expect("a socket");
        let client = self.transport("silent");
        let target = relay.local_addr().expect("a bound socket");
        let mut dial = JoinSet::new();
        dial.spawn(async move { client.connect(target, None).await });
        let mut packet = vec![0; usize::from(u16::MAX)];
        let (len, _) = relay.recv_from(&mut packet).await.expect("a first packet");
        relay
            .send_to(&packet[..len], address)
            .await
            .expect("a packet on its way");
        Box::new((relay, dial))
    }
}

/// [`TcpTransport`], with certificates of one authority or in plaintext.
#[derive(Debug)]
pub struct TcpBackend {
    authority: Option<TestAuthority>,
    config: TransportConfig,
}

impl TcpBackend {
    /// Nodes with TLS.
    #[must_use]
    pub fn tls() -> Self {
        Self {
            authority: Some(TestAuthority::new("conformance")),
            config: TransportConfig::default(),
        }
    }

    /// Nodes without TLS.
    #[must_use]
    pub fn plaintext() -> Self {
        Self {
            authority: None,
            config: TransportConfig::default(),
        }
    }
}

impl Backend for TcpBackend {
    type Transport = TcpTransport;

    fn transport(&self, node: &str) -> TcpTransport {
        let credentials = self
            .authority
            .as_ref()
            .map(|authority| Arc::new(authority.node(node)) as _);
        TcpTransport::new(&self.config, credentials)
    }

    fn proves_identity(&self) -> bool {
        self.authority.is_some()
    }

    async fn dial_silently(&self, address: SocketAddr) -> Box<dyn Any + Send> {
        Box::new(TcpStream::connect(address).await.expect("a connection"))
    }
}
