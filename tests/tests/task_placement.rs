//! Tasks on threads of their own and on the network threads of their nodes, over every backend: the same results, the
//! same ends, and no task touches another.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, which fail by panicking"
)]

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use thalweg_examples::jobs::{
    registry,
    shuffle::{Pattern, Shuffle},
    wordcount::{WordCount, WordCountResult, select},
};
use thalweg_runtime::{
    BackendRegistry, MiniCluster,
    job::{FailureKind, JobGraph, JobState, RestartStrategy, TaskState},
    task::{Task, TaskContext, TaskError},
};
use thalweg_tests::harness::{job_status, mem_backend, run_job, start_mini_cluster, submit_job};

/// Panics at once.
struct Panics;

impl Task for Panics {
    const LIGHT: bool = true;

    fn from_config(_: &[u8]) -> Result<Self, TaskError> {
        Ok(Self)
    }

    async fn run(&mut self, _: &mut TaskContext) -> Result<(), TaskError> {
        panic!("a light task of this test")
    }
}

/// Waits until it is told to stop.
struct Waits;

impl Task for Waits {
    const LIGHT: bool = true;

    fn from_config(_: &[u8]) -> Result<Self, TaskError> {
        Ok(Self)
    }

    async fn run(&mut self, context: &mut TaskContext) -> Result<(), TaskError> {
        context.cancelled().await;
        Err(TaskError::cancelled())
    }
}

async fn start(backend: &str, placement: &str) -> MiniCluster {
    let tls = if backend == "quic" { "mutual" } else { "off" };
    let config = format!(
        "[transport]\nbackend = {backend:?}\nprofile = \"loopback\"\n[tls]\nmode = {tls:?}\n\
         [taskmanager]\nslots = 3\ntask_placement = {placement:?}\n"
    );
    let registry = registry().with::<Panics>("panics").with::<Waits>("waits");
    let backends = BackendRegistry::default().with("mem", mem_backend());
    start_mini_cluster(&config, registry, &backends).await
}

/// A job of one task of this type.
fn alone(task: &str) -> JobGraph {
    let mut graph = JobGraph::new(task);
    let _ = graph.vertex(task, task);
    graph.restart = Some(RestartStrategy::None);
    graph
}

async fn words_are_counted_exactly(backend: &str, placement: &str) {
    let text = "Über Wasser, über Land;\nunter Wasser, river bed\n".repeat(20_000);
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.txt", "b.txt", "c.txt"] {
        std::fs::write(folder.path().join(name), &text).unwrap();
    }
    let mut counts = BTreeMap::new();
    let words = text.split(|c: char| !c.is_alphanumeric());
    for word in words.filter(|word| !word.is_empty()) {
        *counts.entry(word.to_lowercase()).or_insert(0) += 3;
    }
    let mut expected: Vec<(String, u32)> = counts.into_iter().collect();
    expected.sort_by(|(a, m), (b, n)| n.cmp(m).then(a.cmp(b)));
    let cluster = start(backend, placement).await;
    let files = select(&[folder.path().to_owned()]).unwrap().files;
    let graph = WordCount::of_files(files).graph(6).unwrap();
    let (job, status) = run_job(&cluster, graph).await;
    assert_eq!(status.state, JobState::Finished, "{:?}", status.failure);
    assert!(status.totals.bytes_remote > 0);
    let result = cluster.dispatcher().job_result(job, 0, 1 << 20);
    let result = WordCountResult::parse(&result.await.unwrap().bytes).unwrap();
    let mut found = Vec::new();
    result.counts.write_to(&mut found).unwrap();
    let mut lines = String::new();
    for (word, count) in expected {
        writeln!(lines, "{word}\t{count}").unwrap();
    }
    assert_eq!(String::from_utf8(found).unwrap(), lines);
    cluster.shutdown(DRAIN).await;
}

async fn a_panic_and_a_cancellation_leave_other_jobs_alone(backend: &str, placement: &str) {
    let cluster = start(backend, placement).await;
    let waiting = submit_job(&cluster, alone("waits")).await;
    let is_running = |state: TaskState| state == TaskState::Running;
    job_status(&cluster, waiting, |status| {
        status.tasks.iter().all(|task| is_running(task.state))
    })
    .await;
    let shuffle = Shuffle::new(64 << 20, 1 << 10, Pattern::AllToAll).unwrap();
    let moving = submit_job(&cluster, shuffle.graph(2).unwrap()).await;
    for _ in 0..3 {
        let (_, status) = run_job(&cluster, alone("panics")).await;
        assert_eq!(status.state, JobState::Failed);
        let cause = status.failure.unwrap();
        assert_eq!(cause.kind, FailureKind::User);
        let words = "the task panicked: a light task of this test";
        assert!(cause.message.contains(words), "{cause}");
    }
    cluster.dispatcher().cancel_job(waiting).await.unwrap();
    let cancelled = job_status(&cluster, waiting, |status| status.state.is_terminal()).await;
    assert_eq!(cancelled.state, JobState::Canceled);
    let moved = job_status(&cluster, moving, |status| status.state.is_terminal()).await;
    assert_eq!(moved.state, JobState::Finished, "{:?}", moved.failure);
    assert_eq!(moved.restarts, 0);
    cluster.shutdown(DRAIN).await;
}

macro_rules! placement_tests {
    ($($module:ident = $backend:literal, $placement:literal;)+) => {
        $(mod $module {
            #[tokio::test]
            async fn words_are_counted_exactly() {
                super::words_are_counted_exactly($backend, $placement).await;
            }

            #[tokio::test]
            async fn a_panic_and_a_cancellation_leave_other_jobs_alone() {
                super::a_panic_and_a_cancellation_leave_other_jobs_alone($backend, $placement)
                    .await;
            }
        })+
    };
}

placement_tests! {
    own_threads_mem = "mem", "own-thread";
    own_threads_quic = "quic", "own-thread";
    own_threads_tcp = "tcp", "own-thread";
    network_thread_mem = "mem", "network";
    network_thread_quic = "quic", "network";
    network_thread_tcp = "tcp", "network";
}

const DRAIN: Duration = Duration::from_secs(5);
