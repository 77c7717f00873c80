//! The `bench` command as processes: what it measures is there, and nothing of it stays. Whether figures are good is not
//! tested here: that needs a quiet machine.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Output, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use thalweg_certs::{CertificateAuthority, Identity, IssueRequest, Role};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

const TRANSPORTS: [&str; 6] = ["quic", "raw-quic", "tcp", "raw-tls", "tcp-plain", "raw-tcp"];
/// The same for the command line: all that are built may be more.
const BELOW: &str = "quic,raw-quic,tcp,raw-tls,tcp-plain,raw-tcp";

#[tokio::test]
async fn every_transport_moves_data_and_is_compared_with_its_yardstick() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("results.json");
    let output = exchange(&file, &["--channels", "1,4", "--transport", BELOW]).await;
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{err}");
    let document = read(&file);
    for key in ["cores", "kernel", "mtu", "gso", "gro", "rmem_max", "cpu"] {
        assert!(document["machine"].get(key).is_some(), "{key}: {document}");
    }
    assert!(document["versions"]["quinn"].is_string());

    let runs = document["runs"].as_array().unwrap();
    let mut found = BTreeSet::new();
    for run in runs {
        for key in RUN_KEYS {
            assert!(run.get(key).is_some(), "{key}: {run}");
        }
        assert_eq!(
            (&run["suite"], &run["metric"]),
            (&"exchange".into(), &"throughput".into())
        );
        assert!(run["value"].as_f64().unwrap() > 0.0, "{run}");
        assert!(run["cpu_seconds_per_gb"].as_f64().unwrap() > 0.0, "{run}");
        found.insert((
            run["transport"].as_str().unwrap(),
            run["channels"].as_u64().unwrap(),
        ));
    }
    let expected = TRANSPORTS.iter().flat_map(|name| [(*name, 1), (*name, 4)]);
    assert_eq!(found, expected.collect());

    let ratios = document["ratios"].as_array().unwrap();
    // Three of ours, two numbers of channels, rate and processor time.
    assert_eq!(ratios.len(), 12, "{ratios:?}");
    for ratio in ratios {
        assert!(ratio["value"].as_f64().unwrap() > 0.0, "{ratio}");
        assert_eq!(ratio["placement"], "network");
    }
    assert_eq!(out.lines().count(), 13, "{out}");
}

#[tokio::test]
async fn calls_beside_data_are_timed_on_every_transport_and_placement() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("results.json");
    let args = [
        "--channels",
        "2",
        "--transport",
        BELOW,
        "--ping=only",
        "--placement",
        "network,own-thread",
    ];
    let output = exchange(&file, &args).await;
    assert!(output.status.success(), "{}", texts(&output).1);
    let document = read(&file);
    let runs = document["runs"].as_array().unwrap();
    let of = |metric: &str| {
        let runs = runs.iter().filter(|run| run["metric"] == metric);
        let values = runs.map(|run| run["value"].as_f64().unwrap());
        values.collect::<Vec<_>>()
    };
    // Three of ours in two placements, three raw ones.
    for metric in ["throughput", "latency_p50", "latency_p99", "latency_max"] {
        assert_eq!(of(metric).len(), 9, "{metric}");
        assert!(of(metric).iter().all(|value| *value > 0.0), "{metric}");
    }
    assert!(runs.iter().all(|run| run["suite"] == "rpc-under-load"));
    assert!(runs.iter().all(|run| run["payload"] == 64));
}

#[tokio::test]
async fn calls_through_gateways_are_timed_alone_and_beside_data() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("results.json");
    let output = short("rpc", &file, &["--channels", "2", "--transport", BELOW]).await;
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{err}");
    let document = read(&file);
    let runs = document["runs"].as_array().unwrap();
    let mut found = BTreeSet::new();
    for run in runs.iter().filter(|run| run["metric"] == "latency_p50") {
        for key in RUN_KEYS {
            assert!(run.get(key).is_some(), "{key}: {run}");
        }
        assert!(run["value"].as_f64().unwrap() > 0.0, "{run}");
        found.insert((
            run["transport"].as_str().unwrap(),
            run["suite"].as_str().unwrap(),
            run["outstanding"].as_u64().unwrap(),
        ));
    }
    let expected = TRANSPORTS.iter().flat_map(|name| {
        let kinds = [("rpc", 1), ("rpc", 64), ("rpc-under-load", 1)];
        kinds.map(|(suite, outstanding)| (*name, suite, outstanding))
    });
    assert_eq!(found, expected.collect());
    let alone = runs.iter().find(|run| run["outstanding"] == 1).unwrap();
    assert_eq!(alone["cores"], 1, "{alone}");
    let ratios = document["ratios"].as_array().unwrap();
    let compared = ratios.iter().filter(|ratio| ratio["metric"] == "calls");
    assert_eq!(compared.count(), 9, "{ratios:?}");
    assert_eq!(out.lines().count(), 7 + 1 + 7 + 1 + 13, "{out}");
}

