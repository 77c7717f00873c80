//! In one process, without a network: for tests, for nodes that share a process, and as the worked example for a
//! backend of one's own.
//!
//! A [`MemNetwork`] stands for the network: it knows who listens where. Each node has a [`MemTransport`] on it. Nothing
//! here spawns a task, reads a clock or needs a runtime: a future is woken by the operation of the peer that it waits
//! for, on whichever thread that runs. So it works under tokio's paused time and between runtimes.
//!
//! # As an example
//!
//! What a backend has to bring is small once the shared state is right, which is why all of it is in one place
//! (`link`, `state`), under one lock, as plain transitions: *write*, *read*, *finish*, *reset*, *stop*, *close*. The handles
//! around it only turn them into futures. Where the [contract](crate::Transport) leaves a choice, this backend makes
//! the less comfortable one, so that code tested on it holds elsewhere:
//!
//! - buffered bytes that were not read are lost when the connection ends;
//! - a reset discards what was not read;
//! - [`stopped`](crate::SendStream::stopped) waits until the peer has *read* everything, not only received it.

mod connection;
mod link;
mod network;
mod state;
mod stream;

pub use connection::MemConnection;
pub use network::{MemListener, MemNetwork, MemTransport, SilentDial};
pub use stream::{MemRecvStream, MemSendStream};

#[cfg(test)]
mod tests;
