//! The handle of a connection.

use std::{fmt, net::SocketAddr, pin::pin, sync::Arc};

use tokio::sync::Notify;

use super::{
    link::Link,
    state::Side,
    stream::{MemRecvStream, MemSendStream},
};
use crate::{
    error::{ConnectionError, ErrorCode},
    identity::PeerIdentity,
    transport::{Connection, ConnectionStats},
};

/// A connection inside one process.
///
/// It ends when one side closes it or has dropped its last handle; streams count as handles, as they do in quinn.
#[derive(Clone)]
pub struct MemConnection {
    end: Arc<LinkEnd>,
}

impl MemConnection {
    /// Both ends of a new connection: the dialler's, then the listener's.
    pub(super) fn pair(window: usize, dialler: PeerInfo, listener: PeerInfo) -> (Self, Self) {
        let link = Arc::new(Link::new(window));
        let end = |side, peer: PeerInfo| Self {
            end: Arc::new(LinkEnd {
                link: Arc::clone(&link),
                side,
                peer,
            }),
        };
        (end(0, listener), end(1, dialler))
    }

    /// Breaks the connection without a close, as a pulled cable does: both sides get [`ConnectionError::Lost`].
    pub fn sever(&self) {
        self.end.link.sever("the in-memory connection was severed");
    }

    fn streams(&self, id: u64) -> (MemSendStream, MemRecvStream) {
        (
            MemSendStream::new(Arc::clone(&self.end), id),
            MemRecvStream::new(Arc::clone(&self.end), id),
        )
    }
}

impl fmt::Debug for MemConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemConnection")
            .field("remote_addr", &self.end.peer.address)
            .field("peer", &self.end.peer.identity)
            .finish_non_exhaustive()
    }
}

impl Connection for MemConnection {
    type Send = MemSendStream;
    type Recv = MemRecvStream;

    async fn open(&self) -> Result<(MemSendStream, MemRecvStream), ConnectionError> {
        let LinkEnd { link, side, .. } = &*self.end;
        let mut first_try = true;
        let id = wait(&link.may_open[*side], || {
            let opened = link.try_open(*side, first_try);
            first_try = false;
            opened
        })
        .await?;
        Ok(self.streams(id))
    }

    async fn accept(&self) -> Result<(MemSendStream, MemRecvStream), ConnectionError> {
        let LinkEnd { link, side, .. } = &*self.end;
        let id = wait(&link.arrived[*side], || link.try_accept(*side)).await?;
        Ok(self.streams(id))
    }

    fn peer(&self) -> &PeerIdentity {
        &self.end.peer.identity
    }

    fn remote_addr(&self) -> SocketAddr {
        self.end.peer.address
    }

    fn close(&self, code: ErrorCode, reason: &str) {
        self.end.link.close(self.end.side, code, reason);
    }

    async fn closed(&self) -> ConnectionError {
        let LinkEnd { link, side, .. } = &*self.end;
        let ended = wait(&link.ended, || {
            Ok::<_, std::convert::Infallible>(link.error(*side))
        });
        let Ok(error) = ended.await;
        error
    }

    fn allow_streams(&self, count: u32) {
        self.end.link.allow_streams(self.end.side, count);
    }

    fn stats(&self) -> ConnectionStats {
        self.end.link.stats(self.end.side)
    }
}

/// What one side knows about the other.
#[derive(Debug)]
pub(super) struct PeerInfo {
    pub(super) identity: PeerIdentity,
    pub(super) address: SocketAddr,
}

/// One side's share of a link; dropping the last one closes it.
#[derive(Debug)]
pub(super) struct LinkEnd {
    pub(super) link: Arc<Link>,
    pub(super) side: Side,
    peer: PeerInfo,
}

impl Drop for LinkEnd {
    fn drop(&mut self) {
        self.link.close(self.side, ErrorCode::NO_ERROR, "");
    }
}

/// Waits until `attempt` gives a value. Nothing happens between the value and the return, so a dropped wait takes
/// nothing.
async fn wait<T, E>(
    changed: &Notify,
    mut attempt: impl FnMut() -> Result<Option<T>, E>,
) -> Result<T, E> {
    loop {
        let mut woken = pin!(changed.notified());
        woken.as_mut().enable();
        if let Some(value) = attempt()? {
            return Ok(value);
        }
        woken.await;
    }
}
