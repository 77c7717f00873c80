//! Errors of the transport layer, the same for every backend, and the code numbers that travel on the wire.

use std::{io, sync::Arc};

use thiserror::Error;

/// A number that tells the peer why a stream or a connection ended.
///
/// Codes travel in `RESET_STREAM`, `STOP_SENDING` and `CONNECTION_CLOSE` frames of QUIC (RFC 9000 section 20.2,
/// application error codes) and in the matching frames of the TCP multiplex. 32 bits are used of the 62 that
/// QUIC has; a larger code from a peer is read as [`ErrorCode::UNKNOWN`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// The end was asked for and nothing went wrong.
    pub const NO_ERROR: Self = Self(0);
    /// The peer broke the protocol: bad hello, bad multiplex frame.
    pub const PROTOCOL: Self = Self(1);
    /// The node is shutting down.
    pub const SHUTTING_DOWN: Self = Self(2);
    /// The certificate belongs to another cluster.
    pub const WRONG_CLUSTER: Self = Self(3);
    /// The certificate's role may not do this.
    pub const WRONG_ROLE: Self = Self(4);
    /// The peer is not the node that was dialled, or claims an identity that its certificate does not prove.
    pub const IDENTITY_MISMATCH: Self = Self(5);
    /// No protocol version in common.
    pub const VERSION_MISMATCH: Self = Self(6);
    /// The peer did not read, answer or finish its handshake in time.
    pub const TIMED_OUT: Self = Self(7);
    /// A limit of the receiver was exceeded.
    pub const LIMIT_EXCEEDED: Self = Self(8);
    /// The peer's certificate carries no usable identity.
    pub const UNIDENTIFIED: Self = Self(9);
    /// The connection is replaced by a newer one.
    pub const REPLACED: Self = Self(10);
    /// No handler for this stream kind.
    pub const UNKNOWN_STREAM_KIND: Self = Self(16);
    /// The stream was dropped before it was finished.
    pub const DROPPED: Self = Self(17);
    /// The consumer no longer wants the data.
    pub const CANCELLED: Self = Self(18);
    /// A frame inside the stream could not be decoded or came out of order.
    pub const STREAM_PROTOCOL: Self = Self(19);
    /// Data came without credit, or credit overflowed.
    pub const CREDIT_VIOLATION: Self = Self(20);
    /// The partition is not there.
    pub const PARTITION_NOT_FOUND: Self = Self(21);
    /// The producer of the partition failed.
    pub const PRODUCER_FAILED: Self = Self(22);
    /// Something failed in this process; its log says what.
    pub const INTERNAL: Self = Self(23);
    /// A code above 32 bits.
    pub const UNKNOWN: Self = Self(u32::MAX);

    /// The code's name, or `None` for a number outside this table.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::NO_ERROR => "no error",
            Self::PROTOCOL => "protocol violation",
            Self::SHUTTING_DOWN => "shutting down",
            Self::WRONG_CLUSTER => "wrong cluster",
            Self::WRONG_ROLE => "wrong role",
            Self::IDENTITY_MISMATCH => "identity mismatch",
            Self::VERSION_MISMATCH => "version mismatch",
            Self::TIMED_OUT => "timed out",
            Self::LIMIT_EXCEEDED => "limit exceeded",
            Self::UNIDENTIFIED => "unidentified",
            Self::REPLACED => "replaced",
            Self::UNKNOWN_STREAM_KIND => "unknown stream kind",
            Self::DROPPED => "dropped",
            Self::CANCELLED => "cancelled",
            Self::STREAM_PROTOCOL => "stream protocol violation",
            Self::CREDIT_VIOLATION => "credit violation",
            Self::PARTITION_NOT_FOUND => "partition not found",
            Self::PRODUCER_FAILED => "producer failed",
            Self::INTERNAL => "internal error",
            _ => return None,
        })
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "code {}", self.0),
        }
    }
}

impl std::fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ErrorCode({}, {self})", self.0)
    }
}

