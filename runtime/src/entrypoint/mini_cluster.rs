//! A whole cluster in one process.

use std::{sync::Arc, time::Duration};

use thalweg_certs::{CertificateAuthority, Identity, IssueRequest, NodeCredentials, Role};
use thalweg_transport::{BindAddr, ResourceId};
use tokio::time::timeout;

use super::{
    CertificateSource, ClusterNode, StartError, TaskManagerRunner, TaskManagerSetup,
    job_manager::{settings, start_on},
    node::rpc_config,
};
use crate::{
    backend::BackendRegistry,
    config::{Config, TlsMode},
    gateways::DispatcherClient,
    job_manager::JobManager,
    rpc::{RpcAddress, RpcService},
    task::TaskRegistry,
};

/// Whether the components of a [`MiniCluster`] share one RPC service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RpcSharing {
    /// One local service for all: calls move values and use no network.
    #[default]
    Shared,
    /// One node, port and identity per component, as if they were processes.
    Dedicated,
}

/// A JobManager and TaskManagers in one process, with real nodes between them.
///
/// With mutual TLS it makes a CA and a certificate for each node in memory. Exactly one TaskManager that shares its RPC
/// service uses no network at all. Dropping it stops nothing; [`shutdown`](Self::shutdown) does.
#[derive(Debug)]
pub struct MiniCluster {
    config: Config,
    backends: BackendRegistry,
    registry: Arc<TaskRegistry>,
    authority: Option<CertificateAuthority>,
    common: Common,
    job_manager: JobManager,
    task_managers: Vec<TaskManagerRunner>,
    started: u32,
}

/// What the JobManager stands on.
#[derive(Debug)]
enum Common {
    Shared { rpc: RpcService, networked: bool },
    Dedicated { node: ClusterNode },
}

impl MiniCluster {
    /// Starts JobManager and TaskManagers (`tm-1`, `tm-2`, …) and waits until all are registered.
    ///
    /// `transport.bind` gives the IP address; every node takes a free port.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running then.
    ///
    /// # Cancel safety
    /// **Not** cancel-safe: what has started keeps running.
    pub async fn start(
        config: &Config,
        task_managers: u32,
        sharing: RpcSharing,
        registry: TaskRegistry,
        backends: &BackendRegistry,
    ) -> Result<Self, StartError> {
        let mut config = config.clone();
        config.transport.bind = BindAddr::single((config.transport.bind.ip(), 0).into());
        config.transport.advertise = None;
        config.node.id = None;
        let authority = match config.tls.mode {
            TlsMode::Off => None,
            _ => Some(authority(&config)?),
        };
        let (common, job_manager) = start_job_manager(
            &config,
            sharing,
            task_managers,
            &registry,
            authority.as_ref(),
            backends,
        )
        .await?;
        let mut cluster = Self {
            config,
            backends: backends.clone(),
            registry: Arc::new(registry),
            authority,
            common,
            job_manager,
            task_managers: Vec::new(),
            started: 0,
        };
        match cluster.start_task_managers(task_managers).await {
            Ok(()) => Ok(cluster),
            Err(error) => {
                cluster.shutdown(CLOSE).await;
                Err(error)
            }
        }
    }

    /// A client of the Dispatcher.
    #[must_use]
    pub fn dispatcher(&self) -> DispatcherClient {
        self.job_manager.dispatcher()
    }

    /// The JobManager's components.
    #[must_use]
    pub fn job_manager(&self) -> &JobManager {
        &self.job_manager
    }

    /// The TaskManagers that run, in the order of their start.
    #[must_use]
    pub fn task_managers(&self) -> &[TaskManagerRunner] {
        &self.task_managers
    }

    /// Starts one more TaskManager and waits until it is registered.
    ///
    /// # Errors
    /// [`StartError`]. A cluster that began with one TaskManager without a network takes no second one.
    ///
    /// # Cancel safety
    /// **Not** cancel-safe: a TaskManager that has started keeps running.
    pub async fn start_task_manager(&mut self) -> Result<&TaskManagerRunner, StartError> {
        let runner = self.make_task_manager().await?;
        self.task_managers.push(runner);
        let index = self.task_managers.len() - 1;
        wait_registered(&self.task_managers[index..]).await?;
        Ok(&self.task_managers[index])
    }

    /// Stops a TaskManager within about `drain`; `false` if there is none of this index.
    ///
    /// # Cancel safety
    /// What has begun to end goes on ending.
    pub async fn terminate_task_manager(&mut self, index: usize, drain: Duration) -> bool {
        if index >= self.task_managers.len() {
            return false;
        }
        let runner = self.task_managers.remove(index);
        if let Err(error) = runner.shutdown(drain).await {
            tracing::warn!(id = %runner.id(), %error, "a TaskManager did not end well");
        }
        true
    }

    /// Stops everything within about `drain`: jobs and their tasks, then TaskManagers, then the JobManager's ground.
    /// What does not end well is logged.
    ///
    /// # Cancel safety
    /// What has begun to end goes on ending.
    pub async fn shutdown(&self, drain: Duration) {
        let part = drain / 3;
        if let Err(error) = self.job_manager.shutdown(part).await {
            tracing::warn!(%error, "the JobManager did not end well");
        }
        for runner in &self.task_managers {
            if let Err(error) = runner.shutdown(part).await {
                tracing::warn!(id = %runner.id(), %error, "a TaskManager did not end well");
            }
        }
        match &self.common {
            Common::Dedicated { node } => node.close(part).await,
            Common::Shared { rpc, .. } => {
                if let Err(error) = rpc.close(part).await {
                    tracing::warn!(%error, "an endpoint did not end well");
                }
            }
        }
    }

