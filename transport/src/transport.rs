//! The seam between the exchange and a network: what a backend implements.
//!
//! Three backends come with the crate: [`quic`](crate::quic), [`tcp`](crate::tcp) and [`mem`](crate::mem), the last
//! being the worked example for a backend of one's own. The contract below is proved for each of them by the
//! conformance suite of the `thalweg-tests` crate, which is generic over [`Transport`] and public.
//!
//! # The contract
//!
//! 1. [`Connection::open`] waits while the peer's stream limit is reached. It is cancel-safe: a dropped wait takes no
//!    stream.
//! 2. A peer sees a stream at its first byte, not at `open` (true of QUIC, and kept by the others): the opener always
//!    writes first.
//! 3. [`SendStream::write`] is **not** cancel-safe: after a dropped write the stream may only be reset.
//! 4. [`RecvStream::read`] is cancel-safe: a dropped read loses no byte. It gives `None` only after the peer
//!    *finished*, and a chunk has 1 to `max` bytes.
//! 5. Dropping a [`SendStream`] that was not finished is a reset with [`ErrorCode::DROPPED`], never an end of data.
//!    Dropping a [`RecvStream`] that was not read to its end stops it with the same code.
//! 6. [`Connection::close`] wakes every pending operation of the connection, on both sides, with the same
//!    [`ConnectionError`]. It is idempotent; the first code wins.
//! 7. Bytes of one stream keep their order. Between streams there is none.
//! 8. A stream that nobody reads never stalls another stream of the connection, nor the connection itself. Memory has
//!    the last word: QUIC streams share a window of 16 MiB (32 on the WAN profile), which eight full unread streams use
//!    up; TCP and mem bound each stream alone.
//! 9. [`Listener::accept`] never waits for another peer's handshake: a silent peer delays nobody.
//! 10. [`Connection::peer`] is what mutual TLS proved, not what the peer claims; without TLS it is
//!     [`PeerIdentity::Unverified`].
//!
//! # Runtimes
//!
//! A backend's futures and tasks run on the tokio runtime on which [`Transport::connect`] and [`Transport::listen`]
//! were called. `Node` calls them on its network thread, and so [`Connection::close`]. Everything else of connections
//! and streams is also used, polled and dropped on other threads, of other runtimes or of none, and must not need the
//! runtime around it.

use std::{future::Future, net::SocketAddr, time::Duration};

use bytes::Bytes;

use crate::{
    addr::BindAddr,
    error::{ConnectError, ConnectionError, ErrorCode, StreamError},
    identity::{PeerIdentity, ResourceId},
    landing::{Landed, SharedLanding, land_by_reading},
};

/// A way to reach other nodes.
///
/// One value belongs to one node and is shared by its listener and its dials (QUIC sends and receives on one socket).
///
/// [`Node`](crate::Node) is what uses one. The source of [`mem`](crate::mem) shows how to write one; this is what it can
/// do by itself, like any other:
///
/// ```
/// use bytes::Bytes;
/// use thalweg_transport::{
///     BindAddr, Connection, Listener, RecvStream, SendStream, Transport,
///     mem::{MemNetwork, MemTransport},
/// };
///
/// async fn greet(server: impl Transport, client: impl Transport) -> Result<(), Box<dyn std::error::Error>> {
///     let mut listener = server.listen(&BindAddr::single("127.0.0.1:0".parse()?)).await?;
///     let address = listener.local_addr();
///     let (dialled, accepted) = tokio::join!(client.connect(address, None), listener.accept());
///     let (dialled, accepted) = (dialled?, accepted?);
///
///     let (mut send, _) = dialled.open().await?;
///     send.write(&mut [Bytes::from_static(b"hello")]).await?;
///     send.finish()?;
///     let (_, mut recv) = accepted.accept().await?;
///     assert_eq!(recv.read(1024).await?.as_deref(), Some(&b"hello"[..]));
///     assert_eq!(recv.read(1024).await?, None);
///     Ok(())
/// }
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let network = MemNetwork::new();
/// let (server, client) = (MemTransport::new(network.clone(), None), MemTransport::new(network, None));
/// greet(server, client).await.unwrap();
/// # });
/// ```
pub trait Transport: Send + Sync + 'static {
    /// A connection to one peer.
    type Connection: Connection;
    /// The node's listener.
    type Listener: Listener<Connection = Self::Connection>;

    /// The name in configuration and reports: `quic`, `tcp`, `mem`.
    fn name(&self) -> &'static str;

    /// Opens the node's one listening port.
    ///
    /// Called once, before any [`connect`](Self::connect). A port range is tried by really binding, in order.
    ///
    /// # Errors
    /// [`ConnectError::AddressInUse`] if the one port is taken, [`ConnectError::Bind`] if no port of a range is free or
    /// the system refuses for another reason.
    fn listen(
        &self,
        bind: &BindAddr,
    ) -> impl Future<Output = Result<Self::Listener, ConnectError>> + Send;

    /// Connects to a peer, TLS handshake and identity check included.
    ///
    /// `expected` is the node that the caller wants to reach; a peer whose certificate names another one is refused
    /// with [`ErrorCode::IDENTITY_MISMATCH`]. `None` where only the address is known (the JobManager's).
    ///
    /// # Errors
    /// Any [`ConnectError`] but the two of binding.
    ///
    /// # Cancel safety
    /// Cancel-safe: a dropped dial leaves nothing behind.
    fn connect(
        &self,
        address: SocketAddr,
        expected: Option<&ResourceId>,
    ) -> impl Future<Output = Result<Self::Connection, ConnectError>> + Send;

    /// What a caller should be told that has given up waiting for a dial to this address, while the dial is still under
    /// way: what not having heard anything from there may mean.
    fn unanswered(&self, address: SocketAddr) -> Option<String> {
        let _ = address;
        None
    }

    /// Waits until the peers of closed connections have been told, as far as the network lets it.
    ///
    /// `Node` awaits it at its end, within the deadline of its shutdown, before it stops the network thread. A backend
    /// whose [`Connection::close`] needs no task to go out keeps the default.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    fn drained(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// The accepting side of a [`Transport`].
