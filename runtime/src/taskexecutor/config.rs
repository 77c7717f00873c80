//! Settings and collaborators of a TaskExecutor.

use std::{fmt, sync::Arc, time::Duration};

use thalweg_transport::ResourceId;

use crate::{
    config::{Config, TaskPlacement},
    gateways::TaskManagerReport,
    heartbeat::HeartbeatConfig,
    registration::RegistrationConfig,
    rpc::RpcAddress,
    shuffle::ShuffleEnvironment,
    slots::{SlotReport, SlotTableConfig},
    task::TaskRegistry,
};

/// Settings of a [`TaskExecutor`](super::TaskExecutor).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TaskExecutorConfig {
    /// The TaskManager's node.
    pub id: ResourceId,
    /// `host:port` where other TaskManagers reach its partitions.
    pub data_address: String,
    /// Where the ResourceManager is.
    pub resource_manager: RpcAddress,
    /// Its slots.
    pub slots: SlotTableConfig,
    /// How registrations are repeated.
    pub registration: RegistrationConfig,
    /// A TaskExecutor without a ResourceManager for so long gives up. Default 5 min.
    pub registration_timeout: Duration,
    /// When a silent leader counts as lost.
    pub heartbeat: HeartbeatConfig,
    /// How often a cancelled task that does not stop is told again. Default 30 s.
    pub cancellation_interval: Duration,
    /// A cancelled task that does not stop in time is a fatal error. Default 3 min.
    pub cancellation_timeout: Duration,
    /// On which threads tasks run.
    pub placement: TaskPlacement,
    /// How often the counters of running tasks are told. Default 500 ms.
    pub metrics_interval: Duration,
}

impl TaskExecutorConfig {
    /// Takes slots, time-outs and heartbeats from a node's configuration.
    #[must_use]
    pub fn new(
        config: &Config,
        id: ResourceId,
        data_address: String,
        resource_manager: RpcAddress,
    ) -> Self {
        Self {
            id,
            data_address,
            resource_manager,
            slots: SlotTableConfig::from(&config.taskmanager),
            registration: RegistrationConfig::default(),
            registration_timeout: config.taskmanager.registration_timeout,
            heartbeat: HeartbeatConfig::from(&config.heartbeat),
            cancellation_interval: config.task.cancellation_interval,
            cancellation_timeout: config.task.cancellation_timeout,
            placement: config.taskmanager.task_placement,
            metrics_interval: METRICS_INTERVAL,
        }
    }
}

/// What a [`TaskExecutor`](super::TaskExecutor) works with.
#[derive(Clone)]
#[non_exhaustive]
pub struct TaskExecutorServices {
    /// The task types that it can run.
    pub registry: Arc<TaskRegistry>,
    /// The exchange of its tasks.
    pub shuffle: ShuffleEnvironment,
    /// Completes a slot report to what the TaskManager says of itself.
    pub describe: Describe,
}

/// Completes a slot report with what is known of the node.
pub type Describe = Arc<dyn Fn(SlotReport) -> TaskManagerReport + Send + Sync>;

impl TaskExecutorServices {
    /// Collects the parts.
    #[must_use]
    pub fn new(
        registry: Arc<TaskRegistry>,
        shuffle: ShuffleEnvironment,
        describe: Describe,
    ) -> Self {
        Self {
            registry,
            shuffle,
            describe,
        }
    }
}

impl fmt::Debug for TaskExecutorServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskExecutorServices")
            .field("registry", &self.registry)
            .field("shuffle", &self.shuffle)
            .finish_non_exhaustive()
    }
}

/// Often enough for a progress bar, seldom enough to cost nothing beside the data.
const METRICS_INTERVAL: Duration = Duration::from_millis(500);