/// A shared, cloneable source of an error.
pub type Cause = Arc<dyn std::error::Error + Send + Sync>;

/// Why a connection could not be made or a listener could not be opened.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The local address is taken.
    #[error("address {address} is already in use")]
    AddressInUse {
        /// What was to be bound.
        address: String,
    },
    /// The local address cannot be bound for another reason, or no port of the range is free.
    #[error("cannot listen on {address}: {reason}")]
    Bind {
        /// What was to be bound.
        address: String,
        /// The system's reason.
        reason: String,
    },
    /// The address is no `host:port`, or the host does not resolve.
    #[error("cannot resolve {address}: {reason}")]
    Address {
        /// What was given.
        address: String,
        /// The resolver's reason.
        reason: String,
    },
    /// The peer refused after the cryptographic handshake, and said why.
    #[error("{address} refused the connection ({code}): {reason}")]
    Refused {
        /// Who refused.
        address: String,
        /// The peer's code.
        code: ErrorCode,
        /// The peer's words.
        reason: String,
    },
    /// We refused the peer, for what its certificate or its hello says.
    #[error("refused {address} ({code}): {reason}")]
    PeerRejected {
        /// Whom we refused.
        address: String,
        /// Our code.
        code: ErrorCode,
        /// Our reason.
        reason: String,
    },
    /// TLS failed: an untrusted, expired or missing certificate, no common ALPN, a peer that speaks no TLS.
    #[error("TLS handshake with {address} failed: {reason}")]
    Tls {
        /// The peer.
        address: String,
        /// What rustls or the peer's alert says.
        reason: String,
    },
    /// The dial did not finish within its budget.
    #[error("connecting to {address} timed out: {reason}")]
    TimedOut {
        /// The peer.
        address: String,
        /// What was still under way.
        reason: String,
    },
    /// Nobody listens there, or the network says no.
    #[error("cannot reach {address}: {reason}")]
    Unreachable {
        /// The peer.
        address: String,
        /// The system's reason.
        reason: String,
    },
    /// The caller or the node went away before the dial finished.
    #[error("connecting to {address} was cancelled")]
    Cancelled {
        /// The peer.
        address: String,
    },
    /// This process or machine has nothing left for another connection: open files, ports, memory.
    #[error("cannot connect to {address} from here: {reason}")]
    Exhausted {
        /// The peer.
        address: String,
        /// The system's reason, and what to change.
        reason: String,
    },
    /// This machine does not let the process connect there.
    #[error("this machine forbids connecting to {address}: {reason}")]
    Forbidden {
        /// The peer.
        address: String,
        /// The system's reason, and what it may mean.
        reason: String,
    },
    /// Another failure of this side: of the socket, or an end that this node brought about.
    #[error("connecting to {address} failed on this side")]
    Local {
        /// The peer.
        address: String,
        /// The system's or the connection's error.
        #[source]
        source: Cause,
    },
    /// Anything else; the source has the detail.
    #[error("connecting to {address} failed")]
    Transport {
        /// The peer.
        address: String,
        /// The backend's error.
        #[source]
        source: Cause,
    },
}

impl ConnectError {
    /// Whether another attempt may help while nothing else changes: time-outs, unreachable peers and a lack of open files
    /// may pass, a refused certificate, a bad address or a firewall of this machine does not.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::TimedOut { .. } | Self::Unreachable { .. } | Self::Exhausted { .. } => true,
            Self::Transport { source, .. } => !is_final(&**source),
            Self::Refused { code, .. } => {
                matches!(
                    *code,
                    ErrorCode::SHUTTING_DOWN | ErrorCode::LIMIT_EXCEEDED | ErrorCode::TIMED_OUT
                )
            }
            Self::Local { source, .. } => may_pass(&**source),
            _ => false,
        }
    }

    /// The code that the peer gets or gave.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Refused { code, .. } | Self::PeerRejected { code, .. } => *code,
            Self::TimedOut { .. } => ErrorCode::TIMED_OUT,
            Self::Cancelled { .. } => ErrorCode::CANCELLED,
            Self::Exhausted { .. } => ErrorCode::LIMIT_EXCEEDED,
            _ => ErrorCode::INTERNAL,
        }
    }
}

