//! `cluster run` as a process, and a cluster in this process over transports that are not the crate's own: exact results,
//! numbers that mean what they say, and quiet logs.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, which fail by panicking"
)]

mod corpus;
mod custom_transport;
mod logs;
mod shuffle;
mod support;
mod wordcount;
