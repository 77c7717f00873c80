//! What the suite needs of a backend, and the pair of nodes that a check works on.

use std::{any::Any, fmt, future::Future, net::SocketAddr};

use bytes::Bytes;
use thalweg_transport::{BindAddr, Connection, Listener, SendStream, Transport};

use super::support::within;

/// A backend under test.
///
/// One value serves many checks, also at the same time; nodes of one value reach and trust each other.
pub trait Backend: Send + Sync + 'static {
    /// What is tested.
    type Transport: Transport;

    /// A fresh transport of a node with this name, which is also the name in its certificate.
    fn transport(&self, node: &str) -> Self::Transport;

    /// Where a node listens. Default: any free port of 127.0.0.1.
    fn bind(&self) -> BindAddr {
        BindAddr::single(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// Whether connections prove identities. If not, every peer has to be
    /// [`Unverified`](thalweg_transport::PeerIdentity::Unverified).
    fn proves_identity(&self) -> bool {
        true
    }

    /// Begins a handshake with a listener and then says nothing more, until the value is dropped.
    ///
    /// Returns when the listener can have noticed, or has been sent what makes it notice.
    fn dial_silently(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = Box<dyn Any + Send>> + Send;

    /// Takes the peer away without a close. Called on the connection of the side that vanishes, right before its
    /// runtime is destroyed, which for most backends is enough: the default does nothing.
    fn vanish(&self, connection: &Conn<Self>) {
        let _ = connection;
    }
}

/// The connection type of a backend.
pub type Conn<B> = <<B as Backend>::Transport as Transport>::Connection;

/// The sending half of a backend's stream.
pub type SendHalf<B> = <Conn<B> as Connection>::Send;

/// The receiving half of a backend's stream.
pub type RecvHalf<B> = <Conn<B> as Connection>::Recv;

/// Two connected nodes.
pub struct Pair<B: Backend + ?Sized> {
    /// The connection on the side that dialled, node `dialler`.
    pub dialled: Conn<B>,
    /// The same connection on the side that listens, node `listener`.
    pub accepted: Conn<B>,
    /// The listener, which goes on listening.
    pub listener: <B::Transport as Transport>::Listener,
    /// The listening node.
    pub server: B::Transport,
    /// The dialling node.
    pub client: B::Transport,
}

impl<B: Backend> Pair<B> {
    /// Connects two fresh nodes.
    ///
    /// # Panics
    /// If they do not connect in time.
    pub async fn new(backend: &B) -> Self {
        let server = backend.transport("listener");
        let client = backend.transport("dialler");
        let mut listener = within("listening", server.listen(&backend.bind()))
            .await
            .expect("a listener on a free port");
        let address = listener.local_addr();
        let (dialled, accepted) = within("connecting", async {
            tokio::join!(client.connect(address, None), listener.accept())
        })
        .await;
        Self {
            dialled: dialled.expect("a connection"),
            accepted: accepted.expect("the accepted connection"),
            listener,
            server,
            client,
        }
    }

    /// A stream opened by the dialler, with both its ends. Its first byte is written and read.
    ///
    /// # Panics
    /// If that does not work in time.
    pub async fn stream(&self) -> (Ends<B>, Ends<B>) {
        open_stream::<B>(&self.dialled, &self.accepted).await
    }
}

impl<B: Backend + ?Sized> fmt::Debug for Pair<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair")
            .field("dialled", &self.dialled)
            .field("accepted", &self.accepted)
            .finish_non_exhaustive()
    }
}

/// One side's two halves of a stream.
pub type Ends<B> = (SendHalf<B>, RecvHalf<B>);

/// Opens a stream from one connection to its other end.
pub(super) async fn open_stream<B: Backend>(
    opener: &Conn<B>,
    acceptor: &Conn<B>,
) -> (Ends<B>, Ends<B>) {
    let mut near = within("open", opener.open()).await.expect("a stream");
    within(
        "the first byte",
        near.0.write(&mut [Bytes::from_static(b"!")]),
    )
    .await
    .expect("the first byte is written");
    let mut far = within("accept", acceptor.accept())
        .await
        .expect("the stream arrives");
    let first = within(
        "reading the first byte",
        super::support::read::<B>(&mut far.1, 1),
    )
    .await;
    assert_eq!(first.as_deref(), Some(&b"!"[..]), "the first byte");
    (near, far)
}
