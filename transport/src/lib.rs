//! Credit-based data exchange between the nodes of a dataflow engine, over pluggable secure transports.

mod addr;
mod alert;
mod awaited;
mod clock;
mod config;
mod connections;
mod error;
pub mod exchange;
mod handler;
mod handshakes;
mod identity;
mod landing;
mod link;
pub mod mem;
mod node;
pub mod proto;
pub mod quic;
mod rustls_credentials;
mod shutdown;
mod stream;
mod system;
pub mod tcp;
mod transport;
mod warnings;

pub use addr::{BindAddr, ConnectionId, resolve};
pub use clock::now;
pub use config::{Compression, ConfigError, FRAME_OVERHEAD, Profile, TransportConfig};
pub use connections::{ConnectionSnapshot, Connections, Lease, LeasedConnection};
pub use error::{Cause, ConnectError, ConnectionError, ErrorCode, StreamError, sanitize};
pub use handler::{Peer, PeerStream, StreamHandler, StreamKind, TransportError, chain};
pub use identity::{
    ALPN, Admission, Credentials, InvalidResourceId, MAX_RESOURCE_ID_BYTES, PeerIdentity, Refusal,
    ResourceId, SERVER_NAME, VerifiedPeer,
};
pub use landing::{Landed, Landing, SharedLanding};
pub use link::STREAM_VERSION;
pub use node::{NetworkRuntime, Node, NodeBuilder, NodeError};
pub use rustls_credentials::RustlsCredentials;
pub use shutdown::Shutdown;
pub use stream::{BoxFuture, BoxRecvStream, BoxSendStream};
pub use tcp::{TcpConnection, TcpListener, TcpRecvStream, TcpSendStream, TcpTransport};
pub use transport::{Connection, ConnectionStats, Listener, RecvStream, SendStream, Transport};
