//! The two halves of a stream.

use std::{fmt, future::poll_fn, slice, sync::Arc};

use bytes::Bytes;

use super::connection::LinkEnd;
use crate::{
    error::{ErrorCode, StreamError},
    stream::write_now,
    transport::{RecvStream, SendStream},
};

/// The sending half of a stream inside one process.
///
/// A write takes as many bytes as the window has room for and waits for the reader otherwise; no byte is copied.
pub struct MemSendStream {
    end: Arc<LinkEnd>,
    id: u64,
}

impl MemSendStream {
    pub(super) fn new(end: Arc<LinkEnd>, id: u64) -> Self {
        Self { end, id }
    }
}

impl fmt::Debug for MemSendStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemSendStream({})", self.id)
    }
}

impl SendStream for MemSendStream {
    async fn write(&mut self, chunks: &mut [Bytes]) -> Result<(), StreamError> {
        let LinkEnd { link, side, .. } = &*self.end;
        poll_fn(|cx| link.poll_write(*side, self.id, chunks, cx)).await
    }

    fn try_write(&mut self, chunks: &mut [Bytes]) -> Result<bool, StreamError> {
        write_now(self, chunks)
    }

    fn finish(&mut self) -> Result<(), StreamError> {
        self.end.link.finish(self.end.side, self.id)
    }

    fn reset(&mut self, code: ErrorCode) {
        self.end.link.reset(self.end.side, self.id, code);
    }

    /// Does nothing: in one process no stream waits for another.
    fn set_priority(&mut self, _priority: i32) {}

    async fn stopped(&mut self) -> Result<Option<ErrorCode>, StreamError> {
        let LinkEnd { link, side, .. } = &*self.end;
        poll_fn(|cx| link.poll_stopped(*side, self.id, cx)).await
    }
}

impl Drop for MemSendStream {
    fn drop(&mut self) {
        self.end.link.drop_send(self.end.side, self.id);
    }
}

/// The receiving half of a stream inside one process.
pub struct MemRecvStream {
    end: Arc<LinkEnd>,
    id: u64,
}

impl MemRecvStream {
    pub(super) fn new(end: Arc<LinkEnd>, id: u64) -> Self {
        Self { end, id }
    }
}

impl fmt::Debug for MemRecvStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemRecvStream({})", self.id)
    }
}

impl RecvStream for MemRecvStream {
    async fn read(&mut self, max: usize) -> Result<Option<Bytes>, StreamError> {
        let LinkEnd { link, side, .. } = &*self.end;
        let mut chunk = Bytes::new();
        let count = poll_fn(|cx| {
            link.poll_read(*side, self.id, max.max(1), slice::from_mut(&mut chunk), cx)
        })
        .await?;
        Ok((count > 0).then_some(chunk))
    }

    async fn read_chunks(&mut self, chunks: &mut [Bytes]) -> Result<Option<usize>, StreamError> {
        let LinkEnd { link, side, .. } = &*self.end;
        if chunks.is_empty() {
            return Ok(Some(0));
        }
        let count = poll_fn(|cx| link.poll_read(*side, self.id, usize::MAX, chunks, cx)).await?;
        Ok((count > 0).then_some(count))
    }

    fn stop(&mut self, code: ErrorCode) {
        self.end.link.stop(self.end.side, self.id, code);
    }
}

impl Drop for MemRecvStream {
    fn drop(&mut self) {
        self.end.link.drop_recv(self.end.side, self.id);
    }
}
