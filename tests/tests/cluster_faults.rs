//! A cluster of real processes that are killed and stopped under way.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, which fail by panicking"
)]

use std::{fmt::Write as _, fs, time::Duration};

use nix::sys::signal::Signal;
use serde_json::Value;
use thalweg_tests::{
    on_both_transports,
    process::{ClusterFiles, Finished, Known, Spawned, now, pause},
};

fn a_shuffle_survives_the_kill_of_a_task_manager(transport: &str) {
    let files = quick(transport);
    let _job_manager = files.job_manager();
    let mut nodes = Nodes::start(&files, &["tm-1", "tm-2", "tm-3"]);
    let total = SHUFFLE_BYTES / RECORD_BYTES;
    let submit = submit_shuffle(&files, &["--parallelism", "4"], SHUFFLE_BYTES);
    let victim = kill_half_way(&files, &mut nodes, "shuffle", total);
    let restarted = wait_restarted(&files, "shuffle", &victim);
    let submit = submit.finish(END);
    assert_eq!(submit.code(), Some(0), "{submit:?}");
    let report = last_json(&submit);
    assert_eq!(report["state"], "FINISHED", "{report}");
    assert!(report["restarts"].as_u64() >= Some(1), "{report}");
    assert_eq!(report["records"], total, "{report}");
    eprintln!("{transport}: shuffle restarted {restarted:?} after the kill of {victim}");
}

fn a_word_count_is_exact_after_the_kill_of_a_task_manager(transport: &str) {
    let files = quick(transport);
    let _job_manager = files.job_manager();
    let mut nodes = Nodes::start(&files, &["tm-1", "tm-2", "tm-3"]);
    let corpus = files.folder().join("corpus");
    fs::create_dir(&corpus).unwrap();
    for file in 0..CORPUS_FILES {
        let mut text = String::new();
        for line in 0..CORPUS_LINES {
            writeln!(text, "common word{} file{file} common", line % 1000).unwrap();
        }
        fs::write(corpus.join(format!("{file}.txt")), text).unwrap();
    }
    let output = files.folder().join("counts.tsv");
    let (output, corpus) = (output.to_str().unwrap(), corpus.to_str().unwrap());
    // Two of each task, so that the job lasts some seconds on a fast machine too: counters arrive every half second.
    let options = ["--parallelism", "2", "--output", output];
    let submit = files.client("submit", &submitted(&options, &["wordcount", corpus]));
    // Each line is a record for the tokenizer, each word one for the counter.
    let total = CORPUS_FILES * CORPUS_LINES * 5;
    let victim = kill_half_way(&files, &mut nodes, "wordcount", total);
    let restarted = wait_restarted(&files, "wordcount", &victim);
    let submit = submit.finish(END);
    assert_eq!(submit.code(), Some(0), "{submit:?}");
    let report = last_json(&submit);
    assert!(report["restarts"].as_u64() >= Some(1), "{report}");
    assert_eq!(fs::read_to_string(output).unwrap(), expected_counts());
    eprintln!("{transport}: wordcount restarted {restarted:?} after the kill of {victim}");
}

fn without_slots_left_the_job_fails_and_names_the_lost_task_manager(transport: &str) {
    let files = quick(transport);
    let job_manager = files.job_manager();
    let mut nodes = Nodes::start(&files, &["tm-1", "tm-2"]);
    let submit = submit_shuffle(&files, &[], ENDLESS);
    files.wait_status(READY, "records pass", |known| records(known, "shuffle") > 0);
    nodes.kill("tm-2");
    let killed = now();
    // Nothing waits for the lost node: the status is answered all the time.
    let (mut asked, mut slowest) = (killed, Duration::ZERO);
    let failed = files.wait_status(END, "the job fails", |known| {
        slowest = slowest.max(asked.elapsed());
        asked = now();
        known.job("shuffle")["state"] == "FAILED"
    });
    let after = killed.elapsed();
    assert!(slowest < SLACK / 2, "a status took {slowest:?}");
    let limit = IDLE_TIMEOUT + SLOT_REQUEST_TIMEOUT + SLACK;
    assert!(after < limit, "failed only after {after:?}");
    assert_eq!(failed.task_managers(), ["tm-1"]);
    let submit = submit.finish(END);
    assert_eq!(submit.code(), Some(1), "{submit:?}");
    let report = last_json(&submit);
    assert_eq!(report["state"], "FAILED");
    let error = report["error"].as_str().unwrap();
    assert!(error.contains("tm-2"), "{error}");
    assert!(
        submit.stderr.contains(error),
        "{error} in {}",
        submit.stderr
    );
    assert!(job_manager.is_running());
    eprintln!("{transport}: failed {after:?} after the kill: {error}");
    // What is left serves smaller jobs.
    let small = submitted(&["--parallelism", "2"], &["shuffle", "--bytes", "4MiB"]);
    let small = files.run_client("submit", &small);
    assert_eq!(small.code(), Some(0), "{small:?}");
}

