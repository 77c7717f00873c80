//! User code and what it is given: the task trait, the registry of task types, a task's inputs and outputs.

mod cancellation;
mod context;
mod counters;
mod error;
mod exchange_error;
mod info;
mod input;
mod output;
mod registry;
mod result;

pub use context::TaskContext;
pub use error::TaskError;
pub use info::TaskInfo;
pub use input::Input;
pub use output::Output;
pub use registry::{BoxTask, Task, TaskRegistry};
pub use result::ResultWriter;

pub(crate) use cancellation::Cancellation;
pub(crate) use counters::TaskCounters;
pub(crate) use exchange_error::task_error;
pub(crate) use input::ChannelName;
pub(crate) use result::ResultSink;
