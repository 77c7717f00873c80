//! What integration tests share: certificates, the crate's own backends ready for the conformance suite, nodes and their
//! exchange, and waits.

mod backends;
mod certificates;
mod nodes;
mod wait;
mod worker;

pub use backends::{MemBackend, QuicBackend, TcpBackend};
pub use certificates::{TestAuthority, TestCredentials};
pub use nodes::{ECHO, Echo, accepted, address_of, start_node};
pub use wait::{DEADLINE, in_time, until};
pub use worker::{CONSUMER, PRODUCER, Worker};
