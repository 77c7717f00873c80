//! Calls between services on their own nodes, over every backend: what Flink's tests of its RPC layer assert.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, which fail by panicking"
)]

mod addresses;
mod bodies;
mod calls;
mod handshake;
mod support;
mod wrapping;
