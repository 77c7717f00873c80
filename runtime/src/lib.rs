//! RPC endpoints, registration, heartbeats, slots and the cluster life cycle of a dataflow engine.

// Generated code names this crate by its name, also inside it.
extern crate self as thalweg_runtime;

mod backend;
pub mod config;
pub mod dispatcher;
mod entrypoint;
pub mod gateways;
pub mod heartbeat;
pub mod ids;
pub mod job;
pub mod job_manager;
pub mod job_master;
pub mod registration;
pub mod resource_manager;
pub mod rpc;
mod security;
pub mod shuffle;
pub mod slots;
pub mod task;
pub mod taskexecutor;

pub use backend::{Backend, BackendRegistry};
pub use entrypoint::{
    CertificateSource, ClusterClient, ClusterNode, JobManagerProcess, MiniCluster, NodeDescription,
    RpcSharing, StartError, TaskManagerRunner, TaskManagerSetup,
};
pub use security::NodeSecurity;
