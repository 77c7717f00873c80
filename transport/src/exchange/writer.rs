//! What a producing task holds: cuts records into buffers, one stream of bytes for each subpartition.

mod blocks;

use std::sync::{Arc, atomic::Ordering};

use bytes::Bytes;

use super::{
    blocking::{BlockingWriter, Target},
    buffer::BufferMut,
    error::ExchangeError,
    event::Event,
    partition::{PartitionSource, ResultPartition},
    subpartition::Subpartition,
};
use crate::proto::DataType;

/// Writes records and events into a [`ResultPartition`]. One task owns it, on any thread and runtime.
///
/// A record is its length (4 bytes, big endian) and its bytes; it may span buffers. A buffer goes to the consumer when
/// it is full, at [`flush`](Self::flush), before an event, and before the writer waits for memory, so that no consumer
/// waits for records that lie in an open buffer. Records of one subpartition keep their order, broadcast ones included.
///
/// A consumer may ask for smaller buffers; those begun afterwards count as full at that size (broadcast ones at the
/// smallest that is asked for), but never before they hold the record that they begin with.
///
/// Dropping it before [`finish`](Self::finish) fails the partition.
///
/// ```
/// use thalweg_transport::{
///     TransportConfig,
///     exchange::{BufferPool, Event, ResultPartition},
///     proto::{ExecutionAttemptId, PartitionId},
/// };
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = BufferPool::new(&TransportConfig::default());
/// let (id, attempt) = (PartitionId::new(1, 0), ExecutionAttemptId(1));
/// let partition = ResultPartition::pipelined(id, attempt, 2, &pool)?;
/// let mut writer = partition.writer()?;
/// writer.emit(0, b"for the first consumer").await?;
/// writer.broadcast(b"for both").await?;
/// writer.flush();
/// assert_eq!([0, 1].map(|index| partition.inflight(index).len()), [2, 1]);
///
/// writer.broadcast_event(Event::EndOfData)?;
/// writer.finish()?;
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(run()).unwrap();
/// ```
#[derive(Debug)]
pub struct PartitionWriter {
    partition: Arc<ResultPartition>,
    open: Box<[Option<BufferMut>]>,
    /// One buffer for all subpartitions; never open together with one of `open`.
    open_broadcast: Option<BufferMut>,
    /// What `ready` has waited for.
    spare: Option<BufferMut>,
    /// Of a blocking partition: takes everything, so that nothing is ever open here.
    blocking: Option<BlockingWriter>,
    state: WriterState,
}

impl PartitionWriter {
    pub(super) fn new(partition: Arc<ResultPartition>) -> Self {
        let blocking = partition.blocking_core().map(|core| core.writer());
        let open = partition.subpartitions().iter().map(|_| None).collect();
        Self {
            partition,
            open,
            open_broadcast: None,
            spare: None,
            blocking,
            state: WriterState::Open,
        }
    }

    /// The partition.
    #[must_use]
    pub fn partition(&self) -> &Arc<ResultPartition> {
        &self.partition
    }

    /// Waits until a buffer is there for the next record: for tasks that take input only while their output has room.
    /// The buffer stays with the writer until it is used.
    ///
    /// # Errors
    /// [`ExchangeError::Buffers`], and [`ExchangeError::InvalidState`] as [`emit`](Self::emit).
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub async fn ready(&mut self) -> Result<(), ExchangeError> {
        self.check_open()?;
        if self.spare.is_none() {
            self.spare = Some(self.request().await?);
        }
        Ok(())
    }

