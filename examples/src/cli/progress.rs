//! How far a job is, on standard error: a bar on a capable terminal, else a line every few seconds.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use thalweg_runtime::job::{JobStatus, TaskState};

use super::{console, human};

/// Shows progress of what lasts longer than [`PATIENCE`].
#[derive(Debug)]
pub(crate) struct Progress {
    style: Style,
    started: Instant,
    last: Option<Instant>,
}

#[derive(Debug)]
enum Style {
    Off,
    Lines,
    Bar(Option<ProgressBar>),
}

/// What is shown.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Snapshot {
    /// What is going on.
    pub(crate) what: String,
    /// From 0 to 1, if it is known.
    pub(crate) fraction: Option<f64>,
    /// More about it.
    pub(crate) details: String,
}

impl Progress {
    pub(crate) fn new(quiet: bool, now: Instant) -> Self {
        let style = match (quiet, console::is_capable_terminal()) {
            (true, _) => Style::Off,
            (false, true) => Style::Bar(None),
            (false, false) => Style::Lines,
        };
        Self {
            style,
            started: now,
            last: None,
        }
    }

    /// Shows where things are, if it is time to.
    pub(crate) fn update(&mut self, now: Instant, snapshot: &Snapshot) {
        let elapsed = now.saturating_duration_since(self.started);
        if elapsed < PATIENCE {
            return;
        }
        match &mut self.style {
            Style::Off => {}
            Style::Lines => {
                let due = self
                    .last
                    .is_none_or(|last| now.saturating_duration_since(last) >= LINE_INTERVAL);
                if due {
                    self.last = Some(now);
                    console::tell(snapshot.line(elapsed));
                }
            }
            Style::Bar(bar) => show(bar.get_or_insert_with(new_bar), snapshot, elapsed),
        }
    }

    /// Takes the bar away.
    pub(crate) fn clear(&mut self) {
        if let Style::Bar(bar) = &mut self.style
            && let Some(bar) = bar.take()
        {
            bar.finish_and_clear();
            console::bars().remove(&bar);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Snapshot {
    /// Something whose end is not known.
    pub(crate) fn of_wait(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            fraction: None,
            details: String::new(),
        }
    }

    /// A job: how far those vertices are that know it, the states of the tasks, and the counters.
    pub(crate) fn of_job(status: &JobStatus) -> Self {
        let mut details = Vec::new();
        let running = status
            .tasks
            .iter()
            .filter(|task| task.state == TaskState::Running)
            .count();
        if !status.tasks.is_empty() {
            details.push(format!(
                "{running} of {} running",
                human::plural(status.tasks.len() as u64, "task")
            ));
        }
        if status.totals.records_in > 0 {
            details.push(human::plural(status.totals.records_in, "record"));
            details.push(format!(
                "{} over the network",
                human::bytes(status.totals.bytes_remote)
            ));
        }
        if status.restarts > 0 {
            details.push(human::plural(status.restarts.into(), "restart"));
        }
        Self {
            what: format!("{} {}", status.name, status.state),
            fraction: fraction(status),
            details: details.join(", "),
        }
    }

    /// One line without control characters.
    pub(crate) fn line(&self, elapsed: Duration) -> String {
        let mut line = self.what.clone();
        if let Some(fraction) = self.fraction {
            line = format!("{line}, {:.0} %", fraction * 100.0);
        }
        if !self.details.is_empty() {
            line = format!("{line}, {}", self.details);
        }
        console::printable(&format!("{line}, {}", human::duration(elapsed)))
    }
}

/// The mean over all tasks of the vertices of which any task knows how far it is; one that does not say so yet is at 0.
fn fraction(status: &JobStatus) -> Option<f64> {
    let mut vertices: BTreeMap<u32, (bool, u64, u64)> = BTreeMap::new();
    for task in &status.tasks {
        let (knows, done, tasks) = vertices.entry(task.execution.vertex.0).or_default();
        *knows |= task.metrics.progress.is_some();
        *done += match task.metrics.progress {
            Some(progress) => u64::from(progress.min(WHOLE)),
            None if task.state == TaskState::Finished => u64::from(WHOLE),
            None => 0,
        };
        *tasks += 1;
    }
    let (done, tasks) = vertices
        .into_values()
        .filter(|(knows, _, _)| *knows)
        .fold((0, 0), |(done, tasks), (_, more, count)| {
            (done + more, tasks + count)
        });
    (tasks > 0).then(|| done as f64 / (tasks * u64::from(WHOLE)) as f64)
}

fn new_bar() -> ProgressBar {
    console::bars().add(ProgressBar::new(u64::from(WHOLE)))
}

fn show(bar: &ProgressBar, snapshot: &Snapshot, elapsed: Duration) {
    let template = match snapshot.fraction {
        Some(_) => "{prefix} [{bar:30}] {percent:>3} % {wide_msg}",
        None => "{prefix} {wide_msg}",
    };
    let style = ProgressStyle::with_template(template)
        .expect("the templates above are well-formed")
        .progress_chars("=> ");
    bar.set_style(style);
    bar.set_prefix(console::printable(&snapshot.what));
    let time = human::duration(elapsed);
    bar.set_message(match snapshot.details.as_str() {
        "" => time,
        details => format!("{time}, {details}"),
    });
    if let Some(fraction) = snapshot.fraction {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of 10,000"
        )]
        bar.set_position((fraction * f64::from(WHOLE)) as u64);
    }
    bar.tick();
}

