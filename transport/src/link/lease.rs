//! A counted reference to a dialled connection.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{live::LiveConnection, pool::Pool, stream::Keep};
use crate::{
    connections::LeasedConnection,
    error::ConnectionError,
    handler::{Peer, PeerStream, StreamKind, TransportError},
    proto::{hello::Agreement, registry::LinkId},
    stream::BoxFuture,
};

/// What a lease holds; the streams that it opens hold the reference, too.
#[derive(Debug)]
pub(super) struct Claim {
    live: Arc<dyn LiveConnection>,
    draining: CancellationToken,
    reference: Arc<Reference>,
}

impl Claim {
    pub(super) fn new(
        pool: Arc<Pool>,
        link: LinkId,
        live: Arc<dyn LiveConnection>,
        draining: CancellationToken,
    ) -> Self {
        Self {
            live,
            draining,
            reference: Arc::new(Reference { pool, link }),
        }
    }
}

impl LeasedConnection for Claim {
    fn peer(&self) -> &Peer {
        self.live.peer()
    }

    fn agreement(&self) -> Option<&Agreement> {
        Some(self.live.agreement())
    }

    fn open(&self, kind: StreamKind) -> BoxFuture<'_, Result<PeerStream, TransportError>> {
        self.live.open(kind, Arc::clone(&self.reference) as _)
    }

    fn close_reason(&self) -> Option<ConnectionError> {
        self.live.close_reason()
    }

    fn closed(&self) -> BoxFuture<'_, ConnectionError> {
        self.live.closed()
    }

    fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    fn draining(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.draining.cancelled())
    }
}

/// One reference of the registry's count; dropping it gives it back.
#[derive(Debug)]
struct Reference {
    pool: Arc<Pool>,
    link: LinkId,
}

impl Keep for Reference {
    fn keep_until(self: Arc<Self>, delivered: BoxFuture<'static, ()>) {
        let pool = Arc::clone(&self.pool);
        pool.linger(delivered, self);
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        self.pool.release(self.link);
    }
}
