//! The task that writes a connection's socket.

use std::{
    future::poll_fn,
    io::{self, IoSlice},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use bytes::BytesMut;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    time::timeout,
};

use super::{
    reader::LINGER,
    shared::{Shared, TaskGuard},
};
use crate::proto::mux::Batch;

/// How much the writer hands over at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batching {
    /// Bytes of a batch.
    pub(super) bytes: usize,
    /// A batch that the peer's side does not take within this time ends the connection.
    pub(super) timeout: Duration,
}

/// Two frames of 32 KiB: four full TLS records, and as much as rustls takes at once (its buffer limit is 64 KiB).
pub(super) const TLS_BATCH_BYTES: usize = 64 * 1024;

/// Plain TCP gains up to here.
pub(super) const PLAIN_BATCH_BYTES: usize = 256 * 1024;

/// Writes batches until the connection ends, then the goodbye if there is one.
pub(super) async fn run<W: AsyncWrite + Unpin>(
    shared: Arc<Shared>,
    mut socket: W,
    batching: Batching,
) {
    let _guard = TaskGuard(shared.clone());
    let mut batch = Batch::new();
    while poll_fn(|cx| shared.poll_batch(cx, &mut batch, batching.bytes)).await {
        let bytes = batch.len();
        match write_or_end(&shared, &mut socket, &mut batch, batching.timeout).await {
            Written::Whole => {}
            Written::Failed(error) => {
                // The peer may have said why before it went: the reader finds that.
                if timeout(LINGER, shared.ended.cancelled()).await.is_err() {
                    shared.fail(error);
                }
                return;
            }
            Written::TimedOut => {
                shared.time_out(format!("the peer did not read for {:?}", batching.timeout));
                return;
            }
            // A goodbye would be taken for the rest of the frame.
            Written::Cut => return,
        }
        if bytes >= BULK_BYTES {
            tokio::task::yield_now().await;
        }
    }
    let farewell = async {
        if let Some(goodbye) = shared.take_goodbye() {
            let mut bytes = BytesMut::new();
            goodbye.encode(&mut bytes);
            socket.write_all(&bytes).await?;
            socket.flush().await?;
        }
        socket.shutdown().await
    };
    if let Ok(Err(error)) = timeout(LINGER, farewell).await {
        tracing::trace!(peer = %shared.remote, %error, "goodbye not sent");
    }
}

enum Written {
    Whole,
    Failed(io::Error),
    TimedOut,
    /// The connection ended and the rest of the batch could not be written.
    Cut,
}

async fn write_or_end<W: AsyncWrite + Unpin>(
    shared: &Shared,
    socket: &mut W,
    batch: &mut Batch,
    limit: Duration,
) -> Written {
    let mut writing = pin!(write(socket, batch));
    let result = tokio::select! {
        biased;
        result = timeout(limit, &mut writing) => result.ok(),
        () = shared.ended.cancelled() => {
            return match timeout(LINGER, writing).await {
                Ok(Ok(())) => Written::Whole,
                _ => Written::Cut,
            };
        }
    };
    match result {
        Some(Ok(())) => Written::Whole,
        Some(Err(error)) => Written::Failed(error),
        None => Written::TimedOut,
    }
}

/// Writes a whole batch and flushes it: with TLS, leftovers in rustls' buffer would cut the next batch into short
/// records.
async fn write<W: AsyncWrite + Unpin>(socket: &mut W, batch: &mut Batch) -> io::Result<()> {
    while !batch.is_written() {
        let written = {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let filled = batch.slices(&mut slices);
            socket.write_vectored(&slices[..filled]).await?
        };
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        batch.advance(written);
    }
    socket.flush().await
}

/// Slices of one vectored write; a batch of full frames has two or three per frame.
const SLICES: usize = 64;

/// From here on a batch is bulk data, after which others have their turn.
const BULK_BYTES: usize = 16 * 1024;
