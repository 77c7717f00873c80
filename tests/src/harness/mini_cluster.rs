//! Clusters in the process of a test, and jobs on them.

use std::{sync::Arc, time::Duration};

use thalweg_runtime::{
    Backend, BackendRegistry, MiniCluster, RpcSharing,
    config::{Config, ConfigFile, Known, Sources},
    ids::JobId,
    job::{JobGraph, JobStatus},
    task::TaskRegistry,
};
use thalweg_transport::mem::{MemNetwork, MemTransport};

use super::in_time;

/// Starts a cluster of two TaskManagers with this configuration, in TOML.
///
/// # Panics
/// If the configuration is wrong, or the cluster does not start.
pub async fn start_mini_cluster(
    config: &str,
    registry: TaskRegistry,
    backends: &BackendRegistry,
) -> MiniCluster {
    let names: Vec<&str> = backends.names().collect();
    let sources = Sources::new().with_file(ConfigFile::new("cluster.toml", config));
    let config = Config::load(sources, &Known::default().with_backends(&names));
    let config = config.expect("a valid configuration");
    let cluster = MiniCluster::start(&config, 2, RpcSharing::Shared, registry, backends);
    in_time("cluster", cluster)
        .await
        .expect("the cluster starts")
}

/// The transport in memory, on a network of its own.
#[must_use]
pub fn mem_backend() -> Backend {
    let network = MemNetwork::new();
    Arc::new(move |builder, _config, _credentials| {
        let mem = MemTransport::new(network.clone(), None);
        Box::pin(async move { builder.start(mem).await })
    })
}

/// Submits a job.
///
/// # Panics
/// If it is refused.
pub async fn submit_job(cluster: &MiniCluster, graph: JobGraph) -> JobId {
    let submitted = cluster.dispatcher().submit_job(graph).await;
    submitted.expect("the job is taken")
}

/// Runs a job to its end, whichever that is.
///
/// # Panics
/// If it is refused.
pub async fn run_job(cluster: &MiniCluster, graph: JobGraph) -> (JobId, JobStatus) {
    let job = submit_job(cluster, graph).await;
    let status = job_status(cluster, job, |status| status.state.is_terminal()).await;
    (job, status)
}

/// Waits until a job's status is so, and gives it.
///
/// # Panics
/// If there is no such job, or it does not get there in time.
pub async fn job_status(
    cluster: &MiniCluster,
    job: JobId,
    is_so: impl Fn(&JobStatus) -> bool,
) -> JobStatus {
    let dispatcher = cluster.dispatcher();
    let wait = async {
        loop {
            let status = dispatcher.job_status(job).await.expect("the job is known");
            if is_so(&status) {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    in_time("job", wait).await
}
