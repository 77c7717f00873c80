use std::path::PathBuf;

use clap::{CommandFactory, error::ErrorKind};
use thalweg_runtime::config::ByteSize;

use super::*;

fn parse(line: &str) -> Result<Args, clap::Error> {
    let words = line.split_whitespace().map(Into::into);
    Args::try_parse_from(with_command(&Args::command(), words))
}

fn run(line: &str) -> RunArgs {
    match parse(line)
        .unwrap_or_else(|error| panic!("{line}: {error}"))
        .command
    {
        Command::Run(args) => args,
        other => panic!("{line}: {other:?}"),
    }
}

fn fails(line: &str) -> (ErrorKind, String) {
    let error = parse(line).unwrap_err();
    (error.kind(), error.to_string())
}

#[test]
fn the_definition_is_consistent() {
    Args::command().debug_assert();
}

#[test]
fn run_is_meant_where_no_command_is_given() {
    assert!(run("cluster").job.is_none());
    assert!(run("cluster --quiet --log-level debug").job.is_none());
    for line in [
        "cluster --taskmanagers 3 shuffle --bytes 64KiB",
        "cluster run --taskmanagers 3 shuffle --bytes 64KiB",
        "cluster shuffle --bytes 64KiB --taskmanagers=3",
        "cluster --log-level warn --taskmanagers=3 shuffle --bytes=64KiB",
    ] {
        let args = run(line);
        assert_eq!(args.taskmanagers, 3, "{line}");
        let Some(JobArgs::Shuffle(shuffle)) = args.job else {
            panic!("{line}");
        };
        assert_eq!(shuffle.bytes, ByteSize::kib(64), "{line}");
    }
}

#[test]
fn options_count_before_and_after_the_job() {
    for line in [
        "cluster wordcount a b --output o --json --parallelism 3 --quiet",
        "cluster run --quiet --output o --json --parallelism 3 wordcount a b",
        "cluster --parallelism 3 --output o wordcount --json a --quiet b",
    ] {
        let args = parse(line).unwrap();
        assert!(args.global.quiet, "{line}");
        let Command::Run(args) = args.command else {
            panic!("{line}");
        };
        assert_eq!(args.options.output, Some(PathBuf::from("o")), "{line}");
        assert_eq!(
            (args.options.json, args.options.parallelism),
            (true, Some(3)),
            "{line}"
        );
        let Some(JobArgs::WordCount(wordcount)) = args.job else {
            panic!("{line}");
        };
        assert_eq!(wordcount.paths, ["a", "b"].map(PathBuf::from), "{line}");
    }
}

#[test]
fn a_file_may_be_named_like_a_command() {
    let Some(JobArgs::WordCount(args)) = run("cluster wordcount status run").job else {
        panic!("no wordcount");
    };
    assert_eq!(args.paths, ["status", "run"].map(PathBuf::from));
}

#[test]
fn defaults_are_the_documented_ones() {
    let args = run("cluster shuffle");
    assert_eq!(
        (args.taskmanagers, args.slots, args.rpc),
        (2, None, RpcSharingArg::Shared)
    );
    let Some(JobArgs::Shuffle(args)) = args.job else {
        panic!("no shuffle");
    };
    assert_eq!(
        (args.bytes, args.record_size),
        (ByteSize::mib(1024), ByteSize::kib(1))
    );
    assert_eq!(args.pattern, PatternArg::AllToAll);
    assert_eq!(args.exchange.exchange, ExchangeArg::Pipelined);
}

#[test]
fn daemons_and_clients_need_a_configuration() {
    for line in [
        "cluster jobmanager",
        "cluster taskmanager",
        "cluster status",
        "cluster cancel 6f1c3a52e0b94d7c8a90b1f2d3e4c5a6",
    ] {
        assert_eq!(fails(line).0, ErrorKind::MissingRequiredArgument, "{line}");
    }
    assert!(matches!(
        parse("cluster config").unwrap().command,
        Command::Config(_)
    ));
    let submit = parse("cluster submit --config c.toml shuffle --json").unwrap();
    assert!(matches!(
        submit.command,
        Command::Submit(SubmitArgs {
            config: Some(_),
            ..
        })
    ));
    assert_eq!(
        fails("cluster submit --config c.toml").0,
        ErrorKind::MissingSubcommand
    );
}

#[test]
fn wrong_usage_names_what_is_wrong_and_what_is_allowed() {
    for (line, told) in [
        ("cluster statsu", "'status'"),
        (
            "cluster --transport udp shuffle",
            "[possible values: quic, tcp]",
        ),
        ("cluster shuffle --bytes 10x", "like 64KiB"),
        ("cluster --parallelism 0 shuffle", "1..=16384"),
        ("cluster cancel --config c xyz", "32 hexadecimal digits"),
        ("cluster shuffle --pattern ring", "all-to-all, one-way"),
        (
            "cluster submit --config c --detach --output o shuffle",
            "cannot be used with",
        ),
    ] {
        let (_, text) = fails(line);
        assert!(text.contains(told), "{line}: {text}");
        assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
    }
}

#[test]
fn help_has_examples_everywhere() {
    let mut program = Args::command();
    assert!(program.render_long_help().to_string().contains("Examples:"));
    for name in [
        "run",
        "jobmanager",
        "taskmanager",
        "submit",
        "status",
        "cancel",
        "config",
    ] {
        let help = fails(&format!("cluster {name} --help"));
        assert_eq!(help.0, ErrorKind::DisplayHelp);
        assert!(help.1.contains("Examples:"), "{name}: {}", help.1);
    }
    for line in [
        "cluster shuffle --help",
        "cluster run wordcount --help",
        "cluster help run",
    ] {
        assert!(fails(line).1.contains("Examples:"), "{line}");
    }
    assert_eq!(fails("cluster --version").0, ErrorKind::DisplayVersion);
    assert!(fails("cluster --help").1.contains("jobmanager"));
}