///
/// Dropping it stops accepting and frees the port when the last connection that shares the socket is gone.
pub trait Listener: Send + 'static {
    /// What is accepted.
    type Connection: Connection;

    /// Where it listens, with the real port.
    fn local_addr(&self) -> SocketAddr;

    /// The next connection whose handshake and identity check are done.
    ///
    /// Handshakes of many peers run at the same time, at most `max_handshakes` of them, each within
    /// `handshake_timeout`; failed ones are counted, logged by the backend (a warning a minute at most: strangers must
    /// not fill the log), and never seen here.
    ///
    /// # Errors
    /// Only when the listener itself is at an end.
    ///
    /// # Cancel safety
    /// Cancel-safe: no connection is lost.
    fn accept(&mut self) -> impl Future<Output = Result<Self::Connection, ConnectError>> + Send;
}

/// One connection to one peer: a cheap handle. The connection ends when it is closed, or with [`ErrorCode::NO_ERROR`] when
/// the last handle is gone; its streams count as handles.
pub trait Connection: Clone + Send + Sync + std::fmt::Debug + 'static {
    /// The sending half of a stream.
    type Send: SendStream;
    /// The receiving half of a stream.
    type Recv: RecvStream;

    /// Opens a bidirectional stream, waiting while the peer's limit is reached.
    ///
    /// # Errors
    /// The connection's end.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    fn open(
        &self,
    ) -> impl Future<Output = Result<(Self::Send, Self::Recv), ConnectionError>> + Send;

    /// The next stream that the peer opened.
    ///
    /// # Errors
    /// The connection's end.
    ///
    /// # Cancel safety
    /// Cancel-safe: no stream is lost.
    fn accept(
        &self,
    ) -> impl Future<Output = Result<(Self::Send, Self::Recv), ConnectionError>> + Send;

    /// Who the peer is, as mutual TLS proved.
    fn peer(&self) -> &PeerIdentity;

    /// The peer's address.
    fn remote_addr(&self) -> SocketAddr;

    /// Ends the connection; does not wait. The peer hears code and reason if the network lets it.
    fn close(&self, code: ErrorCode, reason: &str);

    /// Waits for the end of the connection and says why it came.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    fn closed(&self) -> impl Future<Output = ConnectionError> + Send;

    /// Raises how many streams the peer may have open at the same time; never lowers it.
    ///
    /// Backends start low, because an allowed stream costs memory ahead (quinn: 2 MB for 20,000 streams).
    fn allow_streams(&self, count: u32);

    /// Counters of the connection so far.
    fn stats(&self) -> ConnectionStats;
}

