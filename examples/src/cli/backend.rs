//! What the commands take of the runtime: one place to look at when an entry point changes.

use std::{convert::Infallible, future::Future, time::Duration};

use thalweg_runtime::{
    BackendRegistry, ClusterClient, NodeDescription, StartError,
    config::Config,
    gateways::{ClusterStatus, DispatcherClient, ResultChunk},
    ids::JobId,
    job::{JobGraph, JobStatus},
    rpc::RpcError,
};

use super::args::RpcSharingArg;

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

/// A client's connection to a running cluster.
#[derive(Debug)]
pub(crate) struct RemoteCluster(ClusterClient);

impl RemoteCluster {
    pub(crate) async fn connect(config: &Config) -> Result<Self, StartError> {
        ClusterClient::connect(config, &BackendRegistry::default())
            .await
            .map(Self)
    }

    pub(crate) fn dispatcher(&self) -> &DispatcherClient {
        self.0.dispatcher()
    }

    pub(crate) async fn shutdown(self) {
        self.0.shutdown().await;
    }
}

/// A whole cluster in this process.
#[derive(Debug)]
pub(crate) struct LocalCluster(Infallible);

impl LocalCluster {
    pub(crate) async fn start(
        _config: &Config,
        _task_managers: u32,
        _rpc: RpcSharingArg,
    ) -> Result<Self, StartError> {
        Err(missing("MiniCluster"))
    }

    pub(crate) fn dispatcher(&self) -> DispatcherClient {
        match self.0 {}
    }

    pub(crate) async fn shutdown(self, _deadline: Duration) {
        match self.0 {}
    }
}

/// The JobManager of this process.
#[derive(Debug)]
pub(crate) struct JobManager(Infallible);

impl JobManager {
    pub(crate) async fn start(_config: &Config) -> Result<Self, StartError> {
        Err(missing("JobManager"))
    }

    pub(crate) fn ready(&self) -> NodeDescription {
        match self.0 {}
    }

    pub(crate) async fn shutdown(self, _drain: Duration) {
        match self.0 {}
    }
}

/// The TaskManager of this process.
#[derive(Debug)]
pub(crate) struct TaskManager(Infallible);

impl TaskManager {
    pub(crate) async fn start(_config: &Config) -> Result<Self, StartError> {
        Err(missing("TaskManager"))
    }

    /// Waits for the first registration at the ResourceManager.
    pub(crate) async fn registered(&self) -> Result<NodeDescription, StartError> {
        match self.0 {}
    }

    /// Waits for an end that nobody here asked for, and says why.
    pub(crate) async fn terminated(&self) -> String {
        match self.0 {}
    }

    pub(crate) async fn shutdown(self, _drain: Duration) {
        match self.0 {}
    }
}

fn missing(service: &'static str) -> StartError {
    StartError::Service {
        service,
        reason: "this build has none".to_owned(),
    }
}
