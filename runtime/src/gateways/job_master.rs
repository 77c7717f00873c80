//! What TaskExecutors ask of a job's master, and the Dispatcher too.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use thalweg_transport::ResourceId;

use super::{PartitionKey, RegistrationResponse, ResultChunk};
use crate::{
    ids::{AllocationId, ExecutionId, JobId, SessionId},
    job::{FailureCause, JobStatus, TaskMetrics, TaskState},
    rpc::{RpcAddress, gateway},
};

/// Runs one job. Every call carries the JobMaster's session.
#[gateway(name = "JobMaster", callers = ["taskmanager"], fenced)]
pub trait JobMasterGateway {
    /// Registers a TaskManager that was given slots for this job. Idempotent for the same session; a new session of the
    /// same id disconnects the old one first.
    #[rpc(max_per_second = 100)]
    async fn register_task_manager(
        &self,
        registration: TaskManagerRegistration,
    ) -> RegistrationResponse<JobMasterAccepted>;

    /// Offers slots; the answer lists the accepted ones, the others are to be freed.
    async fn offer_slots(
        &self,
        task_manager: ResourceId,
        offers: Vec<SlotOffer>,
    ) -> Vec<AllocationId>;

    /// A slot that was given can't be used.
    fn fail_slot(&self, task_manager: ResourceId, allocation: AllocationId, cause: FailureCause);

    /// A task changed its state. The answer says that the JobMaster knows.
    async fn update_task_state(&self, update: TaskStateUpdate) -> ();

    /// A piece of a task's result, in order from 0; it counts only if the whole attempt finishes.
    async fn add_task_result(&self, execution: ExecutionId, sequence: u32, bytes: Bytes) -> ();

    /// Counters of running tasks, every now and then.
    fn report_metrics(
        &self,
        task_manager: ResourceId,
        connections: u64,
        metrics: Vec<(ExecutionId, TaskMetrics)>,
    );

    /// The state of the task that makes a partition, after a consumer did not find it.
    async fn partition_producer_state(&self, partition: PartitionKey) -> TaskState;

    /// A TaskManager says goodbye.
    fn disconnect_task_manager(&self, task_manager: ResourceId, cause: FailureCause);

    /// Asks the job to stop.
    #[rpc(callers = ["jobmanager"])]
    async fn cancel(&self) -> ();

    /// The job's state.
    #[rpc(callers = ["jobmanager"])]
    async fn status(&self) -> JobStatus;

    /// A piece of the published result.
    #[rpc(callers = ["jobmanager"])]
    async fn result(&self, offset: u64, max: u32) -> ResultChunk;
}

/// A TaskManager introduces itself to a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskManagerRegistration {
    /// The job that it wants to serve.
    pub job: JobId,
    /// Its node.
    pub id: ResourceId,
    /// This start of its process.
    pub session: SessionId,
    /// Its gateway.
    pub address: RpcAddress,
    /// `host:port` of its node, for partition requests.
    pub data_address: String,
}

/// A JobMaster's welcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobMasterAccepted {
    /// The JobMaster's node.
    pub job_master: ResourceId,
}

/// One slot offered to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotOffer {
    /// The allocation that the JobMaster asked for.
    pub allocation: AllocationId,
    /// The slot's index at its TaskManager.
    pub slot: u32,
}

/// A task's new state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStateUpdate {
    /// Which attempt.
    pub execution: ExecutionId,
    /// Its state.
    pub state: TaskState,
    /// Why, for [`TaskState::Failed`].
    pub failure: Option<FailureCause>,
    /// Its counters; final ones with a terminal state.
    pub metrics: TaskMetrics,
}
