//! Runs of `cluster run`, one at a time: each of them uses all cores.

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use serde_json::Value;
use thalweg_tests::process::{Finished, PeakMemory, Spawned, binary};

/// What a run left.
pub(crate) struct Run {
    pub(crate) finished: Finished,
    /// Bytes.
    pub(crate) peak_memory: u64,
}

impl Run {
    /// The object of `--json`: the last line of standard output.
    pub(crate) fn json(&self) -> Value {
        let line = self.finished.stdout.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Lines of the log and of the command at WARN level or above.
    pub(crate) fn warnings(&self) -> Vec<&str> {
        let lines = self.finished.stderr.lines();
        lines
            .filter(|line| {
                [" WARN ", " ERROR ", "warning: ", "error: ", "panicked"]
                    .iter()
                    .any(|mark| line.contains(mark))
            })
            .collect()
    }
}

/// `cluster run ARGUMENTS` in a folder, which has to succeed.
pub(crate) fn run(folder: &Path, arguments: &[&str]) -> Run {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let program = binary("cluster");
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let arguments = ["run"].iter().chain(arguments);
    let process = Spawned::start(&program, arguments.clone(), folder, &[]);
    let memory = PeakMemory::of(process.pid());
    let finished = process.finish(DEADLINE);
    assert!(
        finished.status.success(),
        "{:?}: {}\n{}",
        arguments.collect::<Vec<_>>(),
        finished.status,
        finished.stderr
    );
    Run {
        finished,
        peak_memory: memory.bytes(),
    }
}

/// A job over some gigabytes on a machine that is busy with other tests.
const DEADLINE: Duration = Duration::from_secs(120);
