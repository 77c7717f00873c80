//! What a source and a sink do, without the exchange between them.

use super::{
    job::ShuffleConfig,
    record::{Checker, Generator},
};

/// The records of one source, sink after sink in turn.
#[derive(Debug)]
pub struct Source {
    sinks: Vec<(Generator, u64)>,
    next: usize,
    sent: u64,
    total: u64,
}

impl Source {
    /// The source of this index, of `parallelism`.
    #[must_use]
    pub fn new(config: &ShuffleConfig, index: u32, parallelism: u32) -> Self {
        let sinks: Vec<(Generator, u64)> = (0..parallelism)
            .map(|sink| {
                (
                    Generator::new(index, sink, config.record_bytes as usize),
                    config.records_between(index, sink, parallelism),
                )
            })
            .collect();
        let total = sinks.iter().map(|(_, records)| records).sum();
        Self {
            sinks,
            next: 0,
            sent: 0,
            total,
        }
    }

    /// Writes the next record into `record` and says for which sink it is; `None` after the last one.
    pub fn next_into(&mut self, record: &mut Vec<u8>) -> Option<u32> {
        for _ in 0..self.sinks.len() {
            let sink = self.next;
            self.next = (sink + 1) % self.sinks.len();
            let (generator, left) = &mut self.sinks[sink];
            if *left > 0 {
                *left -= 1;
                self.sent += 1;
                generator.next_into(record);
                return u32::try_from(sink).ok();
            }
        }
        None
    }

    /// How far it is, 0 to 10,000.
    #[must_use]
    pub fn progress(&self) -> u32 {
        crate::jobs::progress(self.sent, self.total)
    }
}

/// Checks what one sink receives.
#[derive(Debug)]
pub struct Sink {
    index: u32,
    record_bytes: u64,
    checker: Checker,
    expected: Vec<u64>,
}

impl Sink {
    /// The sink of this index, of `parallelism`.
    #[must_use]
    pub fn new(config: &ShuffleConfig, index: u32, parallelism: u32) -> Self {
        Self {
            index,
            record_bytes: u64::from(config.record_bytes),
            checker: Checker::new(index, parallelism as usize, config.record_bytes as usize),
            expected: (0..parallelism)
                .map(|source| config.records_between(source, index, parallelism))
                .collect(),
        }
    }

    /// Checks one record that came through a channel.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&mut self, channel: usize, record: &[u8]) -> Result<(), String> {
        self.checker.check(channel, record)
    }

    /// The line `sink<TAB>records<TAB>bytes` after the last record.
    ///
    /// # Errors
    /// The first channel that ended early or late.
    pub fn finish(&self) -> Result<String, String> {
        let counts = self.checker.counts();
        for (source, (got, expected)) in counts.iter().zip(&self.expected).enumerate() {
            if got != expected {
                return Err(format!(
                    "source {source} ended after {got} records for sink {}: it was to send {expected}",
                    self.index
                ));
            }
        }
        let records: u64 = counts.iter().sum();
        let bytes = records * self.record_bytes;
        Ok(format!("{}\t{records}\t{bytes}\n", self.index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::shuffle::{Pattern, Shuffle};

    #[test]
    fn what_the_sources_send_satisfies_the_sinks_and_the_client() {
        let (config, parallelism) = (
            ShuffleConfig {
                records: 17,
                record_bytes: 64,
            },
            3,
        );
        let mut sinks: Vec<Sink> = (0..parallelism)
            .map(|index| Sink::new(&config, index, parallelism))
            .collect();
        let mut record = Vec::new();
        for index in 0..parallelism {
            let mut source = Source::new(&config, index, parallelism);
            while let Some(sink) = source.next_into(&mut record) {
                sinks[sink as usize].check(index as usize, &record).unwrap();
            }
            assert_eq!(source.progress(), 10_000);
        }
        let result: String = sinks.iter().map(|sink| sink.finish().unwrap()).collect();
        let job = Shuffle::new(17 * 64, 64, Pattern::AllToAll).unwrap();
        assert_eq!(
            job.verify(parallelism, result.as_bytes()).unwrap().records,
            17
        );
    }

    #[test]
    fn a_channel_that_ends_early_is_named() {
        let config = ShuffleConfig {
            records: 4,
            record_bytes: 24,
        };
        let mut sink = Sink::new(&config, 0, 1);
        let mut record = Vec::new();
        Source::new(&config, 0, 1).next_into(&mut record);
        sink.check(0, &record).unwrap();
        let error = sink.finish().unwrap_err();
        assert!(error.contains("source 0 ended after 1 records"), "{error}");
    }
}
