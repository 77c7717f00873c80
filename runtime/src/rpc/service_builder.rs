//! Making a service.

use std::sync::Arc;

use thalweg_transport::{ConfigError, Connections, ResourceId};
use tokio::runtime::Handle;

use super::{config::RpcConfig, service::RpcService};

/// Settings of a new [`RpcService`].
#[derive(Debug)]
pub struct RpcServiceBuilder {
    id: ResourceId,
    config: RpcConfig,
    runtime: Option<Handle>,
    connections: Option<Arc<dyn Connections>>,
}

impl RpcServiceBuilder {
    pub(super) fn new(id: ResourceId) -> Self {
        Self {
            id,
            config: RpcConfig::default(),
            runtime: None,
            connections: None,
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
        ))
    }
}
