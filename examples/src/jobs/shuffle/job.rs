//! The job: how many records go from which source to which sink, and whether they all arrived.

use serde::{Deserialize, Serialize};
use thalweg_runtime::job::{Distribution, JobGraph, JobGraphError, Placement};

use super::record::HEADER_BYTES;

/// An exchange of generated records between as many sources as sinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shuffle {
    config: ShuffleConfig,
    pattern: Pattern,
}

/// Where sources and sinks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pattern {
    /// Side by side in the same slots: a part of the data stays local.
    #[default]
    AllToAll,
    /// Sources on one TaskManager, sinks on another: all data crosses the network.
    OneWay,
}

/// Configuration of both task types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShuffleConfig {
    /// Records of all channels together.
    pub records: u64,
    /// Bytes of each.
    pub record_bytes: u32,
}

/// What the sinks received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShuffleReport {
    /// Records that were checked.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Shuffle {
    /// As many whole records as `bytes` holds.
    ///
    /// # Errors
    /// A size outside of what a record can have, or less than one record; the text names the option.
    pub fn new(bytes: u64, record_bytes: u64, pattern: Pattern) -> Result<Self, String> {
        let size = u32::try_from(record_bytes)
            .ok()
            .filter(|size| (HEADER_BYTES as u64..=MAX_RECORD_BYTES).contains(&u64::from(*size)))
            .ok_or_else(|| {
                format!(
                    "--record-size of {record_bytes} bytes is not allowed: {HEADER_BYTES}B (the record's own header) \
                     to {}MiB is",
                    MAX_RECORD_BYTES >> 20
                )
            })?;
        if bytes < record_bytes {
            return Err(format!(
                "--bytes {bytes} is less than one record of {record_bytes} bytes: at least one has to fit"
            ));
        }
        Ok(Self {
            config: ShuffleConfig {
                records: bytes / record_bytes,
                record_bytes: size,
            },
            pattern,
        })
    }

    /// Where sources and sinks run.
    #[must_use]
    pub fn pattern(&self) -> Pattern {
        self.pattern
    }

    /// Vertices `source` and `sink` of the same parallelism, each source connected to each sink.
    ///
    /// # Errors
    /// [`JobGraphError`] for a parallelism that is not allowed.
    pub fn graph(&self, parallelism: u32) -> Result<JobGraph, JobGraphError> {
        let mut graph = JobGraph::new("shuffle");
        let sink_group = match self.pattern {
            Pattern::AllToAll => 0,
            Pattern::OneWay => {
                graph.placement = Placement::SeparateGroups;
                1
            }
        };
        let source = graph
            .vertex("source", SOURCE_TASK)
            .parallelism(parallelism)
            .config(&self.config)?
            .id();
        let sink = graph
            .vertex("sink", SINK_TASK)
            .parallelism(parallelism)
            .slot_group(sink_group)
            .config(&self.config)?
            .id();
        graph.connect(source, sink, Distribution::Rebalance);
        graph.validate()?;
        Ok(graph)
    }

    /// Reads the lines `sink<TAB>records<TAB>bytes` of all sinks and compares them with what was to be sent.
    ///
    /// # Errors
    /// What is missing, doubled or of another shape.
    pub fn verify(&self, parallelism: u32, result: &[u8]) -> Result<ShuffleReport, String> {
        let text = std::str::from_utf8(result)
            .map_err(|error| format!("the result is not UTF-8: {error}"))?;
        let mut seen = vec![false; parallelism as usize];
        let mut report = ShuffleReport {
            records: 0,
            bytes: 0,
        };
        for line in text.lines() {
            let [sink, records, bytes] = numbers(line)
                .ok_or_else(|| format!("the result has a line of another shape: {line:?}"))?;
            let slot = usize::try_from(sink)
                .ok()
                .and_then(|sink| seen.get_mut(sink));
            match slot {
                Some(slot) if !*slot => *slot = true,
                Some(_) => return Err(format!("sink {sink} reported twice")),
                None => return Err(format!("a sink {sink} reported: there are {parallelism}")),
            }
            report.records = report.records.saturating_add(records);
            report.bytes = report.bytes.saturating_add(bytes);
        }
        if let Some(missing) = seen.iter().position(|seen| !seen) {
            return Err(format!("sink {missing} reported nothing"));
        }
        let ShuffleConfig {
            records,
            record_bytes,
        } = self.config;
        if report.records != records || report.bytes != records * u64::from(record_bytes) {
            return Err(format!(
                "{} records with {} bytes arrived: {records} with {} were to be sent",
                report.records,
                report.bytes,
                records * u64::from(record_bytes)
            ));
        }
        Ok(report)
    }
}