/// The sending half of a stream. One task owns it.
///
/// Dropped before [`finish`](Self::finish) it resets the stream (contract 5).
pub trait SendStream: Send + 'static {
    /// Writes all chunks in order, waiting for the peer's window; each chunk is left empty as it is taken.
    ///
    /// Chunks are sent without joining them; the backend may hold a `Bytes` until the peer has acknowledged it.
    ///
    /// # Errors
    /// [`StreamError::Stopped`] if the peer stopped reading, [`StreamError::Connection`] at the connection's end,
    /// [`StreamError::Closed`] after `finish` or `reset`.
    ///
    /// # Cancel safety
    /// **Not** cancel-safe: an unknown part of the chunks may be sent.
    fn write(
        &mut self,
        chunks: &mut [Bytes],
    ) -> impl Future<Output = Result<(), StreamError>> + Send;

    /// Writes what there is room for now: whether that was everything. What was not taken stays in `chunks`, for another
    /// try or for [`write`](Self::write). Wakes nobody when there is room.
    ///
    /// A backend that queues what is written (TCP) takes it in whatever task has it, so that no task of the stream's own has
    /// to be woken for a small message. The provided method takes nothing.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn try_write(&mut self, chunks: &mut [Bytes]) -> Result<bool, StreamError> {
        let _ = chunks;
        Ok(false)
    }

    /// Says that no more data comes; what was written is still delivered.
    ///
    /// # Errors
    /// [`StreamError::Closed`] if finished or reset before, [`StreamError::Stopped`] if the peer stopped reading.
    fn finish(&mut self) -> Result<(), StreamError>;

    /// Gives the stream up: undelivered data may be lost, the peer reads [`StreamError::Reset`] with this code.
    fn reset(&mut self, code: ErrorCode);

    /// Higher goes first where streams compete for the connection. Calls use a higher one than data.
    fn set_priority(&mut self, priority: i32);

    /// Waits until the peer stops the stream or has received all of it.
    ///
    /// `Ok(None)`: everything up to the finish was received, which says on QUIC that the peer's machine has it, on TCP
    /// and mem that the peer's code has read it. `Ok(Some(code))`: the peer stopped reading with this code.
    ///
    /// # Errors
    /// The connection's end, and [`StreamError::Closed`] after [`reset`](Self::reset).
    ///
    /// # Cancel safety
    /// Cancel-safe.
    fn stopped(&mut self) -> impl Future<Output = Result<Option<ErrorCode>, StreamError>> + Send;
}

/// The receiving half of a stream. One task owns it.
///
/// Dropped before its end was read it stops the stream (contract 5).
pub trait RecvStream: Send + 'static {
    /// The next bytes, 1 to `max` of them, or `None` after the peer finished.
    ///
    /// # Errors
    /// [`StreamError::Reset`] if the peer gave the stream up, [`StreamError::Connection`] at the connection's end.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    fn read(
        &mut self,
        max: usize,
    ) -> impl Future<Output = Result<Option<Bytes>, StreamError>> + Send;

    /// The next chunks, as many as are ready and fit `chunks`, at least one; `None` after the peer finished.
    ///
    /// One call for many packets: with 1,452-byte packets this saves a wake-up each.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    ///
    /// # Cancel safety
    /// Cancel-safe.
    fn read_chunks(
        &mut self,
        chunks: &mut [Bytes],
    ) -> impl Future<Output = Result<Option<usize>, StreamError>> + Send;

    /// Hands the bytes of the stream to `landing` as they come, until it wants no more or the peer finishes.
    ///
    /// The provided method reads and hands over. A backend that reads a connection in one task may call `landing` there.
    ///
    /// # Errors
    /// As [`read`](Self::read); what came before the error has landed.
    ///
    /// # Cancel safety
    /// Cancel-safe: what has not landed can still be read. Where the backend reads on another thread, a portion that it is
    /// just handing over still lands.
    fn land(
        &mut self,
        landing: &SharedLanding,
    ) -> impl Future<Output = Result<Landed, StreamError>> + Send {
        land_by_reading(self, landing)
    }

    /// Tells the peer to stop sending; what is under way is dropped.
    fn stop(&mut self, code: ErrorCode);
}

/// Counters of one connection. Fields that a backend cannot know are `None` or zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionStats {
    /// Bytes of stream data written by this side, multiplex and packet overhead excluded where the backend can tell.
    pub bytes_sent: u64,
    /// Bytes of stream data received.
    pub bytes_received: u64,
    /// Streams open now, of both sides.
    pub streams_open: u64,
    /// Streams opened since the start, by both sides.
    pub streams_total: u64,
    /// Times that `open` had to wait for the peer's stream limit.
    pub open_waits: u64,
    /// Smoothed round-trip time.
    pub rtt: Option<Duration>,
    /// Packets declared lost (QUIC).
    pub packets_lost: u64,
    /// Current packet size in bytes (QUIC).
    pub mtu: Option<u16>,
}