    /// Writes a record if no wait is needed; `false` means that nothing was written: use [`emit`](Self::emit).
    ///
    /// # Errors
    /// As [`emit`](Self::emit).
    pub fn try_emit(&mut self, subpartition: usize, record: &[u8]) -> Result<bool, ExchangeError> {
        let target = self.check(Target::One(subpartition), record)?;
        if let Some(blocking) = &mut self.blocking {
            blocking.lend(&mut self.spare);
            let written = blocking.try_write(target, [&prefix(record), record])?;
            if written {
                self.count_blocking(record);
            }
            return Ok(written);
        }
        self.switch_to(target);
        let needed = LENGTH_BYTES + record.len();
        let room = self.slot(target).as_ref().map_or(0, BufferMut::remaining);
        let mut fresh = None;
        if needed > room {
            let pool = self.partition.pool();
            if needed > room + pool.buffer_bytes() {
                return Ok(false);
            }
            let Some(mut buffer) = self.try_request()? else {
                return Ok(false);
            };
            buffer.limit_to(self.size_for(target, needed - room));
            fresh = Some(buffer);
        }
        for mut part in [&prefix(record)[..], record] {
            while !part.is_empty() {
                if self.slot(target).is_none() {
                    *self.slot(target) = fresh.take();
                }
                let Some(buffer) = self.slot(target) else {
                    return Ok(false);
                };
                part = &part[buffer.append(part)..];
                self.push_full(target);
            }
        }
        self.count_record();
        Ok(true)
    }

    /// Writes a record, waiting for memory if the consumers are slower.
    ///
    /// # Errors
    /// [`ExchangeError::TooLarge`] above [`MAX_RECORD_BYTES`], [`ExchangeError::Subpartition`] for a wrong index,
    /// [`ExchangeError::Buffers`] or the partition's failure, [`ExchangeError::InvalidState`] after `finish` or a
    /// dropped `emit`.
    ///
    /// # Cancel safety
    /// **Not** cancel-safe: a dropped emit may leave half a record, after which the writer refuses everything but `fail`.
    pub async fn emit(&mut self, subpartition: usize, record: &[u8]) -> Result<(), ExchangeError> {
        let target = self.check(Target::One(subpartition), record)?;
        self.write_record(target, record).await
    }

    /// Writes a record to every subpartition. Its buffers are shared, not copied, between them.
    ///
    /// # Errors
    /// As [`emit`](Self::emit).
    ///
    /// # Cancel safety
    /// As [`emit`](Self::emit).
    pub async fn broadcast(&mut self, record: &[u8]) -> Result<(), ExchangeError> {
        let target = self.check(Target::All, record)?;
        self.write_record(target, record).await
    }

    /// Makes what is written visible to the consumers.
    pub fn flush(&mut self) {
        self.push_open(Target::All);
        for index in 0..self.open.len() {
            self.push_open(Target::One(index));
        }
    }

    /// Sends an event to every subpartition, behind what was written.
    ///
    /// # Errors
    /// [`ExchangeError::TooLarge`], and [`ExchangeError::InvalidState`] as [`emit`](Self::emit);
    /// [`Event::EndOfPartition`] is sent by [`finish`](Self::finish) alone.
    pub fn broadcast_event(&mut self, event: Event) -> Result<(), ExchangeError> {
        self.check_open()?;
        if event == Event::EndOfPartition {
            return Err(self.invalid("the end of the partition is sent by finish"));
        }
        let (data_type, payload) = event.into_wire()?;
        self.check_overtaking(data_type)?;
        self.push_event(data_type, &payload);
        Ok(())
    }

    /// Sends a priority event to every subpartition, and gives the data buffers of each that it has overtaken there, in
    /// order: what was in flight. They are shared, not copied, and belong to the partition's pool until they are
    /// dropped. Records in open buffers are overtaken, too.
    ///
    /// # Errors
    /// As [`broadcast_event`](Self::broadcast_event); a blocking partition refuses, as nothing is in flight there.
    pub fn overtake(&mut self, event: &Bytes) -> Result<Vec<Vec<Bytes>>, ExchangeError> {
        self.check_open()?;
        let (_, event) = Event::Priority(event.clone()).into_wire()?;
        self.check_overtaking(DataType::PrioritizedEvent)?;
        self.flush();
        let subpartitions = self.partition.subpartitions().iter();
        Ok(subpartitions
            .map(|subpartition| subpartition.overtake(event.clone()))
            .collect())
    }

    /// Ends every subpartition after what was written. Data stays until it is consumed.
    ///
    /// # Errors
    /// As [`broadcast_event`](Self::broadcast_event).
    pub fn finish(mut self) -> Result<(), ExchangeError> {
        self.check_open()?;
        self.state = WriterState::Finished;
        match self.blocking.take() {
            Some(blocking) => blocking.finish(),
            None => self.push_event(DataType::EndOfPartition, &Bytes::new()),
        }
        Ok(())
    }

