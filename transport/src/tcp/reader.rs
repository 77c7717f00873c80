//! The task that reads a connection's socket, and watches over the peer's life.

use std::{collections::VecDeque, io, sync::Arc, time::Duration};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::shared::{Shared, TaskGuard};
use crate::proto::mux::Decoder;

/// Reads until the connection ends. Never waits for a consumer: what is read goes into the streams' queues, which their
/// windows bound.
pub(super) async fn run<R: AsyncRead + Unpin>(
    shared: Arc<Shared>,
    mut socket: R,
    idle_timeout: Duration,
) {
    let _guard = TaskGuard(shared.clone());
    let lost = tokio::select! {
        biased;
        () = shared.ended.cancelled() => None,
        lost = read(&shared, &mut socket, idle_timeout) => lost,
    };
    if let Some(error) = lost {
        shared.fail(error);
    }
    drain(&mut socket).await;
}

/// Why the connection was lost, or `None` if it ended otherwise.
async fn read<R: AsyncRead + Unpin>(
    shared: &Shared,
    socket: &mut R,
    idle_timeout: Duration,
) -> Option<io::Error> {
    let mut decoder = Decoder::new();
    let mut chunks = Chunks::default();
    let mut since_yield = 0;
    let timer = tokio::time::sleep(Duration::ZERO);
    tokio::pin!(timer);
    loop {
        let buffer = chunks.with_room();
        let read = tokio::select! {
            biased;
            () = &mut timer => {
                let wait = shared.check_liveness(idle_timeout);
                timer.as_mut().reset(tokio::time::Instant::from_std(crate::now() + wait));
                continue;
            }
            read = socket.read_buf(buffer) => read,
        };
        match read {
            Ok(0) if decoder.is_inside_frame() => {
                return Some(ended("the peer ended the connection inside a frame"));
            }
            Ok(0) => return Some(ended("the peer ended the connection without a close frame")),
            Ok(read) => {
                decoder.push(buffer.split().freeze());
                if !shared.receive(|| decoder.piece()) {
                    return None;
                }
                since_yield += read;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // rustls misses the close_notify that a process which dies cannot send.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Some(ended("the peer ended the connection without a goodbye"));
            }
            Err(error) => return Some(error),
        }
        if since_yield >= YIELD_BYTES {
            since_yield = 0;
            tokio::task::yield_now().await;
        }
    }
}

fn ended(how: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, how)
}

/// Read buffers. A few that consumers still hold slices of are kept, to be used again when the slices are gone: memory
/// that goes back to the allocator each time comes back cold, or with page faults.
#[derive(Debug, Default)]
struct Chunks {
    current: BytesMut,
    spare: VecDeque<BytesMut>,
}

impl Chunks {
    /// An empty buffer with room for a read.
    fn with_room(&mut self) -> &mut BytesMut {
        if self.current.capacity() < LEAST_ROOM_BYTES && !self.current.try_reclaim(CHUNK_BYTES) {
            let free = self
                .spare
                .iter_mut()
                .position(|spare| spare.try_reclaim(CHUNK_BYTES))
                .and_then(|at| self.spare.remove(at))
                .unwrap_or_else(|| BytesMut::with_capacity(CHUNK_BYTES));
            let used = std::mem::replace(&mut self.current, free);
            if self.spare.len() == MAX_SPARE_CHUNKS {
                self.spare.pop_front();
            }
            self.spare.push_back(used);
        }
        &mut self.current
    }
}

/// Reads and forgets, until the peer has ended its side too.
///
/// A socket that is closed with unread bytes sends a reset, which may overtake the CLOSE frame that the peer has not
/// read yet.
pub(super) async fn drain<R: AsyncRead + Unpin>(socket: &mut R) {
    let mut sink = BytesMut::with_capacity(LEAST_ROOM_BYTES);
    let drained = async {
        while socket.read_buf(&mut sink).await.is_ok_and(|read| read > 0) {
            sink.clear();
            tokio::task::yield_now().await;
        }
    };
    // A peer that goes on sending loses the goodbye, not more.
    let _ = tokio::time::timeout(LINGER, drained).await;
}

/// Read buffer: stays in the processor's cache (256 KiB ones halve the rate of a plain connection).
const CHUNK_BYTES: usize = 64 * 1024;

/// Kept per connection, 256 KiB: two turns of the reader.
const MAX_SPARE_CHUNKS: usize = 4;

/// One TLS record: rustls gives no more at once.
const LEAST_ROOM_BYTES: usize = 16 * 1024;

/// Without a pause here and there, calls beside bulk data wait milliseconds for tokio's co-operative budget.
const YIELD_BYTES: usize = 128 * 1024;

/// How long a connection at its end waits for the peer to hear of it.
pub(super) const LINGER: Duration = Duration::from_secs(1);