/// Why a connection ended. Every pending operation of the connection gets the same value.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The peer closed it.
    #[error("closed by the peer ({code}): {reason}")]
    ClosedByPeer {
        /// The peer's code.
        code: ErrorCode,
        /// The peer's words, at most 1,024 bytes, control characters escaped.
        reason: String,
    },
    /// This side closed it.
    #[error("closed locally ({code}): {reason}")]
    ClosedLocally {
        /// Our code.
        code: ErrorCode,
        /// Our words.
        reason: String,
    },
    /// The peer vanished without a close: reset, end of file, stateless reset.
    #[error("connection lost: {reason}")]
    Lost {
        /// The system's or backend's words.
        reason: String,
    },
    /// The peer broke the protocol of the connection itself.
    #[error("protocol violation: {reason}")]
    Protocol {
        /// What was wrong.
        reason: String,
    },
    /// Nothing was heard for the idle time-out, or the peer did not read for the write time-out.
    #[error("timed out: {reason}")]
    TimedOut {
        /// Which limit.
        reason: String,
    },
    /// Anything else: a failure on this side, as far as one can tell.
    #[error("transport failure")]
    Transport(#[source] Cause),
}

impl ConnectionError {
    /// Whether a new connection to the same peer may work. Not while this node is shutting down.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::ClosedLocally {
                code: ErrorCode::SHUTTING_DOWN,
                ..
            } => false,
            Self::ClosedByPeer { code, .. } | Self::ClosedLocally { code, .. } => !matches!(
                *code,
                ErrorCode::WRONG_CLUSTER
                    | ErrorCode::WRONG_ROLE
                    | ErrorCode::IDENTITY_MISMATCH
                    | ErrorCode::VERSION_MISMATCH
                    | ErrorCode::UNIDENTIFIED
            ),
            Self::Protocol { .. } => false,
            Self::Lost { .. } | Self::TimedOut { .. } => true,
            Self::Transport(cause) => may_pass(&**cause),
        }
    }

    /// The code that describes the end.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::ClosedByPeer { code, .. } | Self::ClosedLocally { code, .. } => *code,
            Self::Protocol { .. } => ErrorCode::PROTOCOL,
            Self::TimedOut { .. } => ErrorCode::TIMED_OUT,
            Self::Lost { .. } | Self::Transport(_) => ErrorCode::INTERNAL,
        }
    }

    /// Whether this side ended the connection itself.
    #[must_use]
    pub fn is_local(&self) -> bool {
        matches!(self, Self::ClosedLocally { .. })
    }
}

/// Why an operation on a stream failed. The stream is of no further use; its connection may be.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The whole connection ended.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// Reading: the peer reset its half, or dropped it unfinished.
    #[error("stream reset by the peer ({code})")]
    Reset {
        /// The peer's code.
        code: ErrorCode,
    },
    /// Writing: the peer stopped reading.
    #[error("stream stopped by the peer ({code})")]
    Stopped {
        /// The peer's code.
        code: ErrorCode,
    },
    /// Writing after `finish` or `reset`, or reading after `stop`: a mistake of the caller.
    #[error("stream is already closed on this side")]
    Closed,
    /// The peer did not read for `write_timeout`.
    #[error("the peer did not read for {seconds} s")]
    WriteTimedOut {
        /// The limit that passed, in seconds.
        seconds: u64,
    },
}

