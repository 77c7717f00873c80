//! What the `cluster` command says to wrong input and to whoever stops it: an exit code and one clear line.

use std::{
    fs,
    net::{TcpListener, UdpSocket},
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use nix::sys::signal::Signal;
use serde_json::Value;
use thalweg_tests::process::{ClusterFiles, Finished, Role, Spawned, binary};

#[test]
fn a_wrong_configuration_is_refused_with_key_value_and_line() {
    let folder = tempfile::tempdir().unwrap();
    for (text, told) in [
        (
            "[transport]\nbuffer_sise = \"32KiB\"",
            "unknown key transport.buffer_sise (did you mean transport.buffer_size?)",
        ),
        ("[tranport]\nbackend = \"tcp\"", "transport"),
        (
            "\n\n[transport]\nbackend = \"quick\"",
            "(did you mean quic?) [node.toml line 4]",
        ),
        ("[transport]\nbackend = 7", "transport.backend"),
        (
            "[taskmanager]\nslots = \"many\"",
            "taskmanager.slots = \"many\" is not allowed: a whole number",
        ),
        (
            "[taskmanager]\nslots = -1",
            "taskmanager.slots = -1 is not allowed",
        ),
        (
            "[rpc]\nask_timeout = \"soon\"",
            "rpc.ask_timeout = \"soon\" is not allowed: a duration like",
        ),
        (
            "[transport]\nbuffer_size = \"32 apples\"",
            "transport.buffer_size = \"32 apples\" is not allowed: ",
        ),
        (
            "[transport]\nbind = \"here\"",
            "transport.bind = \"here\" is not allowed: ",
        ),
        (
            "[transport]\nreuse_connections = \"yes\"",
            "transport.reuse_connections = \"yes\" is not allowed: ",
        ),
        ("[tls]\nmode = \"off\"", "QUIC is always encrypted"),
        ("[transport", "node.toml line 1, column "),
    ] {
        fs::write(folder.path().join("node.toml"), text).unwrap();
        for command in ["config", "jobmanager", "taskmanager"] {
            let ended = cluster(folder.path(), &[command, "--config", "node.toml"]);
            refused(&ended, 2, told);
        }
        refused(
            &cluster(folder.path(), &["run", "--config", "node.toml", "shuffle"]),
            2,
            told,
        );
    }
}

#[test]
fn wrong_arguments_are_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, told) in [
        (
            &["--transport", "quick"][..],
            "invalid value 'quick' for '--transport <TRANSPORT>'",
        ),
        (&["--tls", "off", "shuffle"], "QUIC is always encrypted"),
        (
            &["run", "wordcont"],
            "unknown command or job 'wordcont' (did you mean 'wordcount'?)",
        ),
        (&["run", "teragen"], "jobs are wordcount, shuffle"),
        (&["shuffle", "--record-sise", "1KiB"], "'--record-size'"),
        (
            &["shuffle", "--record-size", "23B"],
            "--record-size of 23 bytes is not allowed: 24B",
        ),
        (&["shuffle", "--bytes", "100B"], "at least one has to fit"),
        (&["shuffle", "--bytes", "lots"], "\"lots\" is no size"),
        (&["shuffle", "--pattern", "ring"], "all-to-all, one-way"),
        (
            &["--parallelism", "5", "shuffle"],
            "2 TaskManagers with 2 slots each allow 4",
        ),
        (&["--parallelism", "-1", "shuffle"], "-1"),
        (&["--taskmanagers", "0", "shuffle"], "'--taskmanagers <N>'"),
        (&["submit", "shuffle"], "--config FILE is required"),
        (&["status"], "--config <FILE>"),
        (&["cancel", "--config", "none", "no-id"], "no-id"),
    ] {
        refused(&cluster(folder.path(), arguments), 2, told);
    }
}