    /// Ends the partition with an error that every consumer hears.
    pub fn fail(mut self, cause: &str) {
        self.state = WriterState::Finished;
        self.drop_open();
        self.partition.fail(cause);
    }

    async fn write_record(&mut self, target: Target, record: &[u8]) -> Result<(), ExchangeError> {
        if let Some(blocking) = &mut self.blocking {
            self.state = WriterState::Torn;
            blocking.lend(&mut self.spare);
            blocking.write(target, [&prefix(record), record]).await?;
            self.state = WriterState::Open;
            self.count_blocking(record);
            return Ok(());
        }
        self.switch_to(target);
        self.state = WriterState::Torn;
        let mut begun = self.slot(target).is_some();
        let mut rest = LENGTH_BYTES + record.len();
        for mut part in [&prefix(record)[..], record] {
            while !part.is_empty() {
                if self.slot(target).is_none() {
                    // A long record is many buffers: without this it would hold up what shares the task's thread.
                    tokio::task::coop::consume_budget().await;
                    let mut buffer = match begun {
                        true => self.request_more().await?,
                        false => self.request().await?,
                    };
                    buffer.limit_to(self.size_for(target, rest));
                    *self.slot(target) = Some(buffer);
                    begun = true;
                }
                if let Some(buffer) = self.slot(target) {
                    let taken = buffer.append(part);
                    (part, rest) = (&part[taken..], rest - taken);
                }
                self.push_full(target);
            }
        }
        self.state = WriterState::Open;
        self.count_record();
        Ok(())
    }

    /// Bytes after which a buffer is finished: what the consumer asked for, but as much as `first`, the record that it
    /// begins with, if that is more.
    fn size_for(&self, target: Target, first: usize) -> usize {
        let wanted = match target {
            Target::One(index) => self
                .partition
                .subpartition(index)
                .and_then(Subpartition::buffer_size),
            Target::All => {
                let subpartitions = self.partition.subpartitions().iter();
                subpartitions.filter_map(Subpartition::buffer_size).min()
            }
        };
        let most = self.partition.pool().buffer_bytes();
        wanted.map_or(most, |bytes| (bytes as usize).max(first).min(most))
    }

    /// A wait ends only when consumers give buffers back, so they must see all that is written.
    async fn request(&mut self) -> Result<BufferMut, ExchangeError> {
        if let Some(buffer) = self.try_request()? {
            return Ok(buffer);
        }
        if let Some(blocking) = &mut self.blocking {
            return blocking.request().await;
        }
        let pool = self.partition.pool().clone();
        self.flush();
        Ok(pool.request().await?)
    }

    fn try_request(&mut self) -> Result<Option<BufferMut>, ExchangeError> {
        match self.spare.take() {
            Some(buffer) => Ok(Some(buffer)),
            None => {
                // A failure on disk has closed the pool, which would say less.
                if let Some(core) = self.partition.blocking_core() {
                    core.check()?;
                }
                Ok(self.partition.pool().try_request()?)
            }
        }
    }

    /// For the rest of a record. With the overdraft most records that span buffers are whole before the task waits.
    async fn request_more(&mut self) -> Result<BufferMut, ExchangeError> {
        match self.partition.pool().try_request_overdraft()? {
            Some(buffer) => Ok(buffer),
            None => self.request().await,
        }
    }

    fn check(&self, target: Target, record: &[u8]) -> Result<Target, ExchangeError> {
        self.check_open()?;
        if record.len() > MAX_RECORD_BYTES {
            return Err(ExchangeError::TooLarge {
                what: "record",
                bytes: record.len() as u64,
                limit: MAX_RECORD_BYTES as u64,
            });
        }
        match target {
            Target::One(index) if index >= self.partition.subpartition_count() => {
                Err(ExchangeError::Subpartition {
                    partition: self.partition.id(),
                    subpartition: u32::try_from(index).unwrap_or(u32::MAX),
                    reason: "there is no such subpartition",
                })
            }
            _ => Ok(target),
        }
    }

