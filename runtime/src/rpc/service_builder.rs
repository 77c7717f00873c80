//! Making a service.

use std::sync::Arc;

use thalweg_transport::{ConfigError, Connections, ResourceId};
use tokio::runtime::Handle;

use super::{config::RpcConfig, service::RpcService, trace::Tracer};

/// Settings of a new [`RpcService`].
///
/// The address of a remote service is its node's. [`NodeBuilder::bind`](thalweg_transport::NodeBuilder::bind) says
/// where it listens: an IP address, which may be a wildcard, with a port, a range of ports of which the first free
/// one is taken, or 0 for any. [`advertise`](thalweg_transport::NodeBuilder::advertise) says what peers dial and what
/// stands in the addresses of endpoints: another host, or behind a port mapping another host and port.
///
/// ```
/// # use std::sync::Arc;
/// # use thalweg_runtime::rpc::RpcService;
/// use thalweg_transport::{
///     Node, ResourceId, TransportConfig,
///     mem::{MemNetwork, MemTransport},
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let id = ResourceId::new("tm-1")?;
/// let node = Node::builder(id.clone(), TransportConfig::default())
///     .bind("0.0.0.0:50100-50200".parse()?)
///     .advertise("tm-1.example")
///     .start(MemTransport::new(MemNetwork::new(), None))
///     .await?;
/// let service = RpcService::builder(id.clone())
///     .connections(Arc::new(node))
///     .build()?;
/// assert_eq!(service.address().as_deref(), Some("tm-1.example:50100"));
///
/// let local = RpcService::builder(id).build()?;
/// assert_eq!((local.address(), local.port()), (None, None));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RpcServiceBuilder {
    id: ResourceId,
    config: RpcConfig,
    runtime: Option<Handle>,
    connections: Option<Arc<dyn Connections>>,
    tracer: Option<Arc<dyn Tracer>>,
}

impl RpcServiceBuilder {
    pub(super) fn new(id: ResourceId) -> Self {
        Self {
            id,
            config: RpcConfig::default(),
            runtime: None,
            connections: None,
            tracer: None,
        }
    }

    /// Settings of the RPC layer.
    #[must_use]
    pub fn config(mut self, config: RpcConfig) -> Self {
        self.config = config;
        self
    }

    /// The runtime on which endpoints run. Default: the current one.
    #[must_use]
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// The node's connections. Without them the service reaches only its own endpoints.
    #[must_use]
    pub fn connections(mut self, connections: Arc<dyn Connections>) -> Self {
        self.connections = Some(connections);
        self
    }

    /// Connects the spans of callers with those of the endpoints that they call. Default: none.
    #[must_use]
    pub fn tracer(mut self, tracer: Arc<dyn Tracer>) -> Self {
        self.tracer = Some(tracer);
        self
    }

    /// Makes the service, and registers it for streams of peers.
    ///
    /// # Errors
    /// A setting that is not allowed.
    ///
    /// # Panics
    /// Outside a tokio runtime, if none was given.
    pub fn build(self) -> Result<RpcService, ConfigError> {
        self.config.validate()?;
        let runtime = self.runtime.unwrap_or_else(Handle::current);
        Ok(RpcService::new(
            self.id,
            self.config,
            runtime,
            self.connections,
            self.tracer,
        ))
    }
}
