//! The writing side of a blocking partition: gathers, and hands what it has gathered to the disk.

use std::{pin::pin, sync::Arc};

use bytes::Bytes;

use super::{
    core::BlockingCore,
    region::RegionWriter,
    sort_buffer::{SortBuffer, Target},
};
use crate::{
    exchange::{
        buffer::BufferMut,
        error::ExchangeError,
        io_manager::Operation,
        kind::{MAX_SORT_BUFFERS, MIN_SORT_BUFFERS},
        local_pool::LocalPool,
        spill_error::SpillError,
    },
    proto::DataType,
};

/// Fills a [`SortBuffer`] while the one before it is written.
#[derive(Debug)]
pub(in crate::exchange) struct BlockingWriter {
    core: Arc<BlockingCore>,
    pool: LocalPool,
    /// Buffers after which a region goes to the disk: half of what there may be, so that the other half can be filled.
    limit: usize,
    sorted: SortBuffer,
    spare: Option<BufferMut>,
    disk: Disk,
}

/// Who has the file.
#[derive(Debug)]
enum Disk {
    Idle(Box<RegionWriter>),
    /// Regions are on their way.
    Busy(Operation<Box<RegionWriter>>),
    /// One of them failed, which the partition knows or hears at the end.
    Gone,
}

impl Disk {
    /// Waits until nothing is on its way any more; for ever if nothing is.
    async fn settled(&mut self) {
        let Self::Busy(operation) = self else {
            return std::future::pending().await;
        };
        *self = match operation.done().await {
            Some(regions) => Self::Idle(regions),
            None => Self::Gone,
        };
    }
}

impl BlockingWriter {
    pub(super) fn new(core: Arc<BlockingCore>, pool: LocalPool, regions: RegionWriter) -> Self {
        Self {
            sorted: SortBuffer::new(core.subpartitions()),
            core,
            limit: (pool.max() / 2).clamp(1, MAX_SORT_BUFFERS),
            pool,
            spare: None,
            disk: Disk::Idle(Box::new(regions)),
        }
    }

    /// Takes a buffer that the partition's writer has waited for already.
    pub(in crate::exchange) fn lend(&mut self, buffer: &mut Option<BufferMut>) {
        if self.spare.is_none() {
            self.spare = buffer.take();
        }
    }

    /// Gathers a record if no wait is needed.
    pub(in crate::exchange) fn try_write(
        &mut self,
        target: Target,
        parts: [&[u8]; 2],
    ) -> Result<bool, ExchangeError> {
        self.make_way(target);
        let needed: usize = parts.iter().map(|part| part.len()).sum();
        let room = self.sorted.room();
        if needed > room {
            if needed - room > self.pool.buffer_bytes() {
                return Ok(false);
            }
            if self.spare.is_none() {
                self.core.check()?;
                self.spare = self.pool.try_request()?;
            }
            if self.spare.is_none() {
                return Ok(false);
            }
        }
        for mut part in parts {
            while !part.is_empty() {
                if self.sorted.room() == 0 {
                    let Some(buffer) = self.spare.take() else {
                        return Ok(false);
                    };
                    self.sorted.add_buffer(buffer);
                }
                part = &part[self.sorted.append(target, part)..];
            }
        }
        Ok(true)
    }

    /// Gathers a record. Dropped half way, it leaves half a record.
    pub(in crate::exchange) async fn write(
        &mut self,
        target: Target,
        parts: [&[u8]; 2],
    ) -> Result<(), ExchangeError> {
        for mut part in parts {
            while !part.is_empty() {
                self.make_way(target);
                if self.sorted.room() == 0 {
                    let buffer = self.request().await?;
                    self.sorted.add_buffer(buffer);
                }
                part = &part[self.sorted.append(target, part)..];
            }
        }
        Ok(())
    }

    /// Waits for a buffer, which may take until what is gathered is on disk.
    pub(in crate::exchange) async fn request(&mut self) -> Result<BufferMut, ExchangeError> {
        self.core.check()?;
        if let Some(buffer) = self.spare.take() {
            return Ok(buffer);
        }
        if let Some(buffer) = self.pool.try_request()? {
            return Ok(buffer);
        }
        let pool = self.pool.clone();
        let mut buffer = pin!(pool.request());
        loop {
            // With little gathered and more on its way it is better to wait than to write a small region.
            let is_busy = matches!(self.disk, Disk::Busy(_));
            if self.sorted.held() >= MIN_SORT_BUFFERS / 2 || !is_busy {
                self.hand_over();
            }
            tokio::select! {
                biased;
                buffer = &mut buffer => match buffer {
                    Ok(buffer) => return Ok(buffer),
                    Err(error) => {
                        // A pool that was closed says less than why it was.
                        self.core.check()?;
                        return Err(error.into());
                    }
                },
                () = self.disk.settled() => {}
            }
        }
    }

    /// Gathers a block of its own, whose memory is accounted for already.
    pub(in crate::exchange) fn push(&mut self, target: Target, data_type: DataType, bytes: Bytes) {
        self.make_way(target);
        self.sorted.append_piece(target, data_type, bytes);
    }

    /// Ends it: the partition can be read when everything is on disk.
    pub(in crate::exchange) fn finish(mut self) {
        self.hand_over();
        self.spare = None;
        let core = self.core.clone();
        match std::mem::replace(&mut self.disk, Disk::Gone) {
            Disk::Idle(regions) => core.finish(regions.finish()),
            Disk::Busy(operation) => {
                let lent = core.lend();
                self.core.io().spawn(async move {
                    // A failure has ended the partition already.
                    match operation.wait().await {
                        Ok(regions) => core.finish(regions.finish()),
                        Err(error) => core.fail(&error),
                    }
                    lent.done();
                });
            }
            Disk::Gone => core.fail(&SpillError::Closed),
        }
    }

    /// Hands over what cannot stand beside something for `target`, or is enough.
    fn make_way(&mut self, target: Target) {
        let is_full = self.sorted.held() >= self.limit && self.sorted.room() == 0;
        if is_full
            || self.sorted.has_entries_for(self.limit)
            || !self.sorted.accepts(target, self.limit)
        {
            self.hand_over();
        }
    }

    /// Gives what is gathered to the disk, behind what is on its way.
    fn hand_over(&mut self) {
        if self.sorted.is_empty() {
            return;
        }
        let empty = SortBuffer::new(self.core.subpartitions());
        let sorted = std::mem::replace(&mut self.sorted, empty);
        let before = std::mem::replace(&mut self.disk, Disk::Gone);
        let (core, lent) = (self.core.clone(), self.core.lend());
        self.disk = Disk::Busy(self.core.io().chain(async move {
            let mut regions = match before {
                Disk::Idle(regions) => regions,
                Disk::Busy(operation) => operation.wait().await.ok()?,
                Disk::Gone => return None,
            };
            let operation = core.io().submit(move |scratch| {
                let written = regions.write(&sorted, scratch);
                drop(sorted);
                written.map(|()| regions)
            });
            match operation.wait().await.flatten() {
                Ok(regions) => {
                    lent.done();
                    Some(regions)
                }
                Err(error) => {
                    core.fail(&error);
                    None
                }
            }
        }));
    }
}
