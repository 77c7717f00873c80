//! A client's way into a cluster.

use std::time::Duration;

use thalweg_certs::Role;

use super::{
    ClusterNode, StartError,
    node::{CertificateSource, job_manager_endpoint},
};
use crate::{
    backend::BackendRegistry,
    config::Config,
    gateways::DispatcherClient,
    rpc::{RpcError, RpcService},
};

/// A node that only asks: submits jobs, looks at them, cancels them.
#[derive(Debug)]
pub struct ClusterClient {
    node: ClusterNode,
    dispatcher: DispatcherClient,
}

impl ClusterClient {
    /// Starts a client node and connects to the Dispatcher.
    ///
    /// # Errors
    /// [`StartError::NoJobManager`] if nobody answers at `jobmanager.address` or refuses this client; else what is wrong
    /// here.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub async fn connect(config: &Config, backends: &BackendRegistry) -> Result<Self, StartError> {
        let mut own = config.clone();
        // A client is dialled by nobody: the configured port belongs to the server that shares the file.
        own.transport.bind =
            thalweg_transport::BindAddr::single((config.transport.bind.ip(), 0).into());
        own.transport.advertise = None;
        let node =
            ClusterNode::start(&own, Role::Client, CertificateSource::Configured, backends).await?;
        match dispatcher(node.rpc(), config).await {
            Ok(dispatcher) => Ok(Self { node, dispatcher }),
            Err(error) => {
                node.close(CLOSE).await;
                Err(error)
            }
        }
    }

    /// The Dispatcher's gateway.
    #[must_use]
    pub fn dispatcher(&self) -> &DispatcherClient {
        &self.dispatcher
    }

    /// The client's node.
    #[must_use]
    pub fn node(&self) -> &ClusterNode {
        &self.node
    }

    /// Ends the client's node.
    ///
    /// # Cancel safety
    /// What has begun to end goes on ending.
    pub async fn shutdown(&self) {
        self.node.close(CLOSE).await;
    }
}

async fn dispatcher(rpc: &RpcService, config: &Config) -> Result<DispatcherClient, StartError> {
    let address = job_manager_endpoint(config, "dispatcher")?;
    rpc.connect(&address, None)
        .await
        .map_err(|error| StartError::NoJobManager {
            address: config.jobmanager.address.clone(),
            reason: match error {
                RpcError::Connection { message, .. } => message,
                error => thalweg_transport::chain(&error),
            },
        })
}

/// A client has nothing to drain.
const CLOSE: Duration = Duration::from_secs(2);
