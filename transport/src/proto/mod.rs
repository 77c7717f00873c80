//! The pure state machines: no clock, socket, task or random number.

pub mod mux;
