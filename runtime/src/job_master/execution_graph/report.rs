//! What is told of the tasks of a graph. Pure.

use super::ExecutionGraph;
use crate::job::{FailureCause, TaskStatus};

impl ExecutionGraph {
    /// Every task, vertex by vertex.
    #[must_use]
    pub(crate) fn tasks(&self) -> Vec<TaskStatus> {
        self.executions
            .iter()
            .map(|task| TaskStatus {
                execution: self.id(task),
                name: self.graph.vertices[task.vertex as usize].name.clone(),
                state: task.state,
                task_manager: task.task_manager.clone(),
                metrics: task.metrics,
            })
            .collect()
    }

    /// The cause of the job's failure from that of a task: with the task's name and place.
    pub(super) fn task_failure(&self, index: usize, cause: &FailureCause) -> FailureCause {
        let task = &self.executions[index];
        let vertex = &self.graph.vertices[task.vertex as usize];
        let place = task
            .task_manager
            .as_ref()
            .map_or_else(String::new, |id| format!(" at {id}"));
        FailureCause::new(
            cause.kind,
            format!(
                "task {} ({}/{}){place} failed: {cause}",
                vertex.name,
                task.subtask + 1,
                vertex.parallelism
            ),
        )
    }
}
