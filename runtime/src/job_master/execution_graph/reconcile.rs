//! What the TaskManagers of a job have, or have no more, against what the graph believes. Pure.

use std::time::Instant;

use thalweg_transport::ResourceId;

use super::{ExecutionGraph, GraphAction, execution::Execution};
use crate::{
    ids::{ExecutionId, VertexId},
    job::{ExchangeMode, FailureCause, FailureKind, JobState, TaskMetrics, TaskState},
};

impl ExecutionGraph {
    pub(super) fn on_report(
        &mut self,
        now: Instant,
        task_manager: &ResourceId,
        tasks: &[(ExecutionId, TaskState, TaskMetrics)],
        actions: &mut Vec<GraphAction>,
    ) {
        let mut listed = vec![false; self.executions.len()];
        for &(execution, state, metrics) in tasks {
            let index = self
                .find(execution)
                .filter(|&index| self.executions[index].is_deployed_at(task_manager));
            if let Some(index) = index {
                listed[index] = true;
                self.executions[index].metrics = metrics;
                if state.is_terminal() {
                    continue;
                }
                if self.executions[index].state == TaskState::Canceling
                    && state != TaskState::Canceling
                {
                    actions.extend(self.cancel_action(index));
                }
                self.advance(now, index, state, None, actions);
            } else if !state.is_terminal() && execution.job == self.job {
                actions.push(GraphAction::CancelTask {
                    execution,
                    task_manager: task_manager.clone(),
                });
            }
        }
        for (index, listed) in listed.into_iter().enumerate() {
            let task = &mut self.executions[index];
            if listed {
                task.missed_reports = 0;
            } else if task.is_deployed_at(task_manager) && task.accepted {
                task.missed_reports += 1;
                if task.missed_reports >= MAX_MISSED_REPORTS {
                    let cause = FailureCause::new(
                        FailureKind::Internal,
                        "its TaskManager does not know it any more",
                    );
                    self.end_task(now, index, TaskState::Failed, Some(cause), actions);
                }
            }
        }
    }

    pub(super) fn on_task_manager_lost(
        &mut self,
        now: Instant,
        task_manager: &ResourceId,
        reason: &str,
        actions: &mut Vec<GraphAction>,
    ) {
        let needed = self
            .executions
            .iter()
            .any(|task| self.is_needed_at(task, task_manager));
        for task in &mut self.executions {
            if task.is_deployed_at(task_manager) {
                task.state = TaskState::Failed;
            }
        }
        if needed && self.state == JobState::Running {
            let message = format!("TaskManager {task_manager} was lost: {reason}");
            let cause = FailureCause::new(FailureKind::TaskManagerLost, message);
            self.fail(now, cause, actions);
        } else {
            self.settle(now, actions);
        }
    }

    /// Whether the attempt cannot go on without this TaskManager because of this task: it runs there, or it has stored
    /// its output there for consumers that have not finished.
    fn is_needed_at(&self, task: &Execution, task_manager: &ResourceId) -> bool {
        if task.is_deployed_at(task_manager) {
            return true;
        }
        task.state == TaskState::Finished
            && task.task_manager.as_ref() == Some(task_manager)
            && self.graph.outputs(VertexId(task.vertex)).any(|(_, edge)| {
                edge.exchange == ExchangeMode::Blocking
                    && self.executions.iter().any(|consumer| {
                        consumer.vertex == edge.to.0 && !consumer.state.is_terminal()
                    })
            })
    }
}

/// One report may have been on its way when the task began or ended; two in a row cannot.
const MAX_MISSED_REPORTS: u32 = 2;
