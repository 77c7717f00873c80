//! The two halves of a stream.

use std::{
    fmt,
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;

use super::{connection::Handle, shared::State};
use crate::{
    error::{ErrorCode, StreamError},
    landing::{Landed, SharedLanding, YIELD_BYTES, land_one},
    proto::mux::{Key, Read},
    stream::write_now,
    transport::{RecvStream, SendStream},
};

/// The sending half of a stream of a [`TcpConnection`](super::TcpConnection).
pub struct TcpSendStream {
    handle: Arc<Handle>,
    key: Key,
}

/// The receiving half of a stream of a [`TcpConnection`](super::TcpConnection).
pub struct TcpRecvStream {
    handle: Arc<Handle>,
    key: Key,
}

/// Both halves of a stream that was opened or accepted.
pub(super) fn halves(handle: &Arc<Handle>, key: Key) -> (TcpSendStream, TcpRecvStream) {
    (
        TcpSendStream {
            handle: handle.clone(),
            key,
        },
        TcpRecvStream {
            handle: handle.clone(),
            key,
        },
    )
}

impl SendStream for TcpSendStream {
    async fn write(&mut self, chunks: &mut [Bytes]) -> Result<(), StreamError> {
        poll_fn(|cx| {
            self.handle.shared.with(|state| {
                state.check_end()?;
                if state.mux.write(self.key, chunks)? {
                    return Poll::Ready(Ok(()));
                }
                state.wait_writable(self.key, cx);
                Poll::Pending
            })
        })
        .await
    }

    fn try_write(&mut self, chunks: &mut [Bytes]) -> Result<bool, StreamError> {
        write_now(self, chunks)
    }

    fn finish(&mut self) -> Result<(), StreamError> {
        self.handle.shared.with(|state| {
            state.check_end()?;
            state.mux.finish(self.key)
        })
    }

    fn reset(&mut self, code: ErrorCode) {
        self.handle
            .shared
            .with(|state| state.mux.reset(self.key, code));
    }

    fn set_priority(&mut self, priority: i32) {
        self.handle
            .shared
            .with(|state| state.mux.set_priority(self.key, priority));
    }

    async fn stopped(&mut self) -> Result<Option<ErrorCode>, StreamError> {
        poll_fn(|cx| {
            self.handle.shared.with(|state| {
                // What is known already stays true after the connection's end.
                if let Some(outcome) = state.mux.outcome(self.key)? {
                    return Poll::Ready(Ok(outcome));
                }
                state.check_end()?;
                state.wait_writable(self.key, cx);
                Poll::Pending
            })
        })
        .await
    }
}

impl Drop for TcpSendStream {
    fn drop(&mut self) {
        self.handle
            .shared
            .with(|state| state.mux.drop_sender(self.key));
    }
}

impl fmt::Debug for TcpSendStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpSendStream").finish_non_exhaustive()
    }
}

impl RecvStream for TcpRecvStream {
    async fn read(&mut self, max: usize) -> Result<Option<Bytes>, StreamError> {
        poll_fn(|cx| {
            self.handle.shared.with(|state| {
                let read = state.poll_read(self.key, max, cx);
                read.map(|read| {
                    read.map(|read| match read {
                        Read::Chunk(chunk) => Some(chunk),
                        Read::End | Read::Blocked => None,
                    })
                })
            })
        })
        .await
    }

    async fn read_chunks(&mut self, chunks: &mut [Bytes]) -> Result<Option<usize>, StreamError> {
        let Some((first, rest)) = chunks.split_first_mut() else {
            return Ok(Some(0));
        };
        poll_fn(|cx| {
            self.handle.shared.with(|state| {
                match std::task::ready!(state.poll_read(self.key, usize::MAX, cx))? {
                    Read::Chunk(chunk) => *first = chunk,
                    Read::End | Read::Blocked => return Poll::Ready(Ok(None)),
                }
                let mut filled = 1;
                for slot in &mut *rest {
                    // The end, or an error, is for the next call.
                    match state.mux.read(self.key, usize::MAX) {
                        Ok(Read::Chunk(chunk)) => *slot = chunk,
                        _ => break,
                    }
                    filled += 1;
                }
                Poll::Ready(Ok(Some(filled)))
            })
        })
        .await
    }

    async fn land(&mut self, landing: &SharedLanding) -> Result<Landed, StreamError> {
        let _place = LandingPlace(self);
        let mut since_yield = 0;
        loop {
            let step = poll_fn(|cx| {
                self.handle
                    .shared
                    .with(|state| state.poll_land(self.key, landing, cx))
            });
            match step.await? {
                Step::Chunk(chunk) => {
                    since_yield += chunk.len();
                    if !land_one(landing, &chunk) {
                        return Ok(Landed::Paused);
                    }
                }
                Step::Landed(landed) => return Ok(landed),
            }
            if since_yield >= YIELD_BYTES {
                since_yield = 0;
                tokio::task::yield_now().await;
            }
        }
    }

    fn stop(&mut self, code: ErrorCode) {
        self.handle
            .shared
            .with(|state| state.mux.stop(self.key, code));
    }
}

impl Drop for TcpRecvStream {
    fn drop(&mut self) {
        self.handle
            .shared
            .with(|state| state.mux.drop_receiver(self.key));
    }
}

impl fmt::Debug for TcpRecvStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpRecvStream").finish_non_exhaustive()
    }
}

/// What a landing's own task does next.
enum Step {
    /// These bytes came before there was a place for them.
    Chunk(Bytes),
    Landed(Landed),
}

/// Nothing lands any more once the task that waits has left.
struct LandingPlace<'a>(&'a TcpRecvStream);

impl Drop for LandingPlace<'_> {
    fn drop(&mut self) {
        let stream = self.0;
        stream
            .handle
            .shared
            .with(|state| state.end_landing(stream.key));
    }
}

impl State {
    /// Gives what came before there was a place to land, then makes one, and waits.
    fn poll_land(
        &mut self,
        key: Key,
        landing: &SharedLanding,
        cx: &Context<'_>,
    ) -> Poll<Result<Step, StreamError>> {
        if self.end_landing(key) {
            return Poll::Ready(Ok(Step::Landed(Landed::Paused)));
        }
        match self.poll_read(key, usize::MAX, cx) {
            Poll::Ready(read) => Poll::Ready(read.map(|read| match read {
                Read::Chunk(chunk) => Step::Chunk(chunk),
                Read::End | Read::Blocked => Step::Landed(Landed::End),
            })),
            Poll::Pending => {
                self.set_landing(key, landing);
                Poll::Pending
            }
        }
    }

    /// The connection's end as a stream's error.
    fn check_end(&self) -> Result<(), StreamError> {
        match &self.end {
            Some(error) => Err(StreamError::Connection(error.clone())),
            None => Ok(()),
        }
    }

    /// What came before the connection's end is read first. Never gives [`Read::Blocked`].
    fn poll_read(
        &mut self,
        key: Key,
        max: usize,
        cx: &Context<'_>,
    ) -> Poll<Result<Read, StreamError>> {
        match self.mux.read(key, max) {
            Ok(Read::Blocked) => {
                self.check_end()?;
                self.wait_readable(key, cx);
                Poll::Pending
            }
            done => Poll::Ready(done),
        }
    }
}
