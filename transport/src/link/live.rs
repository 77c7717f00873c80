//! A connection whose hello is done.

use std::{
    fmt,
    pin::pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, Waker},
};

use tokio::runtime::Handle;

use super::stream::{HeaderSend, Hold, HoldingRecv};
use crate::{
    error::{ConnectionError, ErrorCode, StreamError},
    handler::{Peer, PeerStream, StreamKind, TransportError},
    proto::hello::Agreement,
    stream::{BoxFuture, BoxRecvStream, BoxSendStream},
    transport::{Connection, ConnectionStats, RecvStream, SendStream},
};

/// A live connection of any backend.
pub(crate) trait LiveConnection: fmt::Debug + Send + Sync {
    fn peer(&self) -> &Peer;
    fn agreement(&self) -> &Agreement;
    /// Opens a stream, both halves of which keep `hold` until they are dropped.
    fn open(
        &self,
        kind: StreamKind,
        hold: Hold,
    ) -> BoxFuture<'_, Result<PeerStream, TransportError>>;
    fn close(&self, code: ErrorCode, reason: &str);
    fn close_reason(&self) -> Option<ConnectionError>;
    fn closed(&self) -> BoxFuture<'_, ConnectionError>;
    fn stats(&self) -> ConnectionStats;

    /// Waits for the end of a connection that this node dialled. Streams of the peer are refused: it has to dial
    /// itself, as an accepted connection is never used to dial back.
    fn watch(&self) -> BoxFuture<'_, ConnectionError>;
}

/// A live connection of one backend. The last one dropped ends the connection.
#[derive(Debug)]
pub(crate) struct Live<C> {
    pub(super) connection: C,
    peer: Arc<Peer>,
    agreement: Agreement,
    ended: OnceLock<ConnectionError>,
    /// The network runtime, for backends that spawn.
    runtime: Handle,
}

impl<C: Connection> Live<C> {
    /// Call it on the network runtime.
    pub(super) fn new(connection: C, peer: Peer, agreement: Agreement) -> Self {
        Self {
            connection,
            peer: Arc::new(peer),
            agreement,
            ended: OnceLock::new(),
            runtime: Handle::current(),
        }
    }
}

impl<C: Connection> LiveConnection for Live<C> {
    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn agreement(&self) -> &Agreement {
        &self.agreement
    }

    fn open(
        &self,
        kind: StreamKind,
        hold: Hold,
    ) -> BoxFuture<'_, Result<PeerStream, TransportError>> {
        Box::pin(async move {
            let (send, recv) = self.connection.open().await.map_err(|error| {
                TransportError::from_stream(&self.peer, &StreamError::from(error))
            })?;
            Ok(PeerStream {
                peer: Peer::clone(&self.peer),
                features: self.agreement.features,
                send: BoxSendStream::new(HeaderSend::new(send, kind, Arc::clone(&hold))),
                recv: BoxRecvStream::new(HoldingRecv::new(recv, hold)),
            })
        })
    }

    fn close(&self, code: ErrorCode, reason: &str) {
        let _runtime = self.runtime.enter();
        self.connection.close(code, reason);
    }

    fn close_reason(&self) -> Option<ConnectionError> {
        if let Some(ended) = self.ended.get() {
            return Some(ended.clone());
        }
        let _runtime = self.runtime.enter();
        // Without tokio's budget, which would let an ended connection look alive to a task that has used it up.
        let closed = pin!(tokio::task::unconstrained(self.connection.closed()));
        match closed.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(error) => Some(self.ended.get_or_init(|| error).clone()),
            Poll::Pending => None,
        }
    }

    fn closed(&self) -> BoxFuture<'_, ConnectionError> {
        Box::pin(async move {
            let error = self.connection.closed().await;
            self.ended.get_or_init(|| error).clone()
        })
    }

    fn stats(&self) -> ConnectionStats {
        self.connection.stats()
    }

    fn watch(&self) -> BoxFuture<'_, ConnectionError> {
        Box::pin(async move {
            while let Ok((send, recv)) = self.connection.accept().await {
                refuse(send, recv, ErrorCode::UNKNOWN_STREAM_KIND);
            }
            self.closed().await
        })
    }
}

/// Ends both halves of a stream; nothing else of the connection is touched.
pub(super) fn refuse<S: SendStream, R: RecvStream>(mut send: S, mut recv: R, code: ErrorCode) {
    send.reset(code);
    recv.stop(code);
}
