//! Runs one job: slots, deployment, states, restarts, result.
//!
//! [`JobMaster`] is the endpoint. What it decides is decided by pure machines: `execution_graph` (states of the job and
//! its tasks), `restart`, `slot_pool`, `deployment` and `results`.

mod deployment;
mod endpoint;
mod execution_graph;
mod gateway;
mod restart;
mod results;
mod slot_pool;
mod slots;
mod task_managers;

pub use endpoint::{FinishedJob, JobMaster};
pub use results::PublishedResult;
#[cfg(test)]
pub(crate) use results::Results;
