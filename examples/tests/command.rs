//! The `cluster` command as a process: exit codes, streams and signals. What needs a running cluster is tested
//! elsewhere.

use std::{
    net::{SocketAddr, TcpListener},
    process::{Output, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::process::{Child, Command};

#[tokio::test]
async fn wrong_usage_exits_with_2_and_leaves_standard_output_empty() {
    for (args, told) in [
        (&["statsu"][..], "'status'"),
        (&["status"], "--config"),
        (&["submit", "wordcount"], "--config FILE is required"),
        (&["--transport", "udp"], "quic, tcp"),
        (&["--tls", "off"], "QUIC is always encrypted"),
        (
            &["--slots", "0"],
            "taskmanager.slots = 0 is not allowed: 1 to 1024",
        ),
        (&["--parallelism", "9", "shuffle"], "allow 4"),
        (
            &["--taskmanagers", "1", "shuffle", "--pattern", "one-way"],
            "needs two TaskManagers",
        ),
        (&["shuffle", "--exchange", "blocking"], "not supported"),
        (&["shuffle", "--record-size", "3"], "--record-size"),
        (&["--log-level", "loud"], "off, error, warn"),
    ] {
        let output = finish(cluster(args)).await;
        let (out, err) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {err}");
        assert!(
            err.starts_with("error: ") && err.contains(told),
            "{args:?}: {err}"
        );
        assert!(out.is_empty(), "{args:?}: {out}");
    }
}

#[tokio::test]
async fn paths_that_cannot_be_used_exit_with_1_and_are_named() {
    for (args, told) in [
        (
            &["wordcount", "/no/such/file"][..],
            "cannot read /no/such/file: ",
        ),
        (&["wordcount", "/dev/null"], "/dev/null"),
        (
            &["--output", "/no/such/folder/out", "wordcount"],
            "cannot write /no/such/folder/out: ",
        ),
        (&["--config", "/no/such/config"], "/no/such/config"),
    ] {
        let output = finish(cluster(args)).await;
        let (out, err) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {err}");
        assert!(
            err.starts_with("error: ") && err.contains(told),
            "{args:?}: {err}"
        );
        assert!(out.is_empty(), "{args:?}: {out}");
    }
}

#[tokio::test]
async fn help_and_version_are_results() {
    for args in [
        &["--help"][..],
        &["run", "--help"],
        &["help", "submit"],
        &["--version"],
    ] {
        let output = finish(cluster(args)).await;
        assert!(output.status.success(), "{args:?}");
        let (out, err) = texts(&output);
        assert!(
            out.contains("cluster") && err.is_empty(),
            "{args:?}: {out} {err}"
        );
    }
}

#[tokio::test]
async fn the_effective_configuration_is_printed_and_reads_back() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("node.toml");
    std::fs::write(&file, "[taskmanager]\nslots = 7\n").unwrap();
    let mut command = cluster(&["config", "--config", file.to_str().unwrap()]);
    let output = finish(command.env("THALWEG__TRANSPORT__BACKEND", "tcp")).await;
    let (printed, err) = texts(&output);
    assert!(output.status.success(), "{err}");
    for line in [
        "slots = 7",
        "backend = \"tcp\"",
        "# listen = \"127.0.0.1:9249\"",
    ] {
        assert!(
            printed.lines().any(|printed| printed.starts_with(line)),
            "{line}: {printed}"
        );
    }
    std::fs::write(&file, &printed).unwrap();
    let again = finish(cluster(&["config", "--config", file.to_str().unwrap()])).await;
    assert_eq!(texts(&again).0, printed);
}

#[tokio::test]
async fn a_closed_standard_output_ends_quietly() {
    let mut child = spawn(&mut cluster(&["config"]));
    drop(child.stdout.take());
    let output = end(child).await;
    assert!(output.status.success());
    assert!(output.stderr.is_empty(), "{}", texts(&output).1);
}

#[tokio::test]
async fn a_missing_job_manager_exits_with_1_and_is_named_by_its_address() {
    let address = free_address();
    for args in [&["status"][..], &["submit", "shuffle"], &["cancel", JOB]] {
        let (_dir, mut command) = client(args, address);
        let output = finish(&mut command).await;
        let (out, err) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {err}");
        let error = err.lines().last().unwrap_or_default();
        assert!(
            error.starts_with("error: ") && error.contains(&address.to_string()),
            "{err}"
        );
        assert!(out.is_empty(), "{args:?}: {out}");
    }
}

#[tokio::test]
async fn a_signal_ends_a_client_that_waits_for_the_job_manager() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (_dir, mut command) = client(&["submit", "shuffle"], silent.local_addr().unwrap());
        let child = spawn(&mut command);
        // Once it has connected, it listens for signals.
        let accepted = tokio::task::spawn_blocking(move || silent.accept());
        let _connection = tokio::time::timeout(DEADLINE, accepted)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
        let output = end(child).await;
        assert_eq!(output.status.code(), Some(code), "{}", texts(&output).1);
        assert!(output.stdout.is_empty());
    }
}

fn cluster(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cluster"));
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// A client of a cluster without certificates.
fn client(args: &[&str], job_manager: SocketAddr) -> (tempfile::TempDir, Command) {
    let dir = tempfile::tempdir().expect("the temporary folder is writable");
    let file = dir.path().join("client.toml");
    let text = format!(
        "[transport]\nbackend = \"tcp\"\n[tls]\nmode = \"off\"\n[jobmanager]\naddress = \"{job_manager}\"\n"
    );
    std::fs::write(&file, text).expect("the temporary folder is writable");
    let mut command = cluster(&[
        args[0],
        "--config",
        file.to_str()
            .expect("the temporary folder has a plain name"),
    ]);
    command.args(&args[1..]);
    (dir, command)
}

/// An address at which nobody listens any more.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("some port is free");
    listener
        .local_addr()
        .expect("a bound socket has an address")
}

fn spawn(command: &mut Command) -> Child {
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command was built")
}

async fn finish(mut command: impl std::borrow::BorrowMut<Command>) -> Output {
    end(spawn(command.borrow_mut())).await
}

async fn end(child: Child) -> Output {
    tokio::time::timeout(DEADLINE, child.wait_with_output())
        .await
        .expect("the command ends in time")
        .expect("its output can be read")
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("the output is UTF-8");
    (text(&output.stdout), text(&output.stderr))
}

const JOB: &str = "6f1c3a52e0b94d7c8a90b1f2d3e4c5a6";
/// Longer than any of these commands takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);
