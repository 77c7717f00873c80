//! A client's way into a cluster.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use thalweg_certs::Role;

use super::{
    ClusterNode, StartError,
    node::{CertificateSource, job_manager_endpoint},
};
use crate::{
    backend::BackendRegistry,
    config::Config,
    gateways::DispatcherClient,
    rpc::{RpcAddress, RpcError},
};

/// A node that only asks: submits jobs, looks at them, cancels them.
#[derive(Debug)]
pub struct ClusterClient {
    node: ClusterNode,
    address: RpcAddress,
    dispatcher: Mutex<DispatcherClient>,
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
        let address = job_manager_endpoint(config, "dispatcher")?;
        let node =
            ClusterNode::start(&own, Role::Client, CertificateSource::Configured, backends).await?;
        match node.rpc().connect(&address, None).await {
            Ok(dispatcher) => Ok(Self {
                node,
                address,
                dispatcher: Mutex::new(dispatcher),
            }),
            Err(error) => {
                node.close(CLOSE).await;
                Err(no_job_manager(config, error))
            }
        }
    }

    /// The Dispatcher's gateway. If its connection has ended it connects anew: to the same JobManager, or to the one
    /// that has taken its place.
    ///
    /// # Errors
    /// [`RpcError`] if it has to connect and cannot.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub async fn dispatcher(&self) -> Result<DispatcherClient, RpcError> {
        let current = self.current().clone();
        if current.closed().is_none() {
            return Ok(current);
        }
        let new: DispatcherClient = self.node.rpc().connect(&self.address, None).await?;
        *self.current() = new.clone();
        Ok(new)
    }

    fn current(&self) -> std::sync::MutexGuard<'_, DispatcherClient> {
        self.dispatcher
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
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

fn no_job_manager(config: &Config, error: RpcError) -> StartError {
    StartError::NoJobManager {
        address: config.jobmanager.address.clone(),
        reason: match error {
            RpcError::Connection { message, .. } => message,
            error => thalweg_transport::chain(&error),
        },
    }
}

/// A client has nothing to drain.
const CLOSE: Duration = Duration::from_secs(2);
