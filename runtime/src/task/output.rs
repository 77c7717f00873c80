//! What a task writes.

use std::fmt;

use thalweg_transport::exchange::{ExchangeError, PartitionWriter};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    TaskError, cancellation::Cancellation, controls::Controls, exchange_error::task_error,
    pace::Pace,
};
use crate::{gateways::PartitionKey, job::Distribution};

/// One output of a task: records for the consumers of one edge of the job's graph.
///
/// A record is sent when its buffer of 32 KiB is full, at [`flush`](Self::flush), before the writer waits for memory,
/// and at the task's end. A task that is slow and wants to be heard at once flushes.
pub struct Output {
    writer: PartitionWriter,
    key: PartitionKey,
    router: Router,
    cancellation: Cancellation,
    pace: Pace,
}

impl Output {
    pub(crate) fn new(
        writer: PartitionWriter,
        key: PartitionKey,
        distribution: Distribution,
        controls: &Controls,
    ) -> Self {
        let consumers = writer.partition().subpartition_count();
        Self {
            router: Router::new(distribution, consumers, key.producer.subtask),
            writer,
            key,
            cancellation: controls.cancellation.clone(),
            pace: controls.pace,
        }
    }

    /// Writes a record to the consumer that the edge's distribution says: round robin that begins at this subtask's
    /// number (rebalance), the record's hash (hash), the one consumer (forward), all of them (broadcast).
    ///
    /// # Errors
    /// [`TaskError::cancelled`] when the task was told to stop; a record above 1 GiB; a failure of the partition.
    ///
    /// # Cancel safety
    /// **Not** cancel-safe: a dropped call may leave half a record, after which the output refuses all others.
    pub async fn emit(&mut self, record: &[u8]) -> Result<(), TaskError> {
        self.emit_keyed(record, record).await
    }

    /// As [`emit`](Self::emit); a hash distribution looks at `key` alone: records with equal keys meet at the same
    /// consumer, whichever subtask wrote them (`xxh3_64(key) % consumers`).
    ///
    /// # Errors
    /// As [`emit`](Self::emit).
    ///
    /// # Cancel safety
    /// As [`emit`](Self::emit).
    pub async fn emit_keyed(&mut self, key: &[u8], record: &[u8]) -> Result<(), TaskError> {
        match self.router.target(key) {
            Some(target) => self.emit_to(target, record).await,
            None => self.broadcast(record).await,
        }
    }

    /// Writes a record to one consumer, whatever the distribution is.
    ///
    /// # Errors
    /// As [`emit`](Self::emit); there is no such consumer.
    ///
    /// # Cancel safety
    /// As [`emit`](Self::emit).
    pub async fn emit_to(&mut self, consumer: usize, record: &[u8]) -> Result<(), TaskError> {
        self.begin(record).await?;
        let written = match self.writer.try_emit(consumer, record) {
            Ok(true) => return Ok(()),
            Ok(false) => {
                let emit = self.writer.emit(consumer, record);
                self.cancellation.run(emit).await?
            }
            Err(error) => Err(error),
        };
        written.map_err(|error| self.failed(&error))
    }

    /// Writes a record to every consumer.
    ///
    /// # Errors
    /// As [`emit`](Self::emit).
    ///
    /// # Cancel safety
    /// As [`emit`](Self::emit).
    pub async fn broadcast(&mut self, record: &[u8]) -> Result<(), TaskError> {
        self.begin(record).await?;
        let written = self.cancellation.run(self.writer.broadcast(record)).await?;
        written.map_err(|error| self.failed(&error))
    }

    /// Sends what is written.
    pub fn flush(&mut self) {
        self.writer.flush();
    }

    /// Number of consumers.
    #[must_use]
    pub fn consumers(&self) -> usize {
        self.router.consumers
    }

    /// Whether every consumer is gone, so that nobody will read what is written.
    #[must_use]
    pub fn is_unwanted(&self) -> bool {
        self.writer.partition().is_released()
    }

    /// Ends it well: sends what is written and the end, and waits until it is where its consumers find it, which for a
    /// blocking exchange is the disk.
    ///
    /// # Cancel safety
    /// Cancel-safe: what is written goes its way.
    pub(crate) async fn finish(self) -> Result<(), TaskError> {
        let name = name(self.key);
        let partition = self.writer.partition().clone();
        let finished = match self.writer.finish() {
            Ok(()) => self.cancellation.run(partition.finished()).await?,
            Err(error) => Err(error),
        };
        finished.map_err(|error| task_error(&error, &name))
    }

    /// Ends it with an error that every consumer hears.
    pub(crate) fn fail(self, cause: &str) {
        self.writer.fail(cause);
    }

    async fn begin(&mut self, record: &[u8]) -> Result<(), TaskError> {
        self.cancellation.check()?;
        if self.pace.turn_is_over() {
            tokio::task::yield_now().await;
        }
        self.pace.count(record.len());
        Ok(())
    }

    fn failed(&self, error: &ExchangeError) -> TaskError {
        if self.cancellation.is_cancelled() {
            return TaskError::cancelled();
        }
        task_error(error, &name(self.key))
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output")
            .field("partition", &self.key)
            .field("router", &self.router)
            .finish_non_exhaustive()
    }
}

fn name(key: PartitionKey) -> String {
    format!("output {}, partition {key}", key.output)
}

/// Chooses consumers. Pure.
#[derive(Debug)]
struct Router {
    distribution: Distribution,
    consumers: usize,
    /// The next one in turn.
    next: usize,
}

impl Router {
    fn new(distribution: Distribution, consumers: usize, subtask: u32) -> Self {
        Self {
            distribution,
            consumers,
            next: subtask as usize % consumers.max(1),
        }
    }

    /// The consumer of a record with this key, or `None` for all of them.
    fn target(&mut self, key: &[u8]) -> Option<usize> {
        match self.distribution {
            Distribution::Forward => Some(0),
            Distribution::Broadcast => None,
            Distribution::Hash => Some(self.bucket(key)),
            Distribution::Rebalance => {
                let target = self.next;
                self.next = if target + 1 == self.consumers {
                    0
                } else {
                    target + 1
                };
                Some(target)
            }
        }
    }

    fn bucket(&self, key: &[u8]) -> usize {
        let bucket = xxh3_64(key) % (self.consumers.max(1) as u64);
        usize::try_from(bucket).expect("less than the number of consumers, which is a usize")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rebalance_takes_turns_from_the_subtasks_own_number_on() {
        let mut router = Router::new(Distribution::Rebalance, 3, 5);
        let targets: Vec<_> = (0..5).map(|_| router.target(b"x")).collect();
        assert_eq!(targets, [2, 0, 1, 2, 0].map(Some));
    }

    #[test]
    fn hash_depends_on_the_key_alone() {
        let mut one = Router::new(Distribution::Hash, 7, 0);
        let mut other = Router::new(Distribution::Hash, 7, 3);
        let mut seen = std::collections::BTreeSet::new();
        for key in 0_u32..1000 {
            let key = key.to_le_bytes();
            let target = one.target(&key);
            assert_eq!(target, other.target(&key));
            assert_eq!(target, Some((xxh3_64(&key) % 7) as usize));
            seen.extend(target);
        }
        assert_eq!(seen.len(), 7, "every consumer gets some");
    }

    #[test]
    fn forward_has_one_consumer_and_broadcast_all() {
        assert_eq!(
            Router::new(Distribution::Forward, 1, 4).target(b""),
            Some(0)
        );
        assert_eq!(Router::new(Distribution::Broadcast, 4, 0).target(b""), None);
    }
}
