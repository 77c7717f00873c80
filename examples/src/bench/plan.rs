//! What is measured in which order.

use std::fmt;

use thalweg_transport::Profile;

use super::{
    args::{ExchangeArgs, PingArg},
    transport_kind::{Placement, TransportKind},
};
use crate::cli::human;

/// What one line of the result says, apart from the figures. What does not apply is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) transport: TransportKind,
    pub(crate) channels: u32,
    pub(crate) profile: Option<Profile>,
    pub(crate) placement: Option<Placement>,
    /// Bytes of the calls beside the data.
    pub(crate) ping: Option<u32>,
    /// Consumers that stop; with it each channel has a partition and a gate.
    pub(crate) stopped: Option<u32>,
}

impl Case {
    /// The case of the same round that this one is compared with.
    pub(crate) fn reference(&self) -> Option<Self> {
        if let Some(stopped) = self.stopped {
            return (stopped > 0).then(|| Self {
                stopped: Some(0),
                ..self.clone()
            });
        }
        Some(Self {
            transport: self.transport.yardstick()?,
            placement: None,
            ..self.clone()
        })
    }

    pub(crate) fn suite(&self) -> &'static str {
        if self.ping.is_some() {
            "rpc-under-load"
        } else {
            "exchange"
        }
    }

    /// Channels whose bytes count: those that never stop, also where nobody stops for comparison.
    pub(crate) fn counted(&self, slow: u32) -> u32 {
        match self.stopped {
            Some(_) => self.channels.saturating_sub(slow),
            None => self.channels,
        }
    }
}

impl fmt::Display for Case {
    /// `tcp, 8 channels, own-thread, ping`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let channels = human::plural(self.channels.into(), "channel");
        write!(f, "{}, {channels}", self.transport.as_str())?;
        if let Some(profile) = self.profile {
            write!(f, ", {profile}")?;
        }
        if let Some(placement) = self.placement {
            write!(f, ", {}", placement.as_str())?;
        }
        if self.ping.is_some() {
            f.write_str(", ping")?;
        }
        if let Some(stopped) = self.stopped {
            write!(f, ", {stopped} stopped")?;
        }
        Ok(())
    }
}

/// The cases of one round, each of ours beside its yardstick.
pub(crate) fn cases(args: &ExchangeArgs) -> Vec<Case> {
    let transports = args.transports();
    let mut cases = Vec::new();
    let pings: &[Option<u32>] = match args.ping {
        None => &[None],
        Some(PingArg::Only) => &[Some(args.payload)],
        Some(PingArg::Also) => &[None, Some(args.payload)],
    };
    for &channels in &args.channels {
        for (pass, &profile) in args.profile.iter().enumerate() {
            for &transport in &transports {
                // What has no profile is measured once.
                if pass > 0 && !transport.has_profile() {
                    continue;
                }
                let profile = transport.has_profile().then_some(profile);
                let placements: Vec<Option<Placement>> = if transport.is_raw() {
                    vec![None]
                } else {
                    args.placement.iter().copied().map(Some).collect()
                };
                for placement in placements {
                    let case = |ping, stopped| Case {
                        transport,
                        channels,
                        profile,
                        placement,
                        ping,
                        stopped,
                    };
                    match args.slow_consumers {
                        None => cases.extend(pings.iter().map(|&ping| case(ping, None))),
                        Some(_) if transport.is_raw() => {}
                        Some(slow) => {
                            cases.extend([0, slow].map(|stopped| case(None, Some(stopped))));
                        }
                    }
                }
            }
        }
    }
    let mut distinct: Vec<Case> = Vec::new();
    for case in cases {
        if !distinct.contains(&case) {
            distinct.push(case);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{
        super::args::{Args, Command},
        *,
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

    #[test]
    fn every_transport_stands_beside_its_yardstick() {
        let cases = plan("--channels 1,8 --placement network,own-thread");
        assert_eq!(cases.len(), 2 * (3 * 2 + 3));
        for case in cases.iter().filter(|case| !case.transport.is_raw()) {
            let yardstick = case.reference().unwrap();
            assert!(cases.contains(&yardstick), "{yardstick:?}");
            assert_eq!(yardstick.placement, None);
        }
    }

    #[test]
    fn profiles_are_for_quic_alone() {
        let cases = plan("--channels 1 --profile loopback,jumbo");
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
        assert_eq!(plan("--transport tcp,all,tcp --channels 4,4").len(), 6);
    }

    #[test]
    fn calls_come_beside_or_instead() {
        assert_eq!(plan("--transport tcp --channels 4 --ping").len(), 2);
        let only = plan("--transport tcp --channels 4 --ping=only --payload 128B");
        assert_eq!(only[0].ping, Some(128));
        assert_eq!(only[0].suite(), "rpc-under-load");
        assert_eq!(only.len(), 1);
    }

    #[test]
    fn stopped_consumers_are_compared_with_running_ones_of_ours() {
        let cases = plan("--channels 64 --transport quic,raw-quic --slow-consumers 1");
        let stopped: Vec<_> = cases.iter().map(|case| case.stopped).collect();
        assert_eq!(stopped, [Some(0), Some(1)]);
        assert_eq!(cases[1].reference().as_ref(), Some(&cases[0]));
        assert_eq!(cases[0].reference(), None);
        assert!(cases.iter().all(|case| case.counted(1) == 63));
    }
}
