//! The cases of `bench exchange`.

use super::{distinct, ways};
use crate::bench::{
    args::{ExchangeArgs, PingArg},
    case::{Calls, Case},
};

/// The cases of one round, each of ours beside its yardstick.
pub(crate) fn cases(args: &ExchangeArgs) -> Vec<Case> {
    let transports = args.transports();
    let mut cases = Vec::new();
    let ping = Some(Calls {
        payload: args.payload,
        outstanding: 1,
        gateway: false,
    });
    let pings: &[Option<Calls>] = match args.ping {
        None => &[None],
        Some(PingArg::Only) => &[ping],
        Some(PingArg::Also) => &[None, ping],
    };
    for &channels in &args.channels {
        for (transport, profile, placement) in ways(&transports, &args.profile, &args.placement) {
            let case = |calls, stopped| Case {
                transport,
                channels: Some(channels),
                profile,
                placement,
                calls,
                stopped,
                cores: None,
            };
            match args.slow_consumers {
                None => cases.extend(pings.iter().map(|&ping| case(ping, None))),
                Some(_) if !transport.is_ours() => {}
                Some(slow) => {
                    cases.extend([0, slow].map(|stopped| case(None, Some(stopped))));
                }
            }
        }
    }
    distinct(cases)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use thalweg_transport::Profile;

    use super::*;
    use crate::bench::{
        args::{Args, Command},
        transport_kind::TransportKind,
    };

    fn plan(line: &str) -> Vec<Case> {
        let words = ["bench", "exchange"].into_iter();
        match Args::try_parse_from(words.chain(line.split_whitespace()))
            .unwrap()
            .command
        {
            Command::Exchange(args) => cases(&args),
            other => panic!("{other:?}"),
        }
    }

    const BELOW: &str = "quic,raw-quic,tcp,raw-tls,tcp-plain,raw-tcp";

    #[test]
    fn every_transport_stands_beside_its_yardstick() {
        let cases = plan(&format!(
            "--transport {BELOW} --channels 1,8 --placement network,own-thread"
        ));
        assert_eq!(cases.len(), 2 * (3 * 2 + 3));
        for case in cases.iter().filter(|case| case.transport.is_ours()) {
            let yardstick = &case.references()[0];
            assert!(cases.contains(yardstick), "{yardstick:?}");
            assert_eq!(yardstick.placement, None);
        }
    }

    #[test]
    fn profiles_are_for_quic_alone() {
        let cases = plan(&format!(
            "--transport {BELOW} --channels 1 --profile loopback,jumbo"
        ));
        let of = |transport| {
            let cases = cases.iter().filter(|case| case.transport == transport);
            cases.map(|case| case.profile).collect::<Vec<_>>()
        };
        let both = [Some(Profile::Loopback), Some(Profile::Jumbo)];
        assert_eq!(of(TransportKind::Quic), both);
        assert_eq!(of(TransportKind::RawQuic), both);
        assert_eq!(of(TransportKind::Tcp), [None]);
    }

    #[test]
    fn nothing_is_measured_twice() {
        let all = plan("--transport all --channels 4").len();
        assert!(all >= 6);
        assert_eq!(plan("--transport tcp,all,tcp --channels 4,4").len(), all);
    }

    #[test]
    fn calls_come_beside_or_instead() {
        assert_eq!(plan("--transport tcp --channels 4 --ping").len(), 2);
        let only = plan("--transport tcp --channels 4 --ping=only --payload 128B");
        assert_eq!(only[0].calls.map(|calls| calls.payload), Some(128));
        assert_eq!(only[0].suite(), "rpc-under-load");
        assert_eq!(only.len(), 1);
    }

    #[test]
    fn stopped_consumers_are_compared_with_running_ones_of_ours() {
        let cases = plan("--channels 64 --transport quic,raw-quic --slow-consumers 1");
        let stopped: Vec<_> = cases.iter().map(|case| case.stopped).collect();
        assert_eq!(stopped, [Some(0), Some(1)]);
        assert_eq!(cases[1].references(), [cases[0].clone()]);
        assert_eq!(cases[0].references(), []);
        assert!(cases.iter().all(|case| case.counted(1) == 63));
    }
}
