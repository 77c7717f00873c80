//! The JobMaster: its state, and the wishes of the execution graph.

use std::{
    collections::BTreeMap,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use thalweg_transport::{ResourceId, now};
use tokio::{sync::oneshot, time::timeout};

use super::{
    deployment::deployments,
    execution_graph::{ExecutionGraph, GraphAction, GraphEvent},
    results::{PublishedResult, Results},
    slot_pool::SlotPool,
    task_managers::TaskManagers,
};
use crate::{
    gateways::{ResourceManagerClient, TaskDeployment},
    ids::{FencingToken, JobId},
    job::{FailureCause, FailureKind, JobGraph, JobState, JobStatus, TaskMetrics},
    job_manager::JobManagerConfig,
    rpc::{Answer, Context, Endpoint, HandlerError, Scheduled},
};

/// The endpoint behind the [`JobMasterGateway`](crate::gateways::JobMasterGateway): one for each job.
///
/// It begins when [`begin`](Self::begin) is called on its main thread. When the job has ended it says so, gives the
/// slots back and ends by itself.
pub struct JobMaster {
    pub(super) job: JobId,
    pub(super) node: ResourceId,
    pub(super) token: FencingToken,
    pub(super) spec: Arc<JobGraph>,
    pub(super) config: JobManagerConfig,
    pub(super) resource_manager: ResourceManagerClient,
    pub(super) graph: ExecutionGraph,
    pub(super) pool: SlotPool,
    pub(super) results: Results,
    pub(super) task_managers: TaskManagers,
    /// The running wait for slots.
    pub(super) slot_timer: Option<Scheduled>,
    submitted_at: Instant,
    ended_at: Option<Instant>,
    published: PublishedResult,
    on_end: Option<oneshot::Sender<FinishedJob>>,
}

/// What is left of a job that has ended.
#[derive(Debug, Clone)]
pub struct FinishedJob {
    /// Its last status; the state is terminal.
    pub status: JobStatus,
    /// Its result; empty unless it has finished.
    pub result: PublishedResult,
}

impl JobMaster {
    /// The master of a job whose graph was validated. `on_end` gets the job when it has ended.
    #[must_use]
    pub fn new(
        job: JobId,
        spec: Arc<JobGraph>,
        node: ResourceId,
        resource_manager: ResourceManagerClient,
        config: JobManagerConfig,
        on_end: oneshot::Sender<FinishedJob>,
    ) -> Self {
        let restart = spec.restart.unwrap_or(config.restart);
        Self {
            job,
            node,
            token: FencingToken::random(),
            graph: ExecutionGraph::new(job, Arc::clone(&spec), restart),
            pool: SlotPool::new(&spec.slots_by_group()),
            results: Results::new(),
            task_managers: TaskManagers::new(now(), &config),
            slot_timer: None,
            submitted_at: now(),
            ended_at: None,
            published: PublishedResult::default(),
            on_end: Some(on_end),
            spec,
            config,
            resource_manager,
        }
    }

    /// The session that calls of its gateway carry.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Begins the execution.
    pub fn begin(&mut self, cx: &mut Context<Self>) {
        tracing::info!(job = %self.job, name = %self.spec.name, "job begins");
        self.on_event(cx, GraphEvent::Start);
    }

    /// Fails the job for a reason that no task reported.
    pub fn fail(&mut self, cx: &mut Context<Self>, cause: FailureCause) {
        self.on_event(cx, GraphEvent::Fail(cause));
    }

    /// Gives an event to the execution graph and does what it wants done.
    pub(super) fn on_event(&mut self, cx: &mut Context<Self>, event: GraphEvent) {
        let before = self.graph.state();
        let actions = self.graph.on_event(now(), event);
        let after = self.graph.state();
        if before != after {
            let cause = self.graph.failure().map(tracing::field::display);
            tracing::info!(job = %self.job, from = %before, to = %after, cause, "job state");
        }
        for action in actions {
            self.perform(cx, action);
        }
    }

    fn perform(&mut self, cx: &mut Context<Self>, action: GraphAction) {
        match action {
            GraphAction::RequestSlots { attempt } => {
                self.results.start_attempt(attempt);
                self.acquire_slots(cx);
            }
            GraphAction::Deploy { attempt } => self.deploy(cx, attempt),
            GraphAction::CancelTask {
                execution,
                task_manager,
            } => {
                let Some(gateway) = self.task_managers.gateway(&task_manager) else {
                    return;
                };
                cx.spawn(gateway.cancel_task(execution), move |_, _, result| {
                    if let Err(error) = result {
                        // The next report of the TaskManager shows whether it has to be told again.
                        tracing::debug!(task = %execution, %error, "task not cancelled");
                    }
                });
            }
            GraphAction::RestartAt(at) => self.restart_at(cx, at),
            GraphAction::End(state) => self.end(cx, state),
        }
    }

    fn deploy(&mut self, cx: &mut Context<Self>, attempt: u32) {
        let slots = self.pool.held();
        let address = |id: &ResourceId| self.task_managers.data_address(id);
        match deployments(self.job, attempt, &self.spec, &slots, address) {
            Ok(deployments) => {
                for (task_manager, deployment) in deployments {
                    self.submit(cx, &task_manager, deployment);
                }
            }
            Err((group, index)) => {
                let message = format!("slot {index} of group {group} has no TaskManager");
                self.fail(cx, FailureCause::new(FailureKind::Internal, message));
            }
        }
    }

    fn submit(&mut self, cx: &mut Context<Self>, id: &ResourceId, deployment: TaskDeployment) {
        let execution = deployment.execution;
        let Some(gateway) = self.task_managers.gateway(id) else {
            let message = format!("TaskManager {id} is not connected");
            let cause = FailureCause::new(FailureKind::TaskManagerLost, message);
            self.on_event(cx, GraphEvent::SubmissionFailed(execution, cause));
            return;
        };
        let call = gateway.submit_task(self.token, deployment);
        let id = id.clone();
        cx.spawn(call, move |this, cx, result| match result {
            Ok(()) => this.on_event(cx, GraphEvent::Submitted(execution)),
            Err(error) => {
                let gateway = this.task_managers.gateway(&id);
                if gateway.is_some_and(|gateway| gateway.closed().is_some()) {
                    // The loss is the cause, not the call that noticed it first.
                    this.on_lost(cx, &id, &error.to_string());
                }
                let cause = FailureCause::from_rpc(&error);
                this.on_event(cx, GraphEvent::SubmissionFailed(execution, cause));
            }
        });
    }

    /// The job is over: publishes, says so, gives the slots back, and ends the endpoint when they are back.
    fn end(&mut self, cx: &mut Context<Self>, state: JobState) {
        self.ended_at = Some(now());
        if state == JobState::Finished {
            self.published = self.results.publish();
        }
        self.results = Results::new();
        if let Some(on_end) = self.on_end.take() {
            // A Dispatcher that does not wait has ended itself.
            let _ = on_end.send(FinishedJob {
                status: self.job_status(),
                result: self.published.clone(),
            });
        }
        let cause = FailureCause::new(FailureKind::Cluster, "the job has ended");
        let calls: Vec<_> = self
            .pool
            .release()
            .into_iter()
            .filter_map(|slot| {
                let gateway = self.task_managers.gateway(&slot.task_manager)?;
                Some(gateway.free_slot(slot.allocation, cause.clone()))
            })
            .collect();
        let free = async move {
            let mut tasks = tokio::task::JoinSet::new();
            for call in calls {
                tasks.spawn(call);
            }
            while let Some(result) = tasks.join_next().await {
                if let Ok(Err(error)) = result {
                    tracing::debug!(%error, "slot not given back: it times out");
                }
            }
        };
        cx.spawn(timeout(FREE_SLOTS_TIMEOUT, free), |this, cx, _| {
            if let Err(error) = this.resource_manager.release_job(this.job) {
                tracing::debug!(%error, "the ResourceManager cannot be told that the job has ended");
            }
            cx.terminate();
        });
    }

    pub(super) fn job_status(&self) -> JobStatus {
        let tasks = self.graph.tasks();
        let mut totals = TaskMetrics::default();
        for task in &tasks {
            totals.add(&task.metrics);
        }
        let until = self.ended_at.unwrap_or_else(now);
        let duration = until.saturating_duration_since(self.submitted_at);
        JobStatus {
            id: self.job,
            name: self.spec.name.clone(),
            state: self.graph.state(),
            restarts: self.graph.restarts(),
            failure: self.graph.failure().cloned(),
            tasks,
            totals,
            connections: self.task_managers.connections(),
            duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
            result_bytes: self.published.len(),
        }
    }

    pub(super) fn published(&self) -> &PublishedResult {
        &self.published
    }
}

impl Endpoint for JobMaster {
    fn on_start(&mut self, cx: &mut Context<Self>) -> Result<(), HandlerError> {
        cx.set_fencing_token(Some(self.token));
        self.tick(cx);
        Ok(())
    }

    fn on_stop(&mut self, _cx: &mut Context<Self>) -> Answer<()> {
        let text = match self.graph.state() {
            state if state.is_terminal() => "the job has ended",
            _ => "the cluster stops",
        };
        let cause = FailureCause::new(FailureKind::Cluster, text);
        let gateways: BTreeMap<_, _> = self.task_managers.gateways().collect();
        for (id, gateway) in gateways {
            let told = gateway.disconnect_job_master(self.job, self.token, cause.clone());
            if let Err(error) = told {
                tracing::debug!(task_manager = %id, %error, "a TaskManager cannot be told of the job's end");
            }
        }
        Answer::ok(())
    }
}

impl fmt::Debug for JobMaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobMaster")
            .field("job", &self.job)
            .field("state", &self.graph.state())
            .finish_non_exhaustive()
    }
}

/// A TaskManager that does not take its slots back for so long frees them when it hears that the JobMaster is gone.
const FREE_SLOTS_TIMEOUT: Duration = Duration::from_secs(2);
