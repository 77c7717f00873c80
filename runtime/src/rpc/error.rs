//! Why a call failed. The kind survives the wire.

use std::{fmt::Write as _, time::Duration};

use serde::{Deserialize, Serialize};
use thalweg_transport::{ErrorCode, TransportError};
use thiserror::Error as ThisError;

use crate::ids::FencingToken;

mod handler;

pub use handler::HandlerError;
use handler::shorten;

/// Why a call, a connect or a tell failed.
///
/// Travels as postcard in error answers: variants and fields are append-only.
#[derive(Debug, Clone, PartialEq, Eq, ThisError, Serialize, Deserialize)]
#[non_exhaustive]
pub enum RpcError {
    /// The connection to the peer could not be made, or ended before the answer came.
    #[error("connection to {address} failed: {message}")]
    Connection {
        /// The recipient's address.
        address: String,
        /// The transport's words.
        message: String,
        /// Whether a new attempt may work.
        retryable: bool,
    },
    /// The peer speaks another protocol version, or its endpoint does not serve this gateway.
    #[error("handshake with {address} failed: {reason}")]
    Handshake {
        /// The recipient's address.
        address: String,
        /// What did not fit.
        reason: String,
    },
    /// There is no such endpoint, or it terminated before it answered.
    #[error("recipient {address} is unreachable: {reason}")]
    RecipientUnreachable {
        /// The recipient's address.
        address: String,
        /// What is known of it.
        reason: String,
    },
    /// The endpoint exists and was not started, or is stopped.
    #[error("endpoint {address} is not started")]
    EndpointNotStarted {
        /// The recipient's address.
        address: String,
    },
    /// The caller's fencing token is not the endpoint's: one of them is not, or no longer, the leader.
    #[error("fencing token mismatch: endpoint has {}, call has {}", token(.expected), token(.got))]
    Fenced {
        /// The endpoint's token; `None` if it has none yet.
        expected: Option<FencingToken>,
        /// The call's token; `None` if it came unfenced.
        got: Option<FencingToken>,
    },
    /// The peer's role may not call this method.
    #[error("role {role:?} may not call {method}")]
    NotAuthorized {
        /// Gateway and method.
        method: String,
        /// The role in the peer's certificate.
        role: String,
    },
    /// The gateway has no such method: the peers were built from different declarations.
    #[error("gateway {gateway} has no method {method}")]
    UnknownMethod {
        /// The gateway.
        gateway: String,
        /// The method's name where it is known, else its id.
        method: String,
    },
    /// A request or an answer is larger than a frame may be; nothing of it was sent.
    #[error("{what} has {size} bytes: at most {limit} are allowed")]
    TooLarge {
        /// Request or answer, and of which method.
        what: String,
        /// Bytes of the encoded body.
        size: u64,
        /// The smaller of both sides' `max_frame_size`.
        limit: u64,
    },
    /// A body could not be encoded or decoded: the peers were built from different declarations.
    #[error("{what} cannot be decoded: {reason}")]
    Decode {
        /// Request or answer, and of which method.
        what: String,
        /// The codec's words.
        reason: String,
    },
    /// No answer within the deadline. The endpoint may have done, or may still do, what was asked.
    #[error(
        "{method} at {address} did not answer within {after:?}: the recipient may be slow or lost{}",
        called_at(.caller)
    )]
    TimedOut {
        /// Gateway and method.
        method: String,
        /// The recipient's address.
        address: String,
        /// The deadline.
        after: Duration,
        /// Source location of the call, if `capture_caller` is on.
        caller: Option<String>,
    },
    /// A bound is reached; refused at once.
    #[error("overloaded: {what} is full (limit {limit})")]
    Overloaded {
        /// Which bound.
        what: String,
        /// Its value.
        limit: u64,
    },
    /// The endpoint's code answered with an error.
    #[error(transparent)]
    Handler(#[from] HandlerError),
    /// This side's service is closed.
    #[error("rpc service of {node} is stopped")]
    Stopped {
        /// The node.
        node: String,
    },
    /// Main-thread code was called from elsewhere.
    #[error("not on the main thread of endpoint {endpoint}")]
    WrongThread {
        /// The endpoint's name.
        endpoint: String,
    },
}

