//! `cluster run wordcount` counts exactly, whatever the cluster looks like.

use std::fs;

use serde_json::Value;

use crate::{
    corpus::{Corpus, NOT_UTF8, PATHS},
    support::run,
};

#[test]
fn words_are_counted_exactly_over_quic() {
    let json = counts(&["--transport", "quic"], 0);
    assert_eq!(
        (&json["transport"], &json["tls"]),
        (&"quic".into(), &"mutual".into())
    );
    assert!(remote_bytes(&json) > 0, "{json}");
}

#[test]
fn words_are_counted_exactly_over_tcp_with_tls() {
    let json = counts(&["--transport", "tcp"], 0);
    assert_eq!(
        (&json["transport"], &json["tls"]),
        (&"tcp".into(), &"mutual".into())
    );
    assert!(remote_bytes(&json) > 0, "{json}");
}

#[test]
fn words_are_counted_exactly_over_tcp_without_tls() {
    let json = counts(&["--transport", "tcp", "--tls", "off"], 1);
    assert_eq!(
        (&json["transport"], &json["tls"]),
        (&"tcp".into(), &"off".into())
    );
    assert!(remote_bytes(&json) > 0, "{json}");
}

#[test]
fn one_task_manager_counts_exactly_without_the_network() {
    let json = counts(&["--taskmanagers", "1"], 0);
    assert_eq!(remote_bytes(&json), 0, "{json}");
    assert_eq!(
        (&json["taskmanagers"], &json["connections"]),
        (&1.into(), &0.into())
    );
}

#[test]
fn four_task_managers_with_three_slots_count_exactly() {
    let json = counts(&["--taskmanagers", "4", "--slots", "3"], 0);
    assert_eq!(
        (&json["taskmanagers"], &json["parallelism"]),
        (&4.into(), &12.into())
    );
    assert!(remote_bytes(&json) > 0, "{json}");
}

#[test]
fn components_with_nodes_of_their_own_count_exactly() {
    let json = counts(&["--rpc", "dedicated"], 0);
    assert!(remote_bytes(&json) > 0, "{json}");
}

/// Counts the corpus and compares; `log` is the number of lines that the log has beside the warning of the command.
fn counts(options: &[&str], log: usize) -> Value {
    let corpus = Corpus::get();
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("counts");
    let mut arguments = vec!["--json", "--quiet", "--output", output.to_str().unwrap()];
    arguments.extend(options);
    arguments.push("wordcount");
    arguments.extend(PATHS);
    let run = run(corpus.folder(), &arguments);
    compare(&fs::read_to_string(&output).unwrap(), corpus.expected());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let told: Vec<&str> = run.finished.stderr.lines().collect();
    let of_file = format!("{NOT_UTF8} is not UTF-8 everywhere: ");
    assert!(
        told.len() == log + 1 && told[log].starts_with("warning: ") && told[log].contains(&of_file),
        "{told:?}"
    );
    let json = run.json();
    assert_eq!(
        (&json["job"], &json["state"]),
        (&"wordcount".into(), &"FINISHED".into())
    );
    json
}

fn remote_bytes(json: &Value) -> u64 {
    json["bytes_remote"].as_u64().unwrap()
}

/// Names the first line that differs: the whole is too long to be read.
fn compare(found: &str, expected: &str) {
    for (number, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert!(
            found == expected,
            "line {}: {:.80?} is not {:.80?}",
            number + 1,
            found,
            expected
        );
    }
    assert_eq!(found.lines().count(), expected.lines().count(), "lines");
    assert!(found == expected, "line ends differ");
}
