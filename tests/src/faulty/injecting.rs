//! A wrapper for any transport that corrupts data under way.

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use bytes::{Bytes, BytesMut};
use thalweg_transport::{
    BindAddr, ConnectError, Connection, ConnectionError, ConnectionStats, ErrorCode, Listener,
    PeerIdentity, ResourceId, SendStream, StreamError, Transport,
};

/// One bit of stream data to be changed, once. Clones share whether that has happened.
///
/// The first stream that writes more than `after` bytes gets its byte number `after` (counted from 0) changed in its
/// lowest bit. Choose a number that only the wanted kind of stream reaches.
#[derive(Debug, Clone)]
pub struct Flip {
    after: u64,
    done: Arc<AtomicBool>,
}

impl Flip {
    /// Changes the byte that follows the first `bytes` of a stream.
    #[must_use]
    pub fn after(bytes: u64) -> Self {
        Self {
            after: bytes,
            done: Arc::default(),
        }
    }

    /// Whether the byte was changed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done.load(SeqCst)
    }

    /// Changes the byte if it lies in `chunk`, which begins at `offset` of its stream.
    fn apply(&self, chunk: &mut Bytes, offset: u64) {
        let Some(at) = self
            .after
            .checked_sub(offset)
            .and_then(|at| usize::try_from(at).ok())
        else {
            return;
        };
        if at < chunk.len() && !self.done.swap(true, SeqCst) {
            let mut changed = BytesMut::from(&chunk[..]);
            changed[at] ^= 1;
            *chunk = changed.freeze();
        }
    }
}

/// A transport whose streams carry one wrong byte, see [`Flip`]. Affects what this node sends.
///
/// ```
/// use thalweg_tests::faulty::{FaultInjecting, Flip};
/// use thalweg_transport::mem::{MemNetwork, MemTransport};
///
/// let flip = Flip::after(100_000);
/// let transport = FaultInjecting::new(MemTransport::new(MemNetwork::new(), None), flip.clone());
/// // Run a node on `transport`, then:
/// assert!(!flip.is_done());
/// # drop(transport);
/// ```
#[derive(Debug)]
pub struct FaultInjecting<T> {
    inner: T,
    flip: Flip,
}

impl<T: Transport> FaultInjecting<T> {
    /// Wraps a transport.
    pub fn new(inner: T, flip: Flip) -> Self {
        Self { inner, flip }
    }
}

impl<T: Transport> Transport for FaultInjecting<T> {
    type Connection = FlippingConnection<T::Connection>;
    type Listener = FlippingListener<T::Listener>;

    fn name(&self) -> &'static str {
        self.inner.name()
    }

    async fn listen(&self, bind: &BindAddr) -> Result<Self::Listener, ConnectError> {
        Ok(FlippingListener {
            inner: self.inner.listen(bind).await?,
            flip: self.flip.clone(),
        })
    }

    async fn connect(
        &self,
        address: SocketAddr,
        expected: Option<&ResourceId>,
    ) -> Result<Self::Connection, ConnectError> {
        Ok(FlippingConnection {
            inner: self.inner.connect(address, expected).await?,
            flip: self.flip.clone(),
        })
    }
}

/// The listener of a [`FaultInjecting`] transport.
#[derive(Debug)]
pub struct FlippingListener<L> {
    inner: L,
    flip: Flip,
}

impl<L: Listener> Listener for FlippingListener<L> {
    type Connection = FlippingConnection<L::Connection>;

    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    async fn accept(&mut self) -> Result<Self::Connection, ConnectError> {
        Ok(FlippingConnection {
            inner: self.inner.accept().await?,
            flip: self.flip.clone(),
        })
    }
}

/// A connection of a [`FaultInjecting`] transport.
#[derive(Debug, Clone)]
pub struct FlippingConnection<C> {
    inner: C,
    flip: Flip,
}

impl<C: Connection> FlippingConnection<C> {
    fn wrap(&self, (send, recv): (C::Send, C::Recv)) -> (FlippingSend<C::Send>, C::Recv) {
        let send = FlippingSend {
            inner: send,
            written: 0,
            flip: self.flip.clone(),
        };
        (send, recv)
    }
}

impl<C: Connection> Connection for FlippingConnection<C> {
    type Send = FlippingSend<C::Send>;
    type Recv = C::Recv;

    async fn open(&self) -> Result<(Self::Send, Self::Recv), ConnectionError> {
        Ok(self.wrap(self.inner.open().await?))
    }

    async fn accept(&self) -> Result<(Self::Send, Self::Recv), ConnectionError> {
        Ok(self.wrap(self.inner.accept().await?))
    }

    fn peer(&self) -> &PeerIdentity {
        self.inner.peer()
    }

    fn remote_addr(&self) -> SocketAddr {
        self.inner.remote_addr()
    }

    fn close(&self, code: ErrorCode, reason: &str) {
        self.inner.close(code, reason);
    }

    async fn closed(&self) -> ConnectionError {
        self.inner.closed().await
    }

    fn allow_streams(&self, count: u32) {
        self.inner.allow_streams(count);
    }

    fn stats(&self) -> ConnectionStats {
        self.inner.stats()
    }
}

/// The sending half of a stream of a [`FaultInjecting`] transport.
pub struct FlippingSend<S> {
    inner: S,
    written: u64,
    flip: Flip,
}

impl<S> fmt::Debug for FlippingSend<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlippingSend")
            .field("written", &self.written)
            .field("flip", &self.flip)
            .finish_non_exhaustive()
    }
}

impl<S: SendStream> SendStream for FlippingSend<S> {
    async fn write(&mut self, chunks: &mut [Bytes]) -> Result<(), StreamError> {
        for chunk in chunks.iter_mut() {
            self.flip.apply(chunk, self.written);
            self.written += chunk.len() as u64;
        }
        self.inner.write(chunks).await
    }

    fn finish(&mut self) -> Result<(), StreamError> {
        self.inner.finish()
    }

    fn reset(&mut self, code: ErrorCode) {
        self.inner.reset(code);
    }

    fn set_priority(&mut self, priority: i32) {
        self.inner.set_priority(priority);
    }

    async fn stopped(&mut self) -> Result<Option<ErrorCode>, StreamError> {
        self.inner.stopped().await
    }
}
