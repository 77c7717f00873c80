//! User code and what it is given: the task trait, the registry of task types, a task's inputs and outputs.

mod cancellation;
mod context;
mod controls;
mod counters;
mod error;
mod exchange_error;
mod info;
mod input;
mod output;
mod pace;
mod registry;
mod result;

pub use context::TaskContext;
pub use error::TaskError;
pub use info::TaskInfo;
pub use input::Input;
pub use output::Output;
pub use registry::{BoxTask, Task, TaskRegistry};
pub use result::ResultWriter;

pub(crate) use controls::Controls;
pub(crate) use exchange_error::task_error;
pub(crate) use input::ChannelName;
pub(crate) use pace::Pace;
pub(crate) use result::ResultSink;
