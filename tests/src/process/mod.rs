//! Real processes of the example cluster, started, watched and ended by tests.

mod binary;
mod cluster;
mod memory;
mod spawned;

pub use binary::binary;
pub use cluster::{ClusterFiles, Role};
pub use memory::PeakMemory;
pub use spawned::{Finished, Spawned};
