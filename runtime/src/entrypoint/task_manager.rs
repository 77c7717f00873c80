//! A TaskManager: node, exchange and TaskExecutor, started and stopped together.

use std::{
    fmt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use thalweg_certs::Role;
use thalweg_transport::{Connections, ResourceId, chain};
use tokio::time::timeout;

use super::{
    ClusterNode, NodeDescription, StartError,
    node::{CertificateSource, job_manager_endpoint},
};
use crate::{
    backend::BackendRegistry,
    config::{Config, TlsMode},
    gateways::{TaskExecutorClient, TaskManagerReport},
    job::{FailureCause, FailureKind},
    job_manager::RESOURCE_MANAGER,
    rpc::{EndpointHandle, RpcAddress, RpcService},
    shuffle::ShuffleEnvironment,
    slots::SlotReport,
    task::TaskRegistry,
    taskexecutor::{
        Describe, TaskExecutor, TaskExecutorConfig, TaskExecutorServices, TaskExecutorStatus,
    },
};

/// A running TaskManager.
///
/// After a fatal error, which [`terminated`](Self::terminated) tells, its owner stops it. Dropping it stops nothing;
/// [`shutdown`](Self::shutdown) does.
pub struct TaskManagerRunner {
    description: NodeDescription,
    node: Option<ClusterNode>,
    shuffle: ShuffleEnvironment,
    executor: EndpointHandle<TaskExecutor>,
    status: TaskExecutorStatus,
    stopping: AtomicBool,
}

/// Where a TaskManager is put by a process that holds several components.
#[derive(Debug)]
pub struct TaskManagerSetup {
    /// The RPC service of its endpoint: its node's, or one that all components of the process share.
    pub rpc: RpcService,
    /// Its node, which it owns and closes; `None` for a TaskManager without a network, alone in its cluster.
    pub node: Option<ClusterNode>,
    /// Its name; with a node, the node's.
    pub id: ResourceId,
    /// Where the ResourceManager is, as seen from `rpc`.
    pub resource_manager: RpcAddress,
    /// The task types that it can run.
    pub registry: Arc<TaskRegistry>,
}

impl TaskManagerRunner {
    /// Starts a TaskManager as a process of its own: checks the folders, starts node, exchange and TaskExecutor. It
    /// then registers at `jobmanager.address`, whenever that is there.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left behind then.
    ///
    /// # Cancel safety
    /// Cancel-safe until the node has started.
    pub async fn start(
        config: &Config,
        registry: TaskRegistry,
        backends: &BackendRegistry,
    ) -> Result<Self, StartError> {
        check_temp_dirs(config)?;
        let resource_manager = job_manager_endpoint(config, RESOURCE_MANAGER)?;
        let certificate = CertificateSource::Configured;
        let node = ClusterNode::start(config, Role::TaskManager, certificate, backends).await?;
        let setup = TaskManagerSetup {
            rpc: node.rpc().clone(),
            id: node.node().id().clone(),
            node: Some(node.clone()),
            resource_manager,
            registry: Arc::new(registry),
        };
        match Self::start_with(config, setup) {
            Ok(runner) => Ok(runner),
            Err(error) => {
                node.close(CLOSE).await;
                Err(error)
            }
        }
    }

    /// Starts exchange and TaskExecutor on what is there already.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left behind then, but a node of the setup is the caller's to close.
    ///
    /// # Panics
    /// Outside a tokio runtime, without a node.
    pub fn start_with(config: &Config, setup: TaskManagerSetup) -> Result<Self, StartError> {
        let transport = config.transport_config();
        let shuffle = match &setup.node {
            Some(node) => ShuffleEnvironment::network(Arc::new(node.node().clone()), &transport),
            None => ShuffleEnvironment::local(&transport),
        };
        let shuffle = shuffle.map_err(|error| StartError::Service {
            service: "data exchange",
            reason: chain(&error),
        })?;
        shuffle
            .open_disk(
                &transport,
                &config.taskmanager.temp_dirs,
                &setup.id,
                config.io_threads(),
            )
            .map_err(|error| StartError::Service {
                service: "temporary folders",
                reason: format!("taskmanager.temp_dirs: {error}"),
            })?;
        let description = match &setup.node {
            Some(node) => node.description(),
            None => without_network(setup.id.clone()),
        };
        let settings = TaskExecutorConfig::new(
            config,
            setup.id,
            description.address.clone(),
            setup.resource_manager,
        );
        let services = TaskExecutorServices::new(
            setup.registry,
            shuffle.clone(),
            describe(description.clone(), setup.node.clone()),
        );
        let executor = TaskExecutor::new(settings, services);
        let status = executor.status();
        let executor = setup
            .rpc
            .endpoint(setup.rpc.unique_name("taskexecutor"), executor)
            .serve::<TaskExecutorClient>()
            .spawn()?;
        executor.start();
        Ok(Self {
            description,
            node: setup.node,
            shuffle,
            executor,
            status,
            stopping: AtomicBool::new(false),
        })
    }

    /// Its name.
    #[must_use]
    pub fn id(&self) -> &ResourceId {
        &self.description.id
    }

    /// What it presents to others.
    #[must_use]
    pub fn description(&self) -> &NodeDescription {
        &self.description
    }

    /// Its endpoint.
    #[must_use]
    pub fn executor(&self) -> &EndpointHandle<TaskExecutor> {
        &self.executor
    }

    /// Its data exchange, for gauges.
    #[must_use]
    pub fn shuffle(&self) -> &ShuffleEnvironment {
        &self.shuffle
    }

    /// Its node, if it has a network.
    #[must_use]
    pub fn node(&self) -> Option<&ClusterNode> {
        self.node.as_ref()
    }

    /// Waits until it is registered at the ResourceManager: then it is ready.
    ///
    /// # Errors
    /// The fatal error that came first, such as a rejection or the registration time-out.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub async fn registered(&self) -> Result<NodeDescription, FailureCause> {
        self.status.registered().await?;
        Ok(self.description.clone())
    }

    /// Waits for its end: after [`shutdown`](Self::shutdown), or by a fatal error, after which it is still to be shut
    /// down.
    ///
    /// # Errors
    /// The fatal error: the ResourceManager rejected it or was not found in time, another TaskManager with its id
    /// replaced it, a task did not stop, its endpoint crashed.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub async fn terminated(&self) -> Result<(), FailureCause> {
        let ended = tokio::select! {
            biased;
            cause = self.status.failed() => return Err(cause),
            ended = self.executor.terminated() => ended,
        };
        match ended {
            Ok(()) if self.stopping.load(Ordering::Acquire) => Ok(()),
            Ok(()) => Err(internal("the TaskExecutor ended by itself".to_owned())),
            Err(error) => Err(internal(error.to_string())),
        }
    }

    /// Stops it: tells ResourceManager and JobMasters goodbye, tells its tasks to stop and waits for them, then ends
    /// exchange and node; all within about `drain`.
    ///
    /// # Errors
    /// Everything that did not end well, in one text; it is ended nevertheless.
    ///
    /// # Cancel safety
    /// What has begun to end goes on ending; call it again to go on.
    pub async fn shutdown(&self, drain: Duration) -> Result<(), FailureCause> {
        self.stopping.store(true, Ordering::Release);
        let (drain, rest) = split(drain);
        let mut problems = Vec::new();
        match timeout(drain, self.executor.terminate()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => problems.push(error.to_string()),
            Err(_) => problems.push(format!("tasks did not stop within {drain:?}")),
        }
        self.shuffle.close(rest).await;
        if let Some(node) = &self.node {
            node.close(rest).await;
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(internal(problems.join("; ")))
        }
    }
}