    async fn start_task_managers(&mut self, count: u32) -> Result<(), StartError> {
        for _ in 0..count {
            let runner = self.make_task_manager().await?;
            self.task_managers.push(runner);
        }
        wait_registered(&self.task_managers).await
    }

    async fn make_task_manager(&mut self) -> Result<TaskManagerRunner, StartError> {
        self.started += 1;
        let name = format!("tm-{}", self.started);
        let networked = match &self.common {
            Common::Dedicated { .. } => true,
            Common::Shared { networked, .. } => *networked,
        };
        if !networked && self.started > 1 {
            return Err(StartError::Service {
                service: "TaskManager",
                reason: "the cluster was started with one TaskManager and has no network"
                    .to_owned(),
            });
        }
        let node = if networked {
            let certificate = certificate(self.authority.as_ref(), Role::TaskManager, &name)?;
            let config = named(&self.config, &name)?;
            Some(ClusterNode::start(&config, Role::TaskManager, certificate, &self.backends).await?)
        } else {
            None
        };
        let (rpc, resource_manager) = self.way_to_resource_manager(node.as_ref())?;
        let setup = TaskManagerSetup {
            rpc,
            node: node.clone(),
            id: ResourceId::new(&name)?,
            resource_manager,
            registry: Arc::clone(&self.registry),
        };
        match (TaskManagerRunner::start_with(&self.config, setup), node) {
            (Err(error), Some(node)) => {
                node.close(CLOSE).await;
                Err(error)
            }
            (result, _) => result,
        }
    }

    fn way_to_resource_manager(
        &self,
        node: Option<&ClusterNode>,
    ) -> Result<(RpcService, RpcAddress), StartError> {
        let address = self.job_manager.resource_manager_address();
        match (&self.common, node) {
            (Common::Dedicated { .. }, Some(node)) => Ok((node.rpc().clone(), address.clone())),
            (Common::Shared { rpc, .. }, _) => Ok((rpc.clone(), address.clone())),
            (Common::Dedicated { node }, None) => Ok((node.rpc().clone(), address.clone())),
        }
    }
}

async fn start_job_manager(
    config: &Config,
    sharing: RpcSharing,
    task_managers: u32,
    registry: &TaskRegistry,
    authority: Option<&CertificateAuthority>,
    backends: &BackendRegistry,
) -> Result<(Common, JobManager), StartError> {
    match sharing {
        RpcSharing::Shared => {
            let rpc = RpcService::builder(ResourceId::new("mini-cluster")?)
                .config(rpc_config(config))
                .build()
                .map_err(|error| StartError::Service {
                    service: "rpc",
                    reason: error.to_string(),
                })?;
            let connections = Arc::new(Vec::new);
            let job_manager = JobManager::start(&rpc, settings(config, registry), connections)?;
            Ok((
                Common::Shared {
                    rpc,
                    networked: task_managers != 1,
                },
                job_manager,
            ))
        }
        RpcSharing::Dedicated => {
            let certificate = certificate(authority, Role::JobManager, "jm")?;
            let config = named(config, "jm")?;
            let node = ClusterNode::start(&config, Role::JobManager, certificate, backends).await?;
            match start_on(&node, &config, registry) {
                Ok(job_manager) => Ok((Common::Dedicated { node }, job_manager)),
                Err(error) => {
                    node.close(CLOSE).await;
                    Err(error)
                }
            }
        }
    }
}

fn authority(config: &Config) -> Result<CertificateAuthority, StartError> {
    if config.tls.files().is_some() {
        tracing::info!("a cluster in one process makes its own certificates; tls.dir is not used");
    }
    CertificateAuthority::generate(&config.cluster.id, CERTIFICATE_DAYS)
        .map_err(StartError::Certificate)
}

fn certificate(
    authority: Option<&CertificateAuthority>,
    role: Role,
    name: &str,
) -> Result<CertificateSource, StartError> {
    let Some(authority) = authority else {
        return Ok(CertificateSource::Configured);
    };
    let issue = || -> Result<NodeCredentials, thalweg_certs::CertError> {
        let identity = Identity::new(authority.cluster(), role, name)?;
        authority
            .issue(&IssueRequest::new(identity).with_days(CERTIFICATE_DAYS))?
            .credentials()
    };
    Ok(CertificateSource::InMemory(Box::new(
        issue().map_err(StartError::Certificate)?,
    )))
}

fn named(config: &Config, name: &str) -> Result<Config, StartError> {
    let mut config = config.clone();
    config.node.id = Some(ResourceId::new(name)?);
    Ok(config)
}

async fn wait_registered(runners: &[TaskManagerRunner]) -> Result<(), StartError> {
    let mut registered = 0;
    let all = async {
        for runner in runners {
            runner
                .registered()
                .await
                .map_err(|cause| StartError::Service {
                    service: "TaskManager",
                    reason: format!("{}: {cause}", runner.id()),
                })?;
            registered += 1;
        }
        Ok(())
    };
    match timeout(REGISTRATION, all).await {
        Ok(result) => result,
        Err(_) => Err(StartError::NotRegistered {
            registered,
            expected: runners.len(),
            after: REGISTRATION,
        }),
    }
}

/// Throw-away certificates: longer than any process of this kind lives.
const CERTIFICATE_DAYS: u32 = 30;
/// Registration inside one process takes milliseconds; this covers a machine under heavy load.
const REGISTRATION: Duration = Duration::from_secs(30);
/// For what was started for nothing.
const CLOSE: Duration = Duration::from_secs(1);