#[test]
fn paths_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, told) in [
        (
            &["wordcount", "no/such/file"][..],
            "cannot read no/such/file: No such file or directory",
        ),
        (&["wordcount", "/dev/null"], "/dev/null"),
        (
            &["--output", "no/such/folder/out", "wordcount"],
            "cannot write no/such/folder/out: ",
        ),
        (&["--output", ".", "wordcount"], "cannot write .: "),
        (
            &["--config", "no.toml", "wordcount"],
            "no.toml cannot be read: ",
        ),
    ] {
        refused(&cluster(folder.path(), arguments), 1, told);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn certificate_files_that_are_missing_or_wrong_are_named() {
    for transport in ["quic", "tcp"] {
        let files = ClusterFiles::new(transport, "");
        let broken = |break_it: &dyn Fn(&Path), told: &str| {
            for (command, role) in [
                ("jobmanager", Role::JobManager),
                ("taskmanager", Role::TaskManager),
                ("status", Role::Client),
            ] {
                let _ = fs::remove_dir_all(files.folder().join("certs/broken"));
                let config = files.node(role, "broken", "");
                break_it(&files.folder().join("certs/broken"));
                let config = config.to_str().unwrap();
                refused(
                    &cluster(files.folder(), &[command, "--config", config]),
                    2,
                    told,
                );
            }
        };
        for name in ["cert.pem", "key.pem", "ca.pem"] {
            let told = format!("certs/broken/{name}: No such file or directory");
            broken(&|folder| fs::remove_file(folder.join(name)).unwrap(), &told);
            broken(
                &|folder| fs::write(folder.join(name), "no PEM").unwrap(),
                &format!("certs/broken/{name}"),
            );
        }
        files.node(Role::TaskManager, "other", "");
        let other = files.folder().join("certs/other/key.pem");
        broken(
            &|folder| assert!(fs::copy(&other, folder.join("key.pem")).unwrap() > 0),
            "does not belong to",
        );
    }
}

#[test]
fn a_certificate_for_another_role_is_refused() {
    let files = ClusterFiles::new("quic", "");
    let config = files.node(Role::TaskManager, "tm-1", "");
    let arguments = ["jobmanager", "--config", config.to_str().unwrap()];
    refused(
        &cluster(files.folder(), &arguments),
        2,
        "/taskmanager/tm-1: this is a jobmanager",
    );
}

#[test]
fn a_port_in_use_is_named() {
    for transport in ["quic", "tcp"] {
        let files = ClusterFiles::new(transport, "");
        let address = files.job_manager_address();
        let (_tcp, _udp) = (
            TcpListener::bind(address).unwrap(),
            UdpSocket::bind(address).unwrap(),
        );
        let config = files.node(Role::JobManager, "jm-1", "");
        let arguments = ["jobmanager", "--config", config.to_str().unwrap()];
        let told = format!("address {address} is already in use");
        refused(&cluster(files.folder(), &arguments), 1, &told);
    }
}

#[test]
fn a_missing_job_manager_is_named_by_its_address() {
    for transport in ["quic", "tcp"] {
        let files = ClusterFiles::new(transport, "");
        let config = files.node(Role::Client, "cli", "connect_timeout = \"2s\"");
        let config = config.to_str().unwrap();
        for arguments in [
            &["submit", "--config", config, "shuffle"][..],
            &["status", "--config", config],
            &[
                "cancel",
                "--config",
                config,
                "6f1c3a52e0b94d7c8a90b1f2d3e4c5a6",
            ],
        ] {
            let told = format!("no JobManager answers at {}: ", files.job_manager_address());
            refused(&cluster(files.folder(), arguments), 1, &told);
        }
    }
}

#[test]
fn a_job_that_gets_no_slots_says_what_was_asked_and_what_exists() {
    // The configuration files end with the section of the JobManager.
    let files = ClusterFiles::new("quic", "slot_request_timeout = \"1s\"");
    let (_job_manager, _task_manager) = (files.job_manager(), files.task_manager("tm-1"));
    let ended = files.run_client(
        "submit",
        &["--json", "--parallelism", "3", "shuffle", "--bytes", "1MiB"],
    );
    assert_eq!(ended.code(), Some(1), "{}", ended.stderr);
    let json: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(json["state"], "FAILED");
    let error = json["error"].as_str().unwrap();
    for told in ["3 asked", "2 exist", "tm-1"] {
        assert!(error.contains(told), "{told}: {error}");
    }
    let line = one_line(&ended);
    assert!(
        line.starts_with("error: ") && line.contains(error),
        "{line}"
    );
    assert_eq!(json["restarts"], 0, "waiting again would change nothing");
}

#[test]
fn a_signal_stops_a_run_cleanly_and_in_time() {
    for transport in ["quic", "tcp"] {
        // While tasks and connections begin, and while data flows.
        for (signal, code, moment) in [
            (Signal::SIGINT, 130, "to=RUNNING"),
            (Signal::SIGTERM, 143, " over the network"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let temporary = folder.path().display().to_string();
            fs::write(
                folder.path().join("run.toml"),
                format!("[taskmanager]\ntemp_dirs = [{temporary:?}]\n[transport]\nbackend = {transport:?}\n"),
            )
            .unwrap();
            let arguments = [
                "run",
                "--config",
                "run.toml",
                "--log-level",
                "info",
                "--json",
                "--output",
                "out",
                "shuffle",
                "--bytes",
                "64GiB",
            ];
            let variables = [("TMPDIR", temporary.as_str())];
            let process = Spawned::start(&binary("cluster"), arguments, folder.path(), &variables);
            process.wait_stderr(DEADLINE, |line| line.contains(moment));
            let children = format!("/proc/{0}/task/{0}/children", process.pid());
            assert_eq!(
                fs::read_to_string(children).unwrap(),
                "",
                "no process to be orphaned"
            );
            process.signal(signal);
            let ended = process.finish(Duration::from_secs(5));
            assert_eq!(ended.code(), Some(code), "{}", ended.stderr);
            let json: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
            assert_eq!(json["state"], "CANCELED", "{json}");
            let unclean = ended
                .stderr
                .lines()
                .filter(|line| line.contains("WARN") || line.contains("panicked"));
            assert_eq!(unclean.count(), 0, "{}", ended.stderr);
            let left: Vec<_> = fs::read_dir(folder.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect();
            assert_eq!(left, ["run.toml"]);
        }
    }
}

#[test]
fn a_closed_standard_output_ends_a_run_quietly() {
    let folder = tempfile::tempdir().unwrap();
    for options in [&["--quiet", "--json"][..], &["--quiet"]] {
        let mut child = Command::new(binary("cluster"))
            .args(options)
            .args(["shuffle", "--bytes", "1MiB"])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let (ended, receiver) = mpsc::channel();
        thread::spawn(move || ended.send(child.wait_with_output().unwrap()));
        let output = receiver.recv_timeout(DEADLINE).unwrap();
        assert!(output.status.success(), "{:?}", output.status);
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    }
}

/// Runs the command to its end.
fn cluster(folder: &Path, arguments: &[&str]) -> Finished {
    Spawned::start(&binary("cluster"), arguments, folder, &[]).finish(DEADLINE)
}

/// Checks the exit code, and that the only thing said is what was wrong.
fn refused(ended: &Finished, code: i32, told: &str) {
    assert_eq!(ended.code(), Some(code), "{told}: {}", ended.stderr);
    assert_eq!(ended.stdout, "", "{told}");
    let line = one_line(ended);
    assert!(
        line.starts_with("error: ") && line.contains(told),
        "{told:?}: {line:?}"
    );
}

/// The one line on standard error, which is for people.
fn one_line(ended: &Finished) -> &str {
    let lines: Vec<&str> = ended.stderr.lines().collect();
    let [line] = lines[..] else {
        panic!("one line expected: {lines:?}");
    };
    for debug in [
        "panicked", "Some(", "Err(", "Os {", "Error {", "kind: ", "\\n", "\\\"",
    ] {
        assert!(!line.contains(debug), "{debug:?}: {line}");
    }
    line
}

/// A command on a machine that is busy with other tests.
const DEADLINE: Duration = Duration::from_secs(60);
