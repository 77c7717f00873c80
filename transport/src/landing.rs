//! Where the bytes of a stream go without a task of the stream's own being woken for them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::{error::StreamError, transport::RecvStream};

/// Takes the bytes of a stream as they come, see [`RecvStream::land`].
///
/// What a reader of bulk does with each portion is short: it parses a header, copies a payload. Where the backend has one
/// task that reads a connection, that task does it, and no other has to be woken for each portion (TCP with TLS, 8
/// streams: a wake-up and a read buffer less for every 32 KiB).
pub trait Landing: Send {
    /// Takes all of `bytes`, the next ones of the stream.
    ///
    /// Like [`hand_on`](Self::hand_on) it runs in a task of the network, which it holds up: it must not block. Of the
    /// transport it may call [`try_write`](crate::SendStream::try_write) alone.
    fn land(&mut self, bytes: &[u8]);

    /// Passes on what is whole: for now there is no more. `false` means that no more is wanted: `land` returns
    /// [`Landed::Paused`], and what comes waits in the stream.
    fn hand_on(&mut self) -> bool;
}

/// A landing that its stream's task shares with the backend.
pub type SharedLanding = Arc<Mutex<dyn Landing>>;

/// Why [`RecvStream::land`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landed {
    /// The landing wants no more for now.
    Paused,
    /// The peer finished, and everything has landed.
    End,
}

/// [`RecvStream::land`] by reading, for backends without a better way.
pub(crate) async fn land_by_reading<R: RecvStream + ?Sized>(
    recv: &mut R,
    landing: &SharedLanding,
) -> Result<Landed, StreamError> {
    let mut chunks = [const { Bytes::new() }; CHUNKS];
    let mut since_yield = 0;
    while let Some(count) = recv.read_chunks(&mut chunks).await? {
        let goes_on = {
            let mut landing = lock(landing);
            for chunk in &mut chunks[..count] {
                let chunk = std::mem::take(chunk);
                since_yield += chunk.len();
                landing.land(&chunk);
            }
            landing.hand_on()
        };
        if !goes_on {
            return Ok(Landed::Paused);
        }
        if since_yield >= YIELD_BYTES {
            since_yield = 0;
            tokio::task::yield_now().await;
        }
    }
    Ok(Landed::End)
}

/// Hands one portion over; whether more is wanted.
pub(crate) fn land_one(landing: &SharedLanding, bytes: &[u8]) -> bool {
    let mut landing = lock(landing);
    landing.land(bytes);
    landing.hand_on()
}

fn lock(landing: &SharedLanding) -> MutexGuard<'_, dyn Landing + 'static> {
    landing.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Chunks per read: one wake-up for as many packets.
const CHUNKS: usize = 32;

/// Bulk gives way after so many bytes: without that, calls beside it wait milliseconds for tokio's co-operative budget.
pub(crate) const YIELD_BYTES: usize = 128 * 1024;
