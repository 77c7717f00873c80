//! What the commands take of the runtime: one place to look at when an entry point changes.

use std::{future::Future, time::Duration};

use thalweg_runtime::{
    BackendRegistry, ClusterClient, JobManagerProcess, MiniCluster, NodeDescription, RpcSharing,
    StartError, TaskManagerRunner,
    config::Config,
    gateways::{ClusterStatus, DispatcherClient, ResultChunk},
    ids::JobId,
    job::{JobGraph, JobStatus},
    rpc::RpcError,
};

use super::args::RpcSharingArg;
use crate::jobs::registry;

/// What a client asks of a cluster; see [`DispatcherGateway`](thalweg_runtime::gateways::DispatcherGateway).
pub(crate) trait JobClient {
    fn submit(&self, graph: JobGraph) -> impl Future<Output = Result<JobId, RpcError>>;
    fn cancel(&self, job: JobId) -> impl Future<Output = Result<(), RpcError>>;
    fn status(&self, job: JobId) -> impl Future<Output = Result<JobStatus, RpcError>>;
    fn result(
        &self,
        job: JobId,
        offset: u64,
        max: u32,
    ) -> impl Future<Output = Result<ResultChunk, RpcError>>;
    fn cluster(&self) -> impl Future<Output = Result<ClusterStatus, RpcError>>;
}

impl JobClient for DispatcherClient {
    async fn submit(&self, graph: JobGraph) -> Result<JobId, RpcError> {
        self.submit_job(graph).await
    }

    async fn cancel(&self, job: JobId) -> Result<(), RpcError> {
        self.cancel_job(job).await
    }

    async fn status(&self, job: JobId) -> Result<JobStatus, RpcError> {
        self.job_status(job).await
    }

    async fn result(&self, job: JobId, offset: u64, max: u32) -> Result<ResultChunk, RpcError> {
        self.job_result(job, offset, max).await
    }

    async fn cluster(&self) -> Result<ClusterStatus, RpcError> {
        self.cluster_status().await
    }
}

/// A client's connection to a running cluster; it connects anew if the connection ends.
#[derive(Debug)]
pub(crate) struct RemoteCluster(ClusterClient);

impl RemoteCluster {
    pub(crate) async fn connect(config: &Config) -> Result<Self, StartError> {
        ClusterClient::connect(config, &BackendRegistry::default())
            .await
            .map(Self)
    }

    pub(crate) async fn shutdown(self) {
        self.0.shutdown().await;
    }
}

impl JobClient for RemoteCluster {
    async fn submit(&self, graph: JobGraph) -> Result<JobId, RpcError> {
        self.0.dispatcher().await?.submit_job(graph).await
    }

    async fn cancel(&self, job: JobId) -> Result<(), RpcError> {
        self.0.dispatcher().await?.cancel_job(job).await
    }

    async fn status(&self, job: JobId) -> Result<JobStatus, RpcError> {
        self.0.dispatcher().await?.job_status(job).await
    }

    async fn result(&self, job: JobId, offset: u64, max: u32) -> Result<ResultChunk, RpcError> {
        let dispatcher = self.0.dispatcher().await?;
        dispatcher.job_result(job, offset, max).await
    }

    async fn cluster(&self) -> Result<ClusterStatus, RpcError> {
        self.0.dispatcher().await?.cluster_status().await
    }
}

/// A whole cluster in this process.
#[derive(Debug)]
pub(crate) struct LocalCluster(MiniCluster);

impl LocalCluster {
    pub(crate) async fn start(
        config: &Config,
        task_managers: u32,
        rpc: RpcSharingArg,
    ) -> Result<Self, StartError> {
        let sharing = match rpc {
            RpcSharingArg::Shared => RpcSharing::Shared,
            RpcSharingArg::Dedicated => RpcSharing::Dedicated,
        };
        let backends = BackendRegistry::default();
        MiniCluster::start(config, task_managers, sharing, registry(), &backends)
            .await
            .map(Self)
    }

    pub(crate) fn dispatcher(&self) -> DispatcherClient {
        self.0.dispatcher()
    }

    pub(crate) async fn shutdown(self, deadline: Duration) {
        self.0.shutdown(deadline).await;
    }
}

/// The JobManager of this process.
#[derive(Debug)]
pub(crate) struct JobManager(JobManagerProcess);

impl JobManager {
    pub(crate) async fn start(config: &Config) -> Result<Self, StartError> {
        JobManagerProcess::start(config, &registry(), &BackendRegistry::default())
            .await
            .map(Self)
    }

    pub(crate) fn ready(&self) -> NodeDescription {
        self.0.description()
    }

    /// Waits for a crash of one of its parts, and says which.
    pub(crate) async fn failed(&self) -> String {
        self.0.failed().await
    }

    pub(crate) async fn shutdown(self, drain: Duration) {
        self.0.shutdown(drain).await;
    }
}

/// The TaskManager of this process.
#[derive(Debug)]
pub(crate) struct TaskManager(TaskManagerRunner);

impl TaskManager {
    pub(crate) async fn start(config: &Config) -> Result<Self, StartError> {
        TaskManagerRunner::start(config, registry(), &BackendRegistry::default())
            .await
            .map(Self)
    }

    /// Waits for the first registration at the ResourceManager; the error says why there will be none.
    pub(crate) async fn registered(&self) -> Result<NodeDescription, String> {
        self.0.registered().await.map_err(|cause| cause.to_string())
    }

    /// Waits for an end that nobody here asked for, and says why.
    pub(crate) async fn terminated(&self) -> String {
        match self.0.terminated().await {
            Ok(()) => "it ended by itself".to_owned(),
            Err(cause) => cause.to_string(),
        }
    }

    pub(crate) async fn shutdown(self, drain: Duration) {
        if let Err(cause) = self.0.shutdown(drain).await {
            tracing::warn!(%cause, "the TaskManager did not end well");
        }
    }
}
