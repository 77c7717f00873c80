//! Remote procedure calls between endpoints.

mod address;
mod answer;
mod budget;
mod builder;
mod config;
mod context;
mod core;
mod endpoint;
mod error;
mod gateway;
mod handle;
mod lifecycle;
mod link;
mod mailbox;
mod main_thread;
mod outbox;
mod pending;
mod registry;
mod responder;
mod runner;
mod serve;
mod served;
mod service;
mod stats;
mod sync;
mod termination;
mod wire;

#[cfg(test)]
mod tests;

pub use address::{InvalidAddress, RpcAddress};
pub use answer::{Answer, Reply};
pub use builder::EndpointBuilder;
pub use config::{Deadline, RpcConfig};
pub use context::Context;
pub use endpoint::Endpoint;
pub use error::{HandlerError, RpcError};
pub use gateway::{Gateway, Method, ServedBy};
pub use handle::EndpointHandle;
pub use main_thread::{MainThread, Scheduled};
pub use registry::SpawnError;
pub use service::{RpcService, RpcServiceBuilder};
pub use stats::RpcStats;
pub use termination::TerminationError;
pub use thalweg_macros::gateway;

/// What the code of the [`gateway`](macro@gateway) macro needs. Not part of the public interface.
#[doc(hidden)]
pub mod __private {
    pub use super::{
        gateway::{CallSink, GatewayCall, GatewayRef, Undecoded, decode_ask, decode_tell},
        mailbox::{NoSlot, Slot},
        responder::{BoxReply, ReplyPort, Responder},
    };
}
