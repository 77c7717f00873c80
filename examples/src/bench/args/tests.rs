use clap::{CommandFactory, error::ErrorKind};

use super::*;

fn parse(line: &str) -> Result<Args, clap::Error> {
    Args::try_parse_from(line.split_whitespace())
}

fn exchange(line: &str) -> ExchangeArgs {
    match parse(line).unwrap().command {
        Command::Exchange(args) => args,
        other @ Command::Server(_) => panic!("{other:?}"),
    }
}

#[test]
fn defaults_are_the_documented_ones() {
    let args = exchange("bench exchange");
    assert_eq!(args.transports(), TransportKind::ALL);
    assert_eq!(args.channels, [1, 8, 64]);
    assert_eq!((args.buffer, args.payload, args.runs), (32 * 1024, 64, 3));
    assert_eq!(args.duration, Duration::from_secs(5));
    assert_eq!(args.warmup, Duration::from_secs(1));
    assert_eq!(args.profile, [Profile::Loopback]);
    assert_eq!(args.placement, [Placement::Network]);
    assert_eq!((args.ping, args.slow_consumers), (None, None));
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
            "unknown command 'zzz': commands are exchange, server",
        ),
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
    for line in ["bench exchange --help", "bench server --help"] {
        let error = parse(line).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DisplayHelp);
        assert!(error.to_string().contains("Examples:"), "{line}");
    }
}
