//! The in-memory transport with a fault: the halves of streams.

use std::mem;

use bytes::Bytes;
use thalweg_transport::{
    ErrorCode, RecvStream, SendStream, StreamError,
    mem::{MemRecvStream, MemSendStream},
};

use super::{fault::Fault, transport::Context};

/// [`MemSendStream`] with a fault.
#[derive(Debug)]
pub struct FaultySend {
    inner: MemSendStream,
    /// What [`Fault::FinishLosesTail`] holds back.
    tail: Bytes,
    context: Context,
}

impl FaultySend {
    pub(super) fn new(inner: MemSendStream, context: Context) -> Self {
        Self {
            inner,
            tail: Bytes::new(),
            context,
        }
    }

    /// Writes in pieces, each of which waits for the one window of all streams.
    async fn write_into_shared_window(&mut self, chunks: &mut [Bytes]) -> Result<(), StreamError> {
        for chunk in chunks {
            while !chunk.is_empty() {
                let piece = chunk.split_to(chunk.len().min(PIECE));
                let bytes = u32::try_from(piece.len()).expect("a piece is small");
                let permits = self.context.window.acquire_many(bytes).await;
                permits.expect("the window is never closed").forget();
                self.inner.write(&mut [piece]).await?;
            }
        }
        Ok(())
    }

    /// Sends what was held back, and holds back the last byte of a write of several.
    async fn write_without_tail(&mut self, chunks: &mut [Bytes]) -> Result<(), StreamError> {
        let mut held = mem::take(&mut self.tail);
        self.inner.write(std::slice::from_mut(&mut held)).await?;
        if let Some(last) = chunks.iter_mut().rev().find(|chunk| !chunk.is_empty())
            && last.len() > 1
        {
            self.tail = last.split_off(last.len() - 1);
        }
        self.inner.write(chunks).await
    }
}

impl SendStream for FaultySend {
    async fn write(&mut self, chunks: &mut [Bytes]) -> Result<(), StreamError> {
        if self.context.has(Fault::SharedWindow) {
            return self.write_into_shared_window(chunks).await;
        }
        if self.context.has(Fault::FinishLosesTail) {
            return self.write_without_tail(chunks).await;
        }
        if self.context.has(Fault::ReordersChunks) && chunks.len() > 1 {
            chunks.swap(0, 1);
        }
        match self.inner.write(chunks).await {
            Err(StreamError::Closed) if self.context.has(Fault::WritesAfterFinish) => Ok(()),
            written => written,
        }
    }

    fn try_write(&mut self, chunks: &mut [Bytes]) -> Result<bool, StreamError> {
        let own_ways = [
            Fault::SharedWindow,
            Fault::FinishLosesTail,
            Fault::ReordersChunks,
        ];
        if own_ways.into_iter().any(|fault| self.context.has(fault)) {
            return Ok(false);
        }
        self.inner.try_write(chunks)
    }

    fn finish(&mut self) -> Result<(), StreamError> {
        self.inner.finish()
    }

    fn reset(&mut self, code: ErrorCode) {
        if self.context.has(Fault::ResetCodeLost) {
            self.inner.reset(ErrorCode::INTERNAL);
        } else {
            self.inner.reset(code);
        }
    }

    fn set_priority(&mut self, priority: i32) {
        self.inner.set_priority(priority);
    }

    async fn stopped(&mut self) -> Result<Option<ErrorCode>, StreamError> {
        self.inner.stopped().await
    }
}

impl Drop for FaultySend {
    fn drop(&mut self) {
        if self.context.has(Fault::DropEndsCleanly) {
            // Fails where the stream is over already.
            let _ = self.inner.finish();
        }
    }
}

/// [`MemRecvStream`] with a fault.
#[derive(Debug)]
pub struct FaultyRecv {
    /// Always there until the half is dropped.
    inner: Option<MemRecvStream>,
    context: Context,
}

impl FaultyRecv {
    pub(super) fn new(inner: MemRecvStream, context: Context) -> Self {
        Self {
            inner: Some(inner),
            context,
        }
    }

    fn inner(&mut self) -> &mut MemRecvStream {
        self.inner.as_mut().expect("taken only by drop")
    }

    /// What every read does with what it got.
    async fn after_read<T>(
        &self,
        bytes: usize,
        read: Result<Option<T>, StreamError>,
    ) -> Result<Option<T>, StreamError> {
        if self.context.has(Fault::SharedWindow) {
            self.context.window.add_permits(bytes);
        }
        match read {
            Ok(Some(data)) if self.context.has(Fault::CancelledReadLosesBytes) => {
                tokio::task::yield_now().await;
                Ok(Some(data))
            }
            Err(StreamError::Reset { .. }) if self.context.has(Fault::ResetReadsAsEnd) => Ok(None),
            read => read,
        }
    }
}

impl RecvStream for FaultyRecv {
    async fn read(&mut self, max: usize) -> Result<Option<Bytes>, StreamError> {
        let max = if self.context.has(Fault::ChunkTooLarge) {
            max.saturating_add(1)
        } else {
            max
        };
        let read = self.inner().read(max).await;
        let bytes = read
            .as_ref()
            .ok()
            .and_then(Option::as_ref)
            .map_or(0, Bytes::len);
        self.after_read(bytes, read).await
    }

    async fn read_chunks(&mut self, chunks: &mut [Bytes]) -> Result<Option<usize>, StreamError> {
        let read = self.inner().read_chunks(chunks).await;
        let count = read.as_ref().ok().copied().flatten().unwrap_or(0);
        let bytes = chunks[..count].iter().map(Bytes::len).sum();
        self.after_read(bytes, read).await
    }

    fn stop(&mut self, code: ErrorCode) {
        if self.context.has(Fault::StopCodeLost) {
            self.inner().stop(ErrorCode::INTERNAL);
        } else {
            self.inner().stop(code);
        }
    }
}

impl Drop for FaultyRecv {
    fn drop(&mut self) {
        if self.context.has(Fault::DroppedReceiverKeepsQuiet) {
            mem::forget(self.inner.take());
        }
    }
}

/// Bytes that wait for the shared window at a time; less than the window has.
const PIECE: usize = 16 * 1024;
