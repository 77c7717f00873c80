//! A cluster of real processes that stand still, are killed while calls to them are under way, and start again where they
//! were.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, which fail by panicking"
)]

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use thalweg_tests::{
    on_both_transports,
    process::{ClusterFiles, Spawned, free_port, now, pause},
};

fn a_stopped_task_manager_is_noticed_and_comes_back(transport: &str) {
    let files = quick(transport);
    let _job_manager = files.job_manager();
    let _good = files.task_manager("tm-1");
    let stopped = files.task_manager("tm-2");
    files.wait_status(READY, "both are there", |known| {
        known.task_managers() == ["tm-1", "tm-2"]
    });
    stopped.signal(Signal::SIGSTOP);
    let begin = now();
    files.wait_status(END, "it is noticed", |known| {
        known.task_managers() == ["tm-1"]
    });
    let after = begin.elapsed();
    let limit = IDLE_TIMEOUT.min(HEARTBEAT_TIMEOUT + HEARTBEAT_INTERVAL) + SLACK;
    assert!(after < limit, "noticed only after {after:?}");
    stopped.signal(Signal::SIGCONT);
    files.wait_status(READY, "it registers again", |known| {
        known.task_managers() == ["tm-1", "tm-2"] && known.free_slots() == 4
    });
    assert!(stopped.is_running());
    eprintln!("{transport}: a stopped TaskManager was noticed after {after:?}");
}

fn calls_under_way_fail_when_their_task_manager_starts_again(transport: &str) {
    let files = quick(transport);
    let job_manager = files.job_manager();
    let _good = files.task_manager("tm-1");
    let bind = format!("bind = \"127.0.0.1:{}\"", free_port());
    let victim = files.task_manager_with("tm-2", &bind);
    let submit = submit_endless(&files);
    files.wait_status(READY, "records pass", |known| {
        known.job("shuffle")["records"].as_u64() > Some(0)
    });
    // It takes calls and does not answer: heartbeats are under way when it is killed.
    victim.signal(Signal::SIGSTOP);
    pause(2 * HEARTBEAT_INTERVAL);
    assert!(submit.is_running() && !job_manager.stderr().contains("lost"));
    victim.signal(Signal::SIGKILL);
    let killed = now();
    victim.finish(END);
    let again = files.task_manager_with("tm-2", &bind);
    // By the reset of its connection, by the new process's registration, or by `idle_timeout`; not by heartbeats.
    let known = files.wait_status(END, "the job runs again", |known| {
        let job = known.job("shuffle");
        let tasks = job["tasks"].as_array().unwrap();
        let run = tasks.iter().all(|task| task["state"] == "RUNNING");
        job["restarts"].as_u64() >= Some(1) && run
    });
    let after = killed.elapsed();
    assert!(after < IDLE_TIMEOUT + SLACK, "only after {after:?}");
    assert_eq!(known.task_managers(), ["tm-1", "tm-2"]);
    assert!(again.is_running());
    eprintln!("{transport}: the job ran again {after:?} after the kill of a TaskManager");
    submit.signal(Signal::SIGINT);
    submit.finish(END);
}

fn calls_under_way_fail_when_their_job_manager_starts_again(transport: &str) {
    let files = quick(transport);
    let job_manager = files.job_manager();
    let nodes = ["tm-1", "tm-2"].map(|id| files.task_manager(id));
    let submit = submit_endless(&files);
    files.wait_status(READY, "records pass", |known| {
        known.job("shuffle")["records"].as_u64() > Some(0)
    });
    // The client asks for its job's status several times in this time, and has no answer.
    job_manager.signal(Signal::SIGSTOP);
    pause(Duration::from_secs(1));
    assert!(submit.is_running());
    job_manager.signal(Signal::SIGKILL);
    job_manager.finish(END);
    let _job_manager = files.job_manager();
    let submit = submit.finish(END);
    assert_eq!(submit.code(), Some(1), "{submit:?}");
    assert!(submit.stderr.contains("there is no job"), "{submit:?}");
    files.wait_status(READY, "they register anew, with free slots", |known| {
        known.task_managers() == ["tm-1", "tm-2"] && known.free_slots() == 4
    });
    let next = ["--json", "shuffle", "--bytes", "8MiB"];
    let next = files.run_client("submit", &next);
    assert_eq!(next.code(), Some(0), "{next:?}");
    let report: Value = serde_json::from_str(next.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(report["state"], "FINISHED", "{report}");
    assert!(nodes.iter().all(Spawned::is_running));
}

on_both_transports!(
    a_stopped_task_manager_is_noticed_and_comes_back,
    calls_under_way_fail_when_their_task_manager_starts_again,
    calls_under_way_fail_when_their_job_manager_starts_again,
);

/// A cluster that notices losses soon, by its connections before its heartbeats.
fn quick(transport: &str) -> ClusterFiles {
    let settings = format!(
        "restart_delay = \"200ms\"\n[heartbeat]\ninterval = \"{}ms\"\ntimeout = \"{}s\"\n\
         [taskmanager]\nslot_timeout = \"2s\"\n",
        HEARTBEAT_INTERVAL.as_millis(),
        HEARTBEAT_TIMEOUT.as_secs()
    );
    let transport_settings = format!(
        "keep_alive = \"500ms\"\nidle_timeout = \"{}s\"\n",
        IDLE_TIMEOUT.as_secs()
    );
    ClusterFiles::new(transport, &settings).with_transport(&transport_settings)
}

fn submit_endless(files: &ClusterFiles) -> Spawned {
    files.client("submit", &["--json", "shuffle", "--bytes", "1TiB"])
}

const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(20);
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// For everything that is no time-out, on a busy machine.
const SLACK: Duration = Duration::from_secs(12);
/// Generous: other builds may run on this machine.
const READY: Duration = Duration::from_secs(60);
const END: Duration = Duration::from_secs(90);
