//! A counted reference to a dialled connection.

use std::sync::Arc;

use super::{live::LiveConnection, pool::Pool};
use crate::{
    connections::LeasedConnection,
    error::ConnectionError,
    handler::{Peer, PeerStream, StreamKind, TransportError},
    proto::{hello::Agreement, registry::LinkId},
    stream::BoxFuture,
};

/// One reference; dropping it gives it back.
#[derive(Debug)]
pub(super) struct Claim {
    pool: Arc<Pool>,
    link: LinkId,
    live: Arc<dyn LiveConnection>,
}

impl Claim {
    pub(super) fn new(pool: Arc<Pool>, link: LinkId, live: Arc<dyn LiveConnection>) -> Self {
        Self { pool, link, live }
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
        self.live.open(kind)
    }

    fn close_reason(&self) -> Option<ConnectionError> {
        self.live.close_reason()
    }

    fn closed(&self) -> BoxFuture<'_, ConnectionError> {
        self.live.closed()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.pool.release(self.link);
    }
}
