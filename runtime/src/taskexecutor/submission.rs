//! Tasks of the TaskExecutor: accepted, watched, ended.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use thalweg_transport::now;

use super::{
    error,
    executor::TaskExecutor,
    lifecycle::Ending,
    place::Place,
    task::{RunningTask, TaskSetup},
};
use crate::{
    gateways::{ExecutionReport, TaskDeployment},
    ids::{ExecutionId, FencingToken, JobId},
    job::{FailureCause, FailureKind},
    rpc::{Context, Deadline, HandlerError, RpcError},
    slots::SlotState,
};

impl TaskExecutor {
    /// Accepts a task, or says why not; nothing is left of it then.
    pub(super) fn submit(
        &mut self,
        cx: &mut Context<Self>,
        token: FencingToken,
        deployment: TaskDeployment,
    ) -> Result<(), HandlerError> {
        let execution = deployment.execution;
        let job = execution.job;
        let Some(link) = self.link(job) else {
            let text = format!("task {execution}: no connection to the JobMaster of its job");
            return Err(error::wrong_job_master(text));
        };
        if link.token != token {
            let text = format!("task {execution} comes from a former JobMaster of its job");
            return Err(error::wrong_job_master(text));
        }
        let reporter = Arc::new(link.client.clone());
        // The answer to the slot offer may still be on its way.
        if !self.slots.try_mark_active(job, deployment.allocation) {
            let text = format!(
                "task {execution}: job {job} has no usable slot of allocation {} here",
                deployment.allocation
            );
            return Err(HandlerError::new("slot.not_found", text));
        }
        let registry = Arc::clone(&self.services.registry);
        if !registry.contains(&deployment.task) {
            return Err(error::invalid_job(registry.unknown(&deployment.task)));
        }
        self.slots
            .add_task(deployment.allocation, execution)
            .map_err(|error| error::slot(&error))?;
        self.services.shuffle.release_attempts_before(execution);
        let light = registry.is_light(&deployment.task);
        let setup = TaskSetup {
            place: Place::of(self.config.placement, &self.services.shuffle, light),
            deployment,
            registry,
            shuffle: self.services.shuffle.clone(),
            task_manager: self.config.id.clone(),
            reporter,
        };
        let (main, runtime) = (cx.main_thread(), cx.service().runtime().clone());
        let started = RunningTask::start(setup, move |ending| {
            // Waits for a place in the mailbox: an ending must not be lost. If the endpoint is gone, nobody waits for it.
            drop(runtime.spawn(
                main.call_async(Deadline::Never, move |this: &mut Self, cx| {
                    this.on_task_ended(cx, execution, ending);
                }),
            ));
        });
        match started {
            Ok(task) => {
                tracing::info!(%execution, vertex = task.info().vertex_name(), "task starts");
                self.tasks.insert(execution, task);
                self.report_metrics_later(cx);
                Ok(())
            }
            Err(error) => {
                let actions = self.slots.remove_task(&execution);
                let cause = FailureCause::new(FailureKind::Resources, error.to_string());
                self.apply(cx, actions, &cause);
                Err(error::no_thread(&error))
            }
        }
    }

    /// Tells a task to stop; an unknown one is fine.
    pub(super) fn cancel(&mut self, cx: &mut Context<Self>, execution: ExecutionId) {
        if let Some(task) = self.tasks.get(&execution)
            && task.cancel()
        {
            tracing::info!(%execution, "task is told to stop");
            self.watch_stop(cx, execution, now());
        }
    }

    /// Makes a task fail; an unknown one is fine.
    pub(super) fn fail_task(
        &mut self,
        cx: &mut Context<Self>,
        execution: ExecutionId,
        cause: &FailureCause,
    ) {
        if let Some(task) = self.tasks.get(&execution)
            && task.fail(cause.clone())
        {
            tracing::info!(%execution, %cause, "task fails from outside");
            self.watch_stop(cx, execution, now());
        }
    }

    /// Sees to it that a task that was told to stop does: after the interval it is interrupted where it waits; code that
    /// never waits can't be stopped, and makes the whole TaskManager stop in the end.
    fn watch_stop(&mut self, cx: &mut Context<Self>, execution: ExecutionId, since: Instant) {
        let left = self
            .config
            .cancellation_timeout
            .saturating_sub(now().saturating_duration_since(since));
        let next = self.config.cancellation_interval.min(left);
        cx.schedule(next, move |this, cx| {
            let Some(task) = this.tasks.get(&execution) else {
                return;
            };
            if task.state().is_terminal() {
                return;
            }
            let elapsed = now().saturating_duration_since(since);
            if elapsed >= this.config.cancellation_timeout {
                let text = format!(
                    "task {} ({execution}) did not stop within {:?} after it was told to",
                    task.info().vertex_name(),
                    this.config.cancellation_timeout
                );
                this.fatal(FailureKind::Cancellation, text);
                return;
            }
            tracing::warn!(%execution, vertex = task.info().vertex_name(), ?elapsed, "task has not stopped, it is interrupted where it waits");
            task.interrupt();
            this.watch_stop(cx, execution, since);
        });
    }

