//! What TaskExecutors and JobMasters ask of the ResourceManager.

use serde::{Deserialize, Serialize};
use thalweg_transport::ResourceId;

use super::TaskManagerReport;
use crate::{
    ids::{AllocationId, FencingToken, InstanceId, JobId, SessionId},
    job::Placement,
    rpc::{RpcAddress, gateway},
};

/// Registers TaskExecutors and gives their slots to jobs.
#[gateway(name = "ResourceManager", callers = ["taskmanager"])]
pub trait ResourceManagerGateway {
    /// Registers a TaskExecutor. The certificate of the caller must name it. An older registration of the same id with
    /// another session is replaced, and its TaskExecutor told so. It gets no slot requests before it has reported slots.
    #[rpc(max_per_second = 100)]
    async fn register_task_executor(
        &self,
        registration: TaskExecutorRegistration,
    ) -> RegistrationResponse<ResourceManagerAccepted>;

    /// The slots of a TaskExecutor that knows its registration; from then on they are given to jobs. Later reports are
    /// answers to heartbeats.
    #[rpc(max_per_second = 100)]
    async fn report_slots(&self, instance: InstanceId, report: TaskManagerReport) -> ();

    /// A TaskExecutor says goodbye.
    fn disconnect_task_executor(&self, instance: InstanceId, reason: String);

    /// A slot of a TaskExecutor is free again.
    fn notify_slot_available(&self, instance: InstanceId, slot: u32, allocation: AllocationId);

    /// Asks for all slots of a job attempt at once; they are given together or not yet. The TaskExecutors then offer
    /// them to the JobMaster. A second request of the same job replaces the first.
    #[rpc(callers = ["jobmanager"])]
    async fn request_slots(&self, request: SlotsRequest) -> ();

    /// Takes back the requests of a job and forgets what it holds.
    #[rpc(callers = ["jobmanager"])]
    fn release_job(&self, job: JobId);

    /// What the cluster has, for status pages and for messages about missing slots.
    #[rpc(callers = ["jobmanager"])]
    async fn overview(&self) -> Vec<TaskManagerStatus>;
}

/// A TaskExecutor introduces itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskExecutorRegistration {
    /// Its node.
    pub id: ResourceId,
    /// This start of its process.
    pub session: SessionId,
    /// Its gateway.
    pub address: RpcAddress,
    /// `host:port` of its node, for partition requests.
    pub data_address: String,
}

/// The answer to a registration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RegistrationResponse<S> {
    /// Registered.
    Accepted(S),
    /// Not now; try again later.
    Refused {
        /// One line for the log.
        reason: String,
    },
    /// Never; do not try again.
    Rejected {
        /// One line for the log.
        reason: String,
    },
}

/// A ResourceManager's welcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceManagerAccepted {
    /// This registration.
    pub instance: InstanceId,
    /// The ResourceManager's session: what its later calls carry.
    pub token: FencingToken,
    /// The ResourceManager's node.
    pub resource_manager: ResourceId,
}

/// A job attempt's need of slots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotsRequest {
    /// The job.
    pub job: JobId,
    /// Where the TaskExecutors are to offer the slots.
    pub job_master: JobMasterAddress,
    /// One entry per slot.
    pub slots: Vec<SlotRequest>,
    /// How they are to be chosen.
    pub placement: Placement,
    /// TaskManagers that the JobMaster knows to be lost: not chosen for this request, unless they have registered since.
    pub avoid: Vec<LostTaskManager>,
}

/// A TaskManager that a JobMaster has lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostTaskManager {
    /// Its node.
    pub id: ResourceId,
    /// Milliseconds from the last sign of its life to the request.
    pub lost_ms_ago: u64,
}

/// The need of one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotRequest {
    /// Names the slot from now on.
    pub allocation: AllocationId,
    /// The slot sharing group that it is for.
    pub group: u32,
}

/// Where a JobMaster is found, and its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobMasterAddress {
    /// Its gateway.
    pub address: RpcAddress,
    /// Its session.
    pub token: FencingToken,
}

/// One registered TaskManager, for status pages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskManagerStatus {
    /// Its node.
    pub id: ResourceId,
    /// `host:port` that it advertises.
    pub address: String,
    /// Milliseconds since it was last heard.
    pub last_heartbeat_ms: u64,
    /// The latest report.
    pub report: TaskManagerReport,
}
