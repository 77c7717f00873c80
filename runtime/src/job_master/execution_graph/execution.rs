//! One subtask of an attempt. Pure.

use thalweg_transport::ResourceId;

use crate::job::{TaskMetrics, TaskState};

#[derive(Debug)]
pub(super) struct Execution {
    pub(super) vertex: u32,
    pub(super) subtask: u32,
    pub(super) state: TaskState,
    pub(super) task_manager: Option<ResourceId>,
    pub(super) metrics: TaskMetrics,
    pub(super) accepted: bool,
    pub(super) missed_reports: u32,
}

impl Execution {
    pub(super) fn new(vertex: u32, subtask: u32) -> Self {
        Self {
            vertex,
            subtask,
            state: TaskState::Created,
            task_manager: None,
            metrics: TaskMetrics::default(),
            accepted: false,
            missed_reports: 0,
        }
    }

    pub(super) fn reset(&mut self) {
        *self = Self::new(self.vertex, self.subtask);
    }

    /// Sent to a TaskExecutor and not ended.
    pub(super) fn is_deployed(&self) -> bool {
        rank(self.state) >= rank(TaskState::Deploying) && !self.state.is_terminal()
    }

    pub(super) fn is_deployed_at(&self, task_manager: &ResourceId) -> bool {
        self.is_deployed() && self.task_manager.as_ref() == Some(task_manager)
    }
}

/// The order in which a task passes its states.
pub(super) fn rank(state: TaskState) -> u8 {
    match state {
        TaskState::Created => 0,
        TaskState::Scheduled => 1,
        TaskState::Deploying => 2,
        TaskState::Initializing => 3,
        TaskState::Running => 4,
        TaskState::Canceling => 5,
        TaskState::Finished | TaskState::Canceled | TaskState::Failed => 6,
    }
}