impl RpcError {
    /// Whether the same call may succeed later while nothing else changes.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connection { retryable, .. } => *retryable,
            Self::Handler(error) => error.retryable,
            Self::EndpointNotStarted { .. }
            | Self::Overloaded { .. }
            | Self::RecipientUnreachable { .. }
            | Self::TimedOut { .. } => true,
            Self::Decode { .. }
            | Self::Fenced { .. }
            | Self::Handshake { .. }
            | Self::NotAuthorized { .. }
            | Self::Stopped { .. }
            | Self::TooLarge { .. }
            | Self::UnknownMethod { .. }
            | Self::WrongThread { .. } => false,
        }
    }

    /// A word for the kind, stable for metrics and for [`HandlerError::kind`] of a wrapped error.
    #[must_use]
    pub fn kind(&self) -> &str {
        match self {
            Self::Handler(error) => &error.kind,
            other => other.own_kind(),
        }
    }

    /// The kind, with one word for whatever the code of endpoints answers.
    pub(super) fn own_kind(&self) -> &'static str {
        match self {
            Self::Connection { .. } => "rpc.connection",
            Self::Decode { .. } => "rpc.decode",
            Self::EndpointNotStarted { .. } => "rpc.endpoint_not_started",
            Self::Fenced { .. } => "rpc.fenced",
            Self::Handler(_) => "rpc.handler",
            Self::Handshake { .. } => "rpc.handshake",
            Self::NotAuthorized { .. } => "rpc.not_authorized",
            Self::Overloaded { .. } => "rpc.overloaded",
            Self::RecipientUnreachable { .. } => "rpc.recipient_unreachable",
            Self::Stopped { .. } => "rpc.stopped",
            Self::TimedOut { .. } => "rpc.timed_out",
            Self::TooLarge { .. } => "rpc.too_large",
            Self::UnknownMethod { .. } => "rpc.unknown_method",
            Self::WrongThread { .. } => "rpc.wrong_thread",
        }
    }

    /// The code for a stream that ends because of this error.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Decode { .. } => ErrorCode::STREAM_PROTOCOL,
            Self::Handshake { .. } => ErrorCode::VERSION_MISMATCH,
            Self::NotAuthorized { .. } => ErrorCode::WRONG_ROLE,
            Self::Overloaded { .. } | Self::TooLarge { .. } => ErrorCode::LIMIT_EXCEEDED,
            Self::Stopped { .. } => ErrorCode::SHUTTING_DOWN,
            Self::TimedOut { .. } => ErrorCode::TIMED_OUT,
            _ => ErrorCode::INTERNAL,
        }
    }

    /// What an endpoint answers with that passes this failure on: the same kind and chance of a retry, with what was
    /// tried in front of the sources.
    #[must_use]
    pub fn context(self, message: impl Into<String>) -> HandlerError {
        HandlerError::from(self).context(message)
    }

    pub(super) fn connection(address: impl ToString, error: &TransportError) -> Self {
        Self::Connection {
            address: address.to_string(),
            message: error.message().to_owned(),
            retryable: error.is_retryable(),
        }
    }

    /// A peer's texts, cut to [`MAX_TEXT_BYTES`] and with control characters escaped, so that they are safe in logs
    /// and never lengthen an answer past its frame.
    pub(super) fn sanitized(mut self) -> Self {
        match &mut self {
            Self::Connection {
                address, message, ..
            } => clean_all([address, message]),
            Self::Handshake { address, reason }
            | Self::RecipientUnreachable { address, reason } => {
                clean_all([address, reason]);
            }
            Self::EndpointNotStarted { address } => clean(address),
            Self::Fenced { .. } => {}
            Self::NotAuthorized { method, role } => clean_all([method, role]),
            Self::UnknownMethod { gateway, method } => clean_all([gateway, method]),
            Self::TooLarge { what, .. } | Self::Overloaded { what, .. } => clean(what),
            Self::Decode { what, reason } => clean_all([what, reason]),
            Self::TimedOut {
                method,
                address,
                caller,
                ..
            } => {
                clean_all([method, address]);
                caller.iter_mut().for_each(clean);
            }
            Self::Handler(error) => {
                clean_all([&mut error.kind, &mut error.message]);
                shorten(&mut error.chain);
                error.chain.iter_mut().for_each(clean);
            }
            Self::Stopped { node } => clean(node),
            Self::WrongThread { endpoint } => clean(endpoint),
        }
        self
    }
}

fn token(token: &Option<FencingToken>) -> String {
    token.map_or_else(|| "not set".to_owned(), FencingToken::to_hex)
}

fn called_at(caller: &Option<String>) -> String {
    caller
        .as_ref()
        .map_or_else(String::new, |caller| format!(" (called at {caller})"))
}

fn clean_all<const N: usize>(texts: [&mut String; N]) {
    texts.into_iter().for_each(clean);
}

fn clean(text: &mut String) {
    if text.len() <= MAX_TEXT_BYTES && !text.chars().any(char::is_control) {
        return;
    }
    let mut result = String::new();
    for c in text.chars() {
        if result.len() + c.len_utf8() > MAX_TEXT_BYTES {
            break;
        }
        if c.is_control() {
            let _ = write!(result, "{}", c.escape_default());
        } else {
            result.push(c);
        }
    }
    result.truncate(result.floor_char_boundary(MAX_TEXT_BYTES));
    *text = result;
}

/// Long enough for any honest message; a log line stays readable.
const MAX_TEXT_BYTES: usize = 4096;

#[cfg(test)]
mod tests;
