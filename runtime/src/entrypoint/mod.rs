//! How processes start: the JobManager, a TaskManager, a client, and all of them in one process.

mod client;
mod error;
mod node;

pub use client::ClusterClient;
pub use error::StartError;
pub use node::{CertificateSource, ClusterNode, NodeDescription};