impl fmt::Debug for TaskManagerRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskManagerRunner")
            .field("id", self.id())
            .field("executor", &self.executor)
            .finish_non_exhaustive()
    }
}

/// Checks that spilled data has somewhere to go.
///
/// # Errors
/// [`StartError::Service`] that names the folder which is none, does not exist, or cannot be written.
fn check_temp_dirs(config: &Config) -> Result<(), StartError> {
    for dir in &config.taskmanager.temp_dirs {
        check_temp_dir(dir).map_err(|reason| StartError::Service {
            service: "temporary folders",
            reason: format!("taskmanager.temp_dirs: {}: {reason}", dir.display()),
        })?;
    }
    Ok(())
}

fn check_temp_dir(dir: &Path) -> Result<(), String> {
    let found = std::fs::metadata(dir).map_err(|error| error.to_string())?;
    if !found.is_dir() {
        return Err("it is no folder".to_owned());
    }
    // Permissions alone do not tell: the file system may be read-only or full.
    let probe = dir.join(format!(".thalweg-{:016x}", fastrand::u64(..)));
    let written = std::fs::write(&probe, b"probe");
    let removed = std::fs::remove_file(&probe);
    written
        .and(removed)
        .map_err(|error| format!("it cannot be written: {error}"))
}

fn describe(description: NodeDescription, node: Option<ClusterNode>) -> Describe {
    Arc::new(move |slots: SlotReport| {
        // The certificate may have been renewed since the start.
        let now = node.as_ref().map(ClusterNode::description);
        let now = now.as_ref().unwrap_or(&description);
        TaskManagerReport {
            slots,
            identity: now.identity.clone(),
            tls: now.tls.to_string(),
            certificate_expires: now.certificate_expires,
            certificate_fingerprint: now.certificate_fingerprint.clone(),
            connections: node
                .as_ref()
                .map(ClusterNode::connections)
                .unwrap_or_default(),
        }
    })
}

fn without_network(id: ResourceId) -> NodeDescription {
    NodeDescription {
        id,
        address: "local".to_owned(),
        transport: "local".into(),
        tls: TlsMode::Off,
        identity: None,
        certificate_expires: None,
        certificate_fingerprint: None,
    }
}

fn internal(message: String) -> FailureCause {
    FailureCause::new(FailureKind::Internal, message)
}

/// Of the time for a shutdown, most is for the tasks; the rest is for each of exchange, RPC service and node.
fn split(drain: Duration) -> (Duration, Duration) {
    let rest = (drain / 10).min(CLOSE);
    (drain.saturating_sub(rest * 3), rest)
}

/// Without tasks there is nothing to wait for but the last words to peers.
const CLOSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
