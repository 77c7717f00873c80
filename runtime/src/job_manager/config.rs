//! Settings of the JobManager.

use std::time::Duration;

use crate::{
    config::{self, HeartbeatSection, JobManagerSection},
    heartbeat::HeartbeatConfig,
    job::RestartStrategy,
};

/// Settings of ResourceManager, Dispatcher and JobMasters.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct JobManagerConfig {
    /// A job that gets no slots for so long fails. Default 30 s.
    pub slot_request_timeout: Duration,
    /// How long finished jobs are kept with their results. Default 1 h.
    pub finished_job_retention: Duration,
    /// What happens after a failure to a job that does not say so itself. Default: three restarts after 1 s each.
    pub restart: RestartStrategy,
    /// How often each TaskManager is asked whether it lives. Default 10 s.
    pub heartbeat_interval: Duration,
    /// When a TaskManager counts as dead.
    pub heartbeat: HeartbeatConfig,
    /// Task types that jobs may name. Default: none.
    pub task_types: Vec<String>,
}

impl Default for JobManagerConfig {
    fn default() -> Self {
        Self::new(&JobManagerSection::default(), &HeartbeatSection::default())
    }
}

impl JobManagerConfig {
    /// The settings that a configuration file has, without task types.
    #[must_use]
    pub fn new(job_manager: &JobManagerSection, heartbeat: &HeartbeatSection) -> Self {
        let (attempts, delay) = (job_manager.restart_attempts, job_manager.restart_delay);
        Self {
            slot_request_timeout: job_manager.slot_request_timeout,
            finished_job_retention: job_manager.finished_job_retention,
            restart: match job_manager.restart_strategy {
                config::RestartStrategy::None => RestartStrategy::None,
                config::RestartStrategy::FixedDelay => {
                    RestartStrategy::FixedDelay { attempts, delay }
                }
                config::RestartStrategy::Exponential => RestartStrategy::Exponential {
                    attempts,
                    initial: delay,
                    max: MAX_RESTART_DELAY.max(delay),
                },
            },
            heartbeat_interval: heartbeat.interval,
            heartbeat: HeartbeatConfig::from(heartbeat),
            task_types: Vec::new(),
        }
    }

    /// Sets the task types that jobs may name.
    #[must_use]
    pub fn with_task_types<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.task_types = names.into_iter().map(Into::into).collect();
        self
    }
}

/// A doubling delay stops growing here: Flink's `restart-strategy.exponential-delay.max-backoff`.
const MAX_RESTART_DELAY: Duration = Duration::from_secs(60);
