//! What integration tests share: certificates, the crate's own backends ready for the conformance suite, nodes and their
//! exchange, clusters in one process, and waits.

mod backends;
mod certificates;
mod mini_cluster;
mod nodes;
mod wait;
mod worker;

pub use backends::{MemBackend, QuicBackend, TcpBackend};
pub use certificates::{TestAuthority, TestCredentials};
pub use mini_cluster::{job_status, mem_backend, run_job, start_mini_cluster, submit_job};
pub use nodes::{ECHO, Echo, accepted, address_of, start_node};
pub use wait::{DEADLINE, in_time, until};
pub use worker::{CONSUMER, PRODUCER, Worker};
