//! Takes jobs from clients, runs a JobMaster for each, and keeps what is left of them for a while.

mod endpoint;
mod finished;
mod gateway;

pub use endpoint::{ConnectionSource, Dispatcher};
