//! The TaskExecutor: offers the slots of its node to jobs and runs their tasks.
//!
//! Its main thread owns the books: slots, jobs, tasks, and the connections to ResourceManager and JobMasters. Each task
//! runs on a thread of its own, or, by configuration, on the network thread, and tells the JobMaster its states by itself; only its end comes back to the main thread.

mod config;
mod error;
mod executor;
mod gateway;
mod hold;
mod job_master;
mod lifecycle;
mod offers;
mod place;
mod reporter;
mod resource_manager;
mod scope;
mod status;
mod submission;
mod task;

#[cfg(test)]
pub(crate) mod tests;

pub use config::{Describe, TaskExecutorConfig, TaskExecutorServices};
pub use executor::TaskExecutor;
pub use lifecycle::{Ending, TaskLifecycle};
pub use status::TaskExecutorStatus;
