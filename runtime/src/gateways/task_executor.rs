//! What the ResourceManager and the JobMasters ask of a TaskExecutor.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use thalweg_transport::ResourceId;

use super::JobMasterAddress;
use crate::{
    ids::{AllocationId, ExecutionId, FencingToken, JobId, SessionId},
    job::{Distribution, ExchangeMode, FailureCause, TaskMetrics, TaskState},
    rpc::gateway,
    slots::SlotReport,
};

/// Runs tasks in slots. Not fenced as a whole: calls carry the session of the ResourceManager or JobMaster.
#[gateway(name = "TaskExecutor", callers = ["jobmanager"])]
pub trait TaskExecutorGateway {
    /// Gives a slot to a job. Idempotent for the same allocation.
    async fn request_slot(&self, resource_manager: FencingToken, assignment: SlotAssignment) -> ();

    /// Starts a task in a slot of the job. The answer comes when it is accepted, not when it runs.
    async fn submit_task(&self, job_master: FencingToken, deployment: TaskDeployment) -> ();

    /// Tells a task to stop; an unknown one is fine.
    async fn cancel_task(&self, execution: ExecutionId) -> ();

    /// Takes a slot back; its tasks fail with the cause.
    async fn free_slot(&self, allocation: AllocationId, cause: FailureCause) -> ();

    /// Says that the ResourceManager lives; the answer says the same of this side, with slots and node.
    ///
    /// Heartbeats carry no number: answers are matched to calls, and one of another session is refused.
    #[rpc(max_per_second = 1000)]
    async fn heartbeat_from_resource_manager(
        &self,
        resource_manager: FencingToken,
    ) -> TaskManagerReport;

    /// Says that a JobMaster lives and which slots it counts on; the answer lists the tasks that are here.
    ///
    /// All jobs of a JobManager count together, since they are one peer.
    #[rpc(max_per_second = 1000)]
    async fn heartbeat_from_job_master(
        &self,
        job: JobId,
        job_master: FencingToken,
        allocations: Vec<AllocationId>,
    ) -> ExecutionReport;

    /// The ResourceManager gives this TaskExecutor up; it registers again, unless it was replaced.
    fn disconnect_resource_manager(&self, session: SessionId, reason: DisconnectReason);

    /// A JobMaster gives this TaskExecutor up.
    fn disconnect_job_master(&self, job: JobId, job_master: FencingToken, cause: FailureCause);
}

/// Why a ResourceManager gives a TaskExecutor up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DisconnectReason {
    /// Another TaskExecutor with the same id registered: this one has to stop.
    Replaced {
        /// Where the newer one is.
        by: String,
    },
    /// No sign of life for too long.
    HeartbeatTimeout,
    /// The ResourceManager stops.
    Stopping,
}

/// A slot for a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotAssignment {
    /// The slot's index.
    pub slot: u32,
    /// The job that gets it.
    pub job: JobId,
    /// Its name from now on.
    pub allocation: AllocationId,
    /// To whom it is to be offered.
    pub job_master: JobMasterAddress,
}

/// Names one output of one task attempt across the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PartitionKey {
    /// The producing attempt.
    pub producer: ExecutionId,
    /// Which of the producer's outputs.
    pub output: u32,
}

impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.producer, self.output)
    }
}

/// Everything that a TaskExecutor needs to run one task attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskDeployment {
    /// The attempt.
    pub execution: ExecutionId,
    /// The slot that it runs in.
    pub allocation: AllocationId,
    /// The job's name, for logs.
    pub job_name: String,
    /// The vertex's name, for logs and thread names.
    pub vertex_name: String,
    /// The registered task type.
    pub task: String,
    /// The task's configuration.
    pub config: Bytes,
    /// Number of subtasks of the vertex.
    pub parallelism: u32,
    /// Inputs, in the order of the graph's edges.
    pub inputs: Vec<InputDeployment>,
    /// Outputs, in the order of the graph's edges.
    pub outputs: Vec<OutputDeployment>,
}

/// One input of a task: the channels of one gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputDeployment {
    /// How the producers distribute.
    pub distribution: Distribution,
    /// One channel per producer.
    pub channels: Vec<ChannelDeployment>,
}

/// One channel: a subpartition at a TaskManager.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelDeployment {
    /// The partition.
    pub partition: PartitionKey,
    /// Which of its subpartitions.
    pub subpartition: u32,
    /// The node that has it.
    pub task_manager: ResourceId,
    /// `host:port` of that node.
    pub address: String,
}

/// One output of a task: a result partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputDeployment {
    /// The partition.
    pub partition: PartitionKey,
    /// Its number of subpartitions.
    pub subpartitions: u32,
    /// How records are distributed over them.
    pub distribution: Distribution,
    /// How the data is kept.
    pub exchange: ExchangeMode,
}

/// What a TaskManager says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskManagerReport {
    /// Its slots.
    pub slots: SlotReport,
    /// The identity in its certificate, or nothing without TLS.
    pub identity: Option<String>,
    /// `mutual` or `off`.
    pub tls: String,
    /// End of its certificate's validity, seconds since 1970.
    pub certificate_expires: Option<u64>,
    /// SHA-256 of its certificate, hex with colons.
    pub certificate_fingerprint: Option<String>,
    /// Its live connections.
    pub connections: Vec<ConnectionReport>,
}

/// One live connection of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConnectionReport {
    /// The node that dialled.
    pub from: ResourceId,
    /// The node that was dialled.
    pub to: ResourceId,
    /// `quic`, `tcp`, ….
    pub transport: String,
    /// `mutual` or `off`.
    pub tls: String,
    /// Streams open now.
    pub streams: u64,
    /// Bytes sent by the reporting node.
    pub bytes_sent: u64,
    /// Bytes received by the reporting node.
    pub bytes_received: u64,
    /// Smoothed round-trip time in microseconds.
    pub rtt_us: Option<u64>,
}

/// The tasks of a job at a TaskManager.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionReport {
    /// Each attempt with state and counters.
    pub tasks: Vec<(ExecutionId, TaskState, TaskMetrics)>,
    /// Slots that this TaskManager holds for the job.
    pub allocations: Vec<AllocationId>,
    /// Connections that this node has dialled to other TaskManagers.
    pub connections: u64,
}
