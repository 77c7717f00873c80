//! Jobs: their graphs, their states, and what is reported about them. Pure.

mod graph;
mod state;

pub use graph::{
    Distribution, Edge, ExchangeMode, JobGraph, JobGraphError, Placement, RestartStrategy, Vertex,
    VertexBuilder, decode_config,
};
pub use state::{
    FailureCause, FailureKind, JobState, JobStatus, TaskMetrics, TaskState, TaskStatus,
};
