//! A cluster of real processes: the walk-through of the documentation.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, which fail by panicking"
)]

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use nix::sys::signal::Signal;
use serde_json::Value;
use thalweg_tests::{
    on_both_transports,
    process::{ClusterFiles, Finished, Role, Spawned},
};

fn task_managers_that_start_first_serve_a_job_and_are_shown(transport: &str) {
    let files = ClusterFiles::new(transport, "");
    let waiting: Vec<Spawned> = IDS
        .iter()
        .map(|id| files.start("taskmanager", &files.node(Role::TaskManager, id, "")))
        .collect();
    // Their first attempts have failed by the time somebody listens.
    for process in &waiting {
        process.wait_stderr(READY, |line| line.contains("TaskExecutor starts"));
    }
    let job_manager = files.job_manager();
    for (process, id) in waiting.iter().zip(IDS) {
        let line = process.wait_stdout(READY, |line| line.starts_with("ready "));
        assert!(
            line.starts_with(&format!(
                "ready role=taskmanager id={id} address=127.0.0.1:"
            )),
            "{line}"
        );
        let rest = format!(" transport={transport} tls=mutual pid={}", process.pid());
        assert!(line.ends_with(&rest), "{line}");
    }

    let (corpus, expected) = corpus(&files);
    let output = files.folder().join("counts.tsv");
    let submitted = files.run_client(
        "submit",
        &[
            "--json",
            "--output",
            output.to_str().unwrap(),
            "wordcount",
            corpus.to_str().unwrap(),
        ],
    );
    assert_eq!(submitted.code(), Some(0), "{submitted:?}");
    let report = last_json(&submitted);
    assert_eq!(report["state"], "FINISHED", "{report}");
    assert_eq!(
        (&report["transport"], &report["tls"]),
        (&transport.into(), &"mutual".into())
    );
    assert_eq!(
        (&report["taskmanagers"], &report["restarts"]),
        (&3.into(), &0.into())
    );
    assert!(report["bytes_remote"].as_u64() > Some(0), "{report}");
    assert_eq!(fs::read_to_string(&output).unwrap(), expected);

    let status = files.wait_status(READY, "the slots are free again", |known| {
        known.free_slots() == 6
    });
    assert_eq!(status.task_managers(), IDS);
    for row in status.0["taskmanagers"].as_array().unwrap() {
        let id = row["id"].as_str().unwrap();
        assert_eq!(row["identity"], format!("spiffe://demo/taskmanager/{id}"));
        assert_eq!(
            (&row["tls"], &row["slots_total"]),
            (&"mutual".into(), &2.into())
        );
        assert!(
            row["address"].as_str().unwrap().starts_with("127.0.0.1:"),
            "{row}"
        );
        assert!(row["last_heartbeat_ms"].as_u64() < Some(60_000), "{row}");
        let shown = thalweg_certs::CertificateInfo::from_file(
            files.folder().join("certs").join(id).join("cert.pem"),
        );
        let shown = &shown.unwrap()[0];
        assert_eq!(row["certificate_fingerprint"], shown.fingerprint);
        assert_eq!(row["certificate_expires"], shown.not_after_text());
    }
    let job = status.job("wordcount");
    assert_eq!(
        (&job["state"], &job["id"]),
        (&"FINISHED".into(), &report["job_id"])
    );
    assert!(
        job["tasks"]
            .as_array()
            .is_some_and(|tasks| tasks.len() >= 6),
        "{job}"
    );

    let table = files.run_client("status", &[]);
    assert_eq!(table.code(), Some(0), "{table:?}");
    let text = &table.stdout;
    for part in [
        "TaskManagers\n",
        "tm-2",
        "2 of 2",
        "spiffe://demo/taskmanager/tm-3",
        "FINISHED",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert!(
        !text.contains('\u{1b}') && table.stderr.is_empty(),
        "{table:?}"
    );
    drop(waiting);
    drop(job_manager);
}

fn a_cancelled_job_ends_its_submit_with_1(transport: &str) {
    let files = ClusterFiles::new(transport, "");
    let _job_manager = files.job_manager();
    let _task_managers = [files.task_manager("tm-1"), files.task_manager("tm-2")];
    let submit = files.client("submit", &["--json", "shuffle", "--bytes", "1TiB"]);
    let id = running(&files, "shuffle");
    let cancelled = files.run_client("cancel", &[&id]);
    assert_eq!(cancelled.code(), Some(0), "{cancelled:?}");
    assert_eq!(cancelled.stdout, format!("{id} CANCELED\n"));
    let submit = submit.finish(END);
    assert_eq!(submit.code(), Some(1), "{submit:?}");
    let report = last_json(&submit);
    assert_eq!(
        (&report["state"], &report["job_id"]),
        (&"CANCELED".into(), &id.clone().into())
    );
    assert!(submit.stderr.contains("was cancelled"), "{}", submit.stderr);
    files.wait_status(END, "the slots are free again", |known| {
        known.free_slots() == 4
    });
    let unknown = files.run_client("cancel", &["00000000000000000000000000000001"]);
    assert_eq!(unknown.code(), Some(1));
    assert!(
        unknown
            .stderr
            .contains("there is no job 00000000000000000000000000000001"),
        "{unknown:?}"
    );
}

fn a_detached_job_goes_on_and_an_interrupted_one_does_not(transport: &str) {
    let files = ClusterFiles::new(transport, "");
    let _job_manager = files.job_manager();
    let _task_managers = [files.task_manager("tm-1"), files.task_manager("tm-2")];
    let detached = files.run_client("submit", &["--detach", "shuffle", "--bytes", "64MiB"]);
    assert_eq!(detached.code(), Some(0), "{detached:?}");
    let id = detached.stdout.strip_suffix('\n').unwrap();
    assert!(
        id.len() == 32 && id.chars().all(|c| c.is_ascii_hexdigit()),
        "{id:?}"
    );
    let ended = files.wait_status(END, "the job ends", |known| {
        known.job("shuffle")["state"] == "FINISHED"
    });
    assert_eq!(ended.job("shuffle")["id"], id);
    assert_eq!(ended.job("shuffle")["records"], 64 * 1024);

    let submit = files.client("submit", &["shuffle", "--bytes", "1TiB"]);
    running(&files, "shuffle");
    submit.signal(Signal::SIGTERM);
    let submit = submit.finish(STOP);
    assert_eq!(submit.code(), Some(143), "{submit:?}");
    files.wait_status(END, "the job is cancelled", |known| {
        known.job("shuffle")["state"] == "CANCELED" && known.free_slots() == 4
    });
}

fn daemons_end_with_0_within_the_drain_time(transport: &str) {
    let files = ClusterFiles::new(transport, "[taskmanager]\ntemp_dirs = [\"temporary\"]\n");
    let temporary = files.folder().join("temporary");
    fs::create_dir(&temporary).unwrap();
    let job_manager = files.job_manager();
    let (first, second) = (files.task_manager("tm-1"), files.task_manager("tm-2"));
    let detached = files.run_client("submit", &["--detach", "shuffle", "--bytes", "1TiB"]);
    assert_eq!(detached.code(), Some(0), "{detached:?}");
    running(&files, "shuffle");
    // A TaskManager that leaves takes its tasks with it; nobody waits for a time-out.
    first.signal(Signal::SIGTERM);
    let first = first.finish(STOP);
    assert_eq!(first.code(), Some(0), "{first:?}");
    files.wait_status(STOP, "its job is started again", |known| {
        known.task_managers() == ["tm-2"] && known.job("shuffle")["state"] == "RESTARTING"
    });
    job_manager.signal(Signal::SIGTERM);
    let job_manager = job_manager.finish(STOP);
    assert_eq!(job_manager.code(), Some(0), "{job_manager:?}");
    // Nobody will want the slots of the job: they are free before any time-out.
    second.wait_stderr(STOP, |line| {
        line.contains("slot is free") && !line.contains("not taken into use")
    });
    second.wait_stderr(READY, |line| line.contains("the ResourceManager stops"));
    second.signal(Signal::SIGTERM);
    let second = second.finish(STOP);
    assert_eq!(second.code(), Some(0), "{second:?}");
    let left: Vec<_> = fs::read_dir(&temporary).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

fn a_second_task_manager_with_the_same_id_replaces_the_first(transport: &str) {
    let files = ClusterFiles::new(transport, "");
    let job_manager = files.job_manager();
    let first = files.task_manager("tm-1");
    let second = files.start("taskmanager", &files.folder().join("tm-1.toml"));
    let ready = second.wait_stdout(READY, |line| line.starts_with("ready "));
    let address = ready
        .split("address=")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    let first = first.finish(STOP);
    assert_eq!(first.code(), Some(1), "{first:?}");
    let told = format!("replaced by another one with the same id at {address}");
    assert!(
        first
            .stderr
            .lines()
            .any(|line| line.contains("error") && line.contains(&told)),
        "{first:?}"
    );
    job_manager.wait_stderr(READY, |line| line.contains("replaced by another process"));
    let status = files.status();
    assert_eq!(status.task_managers(), ["tm-1"]);
    assert_eq!(status.0["taskmanagers"][0]["address"], address);
    let job = files.run_client("submit", &["shuffle", "--bytes", "8MiB"]);
    assert_eq!(job.code(), Some(0), "{job:?}");
    assert!(second.is_running());
}

#[test]
fn one_variable_moves_every_process_to_tcp() {
    let files = ClusterFiles::new("quic", "");
    let tcp = [("THALWEG__TRANSPORT__BACKEND", "tcp")];
    let start = |command: &str, role: Role, id: &str| {
        let process = files.start_with(command, &files.node(role, id, ""), &[], &tcp);
        let line = process.wait_stdout(READY, |line| line.starts_with("ready "));
        assert!(line.contains(" transport=tcp tls=mutual "), "{line}");
        process
    };
    let _job_manager = start("jobmanager", Role::JobManager, "jm-1");
    let _task_managers = ["tm-1", "tm-2"].map(|id| start("taskmanager", Role::TaskManager, id));
    let arguments = ["--json", "shuffle", "--bytes", "8MiB"];
    let job = files.start_with("submit", &files.client_config(), &arguments, &tcp);
    let job = job.finish(END);
    assert_eq!(job.code(), Some(0), "{job:?}");
    let report = last_json(&job);
    assert_eq!(
        (&report["transport"], &report["state"]),
        (&"tcp".into(), &"FINISHED".into())
    );
    assert!(report["bytes_remote"].as_u64() > Some(1 << 20), "{report}");
}

on_both_transports!(
    task_managers_that_start_first_serve_a_job_and_are_shown,
    a_cancelled_job_ends_its_submit_with_1,
    a_detached_job_goes_on_and_an_interrupted_one_does_not,
    daemons_end_with_0_within_the_drain_time,
    a_second_task_manager_with_the_same_id_replaces_the_first,
);

/// Waits until a job of this name moves records; its id.
fn running(files: &ClusterFiles, name: &str) -> String {
    let known = files.wait_status(READY, "records pass", |known| {
        let job = known.job(name);
        job["state"] == "RUNNING" && job["records"].as_u64() > Some(0)
    });
    known.job(name)["id"].as_str().unwrap().to_owned()
}

fn last_json(finished: &Finished) -> Value {
    let line = finished.stdout.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {finished:?}"))
}

/// A folder of texts, and what counting its words gives.
fn corpus(files: &ClusterFiles) -> (PathBuf, String) {
    let folder = files.folder().join("corpus");
    fs::create_dir_all(folder.join("deeper")).unwrap();
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for (name, line) in [
        ("one.txt", "Der Fluß, der FLUSS: 2 Ufer."),
        ("deeper/two.txt", "Äste am Ufer\tder Ente—12"),
    ] {
        let text = format!("{line}\n").repeat(500);
        for word in text
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty())
        {
            *counts.entry(word.to_lowercase()).or_default() += 1;
        }
        fs::write(folder.join(name), text).unwrap();
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by(|(a, x), (b, y)| y.cmp(x).then(a.cmp(b)));
    let expected = counts
        .iter()
        .map(|(word, count)| format!("{word}\t{count}\n"))
        .collect();
    (folder, expected)
}

const IDS: [&str; 3] = ["tm-1", "tm-2", "tm-3"];
/// Generous: other builds may run on this machine.
const READY: Duration = Duration::from_secs(60);
const END: Duration = Duration::from_secs(60);
/// The stop of a process is to take less than 5 s; the rest is for a busy machine.
const STOP: Duration = Duration::from_secs(10);