#[cfg(feature = "peers")]
#[tokio::test]
async fn peers_do_the_same_work() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("results.json");
    for (command, transports, ratios_of, compared) in [
        ("exchange", "tcp,flight,flight-tls", "throughput", 2),
        ("rpc", "tcp,tonic,tonic-tls", "calls", 3 * 2),
    ] {
        let args = ["--channels", "2", "--transport", transports];
        let output = short(command, &file, &args).await;
        assert!(output.status.success(), "{}", texts(&output).1);
        let document = read(&file);
        let ratios = document["ratios"].as_array().unwrap();
        let of = ratios.iter().filter(|ratio| ratio["metric"] == ratios_of);
        let of: Vec<_> = of.map(|ratio| ratio["value"].as_f64().unwrap()).collect();
        assert_eq!(of.len(), compared, "{ratios:?}");
        assert!(of.iter().all(|value| *value > 0.0), "{ratios:?}");
    }
}

#[cfg(not(feature = "peers"))]
#[tokio::test]
async fn peers_that_were_not_built_are_wrong_usage() {
    for args in [
        ["rpc", "--transport", "tonic"],
        ["exchange", "--transport", "flight-tls"],
    ] {
        let output = end(spawn(&mut bench(&args))).await;
        let (_, err) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains("cargo feature peers"), "{err}");
    }
}

#[tokio::test]
async fn consumers_that_stop_do_not_stop_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("results.json");
    let args = [
        "--channels",
        "4",
        "--transport",
        "quic,tcp",
        "--slow-consumers",
        "1",
    ];
    let output = exchange(&file, &args).await;
    assert!(output.status.success(), "{}", texts(&output).1);
    let document = read(&file);
    let stopped: Vec<_> = document["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| {
            (
                run["slow_consumers"].as_u64(),
                run["value"].as_f64() > Some(0.0),
            )
        })
        .collect();
    let of_one = [(Some(0), true), (Some(1), true)];
    assert_eq!(stopped, [of_one, of_one].concat());
}

#[tokio::test]
async fn a_server_elsewhere_produces_for_one_command_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let ca = CertificateAuthority::generate("bench", 1).unwrap();
    for id in ["here", "there"] {
        let identity = Identity::new("bench", Role::TaskManager, id).unwrap();
        let issued = ca.issue(&IssueRequest::new(identity)).unwrap();
        issued.save(dir.path().join(id)).unwrap();
    }
    let certs = |id: &str| dir.path().join(id).to_str().unwrap().to_owned();
    let mut server = spawn(&mut bench(&["server", "--certs", &certs("there")]));
    let ready = first_line(&mut server).await;
    let address = ready
        .split(' ')
        .find_map(|word| word.strip_prefix("address="));
    let address = address.unwrap_or_else(|| panic!("{ready}"));
    let file = dir.path().join("results.json");
    for transport in ["tcp", "quic"] {
        let here = certs("here");
        let args = [
            "--peer",
            address,
            "--certs",
            &here,
            "--channels",
            "2",
            "--transport",
            transport,
        ];
        let output = exchange(&file, &args).await;
        assert!(output.status.success(), "{}", texts(&output).1);
        let document = read(&file);
        assert_eq!(document["runs"][0]["transport"], transport);
        assert!(document["peer"]["cores"].is_u64(), "{document}");
    }
    signal(&server, Signal::SIGTERM);
    let output = end(server).await;
    assert_eq!(output.status.code(), Some(0), "{}", texts(&output).1);
}

