//! The cases of `bench rpc`.

use super::{distinct, ways};
use crate::bench::{
    args::{CoresArg, LoadArg, RpcArgs},
    case::{Calls, Case},
};

/// The cases of one round on a machine with so many cores: calls alone, then beside data, each of ours beside its
/// yardstick.
pub(crate) fn cases(args: &RpcArgs, available: u32) -> Vec<Case> {
    let transports = args.transports();
    let ways = ways(&transports, &args.profile, &args.placement);
    let mut cases = Vec::new();
    for load in &args.load {
        let (channels, outstanding) = match load {
            LoadArg::Idle => (vec![None], args.outstanding.clone()),
            // More calls than one would not measure how long data holds up a call.
            LoadArg::Bulk => (args.channels.iter().copied().map(Some).collect(), vec![1]),
        };
        for &channels in &channels {
            for &outstanding in &outstanding {
                for &(transport, profile, placement) in &ways {
                    cases.push(Case {
                        transport,
                        channels,
                        profile,
                        placement,
                        calls: Some(Calls {
                            payload: args.payload,
                            outstanding,
                            gateway: true,
                        }),
                        stopped: None,
                        cores: cores(args, channels.is_none() && outstanding == 1, available),
                    });
                }
            }
        }
    }
    distinct(cases)
}

/// What `auto` means: one call that nothing is beside never keeps two cores busy, and how fast the system wakes the
/// second one is not what is measured.
fn cores(args: &RpcArgs, alone: bool, available: u32) -> Option<u32> {
    match args.cores {
        CoresArg::All => None,
        CoresArg::Some(cores) => Some(cores),
        // Nobody knows the cores of another host.
        CoresArg::Auto if args.run.peer.is_some() => None,
        CoresArg::Auto if alone => Some(1),
        CoresArg::Auto => Some(available.min(2)),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::bench::{
        args::{Args, Command},
        transport_kind::TransportKind,
    };

    fn plan(line: &str) -> Vec<Case> {
        let words = ["bench", "rpc"].into_iter();
        match Args::try_parse_from(words.chain(line.split_whitespace()))
            .unwrap()
            .command
        {
            Command::Rpc(args) => cases(&args, 4),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn calls_of_every_transport_stand_beside_those_of_its_yardstick() {
        let cases = plan("--transport quic,raw-quic,tcp,raw-tls,tcp-plain,raw-tcp");
        assert_eq!(cases.len(), 6 * (2 + 1));
        for case in cases.iter().filter(|case| case.transport.is_ours()) {
            let references = case.references();
            assert!(cases.contains(&references[0]), "{references:?}");
            assert_eq!(references[0].calls, case.calls);
            assert_eq!(references[0].cores, case.cores);
        }
    }

    #[test]
    fn one_call_alone_has_one_core_and_everything_else_two() {
        let of = |line: &str| {
            let cases = plan(line).into_iter();
            let short = cases.map(|case| {
                let outstanding = case.calls.map_or(0, |calls| calls.outstanding);
                (case.suite(), outstanding, case.cores)
            });
            short.collect::<Vec<_>>()
        };
        assert_eq!(
            of("--transport quic"),
            [
                ("rpc", 1, Some(1)),
                ("rpc", 64, Some(2)),
                ("rpc-under-load", 1, Some(2))
            ]
        );
        let all = of("--transport quic --cores all");
        assert!(all.iter().all(|(_, _, cores)| cores.is_none()));
        let one = of("--transport quic --cores 1");
        assert!(one.iter().all(|(_, _, cores)| *cores == Some(1)));
        let elsewhere = of("--transport quic --peer host:1 --certs d");
        assert!(elsewhere.iter().all(|(_, _, cores)| cores.is_none()));
    }

    #[test]
    fn load_can_be_left_out_or_be_all() {
        let idle = plan("--transport tcp --load idle --outstanding 4 --payload 1KiB");
        assert_eq!((idle.len(), idle[0].channels), (1, None));
        assert_eq!(idle[0].calls.map(|calls| calls.payload), Some(1024));
        let bulk = plan("--transport tcp --load bulk --channels 8,64");
        let channels: Vec<_> = bulk.iter().map(|case| case.channels).collect();
        assert_eq!(channels, [Some(8), Some(64)]);
        assert!(
            bulk.iter().all(
                |case| case.transport == TransportKind::Tcp && case.suite() == "rpc-under-load"
            )
        );
    }
}
