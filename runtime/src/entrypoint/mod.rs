//! How processes start: the JobManager, a TaskManager, a client, and all of them in one process.

mod client;
mod error;
mod node;
mod task_manager;

pub use client::ClusterClient;
pub use error::StartError;
pub use node::{CertificateSource, ClusterNode, NodeDescription};
pub use task_manager::{TaskManagerRunner, TaskManagerSetup};
