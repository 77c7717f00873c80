//! How a node starts.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use thiserror::Error;

use super::{
    Node, Shared,
    network::{NetworkRuntime, supervise},
};
use crate::{
    addr::BindAddr,
    config::{ConfigError, TransportConfig},
    error::{ConnectError, ErrorCode},
    handler::{StreamHandler, StreamKind},
    identity::ResourceId,
    link::{Accepted, Dialler, Local, Pool, accept_connections},
    proto::hello::{Hello, HelloError, OWN_FEATURE_BITS, OWN_FEATURES, Versions},
    shutdown::Shutdown,
    transport::{Listener, Transport},
};

/// Everything a node needs before it starts.
///
/// ```
/// use thalweg_transport::{
///     BindAddr, Connections, NetworkRuntime, Node, ResourceId, TransportConfig,
///     mem::{MemNetwork, MemTransport},
/// };
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let node = Node::builder(ResourceId::new("tm-1")?, TransportConfig::default())
///     .bind(BindAddr::single("127.0.0.1:7000".parse()?))
///     .advertise("localhost")
///     .network(NetworkRuntime::Current)
///     .cluster_id("staging")
///     .start(MemTransport::new(MemNetwork::new(), None))
///     .await?;
/// assert_eq!(node.local_addr().port(), 7000);
/// assert_eq!(node.advertised(), "localhost:7000");
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(run()).unwrap();
/// ```
#[derive(Debug, Clone)]
#[must_use = "a node runs only after start"]
pub struct NodeBuilder {
    id: ResourceId,
    config: TransportConfig,
    bind: BindAddr,
    advertise: Option<String>,
    network: NetworkRuntime,
    cluster: Option<Arc<str>>,
    max_frame: u32,
    features: u64,
    handlers: Vec<(StreamKind, Arc<dyn StreamHandler>)>,
}

impl NodeBuilder {
    pub(super) fn new(id: ResourceId, config: TransportConfig) -> Self {
        Self {
            id,
            config,
            bind: BindAddr::single(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)),
            advertise: None,
            network: NetworkRuntime::default(),
            cluster: None,
            max_frame: DEFAULT_MAX_FRAME,
            features: 0,
            handlers: vec![],
        }
    }

    /// Where to listen. Default: any free port of 127.0.0.1.
    pub fn bind(mut self, bind: BindAddr) -> Self {
        self.bind = bind;
        self
    }

    /// What other nodes dial: `host` or `host:port`. Default: the bound address, which others cannot dial if it is a
    /// wildcard. Without a port, or with port 0, the bound port is added.
    pub fn advertise(mut self, address: impl Into<String>) -> Self {
        self.advertise = Some(address.into());
        self
    }

    /// Where connections run. Default: [`NetworkRuntime::Dedicated`].
    pub fn network(mut self, network: NetworkRuntime) -> Self {
        self.network = network;
        self
    }

    /// The cluster, stated in the hello: nodes that state different ones refuse each other. A guard against wrong
    /// addresses where there is no TLS; with TLS, the certificates decide. Default: none.
    pub fn cluster_id(mut self, cluster: impl Into<Arc<str>>) -> Self {
        self.cluster = Some(cluster.into());
        self
    }

    /// Largest frame of any kind that this node accepts, in bytes, stated in the hello; at least `buffer_size`.
    /// Default 10 MiB, as Flink's frames of calls.
    pub fn max_frame(mut self, bytes: u32) -> Self {
        self.max_frame = bytes;
        self
    }

    /// Optional abilities of this node, one bit each, stated in the hello. Default none. The upper 16 bits are the
    /// transport's own, which it sets itself.
    pub fn features(mut self, features: u64) -> Self {
        self.features = features & !OWN_FEATURE_BITS;
        self
    }

    /// Names the code that serves streams of a kind from the first connection on. Streams whose kind has no handler
    /// are refused, which a peer may meet that dials between the start and a later
    /// [`register`](crate::Connections::register).
    pub fn handler(mut self, kind: StreamKind, handler: Arc<dyn StreamHandler>) -> Self {
        self.handlers.push((kind, handler));
        self
    }

    /// Starts the node: it listens and can dial.
    ///
    /// # Errors
    /// [`NodeError`]; nothing is left behind then.
    ///
    /// # Cancel safety
    /// Cancel-safe: a dropped start leaves nothing behind.
    pub async fn start<T: Transport>(self, transport: T) -> Result<Node, NodeError> {
        self.config.validate()?;
        let hello = Hello {
            versions: Versions::SUPPORTED,
            features: self.features | OWN_FEATURES,
            buffer_size: self.config.buffer_size,
            max_frame: self.max_frame.max(self.config.buffer_size),
            id: self.id,
            cluster: self.cluster,
        };
        let local = Arc::new(Local::new(self.config, hello)?);
        for (kind, handler) in self.handlers {
            local.handlers.register(kind, handler);
        }
        let (runtime, life, unused) = self.network.begin(local.id()).await?;
        let transport = Arc::new(transport);

        let (listening, bind) = (Arc::clone(&transport), self.bind);
        let listen = runtime.spawn(async move { listening.listen(&bind).await });
        let listener = listen.await.map_err(|error| NodeError::Runtime {
            reason: error.to_string(),
        })??;
        let local_addr = listener.local_addr();
        let advertised = advertised(self.advertise.as_deref(), local_addr)?;
        tracing::debug!(node = %local.id(), %local_addr, advertised, transport = transport.name(), "listening");

        let tasks = Shutdown::new();
        let accepted = Arc::new(Accepted::default());
        let accept = accept_connections(
            listener,
            Arc::clone(&local),
            Arc::clone(&accepted),
            tasks.clone(),
        );
        tasks.spawn_on(accept, &runtime);
        let dialler = Arc::new(Dialler::new(Arc::clone(&transport), Arc::clone(&local)));
        let pool = Arc::new(Pool::new(
            Arc::clone(&local),
            dialler,
            runtime.clone(),
            tasks.clone(),
        ));
        // The supervisor owns all other tasks and outlives them; its own end is what a shutdown waits for.
        drop(runtime.spawn(supervise(
            transport,
            Arc::clone(&local),
            Arc::clone(&pool),
            tasks.clone(),
            life.clone(),
            unused,
        )));
        Ok(Node {
            shared: Arc::new(Shared {
                local,
                pool,
                accepted,
                local_addr,
                advertised,
                runtime,
                tasks,
                life,
            }),
        })
    }
}

