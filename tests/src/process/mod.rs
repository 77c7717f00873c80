//! Real processes of the example cluster, started, watched and ended by tests.

mod binary;
mod cluster;
mod forwarder;
mod memory;
mod observe;
mod sockets;
mod spawned;

pub use binary::binary;
pub use cluster::{ClusterFiles, Role, free_port};
pub use forwarder::Forwarder;
pub use memory::PeakMemory;
pub use observe::{Known, pause, until};
pub use sockets::Sockets;
pub use spawned::{Finished, Spawned, now};
