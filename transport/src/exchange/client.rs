//! The consumer's way to a peer's partitions.

use std::sync::Arc;

use super::error::ExchangeError;
use crate::{
    addr::ConnectionId,
    connections::Lease,
    error::ConnectionError,
    handler::{Peer, PeerStream, StreamKind, TransportError},
    proto::PartitionRequest,
    transport::SendStream,
};

/// Requests partitions from one peer. Clones share one counted reference to the connection; the last one releases it.
#[derive(Debug, Clone)]
pub struct PartitionRequestClient {
    inner: Arc<ClientInner>,
}

impl PartitionRequestClient {
    pub(super) fn new(connection: ConnectionId, lease: Lease) -> Self {
        Self {
            inner: Arc::new(ClientInner { connection, lease }),
        }
    }

    /// The connection that it uses.
    #[must_use]
    pub fn connection(&self) -> &ConnectionId {
        &self.inner.connection
    }

    /// Who is at the other end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        self.inner.lease.peer()
    }

    /// Why the connection ended, or `None` while it lives.
    #[must_use]
    pub fn close_reason(&self) -> Option<ConnectionError> {
        self.inner.lease.close_reason()
    }

    /// Opens a stream for the request and sends it. What comes back is frames of [`proto`](crate::proto).
    ///
    /// # Errors
    /// [`ExchangeError::Transport`].
    ///
    /// # Cancel safety
    /// Cancel-safe: a dropped call resets the stream.
    pub async fn request_subpartition(
        &self,
        request: &PartitionRequest,
    ) -> Result<PeerStream, ExchangeError> {
        let mut stream = self.inner.lease.open(StreamKind::PARTITION).await?;
        stream
            .send
            .write(&mut [request.encode()])
            .await
            .map_err(|error| TransportError::from_stream(self.connection(), &error))?;
        Ok(stream)
    }
}

#[derive(Debug)]
struct ClientInner {
    connection: ConnectionId,
    lease: Lease,
}