#[tokio::test]
async fn a_signal_ends_both_processes() {
    for (sent, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let mut command = bench(&["exchange", "--transport", "tcp", "--channels", "1"]);
        command.args(["--duration", "200ms", "--warmup", "0s", "--runs", "1000"]);
        let mut child = spawn(&mut command);
        // Once something was measured, the server runs.
        let told = child.stderr.take().map(BufReader::new).unwrap();
        let mut lines = told.lines();
        let line = timeout(DEADLINE, lines.next_line()).await.unwrap();
        assert!(line.unwrap().unwrap().starts_with("1 of 1000: tcp"));
        let server = child_of(child.id().unwrap());
        signal(&child, sent);
        let output = end(child).await;
        assert_eq!(output.status.code(), Some(code));
        assert!(output.stdout.is_empty());
        let gone = async {
            while Path::new(&format!("/proc/{server}")).exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(DEADLINE, gone).await.expect("the server has ended");
    }
}

#[tokio::test]
async fn wrong_usage_exits_with_2_and_failures_with_1() {
    for (args, code, told) in [
        (
            &["exchange", "--transport", "udp"][..],
            2,
            "all, quic, raw-quic",
        ),
        (
            &["exchange", "--slow-consumers", "8"],
            2,
            "--slow-consumers 8",
        ),
        (
            &[
                "exchange",
                "--transport",
                "raw-tcp",
                "--channels",
                "4",
                "--slow-consumers",
                "1",
            ],
            2,
            "needs one of ours",
        ),
        (
            &[
                "exchange",
                "--ping",
                "--buffer",
                "1KiB",
                "--payload",
                "1KiB",
            ],
            2,
            "at most 1000 bytes",
        ),
        (
            &["server", "--certs", "/no/such/folder"],
            2,
            "/no/such/folder",
        ),
        (
            &["exchange", "--json", "/no/such/folder/file"],
            1,
            "/no/such/folder/file",
        ),
        (&["rpc", "--cores", "1024"], 2, "--cores 1024"),
        (
            &["rpc", "--cores", "1", "--peer", "host:1", "--certs", "d"],
            2,
            "share no cores",
        ),
        (&["exchagne"], 2, "did you mean 'exchange'?"),
    ] {
        let output = end(spawn(&mut bench(args))).await;
        let (out, err) = texts(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {err}");
        assert!(
            err.starts_with("error: ") && err.contains(told),
            "{args:?}: {err}"
        );
        assert!(out.is_empty(), "{args:?}: {out}");
    }
}

/// A run as short as it makes sense.
async fn exchange(json: &Path, args: &[&str]) -> Output {
    short("exchange", json, args).await
}

async fn short(command: &str, json: &Path, args: &[&str]) -> Output {
    let mut command = bench(&[command, "--duration", "200ms", "--warmup", "100ms"]);
    command.args(["--runs", "1", "--json"]).arg(json).args(args);
    end(spawn(&mut command)).await
}

fn bench(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    command
}

fn spawn(command: &mut Command) -> Child {
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command was built")
}

async fn end(child: Child) -> Output {
    timeout(DEADLINE, child.wait_with_output())
        .await
        .expect("the command ends in time")
        .expect("its output can be read")
}

async fn first_line(child: &mut Child) -> String {
    let stdout = child.stdout.as_mut().expect("it is a pipe");
    let mut line = String::new();
    let mut reader = BufReader::new(stdout);
    timeout(DEADLINE, reader.read_line(&mut line))
        .await
        .expect("the server is ready in time")
        .expect("its output can be read");
    line
}

fn signal(child: &Child, signal: Signal) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    let pid = pid.expect("the process runs");
    kill(Pid::from_raw(pid), signal).expect("it is ours");
}

/// The one child of a process.
fn child_of(pid: u32) -> u32 {
    let children = format!("/proc/{pid}/task/{pid}/children");
    let text = fs::read_to_string(children).expect("the system lists children");
    text.trim().parse().expect("there is one child")
}

fn read(file: &Path) -> Value {
    let text = fs::read_to_string(file).expect("the file was written");
    serde_json::from_str(&text).expect("it is JSON")
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("the output is UTF-8");
    (text(&output.stdout), text(&output.stderr))
}

const RUN_KEYS: [&str; 17] = [
    "suite",
    "transport",
    "channels",
    "buffer",
    "outstanding",
    "payload",
    "profile",
    "network",
    "metric",
    "unit",
    "value",
    "min",
    "max",
    "cpu_seconds_per_gb",
    "rss_peak_mib",
    "placement",
    "cores",
];

/// Longer than any of these commands takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(120);
