//! Sending what a producer has serialized itself: its own bytes, or a buffer filled in place.

use bytes::Bytes;

use super::{PartitionWriter, Target};
use crate::exchange::{BufferMut, ExchangeError};

impl PartitionWriter {
    /// Sends bytes that the caller owns, without a copy: cut into buffers, none of which holds anything else. Each is as
    /// long as the consumer wants buffers to be. What is sent is taken from the front of `bytes`, which are empty in the
    /// end.
    ///
    /// For engines that serialize into memory of their own. The consumer takes the pieces from its
    /// [`InputGate`](crate::exchange::InputGate) as they were cut; a [`RecordReader`](crate::exchange::RecordReader) reads records only. Each
    /// piece takes the place of a buffer of the partition's pool until the transport needs it no more, so that a slow
    /// consumer holds the writer back as with records. Empty bytes send nothing.
    ///
    /// ```
    /// # use thalweg_transport::{TransportConfig, exchange::{BufferPool, ResultPartition}, proto};
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// # let pool = BufferPool::new(&TransportConfig::default());
    /// # let (id, attempt) = (proto::PartitionId::new(1, 0), proto::ExecutionAttemptId(1));
    /// # let partition = ResultPartition::pipelined(id, attempt, 1, &pool)?;
    /// # let mut writer = partition.writer()?;
    /// let mut block = bytes::Bytes::from(vec![7; 1000]);
    /// writer.emit_bytes(0, &mut block).await?;
    /// assert!(block.is_empty());
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(run()).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`emit`](Self::emit), without a limit of length.
    ///
    /// # Cancel safety
    /// Cancel-safe: after a dropped call `bytes` are what was not sent, and another call goes on with them.
    pub async fn emit_bytes(
        &mut self,
        subpartition: usize,
        bytes: &mut Bytes,
    ) -> Result<(), ExchangeError> {
        while !self.try_emit_bytes(subpartition, bytes)? {
            // Nothing else takes it before it is used.
            self.spare = Some(self.request().await?);
        }
        Ok(())
    }

    /// As [`emit_bytes`](Self::emit_bytes) as far as no wait is needed; `false` means that `bytes` are not empty yet.
    ///
    /// # Errors
    /// As [`emit_bytes`](Self::emit_bytes).
    pub fn try_emit_bytes(
        &mut self,
        subpartition: usize,
        bytes: &mut Bytes,
    ) -> Result<bool, ExchangeError> {
        let target = self.check(Target::One(subpartition), &[])?;
        self.push_both(subpartition);
        while !bytes.is_empty() {
            let Some(place) = self.try_request()? else {
                return Ok(false);
            };
            let size = self.size_for(target, 1);
            let piece = bytes.split_to(bytes.len().min(size));
            self.push(target, place.stand_for(piece));
        }
        Ok(true)
    }

    /// Waits for an empty buffer of the partition's pool, to be filled in place and sent by
    /// [`emit_buffer`](Self::emit_buffer). It takes as much as the consumer of the subpartition wants buffers to hold.
    /// Dropping it gives it back.
    ///
    /// # Errors
    /// [`ExchangeError::Buffers`], [`ExchangeError::Subpartition`] for a wrong index, and
    /// [`ExchangeError::InvalidState`] as [`emit`](Self::emit).
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub async fn request_buffer(
        &mut self,
        subpartition: usize,
    ) -> Result<BufferMut, ExchangeError> {
        let target = self.check(Target::One(subpartition), &[])?;
        let mut buffer = self.request().await?;
        buffer.limit_to(self.size_for(target, 1));
        Ok(buffer)
    }

    /// Sends a filled buffer, as [`emit_bytes`](Self::emit_bytes) does. An empty one goes back to its pool.
    ///
    /// # Errors
    /// [`ExchangeError::Subpartition`] for a wrong index, [`ExchangeError::InvalidState`] as [`emit`](Self::emit), and
    /// for a buffer of another pool than the partition's: it would be in nobody's account there, and may be longer than
    /// what readers of this partition expect.
    pub fn emit_buffer(
        &mut self,
        subpartition: usize,
        buffer: BufferMut,
    ) -> Result<(), ExchangeError> {
        let target = self.check(Target::One(subpartition), &[])?;
        if !self.partition.pool().owns(&buffer) {
            return Err(self.invalid("the buffer belongs to another pool"));
        }
        self.push_both(subpartition);
        if !buffer.is_empty() {
            self.push(target, buffer.freeze());
        }
        Ok(())
    }
}
