//! The two ends on our own exchange, through the public API: ordinary tasks with a partition and with a gate.

mod consumer;
mod node;
mod ping;
mod producer;

pub(crate) use consumer::Consumer;
pub(crate) use producer::Producer;
