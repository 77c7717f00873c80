//! The state of one job and of each of its tasks. Pure.
//!
//! Every attempt of a job starts all its tasks and ends before the next one begins: there are never two live attempts
//! of a subtask. The first failure of an attempt is its cause; it cancels the other tasks, and when the last of them has
//! ended, or its TaskManager is known to be gone, the restart strategy decides.

mod event;
mod execution;
mod reconcile;
mod report;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Instant};

use thalweg_transport::ResourceId;

pub(crate) use self::event::{GraphAction, GraphEvent, SlotOwners};
use self::execution::{Execution, rank};
use super::restart::RestartPolicy;
use crate::{
    ids::{ExecutionId, JobId, VertexId},
    job::{FailureCause, FailureKind, JobGraph, JobState, RestartStrategy, TaskMetrics, TaskState},
};

/// The machine: [`on_event`](Self::on_event) takes what happened and says what is to be done.
///
/// Duplicates, reorderings and messages of earlier attempts are harmless.
#[derive(Debug)]
pub(crate) struct ExecutionGraph {
    job: JobId,
    graph: Arc<JobGraph>,
    state: JobState,
    attempt: u32,
    policy: RestartPolicy,
    may_restart: bool,
    failure: Option<FailureCause>,
    restart_at: Option<Instant>,
    /// By vertex, then by subtask.
    executions: Vec<Execution>,
}

impl ExecutionGraph {
    /// A job that has not begun. The graph has been validated.
    #[must_use]
    pub(crate) fn new(job: JobId, graph: Arc<JobGraph>, restart: RestartStrategy) -> Self {
        let executions = (0_u32..)
            .zip(&graph.vertices)
            .flat_map(|(vertex, v)| (0..v.parallelism).map(move |s| Execution::new(vertex, s)))
            .collect();
        Self {
            job,
            graph,
            state: JobState::Created,
            attempt: 0,
            policy: RestartPolicy::new(restart),
            may_restart: true,
            failure: None,
            restart_at: None,
            executions,
        }
    }

    /// The job's state.
    #[must_use]
    pub(crate) fn state(&self) -> JobState {
        self.state
    }

    /// The current attempt, from 0.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Restarts granted so far.
    #[must_use]
    pub(crate) fn restarts(&self) -> u32 {
        self.policy.restarts()
    }

    /// The first failure of the latest attempt that failed.
    #[must_use]
    pub(crate) fn failure(&self) -> Option<&FailureCause> {
        self.failure.as_ref()
    }

    /// The state of a task of the current attempt; `None` for any other.
    #[must_use]
    pub(crate) fn task_state(&self, execution: ExecutionId) -> Option<TaskState> {
        self.find(execution)
            .map(|index| self.executions[index].state)
    }

    /// The TaskManager that a task of the current attempt was deployed to.
    #[must_use]
    pub(crate) fn task_manager(&self, execution: ExecutionId) -> Option<&ResourceId> {
        self.executions[self.find(execution)?].task_manager.as_ref()
    }

    /// Takes the counters of a task that runs at this TaskManager; those of any other are ignored.
    pub(crate) fn on_metrics(&mut self, at: &ResourceId, task: ExecutionId, metrics: TaskMetrics) {
        if let Some(index) = self.find(task)
            && self.executions[index].is_deployed_at(at)
        {
            self.executions[index].metrics = metrics;
        }
    }

