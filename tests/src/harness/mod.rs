//! What integration tests share: certificates, the crate's own backends ready for the conformance suite, and waits.

mod backends;
mod certificates;
mod wait;

pub use backends::{MemBackend, QuicBackend, TcpBackend};
pub use certificates::{TestAuthority, TestCredentials};
pub use wait::{DEADLINE, in_time, until};
