//! The JobManager of a cluster: ResourceManager, Dispatcher and one JobMaster for each job, on one RPC service.

mod config;
mod watch;

use std::time::Duration;

use thiserror::Error;

pub use config::JobManagerConfig;

pub(crate) use watch::Watch;

use crate::{
    dispatcher::{ConnectionSource, Dispatcher},
    gateways::{DispatcherClient, ResourceManagerClient},
    resource_manager::ResourceManager,
    rpc::{EndpointHandle, RpcAddress, RpcService, SpawnError, TerminationError},
};

/// The running JobManager. Dropping it stops nothing; [`shutdown`](Self::shutdown) does.
#[derive(Debug)]
pub struct JobManager {
    resource_manager: EndpointHandle<ResourceManager>,
    dispatcher: EndpointHandle<Dispatcher>,
}

impl JobManager {
    /// Starts ResourceManager and Dispatcher, in this order, as endpoints of this service.
    ///
    /// `connections` gives the live connections of the node, for status pages.
    ///
    /// # Errors
    /// [`SpawnError`] if a name is taken or the service is closed; nothing is left running then.
    pub fn start(
        service: &RpcService,
        config: JobManagerConfig,
        connections: ConnectionSource,
    ) -> Result<Self, SpawnError> {
        let node = service.id().clone();
        let resource_manager = service
            .endpoint(
                RESOURCE_MANAGER,
                ResourceManager::new(node.clone(), &config),
            )
            .serve::<ResourceManagerClient>()
            .spawn()?;
        let dispatcher = Dispatcher::new(node, config, resource_manager.gateway(), connections);
        let dispatcher = service
            .endpoint(DISPATCHER, dispatcher)
            .serve::<DispatcherClient>()
            .spawn();
        let dispatcher = match dispatcher {
            Ok(dispatcher) => dispatcher,
            Err(error) => {
                drop(resource_manager.terminate());
                return Err(error);
            }
        };
        resource_manager.start();
        dispatcher.start();
        Ok(Self {
            resource_manager,
            dispatcher,
        })
    }

    /// Where TaskManagers register.
    #[must_use]
    pub fn resource_manager_address(&self) -> &RpcAddress {
        self.resource_manager.address()
    }

    /// Where clients submit jobs.
    #[must_use]
    pub fn dispatcher_address(&self) -> &RpcAddress {
        self.dispatcher.address()
    }

    /// A client of the Dispatcher in this process.
    #[must_use]
    pub fn dispatcher(&self) -> DispatcherClient {
        self.dispatcher.gateway()
    }

    /// A client of the ResourceManager in this process.
    #[must_use]
    pub fn resource_manager(&self) -> ResourceManagerClient {
        self.resource_manager.gateway()
    }

    /// Stops the parts in the reverse order: running jobs fail with
    /// [`FailureKind::Cluster`](crate::job::FailureKind::Cluster) and have some seconds to stop their tasks, then the
    /// TaskManagers are told.
    ///
    /// # Errors
    /// The first failure; the rest is stopped nevertheless.
    ///
    /// # Cancel safety
    /// What is stopping goes on stopping; call it again to go on.
    pub async fn shutdown(&self, deadline: Duration) -> Result<(), ShutdownError> {
        let stop = async {
            let dispatcher = self.dispatcher.terminate().await;
            let resource_manager = self.resource_manager.terminate().await;
            dispatcher.and(resource_manager)
        };
        match tokio::time::timeout(deadline, stop).await {
            Ok(result) => Ok(result?),
            Err(_) => {
                drop(self.resource_manager.terminate());
                Err(ShutdownError::TimedOut { deadline })
            }
        }
    }
}

/// Why a JobManager did not stop well.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ShutdownError {
    /// A part failed.
    #[error(transparent)]
    Part(#[from] TerminationError),
    /// It takes too long.
    #[error("the JobManager did not stop within {deadline:?}")]
    TimedOut {
        /// The deadline.
        deadline: Duration,
    },
}

/// The name of the ResourceManager's endpoint.
pub const RESOURCE_MANAGER: &str = "resourcemanager";
/// The name of the Dispatcher's endpoint.
pub const DISPATCHER: &str = "dispatcher";

#[cfg(test)]
mod tests;
