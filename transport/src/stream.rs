//! Streams without a type parameter, for everything above the connection manager.
//!
//! They cost a boxed future per operation: one for a batch of frames that is written, and one for all that lands
//! ([`RecvStream::land`]).

use std::{
    fmt,
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;

use crate::{
    error::{ErrorCode, StreamError},
    landing::{Landed, SharedLanding},
    transport::{RecvStream, SendStream},
};

/// [`SendStream::try_write`] for streams whose [`write`](SendStream::write) leaves in the chunks exactly what was not taken,
/// also when it is dropped.
pub(crate) fn write_now<S: SendStream>(
    stream: &mut S,
    chunks: &mut [Bytes],
) -> Result<bool, StreamError> {
    let mut nobody = Context::from_waker(Waker::noop());
    match pin!(stream.write(chunks)).poll(&mut nobody) {
        Poll::Ready(written) => written.map(|()| true),
        Poll::Pending => Ok(false),
    }
}

/// A future behind a pointer.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The sending half of a stream of any backend. Contract as [`SendStream`].
pub struct BoxSendStream(Box<dyn DynSend>);

impl BoxSendStream {
    /// Erases the backend's type.
    pub fn new<S: SendStream>(stream: S) -> Self {
        Self(Box::new(stream))
    }
}

impl fmt::Debug for BoxSendStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoxSendStream")
    }
}

impl SendStream for BoxSendStream {
    async fn write(&mut self, chunks: &mut [Bytes]) -> Result<(), StreamError> {
        self.0.write(chunks).await
    }

    fn try_write(&mut self, chunks: &mut [Bytes]) -> Result<bool, StreamError> {
        self.0.try_write(chunks)
    }

    fn finish(&mut self) -> Result<(), StreamError> {
        self.0.finish()
    }

    fn reset(&mut self, code: ErrorCode) {
        self.0.reset(code);
    }

    fn set_priority(&mut self, priority: i32) {
        self.0.set_priority(priority);
    }

    async fn stopped(&mut self) -> Result<Option<ErrorCode>, StreamError> {
        self.0.stopped().await
    }
}

/// The receiving half of a stream of any backend. Contract as [`RecvStream`].
pub struct BoxRecvStream(Box<dyn DynRecv>);

impl BoxRecvStream {
    /// Erases the backend's type.
    pub fn new<R: RecvStream>(stream: R) -> Self {
        Self(Box::new(stream))
    }
}

impl fmt::Debug for BoxRecvStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoxRecvStream")
    }
}

impl RecvStream for BoxRecvStream {
    async fn read(&mut self, max: usize) -> Result<Option<Bytes>, StreamError> {
        self.0.read(max).await
    }

    async fn read_chunks(&mut self, chunks: &mut [Bytes]) -> Result<Option<usize>, StreamError> {
        self.0.read_chunks(chunks).await
    }

    async fn land(&mut self, landing: &SharedLanding) -> Result<Landed, StreamError> {
        self.0.land(landing).await
    }

    fn stop(&mut self, code: ErrorCode) {
        self.0.stop(code);
    }
}

trait DynSend: Send {
    fn write<'a>(&'a mut self, chunks: &'a mut [Bytes]) -> BoxFuture<'a, Result<(), StreamError>>;
    fn try_write(&mut self, chunks: &mut [Bytes]) -> Result<bool, StreamError>;
    fn finish(&mut self) -> Result<(), StreamError>;
    fn reset(&mut self, code: ErrorCode);
    fn set_priority(&mut self, priority: i32);
    fn stopped(&mut self) -> BoxFuture<'_, Result<Option<ErrorCode>, StreamError>>;
}

impl<S: SendStream> DynSend for S {
    fn write<'a>(&'a mut self, chunks: &'a mut [Bytes]) -> BoxFuture<'a, Result<(), StreamError>> {
        Box::pin(SendStream::write(self, chunks))
    }

    fn try_write(&mut self, chunks: &mut [Bytes]) -> Result<bool, StreamError> {
        SendStream::try_write(self, chunks)
    }

    fn finish(&mut self) -> Result<(), StreamError> {
        SendStream::finish(self)
    }

    fn reset(&mut self, code: ErrorCode) {
        SendStream::reset(self, code);
    }

    fn set_priority(&mut self, priority: i32) {
        SendStream::set_priority(self, priority);
    }

    fn stopped(&mut self) -> BoxFuture<'_, Result<Option<ErrorCode>, StreamError>> {
        Box::pin(SendStream::stopped(self))
    }
}

trait DynRecv: Send {
    fn read(&mut self, max: usize) -> BoxFuture<'_, Result<Option<Bytes>, StreamError>>;
    fn read_chunks<'a>(
        &'a mut self,
        chunks: &'a mut [Bytes],
    ) -> BoxFuture<'a, Result<Option<usize>, StreamError>>;
    fn land<'a>(
        &'a mut self,
        landing: &'a SharedLanding,
    ) -> BoxFuture<'a, Result<Landed, StreamError>>;
    fn stop(&mut self, code: ErrorCode);
}

impl<R: RecvStream> DynRecv for R {
    fn read(&mut self, max: usize) -> BoxFuture<'_, Result<Option<Bytes>, StreamError>> {
        Box::pin(RecvStream::read(self, max))
    }

    fn read_chunks<'a>(
        &'a mut self,
        chunks: &'a mut [Bytes],
    ) -> BoxFuture<'a, Result<Option<usize>, StreamError>> {
        Box::pin(RecvStream::read_chunks(self, chunks))
    }

    fn land<'a>(
        &'a mut self,
        landing: &'a SharedLanding,
    ) -> BoxFuture<'a, Result<Landed, StreamError>> {
        Box::pin(RecvStream::land(self, landing))
    }

    fn stop(&mut self, code: ErrorCode) {
        RecvStream::stop(self, code);
    }
}
