//! What a cluster of real processes has on the wire: one port per node, and no clear text.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, which fail by panicking"
)]

use std::{fmt::Write as _, fs, net::SocketAddr, time::Duration};

use thalweg_tests::{
    on_both_transports,
    process::{ClusterFiles, Forwarder, Sockets, Spawned, free_port, until},
};

fn partitions_and_calls_of_a_node_share_one_port(transport: &str) {
    let files = ClusterFiles::new(transport, "");
    let job_manager = files.job_manager();
    let (first, second) = (files.task_manager("tm-1"), files.task_manager("tm-2"));
    let client = files.client("submit", &["shuffle", "--bytes", "1TiB"]);
    files.wait_status(READY, "records pass", |known| {
        known.job("shuffle")["records"].as_u64() > Some(1000)
    });
    let servers = [&job_manager, &first, &second];
    if transport == "quic" {
        for process in servers {
            let sockets = Sockets::of(process.pid());
            assert_eq!(sockets.udp, [address(process)], "{sockets:?}");
            assert!(sockets.listening.is_empty(), "{sockets:?}");
            assert!(sockets.established.is_empty(), "{sockets:?}");
        }
        let sockets = Sockets::of(client.pid());
        assert_eq!(
            (sockets.udp.len(), sockets.established.len()),
            (1, 0),
            "{sockets:?}"
        );
        return;
    }
    // The connection of the last `status` may be ending still.
    until(READY, "one connection per direction", || {
        let all: Vec<(SocketAddr, Sockets)> = servers
            .iter()
            .map(|process| (address(process), Sockets::of(process.pid())))
            .collect();
        let clients = Sockets::of(client.pid());
        let seen = format!("{all:?} {clients:?}");
        for (own, sockets) in &all {
            assert_eq!(sockets.listening, [*own], "{seen}");
            assert!(sockets.udp.is_empty(), "{seen}");
            for (other, _) in all.iter().filter(|(other, _)| other != own) {
                assert_eq!(sockets.dialled(*other).len(), 1, "{own} to {other}: {seen}");
            }
        }
        assert_eq!(clients.dialled(all[0].0).len(), 1, "{seen}");
        // Two with each of the other two; the client's ends at the JobManager.
        let counts: Vec<usize> = all.iter().map(|(_, s)| s.established.len()).collect();
        (counts == [5, 4, 4]).then_some(()).ok_or(seen)
    });
}

fn no_word_passes_in_clear_with_mutual_tls(transport: &str) {
    let forwarders = word_count_over_forwarders(transport);
    for forwarder in &forwarders {
        assert!(
            !WORDS.clone().any(|n| forwarder.saw(&word(n))),
            "a word passed in clear"
        );
    }
}

#[test]
fn words_pass_in_clear_without_tls() {
    let forwarders = word_count_over_forwarders("tcp-plain");
    let seen = WORDS
        .clone()
        .filter(|n| forwarders.iter().any(|f| f.saw(&word(*n))));
    // A word that is counted where it is read does not pass: about half of them.
    assert!(seen.count() > 8);
}

on_both_transports!(
    partitions_and_calls_of_a_node_share_one_port,
    no_word_passes_in_clear_with_mutual_tls,
);

/// Counts words on two TaskManagers that others reach over forwarders only.
fn word_count_over_forwarders(transport: &str) -> [Forwarder; 2] {
    let files = ClusterFiles::new(transport, "");
    let _job_manager = files.job_manager();
    let ports = [free_port(), free_port()];
    let forwarders =
        ports.map(|port| Forwarder::start(transport, SocketAddr::from(([127, 0, 0, 1], port))));
    let start = |id: &str, port: u16, forwarder: &Forwarder| {
        let advertised = forwarder.address();
        let extra = format!("bind = \"127.0.0.1:{port}\"\nadvertise = \"{advertised}\"");
        let process = files.task_manager_with(id, extra);
        assert_eq!(address(&process), advertised);
        process
    };
    let _first = start("tm-1", ports[0], &forwarders[0]);
    let _second = start("tm-2", ports[1], &forwarders[1]);
    let corpus = files.folder().join("corpus");
    fs::create_dir(&corpus).unwrap();
    for file in 0..8 {
        let mut text = String::new();
        for n in WORDS.clone() {
            writeln!(text, "{} and more", word(n)).unwrap();
        }
        fs::write(corpus.join(format!("{file}.txt")), text.repeat(20)).unwrap();
    }
    let output = files.folder().join("counts.tsv");
    let job = files.run_client(
        "submit",
        &[
            "--output",
            output.to_str().unwrap(),
            "wordcount",
            corpus.to_str().unwrap(),
        ],
    );
    assert_eq!(job.code(), Some(0), "{job:?}");
    let counted = fs::read_to_string(&output).unwrap();
    for n in WORDS.clone() {
        assert!(
            counted.contains(&format!("{}\t160\n", word(n))),
            "{counted}"
        );
    }
    for forwarder in &forwarders {
        assert!(forwarder.passed() > 10_000, "the nodes talk another way");
    }
    forwarders
}

/// The address in the ready line.
fn address(process: &Spawned) -> SocketAddr {
    let line = process.wait_stdout(READY, |line| line.starts_with("ready "));
    let address = line
        .split("address=")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    address.unwrap().parse().unwrap()
}

fn word(n: u32) -> String {
    format!("quetzalcoatlus{n:02}")
}

const WORDS: std::ops::Range<u32> = 0..32;
/// Generous: other builds may run on this machine.
const READY: Duration = Duration::from_secs(60);