fn new_task_managers_serve_the_next_job_after_all_were_killed(transport: &str) {
    let files = quick(transport);
    let _job_manager = files.job_manager();
    let mut nodes = Nodes::start(&files, &["tm-1", "tm-2"]);
    let submit = submit_shuffle(&files, &[], ENDLESS);
    files.wait_status(READY, "records pass", |known| records(known, "shuffle") > 0);
    nodes.kill("tm-1");
    nodes.kill("tm-2");
    let submit = submit.finish(END);
    assert_eq!(submit.code(), Some(1), "{submit:?}");
    let report = last_json(&submit);
    assert_eq!(report["state"], "FAILED", "{report}");
    let error = report["error"].as_str().unwrap();
    assert!(error.contains("tm-1") && error.contains("tm-2"), "{error}");
    // One with a known name and one with a new one.
    let _nodes = Nodes::start(&files, &["tm-1", "tm-3"]);
    let next = files.run_client("submit", &submitted(&[], &["shuffle", "--bytes", "8MiB"]));
    assert_eq!(next.code(), Some(0), "{next:?}");
    assert_eq!(last_json(&next)["parallelism"], 4);
    assert_eq!(files.status().task_managers(), ["tm-1", "tm-3"]);
}

fn a_short_pause_of_a_task_manager_changes_nothing(transport: &str) {
    let files = quick(transport);
    let job_manager = files.job_manager();
    let nodes = Nodes::start(&files, &["tm-1", "tm-2"]);
    let submit = submit_shuffle(&files, &[], SHUFFLE_BYTES);
    files.wait_status(READY, "records pass", |known| records(known, "shuffle") > 0);
    nodes.get("tm-2").signal(Signal::SIGSTOP);
    pause(IDLE_TIMEOUT * 2 / 5);
    nodes.get("tm-2").signal(Signal::SIGCONT);
    let submit = submit.finish(END);
    assert_eq!(submit.code(), Some(0), "{submit:?}");
    let report = last_json(&submit);
    assert_eq!(
        (&report["state"], &report["restarts"]),
        (&"FINISHED".into(), &0.into())
    );
    assert_eq!(files.status().task_managers(), ["tm-1", "tm-2"]);
    assert!(
        !job_manager.stderr().contains("WARN"),
        "{}",
        job_manager.stderr()
    );
}

fn task_managers_register_again_at_a_restarted_job_manager(transport: &str) {
    let files = quick(transport);
    let job_manager = files.job_manager();
    let nodes = Nodes::start(&files, &["tm-1", "tm-2"]);
    let submit = submit_shuffle(&files, &[], ENDLESS);
    files.wait_status(READY, "records pass", |known| records(known, "shuffle") > 0);
    job_manager.signal(Signal::SIGKILL);
    job_manager.finish(END);
    let _job_manager = files.job_manager();
    let started = now();
    let submit = submit.finish(END);
    assert_eq!(submit.code(), Some(1), "{submit:?}");
    let errors: Vec<_> = submit
        .stderr
        .lines()
        .filter(|line| line.starts_with("error"))
        .collect();
    assert_eq!(errors.len(), 1, "{}", submit.stderr);
    assert!(errors[0].contains("there is no job"), "{errors:?}");
    files.wait_status(READY, "they register", |known| {
        known.task_managers() == ["tm-1", "tm-2"]
    });
    eprintln!(
        "{transport}: registered {:?} after the start of the JobManager",
        started.elapsed()
    );
    // Tasks of a job that nobody knows any more are stopped.
    files.wait_status(READY, "all slots are free", |known| known.free_slots() == 4);
    let next = files.run_client("submit", &submitted(&[], &["shuffle", "--bytes", "8MiB"]));
    assert_eq!(next.code(), Some(0), "{next:?}");
    for process in &nodes.0 {
        assert!(process.1.is_running());
        let stdout = process.1.stdout();
        assert_eq!(stdout.lines().count(), 1, "ready once: {stdout}");
    }
}

on_both_transports!(
    a_shuffle_survives_the_kill_of_a_task_manager,
    a_word_count_is_exact_after_the_kill_of_a_task_manager,
    without_slots_left_the_job_fails_and_names_the_lost_task_manager,
    new_task_managers_serve_the_next_job_after_all_were_killed,
    a_short_pause_of_a_task_manager_changes_nothing,
    task_managers_register_again_at_a_restarted_job_manager,
);

/// Running TaskManagers by name.
struct Nodes(Vec<(String, Spawned)>);

