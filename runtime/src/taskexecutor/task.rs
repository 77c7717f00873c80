//! Running one task attempt.

use std::{
    fmt,
    future::poll_fn,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use thalweg_transport::{BoxFuture, ResourceId, now};
use tracing::Instrument;

use super::{
    error::job_master_failed,
    hold::Hold,
    lifecycle::{Ending, TaskLifecycle},
    place::{Place, panicked},
    reporter::TaskReporter,
};
use crate::{
    gateways::{TaskDeployment, TaskStateUpdate},
    ids::ExecutionId,
    job::{FailureCause, FailureKind, TaskMetrics, TaskState},
    shuffle::{ProducerStates, ShuffleEnvironment},
    task::{
        Controls, Output, ResultSink, ResultWriter, TaskContext, TaskError, TaskInfo, TaskRegistry,
    },
};

/// Everything that one attempt needs to run.
pub(super) struct TaskSetup {
    pub(super) deployment: TaskDeployment,
    pub(super) registry: Arc<TaskRegistry>,
    pub(super) shuffle: ShuffleEnvironment,
    pub(super) task_manager: ResourceId,
    pub(super) reporter: Arc<dyn TaskReporter>,
    pub(super) place: Place,
}

/// An attempt that runs. Clones share it; dropping it changes nothing.
#[derive(Clone)]
pub(super) struct RunningTask(Arc<Shared>);

struct Shared {
    info: TaskInfo,
    lifecycle: Mutex<TaskLifecycle>,
    controls: Controls,
    /// What measures its steps, if it shares its thread.
    hold: Option<Arc<Hold>>,
    reporter: Arc<dyn TaskReporter>,
}

impl RunningTask {
    /// Starts the attempt. `ended` is called on its thread when everything of it is gone: code, partitions, gates,
    /// buffers.
    ///
    /// # Errors
    /// The system gives no thread; nothing of the task exists then.
    pub(super) fn start(
        setup: TaskSetup,
        ended: impl FnOnce(Ending) + Send + 'static,
    ) -> io::Result<Self> {
        let place = setup.place.clone();
        let task = Self(Arc::new(Shared {
            info: TaskInfo::new(&setup.deployment, setup.task_manager.clone()),
            lifecycle: Mutex::new(TaskLifecycle::new()),
            controls: Controls::new(place.pace()),
            hold: place.hold(),
            reporter: Arc::clone(&setup.reporter),
        }));
        let execution = setup.deployment.execution;
        let vertex = setup.deployment.vertex_name.as_str();
        let span = tracing::info_span!(parent: None, "task", %execution, vertex);
        let name = thread_name(&setup.deployment);
        let (running, over) = (task.clone(), task.clone());
        let attempt = async move { execute(&running, setup).await }.instrument(span);
        let hold = task.0.hold.clone();
        place.run(name, hold, Box::pin(attempt), move |outcome| {
            over.0.controls.counters.freeze();
            let ending = over.0.lock().end(outcome.map_err(TaskError::into_cause));
            drop(over);
            ended(ending);
        })?;
        Ok(task)
    }

    /// For how long it has held the thread that it shares, if that is too long and news.
    pub(super) fn held_too_long(&self) -> Option<Duration> {
        self.0.hold.as_ref()?.news(now())
    }

    pub(super) fn execution(&self) -> ExecutionId {
        self.0.info.execution()
    }

    pub(super) fn info(&self) -> &TaskInfo {
        &self.0.info
    }

    pub(super) fn state(&self) -> TaskState {
        self.0.lock().state()
    }

    pub(super) fn metrics(&self) -> TaskMetrics {
        self.0.controls.counters.snapshot()
    }

    pub(super) fn reporter(&self) -> &Arc<dyn TaskReporter> {
        &self.0.reporter
    }

    /// Tells it to stop; whether that is news.
    pub(super) fn cancel(&self) -> bool {
        let news = self.0.lock().cancel();
        if news {
            self.0.controls.cancellation.cancel();
        }
        news
    }

    /// Ends the wait of a task that was told to stop and did not.
    pub(super) fn interrupt(&self) {
        self.0.controls.cancellation.interrupt();
    }

    /// Makes it fail; whether it has to be told to stop.
    pub(super) fn fail(&self, cause: FailureCause) -> bool {
        let news = self.0.lock().fail(cause);
        if news {
            self.0.controls.cancellation.cancel();
        }
        news
    }

    /// Its state as the JobMaster is told.
    pub(super) fn update(
        &self,
        state: TaskState,
        failure: Option<FailureCause>,
    ) -> TaskStateUpdate {
        TaskStateUpdate {
            execution: self.execution(),
            state,
            failure,
            metrics: self.metrics(),
        }
    }

    /// Begins the next phase and tells the JobMaster.
    async fn enter(&self, phase: TaskState) -> Result<(), TaskError> {
        if !self.0.lock().advance(phase) {
            return Err(TaskError::cancelled());
        }
        let report = self.0.reporter.report(self.update(phase, None));
        self.0
            .controls
            .cancellation
            .run(report)
            .await?
            .map_err(|error| {
                job_master_failed(&format!("the JobMaster did not hear of {phase}"), &error)
            })
    }

    /// Why the outputs end early, in words for their consumers.
    fn why(&self, error: &TaskError) -> String {
        let cause = self.0.lock().failure().map(ToString::to_string);
        let info = &self.0.info;
        format!(
            "task {} ({}) at {}: {}",
            info.vertex_name(),
            info.execution(),
            info.task_manager(),
            cause.unwrap_or_else(|| error.to_string())
        )
    }
}

impl fmt::Debug for RunningTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningTask")
            .field("execution", &self.execution())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, TaskLifecycle> {
        self.lifecycle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

async fn execute(task: &RunningTask, setup: TaskSetup) -> Result<(), TaskError> {
    if !task.0.lock().advance(TaskState::Deploying) {
        return Err(TaskError::cancelled());
    }
    task.enter(TaskState::Initializing).await?;
    let (shuffle, execution) = (setup.shuffle.clone(), task.execution());
    let result = run(task, setup).await;
    if result.is_err() {
        shuffle.release_execution(execution);
    }
    result
}

async fn run(task: &RunningTask, setup: TaskSetup) -> Result<(), TaskError> {
    let deployment = &setup.deployment;
    let controls = &task.0.controls;
    let cancellation = &controls.cancellation;
    let make = || setup.registry.make(&deployment.task, &deployment.config);
    let mut code = contained(async { make() }).await?;
    // Partitions come before gates: in a cycle-free job every partition then appears without waiting for another.
    let outputs = setup.shuffle.create_partitions(deployment, controls)?;
    let states = producer_states(&setup.reporter);
    let gates = setup
        .shuffle
        .create_gates(deployment, &setup.task_manager, &states, controls);
    let inputs = match cancellation.run(gates).await.flatten() {
        Ok(inputs) => inputs,
        Err(error) => {
            fail_all(outputs, &task.why(&error));
            return Err(error);
        }
    };
    let sink = Box::new(Sink(Arc::clone(&setup.reporter), deployment.execution));
    let mut context = TaskContext::new(
        task.0.info.clone(),
        inputs,
        outputs,
        ResultWriter::new(sink, cancellation.clone()),
        controls.clone(),
    );
    let mut result = task.enter(TaskState::Running).await;
    if result.is_ok() {
        let code = contained(code.run(&mut context));
        result = cancellation.run_code(code).await;
    }
    if result.is_ok() {
        result = context.result().finish().await;
    }
    // User code may panic in its drop, too.
    let dropped = contained(async {
        drop(code);
        Ok(())
    })
    .await;
    let result = result.and(dropped).and_then(|()| cancellation.check());
    let outputs = context.into_outputs();
    match result {
        Ok(()) => {
            for output in outputs {
                output.finish().await?;
            }
            Ok(())
        }
        Err(error) => {
            fail_all(outputs, &task.why(&error));
            Err(error)
        }
    }
}

/// Runs user code; its panic is its failure.
async fn contained<T>(code: impl Future<Output = Result<T, TaskError>>) -> Result<T, TaskError> {
    let mut code = pin!(code);
    poll_fn(|cx| {
        catch_unwind(AssertUnwindSafe(|| code.as_mut().poll(cx)))
            .unwrap_or_else(|panic| Poll::Ready(Err(panicked(FailureKind::User, &*panic))))
    })
    .await
}

fn fail_all(outputs: Vec<Output>, cause: &str) {
    for output in outputs {
        output.fail(cause);
    }
}

fn producer_states(reporter: &Arc<dyn TaskReporter>) -> ProducerStates {
    let reporter = Arc::clone(reporter);
    Arc::new(move |partition| reporter.producer_state(partition))
}

/// A vertex's name comes from a client: what a thread's name cannot hold is left out.
fn thread_name(deployment: &TaskDeployment) -> String {
    let vertex = deployment.vertex_name.chars();
    let vertex: String = vertex.filter(|c| !c.is_control()).take(64).collect();
    format!("task-{vertex}-{}", deployment.execution.subtask)
}

/// Sends pieces of the result to the JobMaster.
struct Sink(Arc<dyn TaskReporter>, ExecutionId);

impl ResultSink for Sink {
    fn send(&self, sequence: u32, piece: Bytes) -> BoxFuture<'static, Result<(), TaskError>> {
        self.0.add_result(self.1, sequence, piece)
    }
}