impl StreamError {
    /// Whether the same request may succeed on a new stream.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connection(error) => error.is_retryable(),
            Self::Reset { code } | Self::Stopped { code } => {
                matches!(
                    *code,
                    ErrorCode::DROPPED | ErrorCode::SHUTTING_DOWN | ErrorCode::LIMIT_EXCEEDED
                )
            }
            Self::Closed | Self::WriteTimedOut { .. } => false,
        }
    }

    /// The code that describes the failure.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Connection(error) => error.code(),
            Self::Reset { code } | Self::Stopped { code } => *code,
            Self::Closed => ErrorCode::INTERNAL,
            Self::WriteTimedOut { .. } => ErrorCode::TIMED_OUT,
        }
    }
}

impl From<StreamError> for io::Error {
    fn from(error: StreamError) -> Self {
        Self::new(io::ErrorKind::ConnectionAborted, error)
    }
}

/// Whether a failure of this side may be over at the next attempt: everything but what the system says of a socket that
/// will never work.
fn may_pass(cause: &(dyn std::error::Error + 'static)) -> bool {
    if let Some(shared) = cause.downcast_ref::<Cause>() {
        return may_pass(&**shared);
    }
    if let Some(error) = cause.downcast_ref::<StreamError>() {
        return error.is_retryable();
    }
    if let Some(error) = cause.downcast_ref::<io::Error>() {
        return !matches!(
            error.kind(),
            io::ErrorKind::PermissionDenied
                | io::ErrorKind::InvalidInput
                | io::ErrorKind::Unsupported
        );
    }
    cause.source().is_none_or(may_pass)
}

/// Whether the connection that a dial had made ended for good: over QUIC a listener refuses a certificate when the dialler
/// has it already.
fn is_final(cause: &(dyn std::error::Error + 'static)) -> bool {
    if let Some(shared) = cause.downcast_ref::<Cause>() {
        return is_final(&**shared);
    }
    if let Some(StreamError::Connection(error)) = cause.downcast_ref::<StreamError>() {
        return !error.is_retryable();
    }
    cause.source().is_some_and(is_final)
}

/// Makes a peer's words safe for a log line: control characters are escaped, the length is cut at 1,024 bytes.
#[must_use]
pub fn sanitize(words: &[u8]) -> String {
    const MAX_REASON_BYTES: usize = 1024;
    let cut = &words[..words.len().min(MAX_REASON_BYTES)];
    String::from_utf8_lossy(cut)
        .chars()
        .flat_map(|c| {
            if c.is_control() {
                c.escape_default().collect::<Vec<_>>()
            } else {
                vec![c]
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_peer_are_cut_and_escaped() {
        assert_eq!(sanitize(b"ok"), "ok");
        assert_eq!(sanitize(b"a\x1b[31m\n"), "a\\u{1b}[31m\\n");
        assert_eq!(sanitize(&vec![b'x'; 5000]).len(), 1024);
    }

    #[test]
    fn a_dial_whose_connection_ended_for_good_is_not_repeated() {
        let failed = |error: ConnectionError| ConnectError::Transport {
            address: "10.0.0.1:1".to_owned(),
            source: Arc::new(Arc::new(StreamError::Connection(error)) as Cause),
        };
        let reason = || "certificate refused".to_owned();
        assert!(!failed(ConnectionError::Protocol { reason: reason() }).is_retryable());
        assert!(failed(ConnectionError::Lost { reason: reason() }).is_retryable());
        let other = ConnectError::Transport {
            address: "10.0.0.1:1".to_owned(),
            source: Arc::new(StreamError::WriteTimedOut { seconds: 1 }),
        };
        assert!(other.is_retryable());
    }

    #[test]
    fn refusals_by_identity_are_not_retried() {
        for code in [
            ErrorCode::WRONG_CLUSTER,
            ErrorCode::WRONG_ROLE,
            ErrorCode::IDENTITY_MISMATCH,
        ] {
            assert!(
                !ConnectionError::ClosedByPeer {
                    code,
                    reason: String::new()
                }
                .is_retryable()
            );
        }
        assert!(
            ConnectionError::Lost {
                reason: String::new()
            }
            .is_retryable()
        );
    }
}
