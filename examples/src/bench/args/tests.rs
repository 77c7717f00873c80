use clap::{CommandFactory, error::ErrorKind};

use thalweg_transport::Profile;

use super::*;
use crate::bench::transport_kind::{Placement, TransportKind};

fn parse(line: &str) -> Result<Args, clap::Error> {
    Args::try_parse_from(line.split_whitespace())
}

fn exchange(line: &str) -> ExchangeArgs {
    match parse(line).unwrap().command {
        Command::Exchange(args) => args,
        other => panic!("{other:?}"),
    }
}

fn rpc(line: &str) -> RpcArgs {
    match parse(line).unwrap().command {
        Command::Rpc(args) => args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn defaults_are_the_documented_ones() {
    let args = exchange("bench exchange");
    assert_eq!(args.transports(), TransportKind::for_data());
    assert_eq!(args.channels, [1, 8, 64]);
    assert_eq!(
        (args.buffer, args.payload, args.run.runs),
        (32 * 1024, 64, 3)
    );
    assert_eq!(args.run.duration, Duration::from_secs(5));
    assert_eq!(args.run.warmup, Duration::from_secs(1));
    assert_eq!(args.profile, [Profile::Loopback]);
    assert_eq!(args.placement, [Placement::Network]);
    assert_eq!((args.ping, args.slow_consumers), (None, None));
}

#[test]
fn calls_are_one_and_64_alone_and_beside_data() {
    let args = rpc("bench rpc");
    assert_eq!(args.transports(), TransportKind::for_calls());
    assert_eq!((&args.outstanding[..], args.payload), (&[1, 64][..], 64));
    assert_eq!(args.load, [LoadArg::Idle, LoadArg::Bulk]);
    assert_eq!((&args.channels[..], args.buffer), (&[8][..], 32 * 1024));
    assert_eq!(args.placement, [Placement::Network]);
    assert_eq!(args.cores, CoresArg::Auto);
    assert_eq!(args.run.runs, 3);
    assert_eq!(rpc("bench rpc --cores all").cores, CoresArg::All);
    assert_eq!(rpc("bench rpc --cores 2").cores, CoresArg::Some(2));
}

#[test]
fn lists_keep_their_order() {
    let args = exchange(
        "bench exchange --transport raw-tls,tcp --channels 8,1 --profile jumbo,lan --placement own-thread,network --ping",
    );
    assert_eq!(
        args.transports(),
        [TransportKind::RawTls, TransportKind::Tcp]
    );
    assert_eq!(args.channels, [8, 1]);
    assert_eq!(args.profile, [Profile::Jumbo, Profile::Lan]);
    assert_eq!(args.placement, [Placement::OwnThread, Placement::Network]);
    assert_eq!(args.ping, Some(PingArg::Also));
    assert_eq!(
        exchange("bench exchange --ping=only").ping,
        Some(PingArg::Only)
    );
}

#[test]
fn wrong_usage_names_the_flag_the_value_and_what_is_allowed() {
    for (line, told) in [
        (
            "bench exchange --transport udp",
            "invalid value 'udp' for '--transport <LIST>' [possible values: all, quic, raw-quic, tcp",
        ),
        (
            "bench exchange --channels 0",
            "invalid value '0' for '--channels <LIST>': 0 is not in 1..=1024",
        ),
        (
            "bench exchange --buffer 2MiB",
            "invalid value '2MiB' for '--buffer <SIZE>': 1KiB to 1MiB are allowed",
        ),
        (
            "bench exchange --duration 1ms",
            "invalid value '1ms' for '--duration <TIME>': 10ms to 1h are allowed",
        ),
        ("bench exchange --warmup soon", "is no duration"),
        (
            "bench exchange --profile moon",
            "possible values: loopback, jumbo, lan, wan",
        ),
        (
            "bench exchange --placement moon",
            "possible values: network, own-thread",
        ),
        ("bench exchange --peer host:1", "--certs <DIR>"),
        (
            "bench exchange --peer host --certs d",
            "a host and a port are expected",
        ),
        ("bench server --certs d --bind x", "'--bind <IP:PORT>'"),
        ("bench server", "--certs <DIR>"),
        (
            "bench exchagne",
            "unknown command 'exchagne' (did you mean 'exchange'?)",
        ),
        (
            "bench zzz",
            "unknown command 'zzz': commands are exchange, rpc, server",
        ),
        (
            "bench rpc --outstanding 0",
            "invalid value '0' for '--outstanding <LIST>': 0 is not in 1..=1024",
        ),
        (
            "bench rpc --cores 0",
            "invalid value '0' for '--cores <auto|all|N>': auto, all or 1 to 1024 are allowed",
        ),
        ("bench rpc --load heavy", "possible values: idle, bulk"),
    ] {
        let error = parse(line).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{line}");
        let text = crate::bench::one_line(&error);
        assert!(text.contains(told), "{line}: {text}");
    }
}

#[test]
fn help_has_examples_everywhere() {
    let help = Args::command().render_long_help().to_string();
    assert!(help.contains("Examples:"), "{help}");
    for line in ["exchange", "rpc", "server"].map(|command| format!("bench {command} --help")) {
        let error = parse(&line).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DisplayHelp);
        assert!(error.to_string().contains("Examples:"), "{line}");
    }
}
