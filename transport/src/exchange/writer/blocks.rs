//! Sending what a producer has serialized itself: its own bytes, or a buffer filled in place.

use bytes::Bytes;

use super::{PartitionWriter, Target, WriterState};
use crate::exchange::{BufferMut, ExchangeError};

impl PartitionWriter {
    /// Sends bytes that the caller owns, without a copy: cut into buffers, none of which holds anything else.
    ///
    /// For engines that serialize into memory of their own. The consumer takes the pieces from its
    /// [`InputGate`](crate::exchange::InputGate) as they were cut; a [`RecordReader`](crate::exchange::RecordReader) reads records only. Each
    /// piece takes the place of a buffer of the partition's pool until the transport needs it no more, so that a slow
    /// consumer holds the writer back as with records. Empty bytes send nothing.
    ///
    /// # Errors
    /// As [`emit`](Self::emit), without a limit of length.
    ///
    /// # Cancel safety
    /// Cancel-safe for bytes of at most one buffer; a dropped call with more may leave a part of them, after which the
    /// writer refuses everything but `fail`.
    pub async fn emit_bytes(
        &mut self,
        subpartition: usize,
        mut bytes: Bytes,
    ) -> Result<(), ExchangeError> {
        self.check(Target::One(subpartition), &[])?;
        self.push_both(subpartition);
        while !bytes.is_empty() {
            let size = self.size_for(Target::One(subpartition), 1);
            let place = self.request().await?;
            let piece = bytes.split_to(bytes.len().min(size));
            self.state = WriterState::Torn;
            self.push(Target::One(subpartition), place.stand_for(piece));
        }
        self.state = WriterState::Open;
        Ok(())
    }

    /// As [`emit_bytes`](Self::emit_bytes) for at most one buffer, if no wait is needed; otherwise `false`, and nothing
    /// was sent.
    ///
    /// # Errors
    /// As [`emit_bytes`](Self::emit_bytes), and [`ExchangeError::TooLarge`] for more bytes than a buffer takes.
    pub fn try_emit_bytes(
        &mut self,
        subpartition: usize,
        bytes: &Bytes,
    ) -> Result<bool, ExchangeError> {
        self.check(Target::One(subpartition), &[])?;
        let limit = self.partition.pool().buffer_bytes();
        if bytes.len() > limit {
            return Err(ExchangeError::TooLarge {
                what: "buffer",
                bytes: bytes.len() as u64,
                limit: limit as u64,
            });
        }
        self.push_both(subpartition);
        if bytes.is_empty() {
            return Ok(true);
        }
        let Some(place) = self.try_request()? else {
            return Ok(false);
        };
        self.push(Target::One(subpartition), place.stand_for(bytes.clone()));
        Ok(true)
    }

    /// Waits for an empty buffer of the partition's pool, to be filled in place and sent by
    /// [`emit_buffer`](Self::emit_buffer). Dropping it gives it back.
    ///
    /// # Errors
    /// [`ExchangeError::Buffers`], and [`ExchangeError::InvalidState`] as [`emit`](Self::emit).
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub async fn request_buffer(&mut self) -> Result<BufferMut, ExchangeError> {
        self.check_open()?;
        self.request().await
    }

    /// Sends a filled buffer, as [`emit_bytes`](Self::emit_bytes) does. An empty one goes back to its pool.
    ///
    /// # Errors
    /// [`ExchangeError::Subpartition`] for a wrong index, [`ExchangeError::InvalidState`] as [`emit`](Self::emit).
    pub fn emit_buffer(
        &mut self,
        subpartition: usize,
        buffer: BufferMut,
    ) -> Result<(), ExchangeError> {
        self.check(Target::One(subpartition), &[])?;
        self.push_both(subpartition);
        if !buffer.is_empty() {
            self.push(Target::One(subpartition), buffer.freeze());
        }
        Ok(())
    }
}
