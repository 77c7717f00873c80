//! Real processes of the example cluster, started, watched and ended by tests.

mod binary;
mod cluster;
<<<<<<< HEAD
mod forwarder;
mod observe;
mod sockets;
mod spawned;

pub use binary::binary;
pub use cluster::{ClusterFiles, Role, free_port};
pub use forwarder::Forwarder;
pub use observe::{Known, until};
pub use sockets::Sockets;
=======
mod memory;
mod spawned;

pub use binary::binary;
pub use cluster::{ClusterFiles, Role};
pub use memory::PeakMemory;
>>>>>>> t1
pub use spawned::{Finished, Spawned};
