//! The two halves of a stream.

use std::{
    fmt,
    future::Future,
    pin::pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use quinn::{ReadError, StoppedError, VarInt, WriteError};

use super::{
    connection::Shared,
    error::{from_quic, to_quic},
};
use crate::{
    error::{ErrorCode, StreamError},
    stream::write_now,
    transport::{RecvStream, SendStream},
};

/// The sending half of a QUIC stream. quinn holds each `Bytes` until the peer has acknowledged it.
pub struct QuicSendStream {
    quic: quinn::SendStream,
    token: Arc<StreamToken>,
    state: SendState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendState {
    Open,
    Finished,
    Reset,
}

impl QuicSendStream {
    pub(super) fn new(quic: quinn::SendStream, token: Arc<StreamToken>) -> Self {
        Self {
            quic,
            token,
            state: SendState::Open,
        }
    }

    fn stopped_error(&self, error: StoppedError) -> StreamError {
        match error {
            StoppedError::ConnectionLost(error) => self.token.shared.end(&error).into(),
            StoppedError::ZeroRttRejected => StreamError::Closed,
        }
    }

    /// Whether the peer has stopped the stream already.
    fn stop_code(&self) -> Option<VarInt> {
        let mut cx = Context::from_waker(Waker::noop());
        match pin!(self.quic.stopped()).poll(&mut cx) {
            Poll::Ready(Ok(code)) => code,
            Poll::Ready(Err(_)) | Poll::Pending => None,
        }
    }
}

impl fmt::Debug for QuicSendStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QuicSendStream({})", self.quic.id())
    }
}

impl SendStream for QuicSendStream {
    async fn write(&mut self, chunks: &mut [Bytes]) -> Result<(), StreamError> {
        // `write_all_chunks` in steps, so that a write that is dropped half way is counted right.
        let mut rest = chunks;
        while !rest.is_empty() {
            let written = self
                .quic
                .write_chunks(rest)
                .await
                .map_err(|error| match error {
                    WriteError::Stopped(code) => StreamError::Stopped {
                        code: from_quic(code),
                    },
                    WriteError::ConnectionLost(error) => self.token.shared.end(&error).into(),
                    WriteError::ClosedStream | WriteError::ZeroRttRejected => StreamError::Closed,
                })?;
            let counters = &self.token.shared.counters;
            counters.bytes_sent.fetch_add(written.bytes as u64, Relaxed);
            rest = &mut rest[written.chunks..];
        }
        Ok(())
    }

    fn try_write(&mut self, chunks: &mut [Bytes]) -> Result<bool, StreamError> {
        write_now(self, chunks)
    }

    fn finish(&mut self) -> Result<(), StreamError> {
        if self.state != SendState::Open {
            return Err(StreamError::Closed);
        }
        // quinn's `finish` succeeds on a stopped stream.
        if let Some(code) = self.stop_code() {
            return Err(StreamError::Stopped {
                code: from_quic(code),
            });
        }
        self.quic.finish().map_err(|_| StreamError::Closed)?;
        self.state = SendState::Finished;
        Ok(())
    }

    fn reset(&mut self, code: ErrorCode) {
        // An error means that it was reset before or that everything has arrived.
        if self.quic.reset(to_quic(code)).is_ok() {
            self.state = SendState::Reset;
        }
    }

    fn set_priority(&mut self, priority: i32) {
        // An error means that nothing is left to send.
        let _ = self.quic.set_priority(priority);
    }

    async fn stopped(&mut self) -> Result<Option<ErrorCode>, StreamError> {
        if self.state == SendState::Reset {
            return Err(StreamError::Closed);
        }
        match self.quic.stopped().await {
            Ok(code) => Ok(code.map(from_quic)),
            Err(error) => Err(self.stopped_error(error)),
        }
    }
}

impl Drop for QuicSendStream {
    fn drop(&mut self) {
        if self.state == SendState::Open {
            // quinn would finish the stream, and the peer would take half of it for the whole.
            self.reset(ErrorCode::DROPPED);
        }
    }
}

/// The receiving half of a QUIC stream.
pub struct QuicRecvStream {
    quic: quinn::RecvStream,
    token: Arc<StreamToken>,
    state: RecvState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecvState {
    Open,
    Finished,
    Reset(ErrorCode),
    Stopped,
}

impl QuicRecvStream {
    pub(super) fn new(quic: quinn::RecvStream, token: Arc<StreamToken>) -> Self {
        Self {
            quic,
            token,
            state: RecvState::Open,
        }
    }

    /// What a read gives that needs no look at the connection.
    fn settled<T>(&self) -> Option<Result<Option<T>, StreamError>> {
        match self.state {
            RecvState::Open => None,
            RecvState::Finished => Some(Ok(None)),
            RecvState::Reset(code) => Some(Err(StreamError::Reset { code })),
            RecvState::Stopped => Some(Err(StreamError::Closed)),
        }
    }

    fn read_error(&mut self, error: ReadError) -> StreamError {
        match error {
            ReadError::Reset(code) => {
                let code = from_quic(code);
                self.state = RecvState::Reset(code);
                StreamError::Reset { code }
            }
            ReadError::ConnectionLost(error) => self.token.shared.end(&error).into(),
            ReadError::ClosedStream
            | ReadError::IllegalOrderedRead
            | ReadError::ZeroRttRejected => StreamError::Closed,
        }
    }

    fn count(&self, bytes: usize) {
        let counters = &self.token.shared.counters;
        counters.bytes_received.fetch_add(bytes as u64, Relaxed);
    }
}

impl fmt::Debug for QuicRecvStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QuicRecvStream({})", self.quic.id())
    }
}

impl RecvStream for QuicRecvStream {
    async fn read(&mut self, max: usize) -> Result<Option<Bytes>, StreamError> {
        if let Some(settled) = self.settled() {
            return settled;
        }
        match self.quic.read_chunk(max.max(1), true).await {
            Ok(Some(chunk)) => {
                self.count(chunk.bytes.len());
                Ok(Some(chunk.bytes))
            }
            Ok(None) => {
                self.state = RecvState::Finished;
                Ok(None)
            }
            Err(error) => Err(self.read_error(error)),
        }
    }

    async fn read_chunks(&mut self, chunks: &mut [Bytes]) -> Result<Option<usize>, StreamError> {
        if let Some(settled) = self.settled() {
            return settled;
        }
        if chunks.is_empty() {
            return Ok(Some(0));
        }
        match self.quic.read_chunks(chunks).await {
            Ok(Some(count)) => {
                self.count(chunks[..count].iter().map(Bytes::len).sum());
                Ok(Some(count))
            }
            Ok(None) => {
                self.state = RecvState::Finished;
                Ok(None)
            }
            Err(error) => Err(self.read_error(error)),
        }
    }

    fn stop(&mut self, code: ErrorCode) {
        if self.state == RecvState::Open {
            self.state = RecvState::Stopped;
            // An error means that the end or a reset was seen.
            let _ = self.quic.stop(to_quic(code));
        }
    }
}

impl Drop for QuicRecvStream {
    fn drop(&mut self) {
        self.stop(ErrorCode::DROPPED);
    }
}

/// Counts a stream as open while one of its halves lives.
#[derive(Debug)]
pub(super) struct StreamToken {
    shared: Arc<Shared>,
}

impl StreamToken {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        shared.counters.streams_open.fetch_add(1, Relaxed);
        shared.counters.streams_total.fetch_add(1, Relaxed);
        Self { shared }
    }
}

impl Drop for StreamToken {
    fn drop(&mut self) {
        self.shared.counters.streams_open.fetch_sub(1, Relaxed);
    }
}
