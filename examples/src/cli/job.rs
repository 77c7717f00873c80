//! A job as the commands see it: from arguments to a graph, and from the result to what is shown.

use std::{
    collections::BTreeSet,
    io::{self, Write},
};

use thalweg_runtime::job::{JobGraph, JobGraphError};

use super::{
    args::{ExchangeArg, JobArgs, PatternArg},
    console,
    failure::Failure,
    human,
};
use crate::jobs::{
    shuffle::{Pattern, Shuffle},
    wordcount::{Counts, WordCount, WordCountResult, select},
};

/// A job that can be submitted.
#[derive(Debug)]
pub(crate) enum Job {
    WordCount(WordCount),
    Shuffle(Shuffle),
}

/// A result that was found to be right.
#[derive(Debug)]
pub(crate) struct Evaluation {
    /// Each is told once.
    pub(crate) warnings: Vec<String>,
    /// What is printed if the result is not written to a file.
    pub(crate) table: Option<String>,
    /// Lines of the summary.
    pub(crate) facts: Vec<(&'static str, String)>,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Counts(Counts),
    Text(Vec<u8>),
}

impl Job {
    /// Looks at the arguments, and at the files that they name; tells about those that are skipped.
    pub(crate) fn prepare(args: &JobArgs) -> Result<Self, Failure> {
        if args.exchange() == ExchangeArg::Blocking {
            return Err(Failure::usage(
                "--exchange blocking is not supported by this version: pipelined is",
            ));
        }
        match args {
            JobArgs::WordCount(args) => {
                let selection =
                    select(&args.paths).map_err(|error| Failure::failed(error.to_string()))?;
                let mut told = BTreeSet::new();
                for warning in selection.warnings.iter().filter(|text| told.insert(*text)) {
                    console::warn(warning);
                }
                if args.paths.is_empty() {
                    return Ok(Self::WordCount(WordCount::of_generated_text()));
                }
                if selection.files.is_empty() {
                    console::warn("there is no file in the folders that are to be counted");
                }
                Ok(Self::WordCount(WordCount::of_files(selection.files)))
            }
            JobArgs::Shuffle(args) => {
                let pattern = match args.pattern {
                    PatternArg::AllToAll => Pattern::AllToAll,
                    PatternArg::OneWay => Pattern::OneWay,
                };
                Shuffle::new(args.bytes.as_u64(), args.record_size.as_u64(), pattern)
                    .map(Self::Shuffle)
                    .map_err(Failure::usage)
            }
        }
    }

    /// The name on the command line.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::WordCount(_) => "wordcount",
            Self::Shuffle(_) => "shuffle",
        }
    }

    /// The parallelism that uses all slots; `slots` holds those of each TaskManager.
    ///
    /// # Errors
    /// How many TaskManagers are missing.
    pub(crate) fn parallelism(&self, slots: &[u32]) -> Result<u32, String> {
        if !self.is_one_way() {
            let all = slots
                .iter()
                .fold(0_u32, |all, &slots| all.saturating_add(slots));
            return if all > 0 {
                Ok(all)
            } else {
                Err("the cluster has no slots".to_owned())
            };
        }
        let mut slots = slots.to_vec();
        slots.sort_unstable_by(|a, b| b.cmp(a));
        match slots[..] {
            [_, second, ..] if second > 0 => Ok(second),
            _ => Err(format!(
                "--pattern one-way needs two TaskManagers, one for the sources and one for the sinks: there are {}",
                slots.len()
            )),
        }
    }

    /// What keeps a parallelism from fitting into `task_managers` with `slots` each.
    pub(crate) fn misfit(
        &self,
        parallelism: u32,
        task_managers: u32,
        slots: u32,
    ) -> Option<String> {
        let sides = if self.is_one_way() { 2 } else { 1 };
        let most = (task_managers / sides).saturating_mul(slots);
        let need = if self.is_one_way() {
            "for the sources and as many on others for the sinks"
        } else {
            "for its tasks"
        };
        (parallelism > most).then(|| {
            format!(
                "--parallelism {parallelism} needs {parallelism} slots {need}: {} with {} each allow {most}",
                human::plural(task_managers.into(), "TaskManager"),
                human::plural(slots.into(), "slot"),
            )
        })
    }

    /// The graph to submit.
    pub(crate) fn graph(&self, parallelism: u32) -> Result<JobGraph, JobGraphError> {
        match self {
            Self::WordCount(job) => job.graph(parallelism),
            Self::Shuffle(job) => job.graph(parallelism),
        }
    }

    /// Checks a result.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn evaluate(&self, parallelism: u32, result: Vec<u8>) -> Result<Evaluation, String> {
        match self {
            Self::WordCount(job) => evaluate_counts(job, &result),
            Self::Shuffle(job) => {
                let report = job.verify(parallelism, &result)?;
                Ok(Evaluation {
                    warnings: Vec::new(),
                    table: None,
                    facts: vec![(
                        "checked",
                        format!(
                            "{} of {} in all, by count, order and checksum",
                            human::plural(report.records, "record"),
                            human::bytes(report.bytes)
                        ),
                    )],
                    content: Content::Text(result),
                })
            }
        }
    }

    fn is_one_way(&self) -> bool {
        matches!(self, Self::Shuffle(job) if job.pattern() == Pattern::OneWay)
    }
}

