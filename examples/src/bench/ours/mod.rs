//! The two ends on our own exchange and RPC, through the public API: ordinary tasks with a partition and with a gate, and
//! callers of a gateway.

mod consumer;
mod gateway;
mod node;
mod ping;
mod producer;

pub(crate) use consumer::Consumer;
pub(crate) use producer::Producer;
