//! What a task reads.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use thalweg_transport::{
    exchange::{self, ExchangeError, InputGate, RecordReader},
    proto::PartitionId,
};

use super::{
    TaskError, cancellation::Cancellation, controls::Controls, exchange_error::task_error,
    pace::Pace,
};

/// One input of a task: the records of all its channels, one channel for each producer.
pub struct Input {
    reader: RecordReader,
    index: usize,
    channels: Vec<ChannelName>,
    records: u64,
    /// What others see of `records`; this input alone writes it.
    published: Arc<AtomicU64>,
    cancellation: Cancellation,
    pace: Pace,
}

/// Which partition is behind a channel, for messages.
#[derive(Debug, Clone)]
pub(crate) struct ChannelName {
    pub(crate) partition: PartitionId,
    /// Partition and TaskManager, in words.
    pub(crate) text: String,
}

impl Input {
    pub(crate) fn new(
        gate: InputGate,
        index: usize,
        channels: Vec<ChannelName>,
        published: Arc<AtomicU64>,
        controls: &Controls,
    ) -> Self {
        Self {
            reader: RecordReader::new(gate),
            index,
            channels,
            records: 0,
            published,
            cancellation: controls.cancellation.clone(),
            pace: controls.pace,
        }
    }

    /// The next record and the index of its channel; `None` when every channel has ended.
    ///
    /// Records of one channel come in the order in which they were written; the channels take turns buffer by buffer.
    /// A record keeps the network buffer that it lies in out of use until it is dropped: keep copies, not records.
    ///
    /// # Errors
    /// [`TaskError::cancelled`] when the task was told to stop; kind
    /// [`Partition`](crate::job::FailureKind::Partition) if a producer failed or a partition is not there,
    /// [`Transport`](crate::job::FailureKind::Transport) if the way to it is lost. The first error stays.
    ///
    /// # Cancel safety
    /// Cancel-safe: nothing is lost.
    pub async fn next(&mut self) -> Result<Option<(usize, Bytes)>, TaskError> {
        loop {
            self.cancellation.check()?;
            if self.pace.turn_is_over() {
                tokio::task::yield_now().await;
            }
            let ready = match self.reader.try_next() {
                Ok(Some(item)) => Ok(item),
                Ok(None) => self.cancellation.run(self.reader.next()).await?,
                Err(error) => Err(error),
            };
            match ready.map_err(|error| self.failed(&error))? {
                None => return Ok(None),
                Some((channel, exchange::Input::Record(record))) => {
                    self.records += 1;
                    self.pace.count(record.len());
                    self.published.store(self.records, Ordering::Relaxed);
                    return Ok(Some((channel, record)));
                }
                // Events of the engine steer the gate; there is none that user code has to see.
                Some((_, exchange::Input::Event(_))) => {}
            }
        }
    }

    /// Number of channels: one for each producer.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    fn failed(&self, error: &ExchangeError) -> TaskError {
        if self.cancellation.is_cancelled() {
            return TaskError::cancelled();
        }
        let failed = partition_of(error);
        let mut channels = self.channels.iter();
        match channels.find(|channel| Some(channel.partition) == failed) {
            Some(channel) => task_error(error, &format!("input {}, {}", self.index, channel.text)),
            None => task_error(error, &format!("input {}", self.index)),
        }
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input")
            .field("index", &self.index)
            .field("channels", &self.channels.len())
            .field("records", &self.records)
            .finish_non_exhaustive()
    }
}

fn partition_of(error: &ExchangeError) -> Option<PartitionId> {
    match error {
        ExchangeError::PartitionNotFound { partition }
        | ExchangeError::ProducerFailed { partition, .. }
        | ExchangeError::Protocol { partition, .. }
        | ExchangeError::Internal { partition, .. }
        | ExchangeError::Subpartition { partition, .. } => Some(*partition),
        _ => None,
    }
}