impl Evaluation {
    /// Writes the whole result.
    pub(crate) fn write_to(&self, mut out: &mut dyn Write) -> io::Result<()> {
        match &self.content {
            Content::Counts(counts) => counts.write_to(&mut out),
            Content::Text(text) => out.write_all(text),
        }
    }
}

fn evaluate_counts(job: &WordCount, result: &[u8]) -> Result<Evaluation, String> {
    let WordCountResult { counts, not_utf8 } = WordCountResult::parse(result)?;
    // A path that was given twice has two positions.
    let files = job.files().unwrap_or_default();
    let mut paths = BTreeSet::new();
    for file in not_utf8 {
        let file = files
            .get(file as usize)
            .ok_or_else(|| format!("the result names file {file} of {}", files.len()))?;
        paths.insert(&file.path);
    }
    let what = match job.files() {
        None => "a generated text".to_owned(),
        Some(files) => human::plural(files.len() as u64, "file"),
    };
    Ok(Evaluation {
        warnings: paths
            .into_iter()
            .map(|path| {
                format!(
                    "{} is not UTF-8 everywhere: bytes that are not count as separators",
                    path.display()
                )
            })
            .collect(),
        table: (counts.distinct() > 0).then(|| counts.table(TABLE_ROWS)),
        facts: vec![(
            "counted",
            format!(
                "{}, {} different, in {what}",
                human::plural(counts.total(), "word"),
                human::count(counts.distinct() as u64)
            ),
        )],
        content: Content::Counts(counts),
    })
}

/// Words shown without `--output`.
const TABLE_ROWS: usize = 20;

#[cfg(test)]
mod tests {
    use thalweg_runtime::config::ByteSize;

    use super::super::args::{ShuffleArgs, WordCountArgs};
    use super::*;
    use crate::jobs::wordcount::SourceFile;

    fn shuffle(pattern: PatternArg) -> Job {
        Job::prepare(&JobArgs::Shuffle(ShuffleArgs {
            bytes: ByteSize::kib(4),
            record_size: ByteSize::kib(1),
            pattern,
            exchange: Default::default(),
        }))
        .unwrap()
    }

    #[test]
    fn all_slots_are_used_and_one_way_takes_two_task_managers() {
        assert_eq!(shuffle(PatternArg::AllToAll).parallelism(&[2, 3]), Ok(5));
        assert!(shuffle(PatternArg::AllToAll).parallelism(&[]).is_err());
        let one_way = shuffle(PatternArg::OneWay);
        assert_eq!(one_way.parallelism(&[2, 4, 3]), Ok(3));
        assert!(
            one_way
                .parallelism(&[4])
                .unwrap_err()
                .contains("there are 1")
        );
    }

    #[test]
    fn a_parallelism_that_cannot_fit_is_refused_with_what_can() {
        let job = shuffle(PatternArg::AllToAll);
        assert_eq!(job.misfit(4, 2, 2), None);
        assert!(
            job.misfit(5, 2, 2)
                .unwrap()
                .contains("2 TaskManagers with 2 slots each allow 4")
        );
        assert!(
            shuffle(PatternArg::OneWay)
                .misfit(3, 3, 2)
                .unwrap()
                .contains("allow 2")
        );
    }

    #[test]
    fn a_missing_path_is_a_failure_and_a_wrong_option_is_wrong_usage() {
        let args = |paths: &[&str], exchange| {
            JobArgs::WordCount(WordCountArgs {
                paths: paths.iter().map(Into::into).collect(),
                exchange: super::super::args::ExchangeArgs { exchange },
            })
        };
        let failure = Job::prepare(&args(&["/no/such"], ExchangeArg::Pipelined)).unwrap_err();
        assert_eq!(failure.code(), 1);
        assert!(failure.to_string().contains("/no/such"), "{failure}");
        let failure = Job::prepare(&args(&[], ExchangeArg::Blocking)).unwrap_err();
        assert_eq!(failure.code(), 2);
        assert!(failure.to_string().contains("not supported"), "{failure}");
    }

    #[test]
    fn files_that_are_not_utf8_are_told_once_by_name() {
        let file = |path: &str| SourceFile {
            path: path.into(),
            bytes: 1,
        };
        let job = Job::WordCount(WordCount::of_files(vec![
            file("/a"),
            file("/b"),
            file("/a"),
        ]));
        let result = b"\tnot-utf8\t0\n\tnot-utf8\t2\nx\t3\ny\t1\n".to_vec();
        let evaluation = job.evaluate(1, result).unwrap();
        assert_eq!(evaluation.warnings.len(), 1);
        assert!(evaluation.warnings[0].starts_with("/a is not UTF-8"));
        assert_eq!(evaluation.facts[0].1, "4 words, 2 different, in 3 files");
        let mut out = Vec::new();
        evaluation.write_to(&mut out).unwrap();
        assert_eq!(out, b"x\t3\ny\t1\n");
        assert!(job.evaluate(1, b"\tnot-utf8\t3\n".to_vec()).is_err());
    }

    #[test]
    fn an_empty_folder_is_not_a_generated_text() {
        let dir = tempfile::tempdir().unwrap();
        let args = JobArgs::WordCount(WordCountArgs {
            paths: vec![dir.path().to_owned()],
            exchange: Default::default(),
        });
        let Job::WordCount(job) = Job::prepare(&args).unwrap() else {
            panic!("no wordcount");
        };
        assert_eq!(job.files(), Some(&[][..]));
    }
}