impl ShuffleConfig {
    /// How many records one source sends to one sink, of `parallelism` each; they differ by one at most.
    #[must_use]
    pub fn records_between(&self, source: u32, sink: u32, parallelism: u32) -> u64 {
        let channels = (u64::from(parallelism) * u64::from(parallelism)).max(1);
        let channel = u64::from(source) * u64::from(parallelism) + u64::from(sink);
        self.records / channels + u64::from(channel < self.records % channels)
    }
}

fn numbers<const N: usize>(line: &str) -> Option<[u64; N]> {
    let mut fields = line.split('\t').map(|field| field.parse().ok());
    let mut found = [0; N];
    for number in &mut found {
        *number = fields.next()??;
    }
    fields.next().is_none().then_some(found)
}

/// Registered name of the task that generates records.
pub const SOURCE_TASK: &str = "shuffle-source";
/// Registered name of the task that checks records.
pub const SINK_TASK: &str = "shuffle-sink";
/// Largest record: each source holds one for every sink.
const MAX_RECORD_BYTES: u64 = 64 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn job(pattern: Pattern) -> Shuffle {
        Shuffle::new(1000, 100, pattern).unwrap()
    }

    #[test]
    fn all_channels_together_send_what_was_asked() {
        for (bytes, parallelism) in [(1_000, 1), (1_000, 3), (100, 4), (123_456, 5)] {
            let config = Shuffle::new(bytes, 100, Pattern::AllToAll).unwrap().config;
            let pairs = (0..parallelism).flat_map(|s| (0..parallelism).map(move |t| (s, t)));
            let sent: u64 = pairs
                .map(|(source, sink)| config.records_between(source, sink, parallelism))
                .sum();
            assert_eq!(sent, bytes / 100);
        }
    }

    #[test]
    fn one_way_keeps_sources_and_sinks_apart() {
        let graph = job(Pattern::OneWay).graph(2).unwrap();
        assert_eq!(graph.placement, Placement::SeparateGroups);
        assert_eq!(
            graph.slots_by_group().into_iter().collect::<Vec<_>>(),
            [(0, 2), (1, 2)]
        );
        let graph = job(Pattern::AllToAll).graph(2).unwrap();
        assert_eq!(graph.placement, Placement::Spread);
        assert_eq!(
            graph.slots_by_group().into_iter().collect::<Vec<_>>(),
            [(0, 2)]
        );
    }

    #[test]
    fn sizes_out_of_range_are_refused_by_the_name_of_the_option() {
        for (bytes, record_bytes, option) in [
            (1000, 23, "--record-size"),
            (1 << 40, (64 << 20) + 1, "--record-size"),
            (99, 100, "--bytes"),
        ] {
            let error = Shuffle::new(bytes, record_bytes, Pattern::AllToAll).unwrap_err();
            assert!(error.starts_with(option), "{error}");
        }
        Shuffle::new(24, 24, Pattern::OneWay).unwrap();
    }

    #[test]
    fn a_result_that_differs_from_what_was_asked_is_an_error() {
        let job = job(Pattern::AllToAll);
        let report = job.verify(2, b"0\t5\t500\n1\t5\t500\n").unwrap();
        assert_eq!((report.records, report.bytes), (10, 1000));
        for (result, told) in [
            ("0\t5\t500\n1\t4\t400\n", "9 records"),
            ("0\t10\t1000\n", "sink 1 reported nothing"),
            ("0\t5\t500\n0\t5\t500\n", "twice"),
            ("0\t5\t500\n2\t5\t500\n", "there are 2"),
            ("0 5 500\n", "another shape"),
            ("0\t5\t500\t1\n", "another shape"),
        ] {
            let error = job.verify(2, result.as_bytes()).unwrap_err();
            assert!(error.contains(told), "{error}");
        }
    }
}
