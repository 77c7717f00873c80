//! The JobManager as a process of its own.

use std::{net::SocketAddr, time::Duration};

use thalweg_certs::Role;
use thalweg_transport::BindAddr;

use super::{CertificateSource, ClusterNode, NodeDescription, StartError};
use crate::{
    backend::BackendRegistry,
    config::Config,
    job_manager::{JobManager, JobManagerConfig},
    task::TaskRegistry,
};

/// A running JobManager process. Dropping it stops nothing; [`shutdown`](Self::shutdown) does.
#[derive(Debug)]
pub struct JobManagerProcess {
    node: ClusterNode,
    job_manager: JobManager,
}

impl JobManagerProcess {
    /// Starts node, RPC service, ResourceManager and Dispatcher, in this order, all or nothing.
    ///
    /// Listens on `transport.bind`; if its port is 0, on the port of `jobmanager.address`, where others look for it.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left behind then.
    ///
    /// # Cancel safety
    /// Cancel-safe until the node has started.
    pub async fn start(
        config: &Config,
        registry: &TaskRegistry,
        backends: &BackendRegistry,
    ) -> Result<Self, StartError> {
        let mut own = config.clone();
        own.transport.bind = bind(config);
        let node = ClusterNode::start(
            &own,
            Role::JobManager,
            CertificateSource::Configured,
            backends,
        )
        .await?;
        match start_on(&node, config, registry) {
            Ok(job_manager) => Ok(Self { node, job_manager }),
            Err(error) => {
                node.close(CLOSE).await;
                Err(error)
            }
        }
    }

    /// What it presents to others.
    #[must_use]
    pub fn description(&self) -> NodeDescription {
        self.node.description()
    }

    /// Its node.
    #[must_use]
    pub fn node(&self) -> &ClusterNode {
        &self.node
    }

    /// Its components.
    #[must_use]
    pub fn job_manager(&self) -> &JobManager {
        &self.job_manager
    }

    /// Waits until an endpoint has crashed, and says which: the process is of no further use then.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub async fn failed(&self) -> String {
        self.node.rpc().failed().await.to_string()
    }

    /// Stops in the reverse order of the start, within about `drain`: jobs fail with a cause that says so and their
    /// tasks are told to stop, TaskManagers are told, then RPC service and node end. What does not end well is logged.
    ///
    /// # Cancel safety
    /// What has begun to end goes on ending.
    pub async fn shutdown(&self, drain: Duration) {
        let rest = (drain / 10).min(CLOSE);
        if let Err(error) = self
            .job_manager
            .shutdown(drain.saturating_sub(rest * 2))
            .await
        {
            tracing::warn!(%error, "the JobManager did not end well");
        }
        self.node.close(rest).await;
    }
}

/// Starts the JobManager's components on a node.
pub(super) fn start_on(
    node: &ClusterNode,
    config: &Config,
    registry: &TaskRegistry,
) -> Result<JobManager, StartError> {
    let connections = {
        let node = node.clone();
        std::sync::Arc::new(move || node.connections())
    };
    Ok(JobManager::start(
        node.rpc(),
        settings(config, registry),
        connections,
    )?)
}

/// What the JobManager takes of the configuration.
pub(super) fn settings(config: &Config, registry: &TaskRegistry) -> JobManagerConfig {
    JobManagerConfig::new(&config.jobmanager, &config.heartbeat).with_task_types(registry.names())
}

fn bind(config: &Config) -> BindAddr {
    let bind = config.transport.bind;
    let any_port = bind
        .candidates()
        .next()
        .is_none_or(|address| address.port() == 0);
    let port = config
        .jobmanager
        .address
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse().ok());
    match port {
        Some(port) if any_port => BindAddr::single(SocketAddr::new(bind.ip(), port)),
        _ => bind,
    }
}

/// Without jobs there is nothing to wait for but the last words to peers.
const CLOSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_port_of_its_own_it_listens_where_others_look_for_it() {
        let mut config = Config::default();
        config.jobmanager.address = "jm.example:7000".to_owned();
        assert_eq!(bind(&config).to_string(), "127.0.0.1:7000");
        config.transport.bind = "0.0.0.0:6000-6010".parse().unwrap();
        assert_eq!(bind(&config).to_string(), "0.0.0.0:6000-6010");
    }
}
