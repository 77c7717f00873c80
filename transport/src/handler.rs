//! How streams find the code that serves them: stream kinds, handlers, and what a handler is given.

use std::{fmt, net::SocketAddr};

use thiserror::Error;

use crate::{
    addr::ConnectionId,
    error::{ConnectError, ConnectionError, ErrorCode, StreamError},
    identity::{PeerIdentity, ResourceId},
    stream::{BoxFuture, BoxRecvStream, BoxSendStream},
};

/// What a stream is for. Its number is the first byte of the stream.
///
/// Numbers below 64 belong to Thalweg; an embedding engine registers its own from 64 to 255.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKind(pub u8);

impl StreamKind {
    /// The first stream of a connection: both sides introduce themselves.
    pub const HELLO: Self = Self(1);
    /// One partition request and its data.
    pub const PARTITION: Self = Self(2);
    /// One gateway connection.
    pub const RPC: Self = Self(3);
    /// Blob upload or download.
    pub const BLOB: Self = Self(4);
    /// State queries.
    pub const KV_STATE: Self = Self(5);
    /// First number for kinds of an embedding engine.
    pub const FIRST_CUSTOM: u8 = 64;
}

impl fmt::Display for StreamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::HELLO => f.write_str("hello"),
            Self::PARTITION => f.write_str("partition"),
            Self::RPC => f.write_str("rpc"),
            Self::BLOB => f.write_str("blob"),
            Self::KV_STATE => f.write_str("kv-state"),
            Self(other) => write!(f, "kind {other}"),
        }
    }
}

/// The node at the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its name: proved by the certificate with TLS, only claimed without.
    pub id: ResourceId,
    /// What mutual TLS proved.
    pub identity: PeerIdentity,
    /// The address at the other end of the socket.
    pub address: SocketAddr,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.identity {
            PeerIdentity::Verified(peer) => write!(f, "{} at {}", peer.uri, self.address),
            PeerIdentity::Unverified => write!(f, "{} (unverified) at {}", self.id, self.address),
        }
    }
}

/// A stream with the peer at its other end.
#[derive(Debug)]
pub struct PeerStream {
    /// Who is there.
    pub peer: Peer,
    /// The abilities that both nodes have stated in their hellos.
    pub features: u64,
    /// To the peer.
    pub send: BoxSendStream,
    /// From the peer.
    pub recv: BoxRecvStream,
}

/// Serves the streams of one kind. The bytes that name kind and version are already read.
///
/// ```
/// use std::sync::Arc;
///
/// use bytes::Bytes;
/// use thalweg_transport::{
///     BoxFuture, ConnectionId, Connections, Node, PeerStream, RecvStream, ResourceId, SendStream,
///     StreamHandler, StreamKind, TransportConfig,
///     mem::{MemNetwork, MemTransport},
/// };
///
/// const ECHO: StreamKind = StreamKind(StreamKind::FIRST_CUSTOM);
///
/// #[derive(Debug)]
/// struct Echo;
///
/// impl StreamHandler for Echo {
///     fn handle(&self, mut stream: PeerStream) -> BoxFuture<'static, ()> {
///         Box::pin(async move {
///             // An error is the end of this one stream, and dropping its halves tells the peer.
///             while let Ok(Some(bytes)) = stream.recv.read(16 * 1024).await {
///                 if stream.send.write(&mut [bytes]).await.is_err() {
///                     return;
///                 }
///             }
///             let _ = stream.send.finish();
///         })
///     }
/// }
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let (network, config) = (MemNetwork::new(), TransportConfig::default());
/// let server = Node::builder(ResourceId::new("server")?, config.clone())
///     .handler(ECHO, Arc::new(Echo))
///     .start(MemTransport::new(network.clone(), None))
///     .await?;
/// let client = Node::builder(ResourceId::new("client")?, config)
///     .start(MemTransport::new(network, None))
///     .await?;
///
/// let server = ConnectionId::new(server.id().clone(), server.advertised());
/// let lease = client.acquire(server).await?;
/// let mut stream = lease.open(ECHO).await?;
/// stream.send.write(&mut [Bytes::from_static(b"hello")]).await?;
/// stream.send.finish()?;
/// assert_eq!(stream.recv.read(1024).await?.as_deref(), Some(&b"hello"[..]));
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(run()).unwrap();
/// ```
pub trait StreamHandler: fmt::Debug + Send + Sync + 'static {
    /// Serves one stream to its end. Runs as a task of its connection on the node's network thread: it must not block,
    /// and it is dropped when the connection ends or the node shuts down. A panic fails this connection only.
    fn handle(&self, stream: PeerStream) -> BoxFuture<'static, ()>;
}

/// A failure of the connection to a peer, on whose side it lies, and with whom.
///
/// The counterpart of Flink's `RemoteTransportException` and `LocalTransportException`.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The peer, or the way to it, failed: it may be lost.
    #[error("connection to {peer} failed at the remote side, which may be lost: {message}")]
    Remote {
        /// The ConnectionId, with address and resource id.
        peer: String,
        /// What happened.
        message: String,
        /// Whether a new attempt may work.
        retryable: bool,
        /// The code heard or concluded.
        code: ErrorCode,
    },
    /// This side failed or gave up.
    #[error("connection to {peer} failed locally: {message}")]
    Local {
        /// The ConnectionId, with address and resource id.
        peer: String,
        /// What happened.
        message: String,
        /// Whether a new attempt may work: a lack of open files or of kernel memory passes, a cancelled dial does not.
        retryable: bool,
        /// The code that the peer hears.
        code: ErrorCode,
    },
}

