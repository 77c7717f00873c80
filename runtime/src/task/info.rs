//! Who a task is.

use std::sync::Arc;

use thalweg_transport::ResourceId;

use crate::{gateways::TaskDeployment, ids::ExecutionId};

/// Who a task is and where it runs. Cloning is cheap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskInfo {
    execution: ExecutionId,
    parallelism: u32,
    job_name: Arc<str>,
    vertex_name: Arc<str>,
    task_manager: ResourceId,
}

impl TaskInfo {
    pub(crate) fn new(deployment: &TaskDeployment, task_manager: ResourceId) -> Self {
        Self {
            execution: deployment.execution,
            parallelism: deployment.parallelism,
            job_name: deployment.job_name.as_str().into(),
            vertex_name: deployment.vertex_name.as_str().into(),
            task_manager,
        }
    }

    /// The attempt.
    #[must_use]
    pub fn execution(&self) -> ExecutionId {
        self.execution
    }

    /// Which of the vertex's parallel subtasks this is, from 0.
    #[must_use]
    pub fn subtask(&self) -> u32 {
        self.execution.subtask
    }

    /// How many parallel subtasks the vertex has.
    #[must_use]
    pub fn parallelism(&self) -> u32 {
        self.parallelism
    }

    /// Which attempt this is, from 0.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.execution.attempt
    }

    /// The job's name.
    #[must_use]
    pub fn job_name(&self) -> &str {
        &self.job_name
    }

    /// The vertex's name.
    #[must_use]
    pub fn vertex_name(&self) -> &str {
        &self.vertex_name
    }

    /// The TaskManager that the task runs on.
    #[must_use]
    pub fn task_manager(&self) -> &ResourceId {
        &self.task_manager
    }
}
