//! One call with its arguments, and the local way to its endpoint.

use std::fmt;

use serde::{Serialize, de::DeserializeOwned};
use thalweg_transport::BoxFuture;

use super::{
    error::RpcError,
    gateway::Method,
    mailbox::{NoSlot, Slot},
    responder::{BoxReply, Responder},
    wire::CallContext,
};
use crate::ids::FencingToken;

/// A call with its arguments and the way back.
pub trait GatewayCall: Sized + Send + fmt::Debug + 'static {
    /// What is called.
    fn method(&self) -> &'static Method;
    /// Whether its caller has given up.
    fn is_cancelled(&self) -> bool;
    /// Answers with an error; a tell is dropped.
    fn fail(self, error: RpcError);
    /// Reads a call of a peer; without a way back it was told, not asked.
    ///
    /// # Errors
    /// What is wrong with it, and the way back.
    fn decode(method: u32, body: &[u8], reply: Option<BoxReply>) -> Result<Self, Undecoded>;
}

/// A call that could not be decoded; the way back is kept for the error.
#[derive(Debug)]
pub struct Undecoded {
    pub(super) reason: String,
    pub(super) reply: Option<BoxReply>,
}

impl Undecoded {
    /// No such method.
    #[must_use]
    pub fn unknown(reply: Option<BoxReply>) -> Self {
        Self {
            reason: "unknown method".to_owned(),
            reply,
        }
    }
}

/// Decodes the arguments of a method that answers.
///
/// # Errors
/// What is wrong with them, and the way back.
pub fn decode_ask<A: DeserializeOwned, T: Serialize + Send + 'static, C>(
    body: &[u8],
    reply: Option<BoxReply>,
    make: fn(A, Responder<T>) -> C,
) -> Result<C, Undecoded> {
    match decode(body) {
        Ok(arguments) => Ok(make(arguments, Responder::remote(reply))),
        Err(reason) => Err(Undecoded { reason, reply }),
    }
}

/// Decodes the arguments of a method that does not answer.
///
/// # Errors
/// What is wrong with them, and the way back.
pub fn decode_tell<A: DeserializeOwned, C>(
    body: &[u8],
    reply: Option<BoxReply>,
    make: fn(A) -> C,
) -> Result<C, Undecoded> {
    let decoded = if reply.is_some() {
        Err("the method does not answer here".to_owned())
    } else {
        decode(body)
    };
    decoded
        .map(make)
        .map_err(|reason| Undecoded { reason, reply })
}

/// Decodes a whole body; bytes left over are an error.
pub(super) fn decode<A: DeserializeOwned>(body: &[u8]) -> Result<A, String> {
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(format!("{} bytes are left over", rest.len())),
        Err(error) => Err(error.to_string()),
    }
}

/// The local way to an endpoint's mailbox, for one gateway.
pub trait CallSink<C>: Send + Sync + fmt::Debug {
    /// A place in the mailbox, now.
    ///
    /// # Errors
    /// Full or closed.
    fn try_reserve(&self) -> Result<Slot, NoSlot>;
    /// Waits for a place; `None` when the endpoint has ended.
    fn reserve(&self) -> BoxFuture<'_, Option<Slot>>;
    /// Queues a call.
    ///
    /// # Errors
    /// The endpoint has ended.
    fn send(&self, slot: Slot, call: C, context: CallContext) -> Result<(), RpcError>;
    /// The endpoint's fencing token.
    fn own_token(&self) -> Option<FencingToken>;
    /// The error of calls to an ended endpoint.
    fn unreachable(&self) -> RpcError;
    /// The error of tells to a full mailbox.
    fn overloaded(&self) -> RpcError;
    /// Whether the endpoint has ended.
    fn is_closed(&self) -> bool;
    /// Waits for the endpoint's end; keeps nothing alive.
    fn until_closed(&self) -> BoxFuture<'static, ()>;
}

/// Encodes the arguments of a call.
pub(super) fn encode<A: Serialize>(method: &Method, arguments: &A) -> Result<Vec<u8>, RpcError> {
    postcard::to_stdvec(arguments).map_err(|error| RpcError::Decode {
        what: format!("request of {method}"),
        reason: error.to_string(),
    })
}