impl TransportError {
    /// Tells local from remote for a failed dial.
    #[must_use]
    pub fn from_connect(peer: &ConnectionId, error: &ConnectError) -> Self {
        let (peer, message) = (peer.to_string(), chain(error));
        match error {
            ConnectError::Cancelled { .. }
            | ConnectError::PeerRejected { .. }
            | ConnectError::Exhausted { .. }
            | ConnectError::Forbidden { .. }
            | ConnectError::Local { .. }
            | ConnectError::Address { .. } => Self::Local {
                peer,
                message,
                retryable: error.is_retryable(),
                code: error.code(),
            },
            _ => Self::Remote {
                peer,
                message,
                retryable: error.is_retryable(),
                code: error.code(),
            },
        }
    }

    /// Tells local from remote for a failed stream.
    #[must_use]
    pub fn from_stream(peer: impl fmt::Display, error: &StreamError) -> Self {
        let (peer, message) = (peer.to_string(), chain(error));
        let local = match error {
            StreamError::Connection(connection) => {
                connection.is_local() || matches!(connection, ConnectionError::Transport(_))
            }
            StreamError::Closed => true,
            StreamError::Reset { .. }
            | StreamError::Stopped { .. }
            | StreamError::WriteTimedOut { .. } => false,
        };
        if local {
            Self::Local {
                peer,
                message,
                retryable: error.is_retryable(),
                code: error.code(),
            }
        } else {
            Self::Remote {
                peer,
                message,
                retryable: error.is_retryable(),
                code: error.code(),
            }
        }
    }

    /// What happened, without the peer's name: for messages that have named it already.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Self::Remote { message, .. } | Self::Local { message, .. } => message,
        }
    }

    /// Whether a new attempt may work.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Remote { retryable, .. } | Self::Local { retryable, .. } => *retryable,
        }
    }

    /// The code that describes the failure.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Remote { code, .. } | Self::Local { code, .. } => *code,
        }
    }
}

/// An error with its sources, joined by `: `.
#[must_use]
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc};

    use super::*;
    use crate::error::ConnectionError;

    fn id() -> ConnectionId {
        ConnectionId::new(ResourceId::new("tm-2").unwrap(), "host:6121").with_index(3)
    }

    #[test]
    fn a_failed_dial_says_which_side_failed_and_whom_it_was_to_reach() {
        let (address, reason) = ("host:6121".to_owned(), "because".to_owned());
        let code = ErrorCode::WRONG_CLUSTER;
        let local = [
            ConnectError::Cancelled {
                address: address.clone(),
            },
            ConnectError::PeerRejected {
                address: address.clone(),
                code,
                reason: reason.clone(),
            },
            ConnectError::Address {
                address: address.clone(),
                reason: reason.clone(),
            },
            ConnectError::Forbidden {
                address: address.clone(),
                reason: reason.clone(),
            },
            ConnectError::Local {
                address: address.clone(),
                source: Arc::new(io::Error::from(io::ErrorKind::PermissionDenied)),
            },
        ];
        let passing = [
            ConnectError::Exhausted {
                address: address.clone(),
                reason: reason.clone(),
            },
            ConnectError::Local {
                address: address.clone(),
                source: Arc::new(io::Error::from_raw_os_error(105)),
            },
        ];
        let remote = [
            ConnectError::Refused {
                address: address.clone(),
                code,
                reason: reason.clone(),
            },
            ConnectError::TimedOut {
                address: address.clone(),
                reason: reason.clone(),
            },
            ConnectError::Unreachable { address, reason },
        ];
        for (error, passes) in local
            .iter()
            .map(|e| (e, false))
            .chain(passing.iter().map(|e| (e, true)))
        {
            let error = TransportError::from_connect(&id(), error);
            assert!(matches!(error, TransportError::Local { .. }), "{error}");
            assert_eq!(error.is_retryable(), passes, "{error}");
            assert!(error.to_string().contains("tm-2@host:6121#3"), "{error}");
        }
        for error in &remote {
            let error = TransportError::from_connect(&id(), error);
            assert!(matches!(error, TransportError::Remote { .. }), "{error}");
            assert!(error.to_string().contains("tm-2@host:6121#3"), "{error}");
        }
    }

    #[test]
    fn the_end_of_a_connection_is_remote_unless_this_side_closed_it_flink_21952() {
        let reason = "read: Connection reset by peer (os error 104)".to_owned();
        let lost = StreamError::from(ConnectionError::Lost { reason });
        let error = TransportError::from_stream(id(), &lost);
        assert!(matches!(error, TransportError::Remote { .. }), "{error}");
        assert!(error.is_retryable());
        let closed = StreamError::from(ConnectionError::ClosedLocally {
            code: ErrorCode::SHUTTING_DOWN,
            reason: String::new(),
        });
        let error = TransportError::from_stream(id(), &closed);
        assert!(matches!(error, TransportError::Local { .. }), "{error}");
        assert!(!error.is_retryable(), "this node is shutting down");
        let replaced = StreamError::from(ConnectionError::ClosedLocally {
            code: ErrorCode::REPLACED,
            reason: String::new(),
        });
        assert!(TransportError::from_stream(id(), &replaced).is_retryable());
        let error = TransportError::from_stream(id(), &StreamError::Closed);
        assert!(!error.is_retryable(), "a mistake of the caller");
        assert!(matches!(error, TransportError::Local { .. }), "{error}");
    }
}
