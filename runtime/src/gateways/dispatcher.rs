//! What clients ask of a cluster.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::TaskManagerStatus;
use crate::{
    ids::JobId,
    job::{JobGraph, JobStatus},
    rpc::gateway,
};

/// Submits, observes and cancels jobs.
#[gateway(name = "Dispatcher", callers = ["client", "jobmanager"])]
pub trait DispatcherGateway {
    /// Accepts a job and starts its JobMaster. The graph is validated and its task types are looked up first.
    async fn submit_job(&self, graph: JobGraph) -> JobId;

    /// Asks a job to stop; a finished one is left alone. The answer comes before the tasks have stopped.
    async fn cancel_job(&self, job: JobId) -> ();

    /// The state of one job, running or finished.
    async fn job_status(&self, job: JobId) -> JobStatus;

    /// A piece of a finished job's published result: at most `max` bytes from `offset`.
    async fn job_result(&self, job: JobId, offset: u64, max: u32) -> ResultChunk;

    /// TaskManagers, jobs and connections.
    async fn cluster_status(&self) -> ClusterStatus;
}

/// A piece of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultChunk {
    /// The bytes; empty past the end.
    pub bytes: Bytes,
    /// Whether this is the last piece.
    pub end: bool,
}

/// The cluster at a glance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// Registered TaskManagers, by id.
    pub task_managers: Vec<TaskManagerStatus>,
    /// Jobs that run, and finished ones that are still kept; the oldest first. The tasks of the oldest are left out
    /// where all together are too many for one answer.
    pub jobs: Vec<JobStatus>,
    /// Connections that the JobManager's node has.
    pub connections: Vec<super::ConnectionReport>,
}