    /// Takes an event.
    #[must_use]
    pub(crate) fn on_event(&mut self, now: Instant, event: GraphEvent) -> Vec<GraphAction> {
        let mut actions = Vec::new();
        match event {
            GraphEvent::Start => {
                if self.state == JobState::Created && !self.is_scheduled() {
                    self.schedule(&mut actions);
                }
            }
            GraphEvent::SlotsReady(owners) => self.deploy(&owners, &mut actions),
            GraphEvent::SlotsUnavailable(cause) => {
                if self.is_scheduled() {
                    self.may_restart = false;
                    self.fail(now, cause, &mut actions);
                }
            }
            GraphEvent::Submitted(execution) => {
                if let Some(index) = self.find(execution)
                    && self.executions[index].is_deployed()
                {
                    self.executions[index].accepted = true;
                }
            }
            GraphEvent::SubmissionFailed(execution, cause) => {
                if let Some(index) = self.find(execution)
                    && self.executions[index].is_deployed()
                {
                    // Without an answer the task may have been accepted nevertheless.
                    actions.extend(self.cancel_action(index));
                    self.end_task(now, index, TaskState::Failed, Some(cause), &mut actions);
                }
            }
            GraphEvent::TaskUpdate {
                execution,
                state,
                failure,
                metrics,
            } => {
                if let Some(index) = self.find(execution)
                    && self.executions[index].is_deployed()
                {
                    self.executions[index].accepted = true;
                    self.executions[index].metrics = metrics;
                    self.advance(now, index, state, failure, &mut actions);
                }
            }
            GraphEvent::Report {
                task_manager,
                tasks,
            } => self.on_report(now, &task_manager, &tasks, &mut actions),
            GraphEvent::TaskManagerLost {
                task_manager,
                reason,
            } => self.on_task_manager_lost(now, &task_manager, &reason, &mut actions),
            GraphEvent::RestartDue => {
                if self.restart_at.is_some_and(|at| now >= at) {
                    self.restart_at = None;
                    self.attempt += 1;
                    self.executions.iter_mut().for_each(Execution::reset);
                    self.schedule(&mut actions);
                }
            }
            GraphEvent::Cancel => self.cancel(now, &mut actions),
            GraphEvent::Fail(cause) => self.fail(now, cause, &mut actions),
        }
        actions
    }

    fn schedule(&mut self, actions: &mut Vec<GraphAction>) {
        for task in &mut self.executions {
            task.state = TaskState::Scheduled;
        }
        actions.push(GraphAction::RequestSlots {
            attempt: self.attempt,
        });
    }

    /// Whether the attempt waits for its slots.
    fn is_scheduled(&self) -> bool {
        self.executions
            .iter()
            .any(|task| task.state == TaskState::Scheduled)
    }

    fn deploy(&mut self, owners: &SlotOwners, actions: &mut Vec<GraphAction>) {
        if !self.is_scheduled() {
            return;
        }
        let group = |task: &Execution| self.graph.vertices[task.vertex as usize].slot_group;
        let slots: Option<Vec<_>> = self
            .executions
            .iter()
            .map(|task| owners.get(&(group(task), task.subtask)))
            .collect();
        let Some(slots) = slots else {
            return;
        };
        for (task, owner) in self.executions.iter_mut().zip(slots) {
            task.task_manager = Some(owner.clone());
            task.state = TaskState::Deploying;
        }
        self.state = JobState::Running;
        actions.push(GraphAction::Deploy {
            attempt: self.attempt,
        });
    }

    /// A state that a TaskExecutor reported for a deployed task.
    fn advance(
        &mut self,
        now: Instant,
        index: usize,
        state: TaskState,
        failure: Option<FailureCause>,
        actions: &mut Vec<GraphAction>,
    ) {
        let task = &mut self.executions[index];
        if !state.is_terminal() {
            if rank(state) > rank(task.state) {
                task.state = state;
            }
            return;
        }
        let cause = match (state, failure) {
            (TaskState::Finished, _) => None,
            (TaskState::Canceled, _) => Some(FailureCause::new(
                FailureKind::Internal,
                "it was cancelled although nobody asked for that",
            )),
            (_, Some(cause)) => Some(cause),
            (_, None) => Some(FailureCause::new(
                FailureKind::Internal,
                "it failed without a cause",
            )),
        };
        self.end_task(now, index, state, cause, actions);
    }

