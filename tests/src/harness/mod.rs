//! What integration tests share: certificates, and the crate's own backends ready for the conformance suite.

mod backends;
mod certificates;

pub use backends::{MemBackend, QuicBackend, TcpBackend};
pub use certificates::{TestAuthority, TestCredentials};
