//! The task types that a process can run, by name.

use std::{collections::BTreeMap, fmt, future::Future, sync::Arc};

use thalweg_transport::BoxFuture;

use super::{TaskContext, TaskError};

/// User code: one subtask of one vertex.
///
/// It runs on a thread of its own, with a tokio runtime of its own, so that it may block and compute as it likes: no
/// connection's keep-alive waits for it; [`LIGHT`](Self::LIGHT) types may share a thread. It ends when its inputs have
/// ended, or early with an error.
///
/// A cancelled task sees [`TaskError::cancelled`] from its next read or write. If it has not stopped after
/// `task.cancellation_interval`, because it waits for something else, its `run` is dropped where it waits. Code that
/// does not wait either, and goes on for `task.cancellation_timeout`, is a fatal error of its TaskManager.
pub trait Task: Send + Sized + 'static {
    /// Whether the type is made to share a thread with its node's connections, which is where
    /// `taskmanager.task_placement = "network"` runs it. `false` unless stated: the task then has a thread of its own
    /// whatever is configured.
    ///
    /// Stating it promises that `from_config`, `run` and `drop` never block (no file, no lock that others hold for long,
    /// no `std::thread::sleep`), never compute for longer than a millisecond or so between two waits, reads or writes,
    /// and leave nothing running: what `run` spawns on the runtime outlives it there. Reads and writes of records give
    /// way to others by themselves. A task that breaks the promise holds up the keep-alives, calls and data of its whole
    /// node; its TaskManager warns of it by name.
    const LIGHT: bool = false;

    /// Makes the task from the configuration bytes of its vertex.
    ///
    /// # Errors
    /// A configuration that cannot be read; use [`TaskError::permanent`].
    fn from_config(config: &[u8]) -> Result<Self, TaskError>;

    /// Runs to the end of the inputs.
    ///
    /// # Errors
    /// Whatever keeps the task from its result. The job fails with it, or starts again.
    fn run(
        &mut self,
        context: &mut TaskContext,
    ) -> impl Future<Output = Result<(), TaskError>> + Send;
}

/// The task types that this process can run. Every process of a cluster runs the same binary, so all know the same.
#[derive(Clone, Default)]
pub struct TaskRegistry {
    factories: BTreeMap<Arc<str>, Factory>,
}

/// Makes a task from the configuration bytes of its vertex.
type Make = dyn Fn(&[u8]) -> Result<BoxTask, TaskError> + Send + Sync;

#[derive(Clone)]
struct Factory {
    make: Arc<Make>,
    light: bool,
}

impl TaskRegistry {
    /// Without any type.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a type under a name; a later one under the same name replaces it.
    #[must_use]
    pub fn with<T: Task>(mut self, name: &str) -> Self {
        let factory = Factory {
            make: Arc::new(|config| Ok(BoxTask(Box::new(T::from_config(config)?)))),
            light: T::LIGHT,
        };
        self.factories.insert(name.into(), factory);
        self
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.factories.keys().map(AsRef::as_ref)
    }

    /// Whether there is a type of this name.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.factories.contains_key(name)
    }

    /// Whether the type of this name is [`LIGHT`](Task::LIGHT).
    #[must_use]
    pub fn is_light(&self, name: &str) -> bool {
        self.factories.get(name).is_some_and(|f| f.light)
    }

    /// Makes a task.
    ///
    /// # Errors
    /// [`FailureKind::InvalidJob`](crate::job::FailureKind::InvalidJob) for an unknown name, listing the known ones;
    /// what the type's `from_config` says.
    pub fn make(&self, name: &str, config: &[u8]) -> Result<BoxTask, TaskError> {
        match self.factories.get(name) {
            Some(factory) => (factory.make)(config),
            None => Err(TaskError::of_kind(
                crate::job::FailureKind::InvalidJob,
                self.unknown(name),
            )),
        }
    }

    /// The message about an unknown name.
    #[must_use]
    pub fn unknown(&self, name: &str) -> String {
        let known: Vec<&str> = self.names().collect();
        format!(
            "no task type {name:?} is registered: {} are",
            known.join(", ")
        )
    }
}

impl fmt::Debug for TaskRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// A task of any type.
pub struct BoxTask(Box<dyn DynTask>);

impl BoxTask {
    /// Runs it; see [`Task::run`].
    ///
    /// # Errors
    /// As [`Task::run`].
    pub async fn run(&mut self, context: &mut TaskContext) -> Result<(), TaskError> {
        self.0.run(context).await
    }
}

impl fmt::Debug for BoxTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoxTask")
    }
}

trait DynTask: Send {
    fn run<'a>(&'a mut self, context: &'a mut TaskContext) -> BoxFuture<'a, Result<(), TaskError>>;
}

impl<T: Task> DynTask for T {
    fn run<'a>(&'a mut self, context: &'a mut TaskContext) -> BoxFuture<'a, Result<(), TaskError>> {
        Box::pin(Task::run(self, context))
    }
}