/// What ends sooner shows nothing.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two lines.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// The progress of a task that is done.
const WHOLE: u32 = 10_000;

#[cfg(test)]
mod tests {
    use thalweg_runtime::{
        ids::{ExecutionId, JobId, VertexId},
        job::{JobState, TaskMetrics, TaskStatus},
    };

    use super::*;
    use crate::cli::report::tests::status;

    fn task(vertex: u32, subtask: u32, state: TaskState, progress: Option<u32>) -> TaskStatus {
        TaskStatus {
            execution: ExecutionId {
                job: JobId::from_u128(1),
                vertex: VertexId(vertex),
                subtask,
                attempt: 0,
            },
            name: "t".to_owned(),
            state,
            task_manager: None,
            metrics: TaskMetrics {
                progress,
                ..TaskMetrics::default()
            },
        }
    }

    #[test]
    fn progress_is_that_of_the_vertices_that_know_it() {
        let mut status = status(JobState::Running);
        assert_eq!(Snapshot::of_job(&status).fraction, None);
        status.tasks = vec![
            task(0, 0, TaskState::Running, Some(5_000)),
            task(0, 1, TaskState::Deploying, None),
            task(1, 0, TaskState::Running, None),
            task(1, 1, TaskState::Running, None),
        ];
        assert_eq!(Snapshot::of_job(&status).fraction, Some(0.25));
        status.tasks[1] = task(0, 1, TaskState::Finished, None);
        assert_eq!(Snapshot::of_job(&status).fraction, Some(0.75));
        assert_eq!(
            Snapshot::of_job(&status).line(Duration::from_secs(7)),
            "shuffle RUNNING, 75 %, 3 of 4 tasks running, 1,000 records, 2.86 MiB over the network, 1 restart, 7.0 s"
        );
    }

    #[test]
    fn a_line_has_no_control_characters() {
        let line = Snapshot::of_wait("wait\u{1b}[2J").line(Duration::from_secs(3));
        assert_eq!(line, "wait\\u{1b}[2J, 3.0 s");
    }

    #[test]
    fn lines_come_after_two_seconds_and_then_every_five() {
        let start = thalweg_transport::now();
        let mut progress = Progress {
            style: Style::Lines,
            started: start,
            last: None,
        };
        let mut shown = Vec::new();
        for second in 0..13 {
            let before = progress.last;
            progress.update(
                start + Duration::from_secs(second),
                &Snapshot::of_wait("waiting"),
            );
            if progress.last != before {
                shown.push(second);
            }
        }
        assert_eq!(shown, [2, 7, 12]);
    }
}
