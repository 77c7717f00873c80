//! Remote procedure calls between endpoints.
//!
//! An [`Endpoint`] is an actor: one task, its *main thread*, owns the state and handles one message at a time. Callers
//! reach it through a gateway: a typed client, used the same way for an endpoint of the same process and for one of
//! another node. Local calls move their values; remote calls travel as postcard over one stream per client.
//!
//! # A gateway and its endpoint
//!
//! ```
//! use thalweg_runtime::rpc::{
//!     Answer, Context, Endpoint, HandlerError, RpcAddress, RpcError, RpcService, gateway,
//! };
//!
//! /// Takes orders.
//! #[gateway(name = "Shop", callers = ["client"])]
//! pub trait ShopGateway {
//!     /// Sells so many, and says how many are left.
//!     async fn buy(&self, count: u32) -> u32;
//!     /// Brings more; nobody waits for it.
//!     #[rpc(callers = ["jobmanager"])]
//!     fn deliver(&self, count: u32);
//! }
//!
//! struct Shop {
//!     stock: u32,
//! }
//!
//! impl Endpoint for Shop {}
//!
//! impl ShopGateway for Shop {
//!     fn buy(&mut self, _cx: &mut Context<Self>, count: u32) -> Answer<u32> {
//!         match self.stock.checked_sub(count) {
//!             Some(rest) => {
//!                 self.stock = rest;
//!                 Answer::ok(rest)
//!             }
//!             None => Answer::err(HandlerError::new("shop.sold_out", "not enough left")),
//!         }
//!     }
//!
//!     fn deliver(&mut self, _cx: &mut Context<Self>, count: u32) {
//!         self.stock += count;
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let id = thalweg_transport::ResourceId::new("node-1")?;
//! let service = RpcService::builder(id).build()?; // with `.connections(node)` for remote calls
//! let shop = service.endpoint("shop", Shop { stock: 5 }).serve::<ShopClient>().spawn()?;
//! shop.start();
//!
//! let client: ShopClient = service.connect(&RpcAddress::local("shop")?, None).await?;
//! assert_eq!(client.buy(2).await, Ok(3));
//! client.deliver(10)?;
//! assert_eq!(client.buy(13).await, Ok(0));
//! assert!(matches!(client.buy(1).await, Err(RpcError::Handler(_))));
//! shop.terminate().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Declarations
//!
//! The [`gateway`](macro@gateway) attribute turns the trait into the trait that endpoints implement, and adds a client:
//! the trait's name with `Client` in the place of `Gateway`. `callers` names the roles that may call remotely (`"*"`
//! for all, `[]` for none); a method may have its own with `#[rpc(callers = […])]`, and its own deadline with
//! `#[rpc(timeout = "30s")]` or `"never"`. `#[rpc(max_per_second = 100)]` bounds how often
//! each peer may call a method. With `fenced`, calls must carry the endpoint's [fencing
//! token](Context::set_fencing_token); `#[rpc(unfenced)]` exempts a method. An `async` method is asked, another one
//! told.
//!
//! Arguments and answers are owned types with `Serialize` and `DeserializeOwned`. They must not be recursive, nor be
//! lists of zero-sized values: a peer chooses how deep and how long they are, and postcard does not limit that.
//! Methods are known by the hash of their names, so declarations may gain methods; changed arguments are errors.
//!
//! # Order
//!
//! What one client sends arrives in the order of its first polls, also when the client moves to a new connection because
//! the old one is drained (`max_connection_age`). There is no order between clients.
//!
//! # Failures
//!
//! A call fails with an [`RpcError`]. What the endpoint's own code answers is a [`HandlerError`] in it: a kind, a text,
//! whether a retry may help, and the texts of its sources, the same near and far. An endpoint that passes a failure on says
//! with [`RpcError::context`] what it tried; the rest stays as it was.
//!
//! # Observation
//!
//! With a [`Tracer`](RpcServiceBuilder::tracer) each call has a span `rpc.call` at its caller, in the span that made the
//! call, and a span `rpc.serve` around the endpoint's code and its answer's future, which goes on the caller's also on
//! another node. A told message has only the second one. Futures of [`Context::spawn`] belong to neither: what watches a
//! connection would keep the span of the call that began it open for hours.
//!
//! The `metrics` facade gets, per gateway and method, the histograms `thalweg_rpc_client_seconds` (from a call's first poll
//! to its result, local calls too; calls that their callers drop are left out) and `thalweg_rpc_server_seconds` (from a
//! peer's request to its queued answer or error), and by kind of error the counters `thalweg_rpc_client_errors_total` and
//! `thalweg_rpc_server_errors_total`. A recorder has to be installed before a gateway's first client and its endpoint are
//! made.
//!
//! # Bounds
//!
//! Mailboxes, calls and bytes per peer, and bytes that wait to be written are bounded by [`RpcConfig`]; what exceeds a
//! bound is refused at once with [`RpcError::Overloaded`], but for local calls, which wait for a place in the mailbox.
//! A peer that sends calls and does not read the answers loses its stream.

mod address;
mod answer;
mod budget;
mod builder;
mod call;
mod caller;
mod client_shared;
mod config;
mod context;
mod core;
mod endpoint;
mod error;
mod frames;
mod gateway;
mod handle;
mod handshake;
mod lane;
mod lifecycle;
mod link;
mod link_task;
mod mailbox;
mod main_thread;
mod method_metrics;
#[cfg(feature = "opentelemetry")]
mod opentelemetry;
mod outbox;
mod pending;
mod rate;
mod registry;
mod responder;
mod runner;
mod scheduled;
mod serve;
mod served;
mod service;
mod service_builder;
mod stats;
mod sync;
mod termination;
mod trace;
mod wire;

#[cfg(test)]
pub(crate) mod tests;

pub use address::{InvalidAddress, RpcAddress};
pub use answer::{Answer, Reply};
pub use builder::EndpointBuilder;
pub use config::{Deadline, RpcConfig};
pub use context::Context;
pub use endpoint::Endpoint;
pub use error::{HandlerError, RpcError};
pub use gateway::{Gateway, Method, ServedBy};
pub use handle::EndpointHandle;
pub use main_thread::MainThread;
#[cfg(feature = "opentelemetry")]
pub use opentelemetry::OpenTelemetry;
pub use registry::SpawnError;
pub use scheduled::Scheduled;
pub use service::RpcService;
pub use service_builder::RpcServiceBuilder;
pub use stats::RpcStats;
pub use termination::TerminationError;
pub use thalweg_macros::gateway;
pub use trace::{InvalidTraceparent, TraceContext, Tracer};

/// What the code of the [`gateway`](macro@gateway) macro needs. Not part of the public interface.
#[doc(hidden)]
pub mod __private {
    pub use super::{
        call::{CallSink, GatewayCall, Undecoded, decode_ask, decode_tell},
        gateway::GatewayRef,
        mailbox::{NoSlot, Slot},
        responder::{BoxReply, ReplyPort, Responder},
        wire::CallContext,
    };
}
