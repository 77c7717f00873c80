//! Transports that break the contract on purpose.
//!
//! [`FaultyBackend`] wraps the in-memory transport with one [`Fault`], each of which one check of the conformance suite
//! has to find: a check that no broken backend fails proves nothing. [`FaultInjecting`] wraps any transport and corrupts
//! data, for tests of what lies above.

mod fault;
mod injecting;
mod stream;
mod transport;

pub use fault::Fault;
pub use injecting::{FaultInjecting, Flip, FlippingConnection, FlippingListener, FlippingSend};
pub use stream::{FaultyRecv, FaultySend};
pub use transport::{FaultyBackend, FaultyConnection, FaultyListener, FaultyTransport};
