//! How processes start: the JobManager, a TaskManager, a client, and all of them in one process.

mod client;
mod error;
mod job_manager;
mod mini_cluster;
mod node;
mod task_manager;

pub use client::ClusterClient;
pub use error::StartError;
pub use job_manager::JobManagerProcess;
pub use mini_cluster::{MiniCluster, RpcSharing};
pub use node::{CertificateSource, ClusterNode, NodeDescription};
pub use task_manager::{TaskManagerRunner, TaskManagerSetup};