    /// Nothing of a task runs any more.
    fn on_task_ended(&mut self, cx: &mut Context<Self>, execution: ExecutionId, ending: Ending) {
        let Some(task) = self.tasks.get(&execution).cloned() else {
            return;
        };
        warn_of_hold(&task);
        let state = ending.state;
        match &ending.failure {
            // The task that failed first, or was cancelled, may run on another node: there it is told.
            Some(cause) if cause.kind == FailureKind::Partition => {
                tracing::info!(%execution, %state, %cause, "task ended");
            }
            Some(cause) => tracing::warn!(%execution, %state, %cause, "task ended"),
            None => tracing::info!(%execution, %state, "task ended"),
        }
        let text = format!("the slot's last task is {state}");
        let cause = ending
            .failure
            .clone()
            .unwrap_or_else(|| FailureCause::new(FailureKind::Cluster, text));
        // A job that is shorter than the interval of metrics would not hear of its connections.
        if let Some(link) = self.link(execution.job) {
            let connections = self.connections();
            let id = self.config.id.clone();
            if let Err(error) = link.client.report_metrics(id, connections, Vec::new()) {
                tracing::debug!(%execution, %error, "connections are not reported");
            }
        }
        // It stays in the reports to the JobMaster until the JobMaster knows its end.
        let report = tell_ending(task, ending);
        cx.spawn(report, move |this, _, ()| {
            this.tasks.remove(&execution);
            this.stop_if_idle();
        });
        let actions = self.slots.remove_task(&execution);
        self.apply(cx, actions, &cause);
    }

    /// The tasks of a job, for its JobMaster.
    pub(super) fn execution_report(&self, job: JobId) -> ExecutionReport {
        let tasks = self.tasks.values();
        ExecutionReport {
            tasks: tasks
                .filter(|task| task.execution().job == job)
                .map(|task| (task.execution(), task.state(), task.metrics()))
                .collect(),
            allocations: self
                .slots
                .slots_of(job)
                .filter(|slot| slot.state != SlotState::Releasing)
                .filter_map(|slot| Some(slot.allocation?.1))
                .collect(),
            connections: self.connections(),
        }
    }

    fn report_metrics_later(&mut self, cx: &mut Context<Self>) {
        if std::mem::replace(&mut self.reporting, true) {
            return;
        }
        cx.schedule(self.config.metrics_interval, |this, cx| {
            this.reporting = false;
            this.tasks.values().for_each(warn_of_hold);
            this.report_metrics();
            if !this.tasks.is_empty() {
                this.report_metrics_later(cx);
            }
        });
    }

    fn report_metrics(&self) {
        let connections = self.connections();
        for (job, entry) in self.jobs.jobs() {
            let Some((_, link)) = entry.connection() else {
                continue;
            };
            let running = self
                .tasks
                .values()
                .filter(|task| task.execution().job == job && !task.state().is_terminal());
            let metrics: Vec<_> = running
                .map(|task| (task.execution(), task.metrics()))
                .collect();
            if metrics.is_empty() {
                continue;
            }
            let id = self.config.id.clone();
            if let Err(error) = link.client.report_metrics(id, connections, metrics) {
                tracing::debug!(%job, %error, "counters are not reported");
            }
        }
    }

    fn connections(&self) -> u64 {
        self.services.shuffle.stats().connections as u64
    }
}

/// A task that keeps the network thread keeps it from everything else of the node, and its author should hear of it.
fn warn_of_hold(task: &RunningTask) {
    if let Some(held) = task.held_too_long() {
        let (execution, vertex) = (task.execution(), task.info().vertex_name());
        tracing::warn!(%execution, vertex, ?held, "a light task holds up the connections of its node: it must not block or compute for long");
    }
}

/// Tells the JobMaster how a task ended. A JobMaster that does not answer is told again a few times; later it learns from
/// the heartbeat's report that the task is gone.
async fn tell_ending(task: RunningTask, ending: Ending) {
    let update = task.update(ending.state, ending.failure);
    for attempt in 1..=REPORT_ATTEMPTS {
        match task.reporter().report(update.clone()).await {
            Ok(()) => return,
            Err(RpcError::TimedOut { .. } | RpcError::Overloaded { .. })
                if attempt < REPORT_ATTEMPTS =>
            {
                tokio::time::sleep(REPORT_PAUSE).await;
            }
            Err(error) => {
                tracing::warn!(execution = %task.execution(), state = %update.state, %error, "the JobMaster did not hear how a task ended");
                return;
            }
        }
    }
}

/// Each has the ask time-out; more would outlive any job that a JobMaster still waits for.
const REPORT_ATTEMPTS: u32 = 3;

/// Between attempts: an overloaded JobMaster needs some air.
const REPORT_PAUSE: Duration = Duration::from_millis(500);
