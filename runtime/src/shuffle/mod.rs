//! The data exchange of a TaskManager: its buffers, its result partitions, its way to those of others.

mod check;
mod environment;
mod names;

pub(crate) use check::ProducerStates;
pub use environment::{ShuffleEnvironment, ShuffleStats};
pub use names::{attempt_id, partition_id};
