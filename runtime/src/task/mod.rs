//! User code and what it is given: the task trait, the registry of task types, a task's inputs and outputs.

mod error;
mod registry;

pub use error::TaskError;
pub use registry::{BoxTask, Task, TaskRegistry};