    fn end_task(
        &mut self,
        now: Instant,
        index: usize,
        state: TaskState,
        cause: Option<FailureCause>,
        actions: &mut Vec<GraphAction>,
    ) {
        self.executions[index].state = state;
        match cause {
            Some(cause) if self.state == JobState::Running => {
                let cause = self.task_failure(index, &cause);
                self.fail(now, cause, actions);
            }
            // The failure that began the attempt's end may be a consequence of this one that came first.
            Some(cause) if self.state == JobState::Failing && cause.kind.is_permanent() => {
                self.failure = Some(self.task_failure(index, &cause));
                self.may_restart = false;
                self.settle(now, actions);
            }
            _ => self.settle(now, actions),
        }
    }

    fn cancel(&mut self, now: Instant, actions: &mut Vec<GraphAction>) {
        if self.state.is_terminal() || self.state == JobState::Canceling {
            return;
        }
        self.state = JobState::Canceling;
        self.restart_at = None;
        self.stop_tasks(actions);
        self.settle(now, actions);
    }

    /// The first failure of an attempt is its cause, unless a task fails for good before all have ended; others that come
    /// later only take away the chance of a restart.
    fn fail(&mut self, now: Instant, cause: FailureCause, actions: &mut Vec<GraphAction>) {
        match self.state {
            JobState::Created | JobState::Running | JobState::Restarting => {
                self.state = JobState::Failing;
                self.failure = Some(cause);
                self.restart_at = None;
                self.stop_tasks(actions);
                self.settle(now, actions);
            }
            JobState::Failing => {
                self.may_restart &= cause.kind.allows_restart();
            }
            JobState::Canceling | JobState::Finished | JobState::Failed | JobState::Canceled => {}
        }
    }

    fn stop_tasks(&mut self, actions: &mut Vec<GraphAction>) {
        for index in 0..self.executions.len() {
            match self.executions[index].state {
                TaskState::Created | TaskState::Scheduled => {
                    self.executions[index].state = TaskState::Canceled;
                }
                TaskState::Deploying | TaskState::Initializing | TaskState::Running => {
                    self.executions[index].state = TaskState::Canceling;
                    actions.extend(self.cancel_action(index));
                }
                TaskState::Canceling
                | TaskState::Finished
                | TaskState::Canceled
                | TaskState::Failed => {}
            }
        }
    }

    pub(super) fn cancel_action(&self, index: usize) -> Option<GraphAction> {
        let task = &self.executions[index];
        Some(GraphAction::CancelTask {
            execution: self.id(task),
            task_manager: task.task_manager.clone()?,
        })
    }

    /// Ends the attempt if its last task has ended.
    fn settle(&mut self, now: Instant, actions: &mut Vec<GraphAction>) {
        if !self.executions.iter().all(|task| task.state.is_terminal()) {
            return;
        }
        self.state = match self.state {
            JobState::Running => JobState::Finished,
            JobState::Canceling => JobState::Canceled,
            JobState::Failing => {
                let kind = self.failure.as_ref().map(|cause| cause.kind);
                let delay = kind
                    .filter(|_| self.may_restart)
                    .and_then(|kind| self.policy.on_failure(kind));
                if let Some(delay) = delay {
                    let at = now + delay;
                    self.restart_at = Some(at);
                    self.state = JobState::Restarting;
                    actions.push(GraphAction::RestartAt(at));
                    return;
                }
                JobState::Failed
            }
            _ => return,
        };
        actions.push(GraphAction::End(self.state));
    }

    fn id(&self, task: &Execution) -> ExecutionId {
        ExecutionId {
            job: self.job,
            vertex: VertexId(task.vertex),
            subtask: task.subtask,
            attempt: self.attempt,
        }
    }

    /// Where a task of the current attempt is.
    fn find(&self, execution: ExecutionId) -> Option<usize> {
        if execution.job != self.job || execution.attempt != self.attempt {
            return None;
        }
        let key = (execution.vertex.0, execution.subtask);
        self.executions
            .binary_search_by_key(&key, |task| (task.vertex, task.subtask))
            .ok()
    }
}
