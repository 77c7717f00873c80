//! The two bytes at the start of every stream, and what a stream of ours holds.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    error::{ErrorCode, StreamError},
    handler::StreamKind,
    landing::{Landed, SharedLanding},
    stream::BoxFuture,
    transport::{RecvStream, SendStream},
};

/// The version of the stream protocols: the second byte of every stream, after its [`StreamKind`].
pub const STREAM_VERSION: u8 = 1;

/// The bytes that a stream of this kind starts with.
pub(super) fn header(kind: StreamKind) -> Bytes {
    Bytes::copy_from_slice(&[kind.0, STREAM_VERSION])
}

/// Reads kind and version, and not a byte more; `None` if the stream ends before them.
pub(super) async fn read_header<R: RecvStream>(
    recv: &mut R,
) -> Result<Option<(StreamKind, u8)>, StreamError> {
    let mut bytes = [0; 2];
    let mut filled = 0;
    while filled < bytes.len() {
        let Some(chunk) = recv.read(bytes.len() - filled).await? else {
            return Ok(None);
        };
        for (to, from) in bytes[filled..].iter_mut().zip(&chunk) {
            *to = *from;
        }
        filled += chunk.len();
    }
    Ok(Some((StreamKind(bytes[0]), bytes[1])))
}

/// Calls go before data, data before blobs, where streams compete for the connection.
pub(super) fn priority(kind: StreamKind) -> i32 {
    match kind {
        StreamKind::HELLO | StreamKind::RPC | StreamKind::KV_STATE => 10,
        StreamKind::BLOB => -10,
        _ => 0,
    }
}

/// What is kept as long as a stream, and as what it sent last is under way.
pub(crate) trait Keep: Send + Sync {
    /// Keeps this until the delivery is known, within a limit.
    fn keep_until(self: Arc<Self>, delivered: BoxFuture<'static, ()>);
}

pub(crate) type Hold = Arc<dyn Keep>;

/// A sending half whose header goes out with the first write, without a write of its own.
///
/// Dropped after its finish, it keeps what it holds until the peer has everything: a connection that nobody needs is
/// closed, and a close discards what is under way.
pub(super) struct HeaderSend<S: SendStream> {
    // Dropped first: what is held may be what keeps the connection. `None` only while it is dropped.
    stream: Option<S>,
    header: Option<Bytes>,
    finished: bool,
    hold: Hold,
}

impl<S: SendStream> HeaderSend<S> {
    /// Sets the priority of the kind, too.
    pub(super) fn new(mut stream: S, kind: StreamKind, hold: Hold) -> Self {
        stream.set_priority(priority(kind));
        Self {
            stream: Some(stream),
            header: Some(header(kind)),
            finished: false,
            hold,
        }
    }

    fn stream(&mut self) -> Result<&mut S, StreamError> {
        self.stream.as_mut().ok_or(StreamError::Closed)
    }
}

impl<S: SendStream> SendStream for HeaderSend<S> {
    async fn write(&mut self, chunks: &mut [Bytes]) -> Result<(), StreamError> {
        let Some(header) = self.header.take() else {
            return self.stream()?.write(chunks).await;
        };
        let mut all = Vec::with_capacity(chunks.len() + 1);
        all.push(header);
        all.extend(chunks.iter_mut().map(std::mem::take));
        self.stream()?.write(&mut all).await
    }

    fn try_write(&mut self, chunks: &mut [Bytes]) -> Result<bool, StreamError> {
        if self.header.is_some() {
            return Ok(false);
        }
        self.stream()?.try_write(chunks)
    }

    fn finish(&mut self) -> Result<(), StreamError> {
        self.stream()?.finish()?;
        self.finished = true;
        Ok(())
    }

    fn reset(&mut self, code: ErrorCode) {
        self.finished = false;
        if let Ok(stream) = self.stream() {
            stream.reset(code);
        }
    }

    fn set_priority(&mut self, priority: i32) {
        if let Ok(stream) = self.stream() {
            stream.set_priority(priority);
        }
    }

    async fn stopped(&mut self) -> Result<Option<ErrorCode>, StreamError> {
        self.stream()?.stopped().await
    }
}

impl<S: SendStream> Drop for HeaderSend<S> {
    fn drop(&mut self) {
        let Some(mut stream) = self.stream.take().filter(|_| self.finished) else {
            return;
        };
        let delivered = Box::pin(async move {
            // Delivered, stopped by the peer, or lost with the connection: there is no more to wait for.
            let _ = stream.stopped().await;
        });
        Arc::clone(&self.hold).keep_until(delivered);
    }
}

/// A receiving half that keeps what its sending half keeps.
pub(super) struct HoldingRecv<R> {
    // Dropped first, as there.
    stream: R,
    _hold: Hold,
}

impl<R: RecvStream> HoldingRecv<R> {
    pub(super) fn new(stream: R, hold: Hold) -> Self {
        Self {
            stream,
            _hold: hold,
        }
    }
}

impl<R: RecvStream> RecvStream for HoldingRecv<R> {
    async fn read(&mut self, max: usize) -> Result<Option<Bytes>, StreamError> {
        self.stream.read(max).await
    }

    async fn read_chunks(&mut self, chunks: &mut [Bytes]) -> Result<Option<usize>, StreamError> {
        self.stream.read_chunks(chunks).await
    }

    async fn land(&mut self, landing: &SharedLanding) -> Result<Landed, StreamError> {
        self.stream.land(landing).await
    }

    fn stop(&mut self, code: ErrorCode) {
        self.stream.stop(code);
    }
}
