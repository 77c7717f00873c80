//! What a run that goes well says on standard error: nothing that would make anybody look.

use crate::support::run;

#[test]
fn a_run_that_goes_well_logs_no_warning() {
    let folder = tempfile::tempdir().unwrap();
    for transport in ["quic", "tcp"] {
        for rpc in ["shared", "dedicated"] {
            for task_managers in ["1", "3"] {
                let cluster = [
                    "--transport",
                    transport,
                    "--rpc",
                    rpc,
                    "--taskmanagers",
                    task_managers,
                ];
                let arguments = [&cluster[..], &["shuffle", "--bytes", "8MiB"]].concat();
                let run = run(folder.path(), &arguments);
                assert!(
                    run.warnings().is_empty(),
                    "{arguments:?}:\n{}",
                    run.finished.stderr
                );
                assert!(
                    run.finished.stdout.contains("FINISHED"),
                    "{}",
                    run.finished.stdout
                );
            }
        }
    }
}

#[test]
fn a_run_without_tls_warns_of_it_once() {
    let folder = tempfile::tempdir().unwrap();
    for rpc in ["shared", "dedicated"] {
        let arguments = [
            "--transport",
            "tcp",
            "--tls",
            "off",
            "--rpc",
            rpc,
            "shuffle",
            "--bytes",
            "8MiB",
        ];
        let run = run(folder.path(), &arguments);
        let warnings = run.warnings();
        assert!(
            warnings.len() == 1
                && warnings[0].contains(" WARN ")
                && warnings[0].contains("TLS is off"),
            "{rpc}: {warnings:?}"
        );
    }
}

#[test]
fn a_quiet_run_says_nothing_but_its_result() {
    let folder = tempfile::tempdir().unwrap();
    let run = run(
        folder.path(),
        &["--quiet", "--json", "shuffle", "--bytes", "8MiB"],
    );
    assert_eq!(run.finished.stderr, "");
    assert_eq!(run.finished.stdout.lines().count(), 1);
}
