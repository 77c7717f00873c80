//! Transport backends by the name that the configuration uses.

use std::{collections::BTreeMap, fmt, sync::Arc};

use thalweg_transport::{
    BoxFuture, Credentials, Node, NodeBuilder, NodeError, TransportConfig, quic::QuicTransport,
    tcp::TcpTransport,
};

/// The backends that a process has. An embedding engine adds its own, and a configuration then chooses it by name.
#[derive(Clone)]
pub struct BackendRegistry {
    backends: BTreeMap<Arc<str>, Backend>,
}

/// Starts a node on one backend: given the node's builder, the transport's settings, and its credentials, if any.
pub type Backend = Arc<
    dyn Fn(
            NodeBuilder,
            TransportConfig,
            Option<Arc<dyn Credentials>>,
        ) -> BoxFuture<'static, Result<Node, NodeError>>
        + Send
        + Sync,
>;

impl BackendRegistry {
    /// Without any.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            backends: BTreeMap::new(),
        }
    }

    /// Adds a backend; a later one under the same name replaces it.
    #[must_use]
    pub fn with(mut self, name: &str, backend: Backend) -> Self {
        self.backends.insert(name.into(), backend);
        self
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.backends.keys().map(AsRef::as_ref)
    }

    /// The backend of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Backend> {
        self.backends.get(name)
    }
}

impl Default for BackendRegistry {
    /// `quic` and `tcp`. QUIC without credentials is refused by the configuration's rules, and by a panic-free error here.
    fn default() -> Self {
        let quic: Backend = Arc::new(|builder, config, credentials| {
            Box::pin(async move {
                let credentials =
                    credentials.ok_or(NodeError::Config(thalweg_transport::ConfigError {
                        key: "tls.mode",
                        value: "off".to_owned(),
                        allowed: "mutual, because QUIC is always encrypted",
                    }))?;
                builder
                    .start(QuicTransport::new(&config, credentials)?)
                    .await
            })
        });
        let tcp: Backend = Arc::new(|builder, config, credentials| {
            Box::pin(async move { builder.start(TcpTransport::new(&config, credentials)).await })
        });
        Self::empty().with("quic", quic).with("tcp", tcp)
    }
}

impl fmt::Debug for BackendRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}
