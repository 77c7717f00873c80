//! The Dispatcher: its state, and what becomes of its jobs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use thalweg_transport::{ResourceId, now};
use tokio::{sync::oneshot, time::timeout};

use super::finished::FinishedJobs;
use crate::{
    gateways::{ConnectionReport, JobMasterClient, ResourceManagerClient},
    ids::JobId,
    job::{ExchangeMode, FailureCause, FailureKind, JobGraph, JobState, JobStatus, TaskMetrics},
    job_manager::JobManagerConfig,
    job_master::{FinishedJob, JobMaster, PublishedResult},
    rpc::{Answer, Context, Endpoint, EndpointHandle, HandlerError, RpcService, Scheduled},
};

/// Gives the live connections of the JobManager's node, for status pages.
pub type ConnectionSource = Arc<dyn Fn() -> Vec<ConnectionReport> + Send + Sync>;

/// The endpoint behind the [`DispatcherGateway`](crate::gateways::DispatcherGateway).
pub struct Dispatcher {
    node: ResourceId,
    config: JobManagerConfig,
    task_types: BTreeSet<String>,
    pub(super) resource_manager: ResourceManagerClient,
    pub(super) connections: ConnectionSource,
    pub(super) running: BTreeMap<JobId, RunningJob>,
    pub(super) finished: FinishedJobs,
    next_number: u64,
    expiry: Option<Scheduled>,
    stopping: bool,
    /// Told when the last job has ended, while the Dispatcher stops.
    drained: Option<oneshot::Sender<()>>,
}

/// A job that has not ended.
pub(super) struct RunningJob {
    /// Position in the order of submission.
    pub(super) number: u64,
    pub(super) master: EndpointHandle<JobMaster>,
    pub(super) gateway: JobMasterClient,
    name: String,
}

impl Dispatcher {
    /// A Dispatcher of this node without jobs.
    #[must_use]
    pub fn new(
        node: ResourceId,
        config: JobManagerConfig,
        resource_manager: ResourceManagerClient,
        connections: ConnectionSource,
    ) -> Self {
        Self {
            node,
            task_types: config.task_types.iter().cloned().collect(),
            finished: FinishedJobs::new(config.finished_job_retention),
            config,
            resource_manager,
            connections,
            running: BTreeMap::new(),
            next_number: 0,
            expiry: None,
            stopping: false,
            drained: None,
        }
    }

    /// Checks a graph and starts its JobMaster.
    pub(super) fn start_job(
        &mut self,
        cx: &mut Context<Self>,
        graph: JobGraph,
    ) -> Result<JobId, HandlerError> {
        graph
            .validate()
            .map_err(|error| invalid(error.to_string()))?;
        if graph
            .edges
            .iter()
            .any(|edge| edge.exchange == ExchangeMode::Blocking)
        {
            // Consumers would wait for producers that may run for as long as they like.
            let message = "the job has a blocking exchange: all tasks of a job are deployed at once, so only pipelined ones are allowed";
            return Err(invalid(message.to_owned()));
        }
        self.check_task_types(&graph)?;
        if self.stopping {
            let message = "the cluster stops: no job is taken";
            return Err(HandlerError::new("dispatcher.stopping", message).retryable());
        }
        if self.running.len() >= MAX_RUNNING_JOBS {
            let message = format!("{MAX_RUNNING_JOBS} jobs are running: no more are taken");
            return Err(HandlerError::new("dispatcher.overloaded", message).retryable());
        }
        let job = JobId::random();
        let name = graph.name.clone();
        let (on_end, ended) = oneshot::channel();
        let master = JobMaster::new(
            job,
            Arc::new(graph),
            self.node.clone(),
            self.resource_manager.clone(),
            self.config.clone(),
            on_end,
        );
        let master = spawn_master(cx.service(), job, master)?;
        master.start();
        // A JobMaster whose mailbox takes nothing has ended: that is seen below.
        let _ = master.main_thread().run_async(JobMaster::begin);
        cx.spawn(ended, move |this, cx, finished| {
            this.on_ended(cx, job, finished.ok());
        });
        self.next_number += 1;
        self.running.insert(
            job,
            RunningJob {
                number: self.next_number,
                gateway: master.gateway(),
                master,
                name,
            },
        );
        Ok(job)
    }

