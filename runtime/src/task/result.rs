//! The result that a task hands to its job.

use std::fmt;

use bytes::{Bytes, BytesMut};
use thalweg_transport::BoxFuture;

use super::{TaskError, cancellation::Cancellation};

/// Collects a task's part of the job's result. The parts of all tasks are published together when the job is finished,
/// in the order of vertices and subtasks; those of a failed attempt never are.
pub struct ResultWriter {
    sink: Box<dyn ResultSink>,
    pending: BytesMut,
    sequence: u32,
    cancellation: Cancellation,
}

/// Who takes the pieces.
pub(crate) trait ResultSink: Send {
    /// Takes a piece; the answer comes when it is safe there.
    fn send(&self, sequence: u32, piece: Bytes) -> BoxFuture<'static, Result<(), TaskError>>;
}

impl ResultWriter {
    pub(crate) fn new(sink: Box<dyn ResultSink>, cancellation: Cancellation) -> Self {
        Self {
            sink,
            pending: BytesMut::new(),
            sequence: 0,
            cancellation,
        }
    }

    /// Appends to the result. Waits for the JobMaster whenever 1 MiB has come together.
    ///
    /// # Errors
    /// [`TaskError::cancelled`] when the task was told to stop; the JobMaster cannot be reached, or refuses a result
    /// that is too large.
    ///
    /// # Cancel safety
    /// **Not** cancel-safe: of a dropped call any part may be written.
    pub async fn write(&mut self, mut bytes: &[u8]) -> Result<(), TaskError> {
        self.cancellation.check()?;
        while !bytes.is_empty() {
            let take = bytes.len().min(PIECE_BYTES - self.pending.len());
            self.pending.extend_from_slice(&bytes[..take]);
            bytes = &bytes[take..];
            if self.pending.len() == PIECE_BYTES {
                self.send_pending().await?;
            }
        }
        Ok(())
    }

    /// Hands over what is left. Called by the task's runner after its code has ended well.
    pub(crate) async fn finish(&mut self) -> Result<(), TaskError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.send_pending().await
    }

    async fn send_pending(&mut self) -> Result<(), TaskError> {
        let piece = self.pending.split().freeze();
        let sent = self.sink.send(self.sequence, piece);
        self.cancellation.run(sent).await??;
        self.sequence = self.sequence.checked_add(1).ok_or_else(|| {
            TaskError::permanent("the result has more pieces than can be numbered")
        })?;
        Ok(())
    }
}

impl fmt::Debug for ResultWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResultWriter")
            .field("sent", &self.sequence)
            .field("pending", &self.pending.len())
            .finish_non_exhaustive()
    }
}

/// A piece fits into an RPC frame of any allowed configuration but the smallest, and costs little to hold twice.
const PIECE_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Collected(Arc<Mutex<Vec<(u32, usize)>>>);

    impl ResultSink for Collected {
        fn send(&self, sequence: u32, piece: Bytes) -> BoxFuture<'static, Result<(), TaskError>> {
            self.0.lock().unwrap().push((sequence, piece.len()));
            Box::pin(std::future::ready(Ok(())))
        }
    }

    #[tokio::test]
    async fn pieces_are_numbered_and_no_longer_than_a_mebibyte() {
        let collected = Collected::default();
        let mut writer = ResultWriter::new(Box::new(collected.clone()), Cancellation::default());
        writer.write(&vec![7; PIECE_BYTES - 1]).await.unwrap();
        writer.write(&[1, 2]).await.unwrap();
        writer.write(&vec![7; 2 * PIECE_BYTES]).await.unwrap();
        writer.finish().await.unwrap();
        writer.finish().await.unwrap();
        assert_eq!(
            *collected.0.lock().unwrap(),
            [(0, PIECE_BYTES), (1, PIECE_BYTES), (2, PIECE_BYTES), (3, 1)]
        );
    }

    #[tokio::test]
    async fn a_cancelled_task_writes_no_more() {
        let (collected, cancellation) = (Collected::default(), Cancellation::default());
        let mut writer = ResultWriter::new(Box::new(collected), cancellation.clone());
        cancellation.cancel();
        assert!(writer.write(b"x").await.unwrap_err().is_cancelled());
    }
}
