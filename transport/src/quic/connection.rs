//! The handle of a connection.

use std::{
    fmt,
    future::poll_fn,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::{
    error::{connection_error, to_quic},
    profile::{INITIAL_STREAMS, quinn_stream_limit},
    stream::{QuicRecvStream, QuicSendStream, StreamToken},
};
use crate::{
    error::{ConnectionError, ErrorCode, sanitize},
    identity::PeerIdentity,
    transport::{Connection, ConnectionStats},
};

/// A QUIC connection.
///
/// It ends when one side closes it or has dropped its last handle; streams count as handles.
#[derive(Clone)]
pub struct QuicConnection {
    quic: quinn::Connection,
    shared: Arc<Shared>,
}

impl QuicConnection {
    pub(super) fn new(quic: quinn::Connection, peer: PeerIdentity) -> Self {
        let shared = Shared {
            peer,
            remote: quic.remote_address(),
            ended: OnceLock::new(),
            allowed: Mutex::new(INITIAL_STREAMS),
            counters: Counters::default(),
        };
        Self {
            quic,
            shared: Arc::new(shared),
        }
    }

    fn streams(
        &self,
        (send, recv): (quinn::SendStream, quinn::RecvStream),
    ) -> (QuicSendStream, QuicRecvStream) {
        let token = Arc::new(StreamToken::new(Arc::clone(&self.shared)));
        (
            QuicSendStream::new(send, Arc::clone(&token)),
            QuicRecvStream::new(recv, token),
        )
    }
}

impl fmt::Debug for QuicConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicConnection")
            .field("remote_addr", &self.shared.remote)
            .field("peer", &self.shared.peer)
            .finish_non_exhaustive()
    }
}

impl Connection for QuicConnection {
    type Send = QuicSendStream;
    type Recv = QuicRecvStream;

    async fn open(&self) -> Result<(QuicSendStream, QuicRecvStream), ConnectionError> {
        let mut opening = pin!(self.quic.open_bi());
        let mut waits = false;
        let opened = poll_fn(|cx| {
            let polled = opening.as_mut().poll(cx);
            if polled.is_pending() && !waits {
                waits = true;
                self.shared.counters.open_waits.fetch_add(1, Relaxed);
            }
            polled
        });
        let halves = opened.await.map_err(|error| self.shared.end(&error))?;
        Ok(self.streams(halves))
    }

    async fn accept(&self) -> Result<(QuicSendStream, QuicRecvStream), ConnectionError> {
        let accepted = self.quic.accept_bi().await;
        let halves = accepted.map_err(|error| self.shared.end(&error))?;
        Ok(self.streams(halves))
    }

    fn peer(&self) -> &PeerIdentity {
        &self.shared.peer
    }

    fn remote_addr(&self) -> SocketAddr {
        self.shared.remote
    }

    fn close(&self, code: ErrorCode, reason: &str) {
        let reason = sanitize(reason.as_bytes());
        let mut first = false;
        self.shared.ended.get_or_init(|| {
            first = true;
            match self.quic.close_reason() {
                Some(error) => connection_error(&error, (code, &reason)),
                None => ConnectionError::ClosedLocally {
                    code,
                    reason: reason.clone(),
                },
            }
        });
        if first {
            self.quic.close(to_quic(code), reason.as_bytes());
        }
    }

    async fn closed(&self) -> ConnectionError {
        let error = self.quic.closed().await;
        self.shared.end(&error)
    }

    /// As the trait says; the peer may open up to a seventh more, see `profile`.
    fn allow_streams(&self, count: u32) {
        // Held over the call, so that two of them cannot overtake each other and lower the limit.
        let mut allowed = self
            .shared
            .allowed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if count > *allowed {
            *allowed = count;
            self.quic
                .set_max_concurrent_bi_streams(quinn_stream_limit(count));
        }
    }

    fn stats(&self) -> ConnectionStats {
        let path = self.quic.stats().path;
        let counters = &self.shared.counters;
        ConnectionStats {
            bytes_sent: counters.bytes_sent.load(Relaxed),
            bytes_received: counters.bytes_received.load(Relaxed),
            streams_open: counters.streams_open.load(Relaxed),
            streams_total: counters.streams_total.load(Relaxed),
            open_waits: counters.open_waits.load(Relaxed),
            rtt: Some(path.rtt),
            packets_lost: path.lost_packets,
            mtu: Some(path.current_mtu),
        }
    }
}

/// What the handles of a connection and its streams share.
#[derive(Debug)]
pub(super) struct Shared {
    peer: PeerIdentity,
    remote: SocketAddr,
    /// The end as the first observer saw it. quinn reports a close of ours that comes after the peer's as ours; by the
    /// contract the first one stays.
    ended: OnceLock<ConnectionError>,
    allowed: Mutex<u32>,
    pub(super) counters: Counters,
}

impl Shared {
    /// The one end of this connection, which quinn reports as `error`.
    pub(super) fn end(&self, error: &quinn::ConnectionError) -> ConnectionError {
        // Without a close by us, quinn closes by itself only when the last handle is gone.
        let implicit = (ErrorCode::NO_ERROR, "");
        self.ended
            .get_or_init(|| connection_error(error, implicit))
            .clone()
    }
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) bytes_sent: AtomicU64,
    pub(super) bytes_received: AtomicU64,
    pub(super) streams_open: AtomicU64,
    pub(super) streams_total: AtomicU64,
    open_waits: AtomicU64,
}