    fn check_task_types(&self, graph: &JobGraph) -> Result<(), HandlerError> {
        let unknown = graph
            .vertices
            .iter()
            .find(|vertex| !self.task_types.contains(&vertex.task));
        let Some(vertex) = unknown else {
            return Ok(());
        };
        let known: Vec<&str> = self.task_types.iter().map(String::as_str).collect();
        Err(invalid(format!(
            "vertex {:?} names the unknown task type {:?}: registered are {}",
            vertex.name,
            vertex.task,
            if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            }
        )))
    }

    /// A job has ended; without a last word its JobMaster has crashed.
    fn on_ended(&mut self, cx: &mut Context<Self>, job: JobId, finished: Option<FinishedJob>) {
        let Some(running) = self.running.remove(&job) else {
            return;
        };
        let finished = finished.unwrap_or_else(|| {
            // What it asked for and held is of no use to anybody.
            if let Err(error) = self.resource_manager.release_job(job) {
                tracing::warn!(%job, %error, "the slots of a crashed job are not released");
            }
            crashed(job, &running.name)
        });
        tracing::info!(%job, state = %finished.status.state, "job ended");
        self.finished.add(now(), running.number, finished);
        self.schedule_expiry(cx);
        if self.running.is_empty()
            && let Some(drained) = self.drained.take()
        {
            // Nobody waits any more if the deadline has passed.
            let _ = drained.send(());
        }
    }

    fn schedule_expiry(&mut self, cx: &mut Context<Self>) {
        let Some(deadline) = self.finished.next_deadline() else {
            return;
        };
        let delay = deadline.saturating_duration_since(now());
        let timer = cx.schedule(delay.max(SHORTEST_EXPIRY), |this, cx| {
            this.finished.on_tick(now());
            this.schedule_expiry(cx);
        });
        if let Some(old) = self.expiry.replace(timer) {
            old.cancel();
        }
    }
}

impl Endpoint for Dispatcher {
    fn on_stop(&mut self, _cx: &mut Context<Self>) -> Answer<()> {
        self.stopping = true;
        let cause = FailureCause::new(FailureKind::Cluster, "the cluster stops");
        let mut masters = Vec::new();
        for running in self.running.values() {
            let cause = cause.clone();
            let told = running
                .master
                .main_thread()
                .run_async(move |master, cx| master.fail(cx, cause));
            if let Err(error) = told {
                tracing::debug!(%error, "a JobMaster cannot be told of the stop");
            }
            masters.push(running.master.clone());
        }
        if masters.is_empty() {
            return Answer::ok(());
        }
        let (drained, wait) = oneshot::channel();
        self.drained = Some(drained);
        Answer::future(async move {
            if timeout(STOP_TIMEOUT, wait).await.is_err() {
                tracing::warn!(
                    "jobs still run: their TaskManagers are told that the cluster stops"
                );
            }
            for master in masters {
                let end = master.terminate();
                if let Ok(Err(error)) = timeout(STOP_TIMEOUT, end).await {
                    tracing::warn!(%error, "a JobMaster did not end well");
                }
            }
            Ok(())
        })
    }
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher")
            .field("running", &self.running.keys())
            .finish_non_exhaustive()
    }
}

fn spawn_master(
    service: &RpcService,
    job: JobId,
    master: JobMaster,
) -> Result<EndpointHandle<JobMaster>, HandlerError> {
    let token = master.token();
    service
        .endpoint(format!("jobmaster_{}", job.to_hex()), master)
        .serve::<JobMasterClient>()
        .fencing_token(token)
        .spawn()
        .map_err(|error| HandlerError::from_error("dispatcher.cannot_start", &error))
}

fn invalid(message: String) -> HandlerError {
    FailureCause::new(FailureKind::InvalidJob, message).into()
}

fn crashed(job: JobId, name: &str) -> FinishedJob {
    FinishedJob {
        status: JobStatus {
            id: job,
            name: name.to_owned(),
            state: JobState::Failed,
            restarts: 0,
            failure: Some(FailureCause::new(
                FailureKind::Internal,
                "the JobMaster ended unexpectedly",
            )),
            tasks: Vec::new(),
            totals: TaskMetrics::default(),
            connections: 0,
            duration_ms: 0,
            result_bytes: 0,
        },
        result: PublishedResult::default(),
    }
}

/// Each job has an endpoint and its tables in the memory of the JobManager.
const MAX_RUNNING_JOBS: usize = 1000;
/// How long running jobs have to stop their tasks when the cluster stops: a stop is to take less than 5 s.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// Jobs that end together expire together.
const SHORTEST_EXPIRY: Duration = Duration::from_millis(10);