    fn check_open(&self) -> Result<(), ExchangeError> {
        match self.state {
            WriterState::Open => Ok(()),
            WriterState::Torn => Err(self.invalid("a write was dropped or failed half way")),
            WriterState::Finished => Err(self.invalid("it is finished")),
        }
    }

    /// What is on disk cannot be overtaken.
    fn check_overtaking(&self, data_type: DataType) -> Result<(), ExchangeError> {
        if self.blocking.is_some() && data_type == DataType::PrioritizedEvent {
            return Err(self.invalid("nothing overtakes what is written to a blocking partition"));
        }
        Ok(())
    }

    fn invalid(&self, reason: &'static str) -> ExchangeError {
        ExchangeError::InvalidState {
            what: format!("writer of partition {}", self.partition.id()),
            reason,
        }
    }

    /// Keeps the order between single and broadcast records.
    fn switch_to(&mut self, target: Target) {
        match target {
            Target::One(_) => self.push_open(Target::All),
            Target::All => {
                for index in 0..self.open.len() {
                    self.push_open(Target::One(index));
                }
            }
        }
    }

    fn slot(&mut self, target: Target) -> &mut Option<BufferMut> {
        match target {
            Target::One(index) => &mut self.open[index],
            Target::All => &mut self.open_broadcast,
        }
    }

    fn push_full(&mut self, target: Target) {
        if self
            .slot(target)
            .as_ref()
            .is_some_and(|buffer| buffer.remaining() == 0)
        {
            self.push_open(target);
        }
    }

    fn push_open(&mut self, target: Target) {
        let Some(buffer) = self.slot(target).take() else {
            return;
        };
        self.push(target, buffer.freeze());
    }

    /// What was written to a subpartition goes first, whether it was for it alone or for all.
    fn push_both(&mut self, subpartition: usize) {
        if self.blocking.is_some() {
            return;
        }
        self.push_open(Target::All);
        self.push_open(Target::One(subpartition));
    }

    fn push(&mut self, target: Target, payload: Bytes) {
        let counters = &self.partition.counters;
        counters.buffers.fetch_add(1, Ordering::Relaxed);
        counters
            .bytes
            .fetch_add(payload.len() as u64, Ordering::Relaxed);
        if let Some(blocking) = &mut self.blocking {
            return blocking.push(target, DataType::Data, payload);
        }
        match target {
            Target::One(index) => {
                if let Some(subpartition) = self.partition.subpartition(index) {
                    subpartition.push(DataType::Data, payload);
                }
            }
            Target::All => {
                for subpartition in self.partition.subpartitions() {
                    subpartition.push(DataType::Data, payload.clone());
                }
            }
        }
    }

    fn push_event(&mut self, data_type: DataType, payload: &Bytes) {
        if let Some(blocking) = &mut self.blocking {
            return blocking.push(Target::All, data_type, payload.clone());
        }
        self.flush();
        for subpartition in self.partition.subpartitions() {
            subpartition.push(data_type, payload.clone());
        }
    }

    fn drop_open(&mut self) {
        self.spare = None;
        self.blocking = None;
        self.open_broadcast = None;
        self.open.fill_with(|| None);
    }

    fn count_blocking(&self, record: &[u8]) {
        let bytes = (LENGTH_BYTES + record.len()) as u64;
        let counters = &self.partition.counters;
        counters.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.count_record();
    }

    fn count_record(&self) {
        self.partition
            .counters
            .records
            .fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for PartitionWriter {
    fn drop(&mut self) {
        if self.state != WriterState::Finished {
            self.drop_open();
            self.partition
                .fail("its writer was dropped before it was finished");
        }
        self.partition.on_user_gone();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriterState {
    Open,
    /// In the middle of a record.
    Torn,
    Finished,
}

fn prefix(record: &[u8]) -> [u8; LENGTH_BYTES] {
    u32::try_from(record.len())
        .expect("a record's length was checked against its limit")
        .to_be_bytes()
}

/// Bytes of the length before each record.
pub(super) const LENGTH_BYTES: usize = 4;

/// Longest record, at the writer and at the reader.
pub const MAX_RECORD_BYTES: usize = 1 << 30;