impl Nodes {
    fn start(files: &ClusterFiles, ids: &[&str]) -> Self {
        let start = |id: &&str| ((*id).to_owned(), files.task_manager(id));
        Self(ids.iter().map(start).collect())
    }

    fn get(&self, id: &str) -> &Spawned {
        let found = self.0.iter().find(|(name, _)| name == id);
        &found.unwrap().1
    }

    /// With SIGKILL: nobody is told.
    fn kill(&mut self, id: &str) {
        self.get(id).signal(Signal::SIGKILL);
        self.0.retain(|(name, _)| name != id);
    }
}

/// A cluster that notices losses soon.
fn quick(transport: &str) -> ClusterFiles {
    let settings = format!(
        "slot_request_timeout = \"{}s\"\nrestart_delay = \"200ms\"\n\
         [heartbeat]\ninterval = \"500ms\"\ntimeout = \"6s\"\n\
         [taskmanager]\nslot_timeout = \"2s\"\n",
        SLOT_REQUEST_TIMEOUT.as_secs()
    );
    let transport_settings = format!(
        "keep_alive = \"500ms\"\nidle_timeout = \"{}s\"\n",
        IDLE_TIMEOUT.as_secs()
    );
    ClusterFiles::new(transport, &settings).with_transport(&transport_settings)
}

/// Kills a TaskManager that has tasks when between 20 and 80 % of the records have passed; its name.
fn kill_half_way(files: &ClusterFiles, nodes: &mut Nodes, job: &str, total: u64) -> String {
    let known = files.wait_status(READY, "a fifth of the records passes", |known| {
        let state = &known.job(job)["state"];
        assert_ne!(state, "FINISHED", "too fast to be disturbed: {}", known.0);
        records(known, job) * 5 > total
    });
    let passed = records(&known, job);
    assert!(passed * 5 < total * 4, "{passed} of {total} is too late");
    let victim = known.job(job)["tasks"][0]["taskmanager"]
        .as_str()
        .unwrap()
        .to_owned();
    nodes.kill(&victim);
    victim
}

/// Waits until a job runs again without a TaskManager; how long that took.
fn wait_restarted(files: &ClusterFiles, job: &str, victim: &str) -> Duration {
    let killed = now();
    files.wait_status(END, "the job runs again", |known| {
        let job = known.job(job);
        let tasks = job["tasks"].as_array().unwrap();
        let elsewhere = tasks.iter().all(|task| task["taskmanager"] != victim);
        let runs = ["RUNNING", "FINISHED"]
            .iter()
            .any(|state| job["state"] == *state);
        job["restarts"].as_u64() >= Some(1) && runs && elsewhere
    });
    killed.elapsed()
}

fn records(known: &Known, job: &str) -> u64 {
    known.job(job)["records"].as_u64().unwrap_or(0)
}

fn submit_shuffle(files: &ClusterFiles, options: &[&str], bytes: u64) -> Spawned {
    let (bytes, record) = (format!("{bytes}B"), format!("{RECORD_BYTES}B"));
    let job = ["shuffle", "--bytes", &bytes, "--record-size", &record];
    files.client("submit", &submitted(options, &job))
}

fn submitted<'a>(options: &[&'a str], job: &[&'a str]) -> Vec<&'a str> {
    [&["--json"], options, job].concat()
}

fn last_json(finished: &Finished) -> Value {
    let line = finished.stdout.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {finished:?}"))
}

fn expected_counts() -> String {
    let mut counts = vec![("common".to_owned(), 2 * CORPUS_FILES * CORPUS_LINES)];
    for file in 0..CORPUS_FILES {
        counts.push((format!("file{file}"), CORPUS_LINES));
    }
    for word in 0..1000 {
        counts.push((format!("word{word}"), CORPUS_FILES * CORPUS_LINES / 1000));
    }
    counts.sort_by(|(a, x), (b, y)| y.cmp(x).then(a.cmp(b)));
    counts
        .iter()
        .map(|(word, count)| format!("{word}\t{count}\n"))
        .collect()
}

const IDLE_TIMEOUT: Duration = Duration::from_secs(3);
const SLOT_REQUEST_TIMEOUT: Duration = Duration::from_secs(4);
/// For everything that is no time-out, on a busy machine.
const SLACK: Duration = Duration::from_secs(6);
/// Some seconds in the development profile.
const SHUFFLE_BYTES: u64 = 3 << 29;
/// Hours.
const ENDLESS: u64 = 1 << 40;
const RECORD_BYTES: u64 = 256;
const CORPUS_FILES: u64 = 8;
const CORPUS_LINES: u64 = 400_000;
/// Generous: other builds may run on this machine.
const READY: Duration = Duration::from_secs(60);
const END: Duration = Duration::from_secs(90);