/// Why a node does not start, or did not end in time.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum NodeError {
    /// A setting is not allowed.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The cluster's name cannot stand in a hello.
    #[error("the cluster id cannot be used")]
    Cluster(#[from] HelloError),
    /// The advertised address is malformed.
    #[error("advertise = {address:?} is not allowed: host or host:port")]
    Advertise {
        /// What was given.
        address: String,
    },
    /// Listening failed.
    #[error("the node cannot listen")]
    Listen(#[from] ConnectError),
    /// The network thread or its runtime could not be started, or there is no current runtime.
    #[error("the network runtime failed: {reason}")]
    Runtime {
        /// The system's or tokio's words.
        reason: String,
    },
    /// Tasks still ran at the deadline of the shutdown.
    #[error("{tasks} tasks still ran {} ms after the shutdown began", deadline.as_millis())]
    Unfinished {
        /// How many.
        tasks: usize,
        /// The deadline that passed.
        deadline: Duration,
    },
    /// The network thread did not react: something blocks it.
    #[error("the network thread is blocked: no end {} ms after the shutdown began", deadline.as_millis())]
    Stuck {
        /// The deadline that passed.
        deadline: Duration,
    },
}

impl NodeError {
    /// Whether the same may work later while nothing is changed here.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Listen(ConnectError::AddressInUse { .. } | ConnectError::Bind { .. })
        )
    }

    /// The code that describes the failure.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Listen(error) => error.code(),
            Self::Unfinished { .. } | Self::Stuck { .. } => ErrorCode::TIMED_OUT,
            _ => ErrorCode::INTERNAL,
        }
    }
}

fn advertised(given: Option<&str>, bound: SocketAddr) -> Result<String, NodeError> {
    let Some(given) = given else {
        return Ok(bound.to_string());
    };
    let bad = || NodeError::Advertise {
        address: given.to_owned(),
    };
    if let Ok(ip) = given.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, bound.port()).to_string());
    }
    if let Ok(mut address) = given.parse::<SocketAddr>() {
        if address.port() == 0 {
            address.set_port(bound.port());
        }
        return Ok(address.to_string());
    }
    let (host, port) = match given.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().map_err(|_| bad())?),
        None => (given, 0_u16),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if host.is_empty() || !host.chars().all(is_name) {
        return Err(bad());
    }
    let port = if port == 0 { bound.port() } else { port };
    Ok(format!("{host}:{port}"))
}

/// Flink's `pekko.framesize`.
const DEFAULT_MAX_FRAME: u32 = 10 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_advertised_address_gets_the_bound_port_unless_it_has_one() {
        let bound = "127.0.0.1:6121".parse().unwrap();
        for (given, expected) in [
            ("tm-1.example", "tm-1.example:6121"),
            ("tm-1.example:0", "tm-1.example:6121"),
            ("tm-1.example:80", "tm-1.example:80"),
            ("10.0.0.1", "10.0.0.1:6121"),
            ("10.0.0.1:0", "10.0.0.1:6121"),
            ("::1", "[::1]:6121"),
            ("[::1]:9", "[::1]:9"),
        ] {
            assert_eq!(advertised(Some(given), bound).unwrap(), expected);
        }
        assert_eq!(advertised(None, bound).unwrap(), "127.0.0.1:6121");
        for bad in ["", ":80", "a b", "host:port", "host:70000", "a/b:1"] {
            let error = advertised(Some(bad), bound).unwrap_err().to_string();
            assert!(error.contains(&format!("{bad:?}")), "{error}");
        }
    }
}
