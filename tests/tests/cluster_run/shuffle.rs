//! `cluster run shuffle`: every record arrives, the report has its documented shape, memory is bounded.

use serde_json::Value;

use crate::support::{Run, run};

#[test]
fn every_record_arrives_from_everywhere_everywhere() {
    for transport in ["quic", "tcp"] {
        let run = shuffle(&["--transport", transport], "1GiB", "1KiB", "all-to-all");
        let json = report(&run, transport, 1 << 20);
        assert!(number(&json, "bytes_local") > 0, "{json}");
        assert!(number(&json, "bytes_remote") > 0, "{json}");
        assert_eq!(number(&json, "parallelism"), 4);
        // Each of two TaskManagers dials the other.
        assert_eq!(number(&json, "connections"), 2, "{json}");
        // Two sinks here take from two sources there, and the other way round.
        assert_eq!(number(&json, "streams"), 8, "{json}");
        assert!(run.peak_memory < MEMORY, "{} bytes", run.peak_memory);
    }
}

#[test]
fn every_record_crosses_the_network_one_way() {
    for transport in ["quic", "tcp"] {
        let run = shuffle(&["--transport", transport], "1GiB", "16KiB", "one-way");
        let json = report(&run, transport, 1 << 16);
        assert_eq!(number(&json, "bytes_local"), 0, "{json}");
        assert_eq!(number(&json, "parallelism"), 2);
        assert_eq!(number(&json, "connections"), 1, "{json}");
        assert_eq!(number(&json, "streams"), 4, "{json}");
        assert!(run.peak_memory < MEMORY, "{} bytes", run.peak_memory);
    }
}

#[test]
fn records_smaller_and_larger_than_a_buffer_arrive() {
    for (bytes, record, count) in [
        ("1MiB", "24B", 43_690),
        ("20MB", "33333B", 600),
        ("24MiB", "5MiB", 4),
    ] {
        let run = shuffle(&[], bytes, record, "all-to-all");
        report(&run, "quic", count);
    }
}

fn shuffle(options: &[&str], bytes: &str, record: &str, pattern: &str) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["--json"];
    arguments.extend(options);
    arguments.extend([
        "shuffle",
        "--bytes",
        bytes,
        "--record-size",
        record,
        "--pattern",
        pattern,
    ]);
    run(folder.path(), &arguments)
}

/// Checks the shape of the report, and what it says about a run that went well.
fn report(run: &Run, transport: &str, records: u64) -> Value {
    let json = run.json();
    let object = json.as_object().unwrap();
    let mut names: Vec<&str> = object.keys().map(String::as_str).collect();
    let mut documented = [&TEXTS[..], &NUMBERS, &["error"]].concat();
    names.sort_unstable();
    documented.sort_unstable();
    assert_eq!(names, documented);
    for name in TEXTS {
        assert!(json[name].is_string(), "{name}: {json}");
    }
    for name in NUMBERS {
        assert!(json[name].is_u64(), "{name}: {json}");
    }
    let id = json["job_id"].as_str().unwrap();
    assert!(
        id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit()),
        "{id}"
    );
    for (name, value) in [
        ("job", "shuffle"),
        ("state", "FINISHED"),
        ("transport", transport),
        ("tls", "mutual"),
    ] {
        assert_eq!(json[name], value, "{name}");
    }
    assert_eq!(json["error"], Value::Null);
    assert_eq!(number(&json, "records"), records);
    assert_eq!(number(&json, "restarts"), 0);
    assert_eq!(number(&json, "taskmanagers"), 2);
    assert!(number(&json, "duration_ms") > 0);
    json
}

fn number(json: &Value, name: &str) -> u64 {
    json[name].as_u64().unwrap()
}

const TEXTS: [&str; 5] = ["job_id", "job", "state", "transport", "tls"];
const NUMBERS: [&str; 9] = [
    "taskmanagers",
    "parallelism",
    "duration_ms",
    "records",
    "bytes_remote",
    "bytes_local",
    "connections",
    "streams",
    "restarts",
];
/// Three nodes, two of them with `transport.buffer_pool` of 64 MiB each.
const MEMORY: u64 = 400_000_000;
