//! The command line.

use std::{path::PathBuf, time::Duration};

use clap::{
    Parser, Subcommand, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};
use thalweg_runtime::config::{ByteSize, format_duration, parse_duration};
use thalweg_transport::{BindAddr, Profile};

use super::{
    help,
    spec::{MAX_CHANNELS, MAX_PAYLOAD},
    transport_kind::{Placement, TransportKind},
};
use crate::cli::args::GlobalArgs;

/// Compare the transports with each other and with what lies below them
#[derive(Debug, Parser)]
#[command(name = "bench", version, after_help = help::EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Exchange(ExchangeArgs),
    Server(ServerArgs),
}

/// Partition exchange between two processes, beside the raw transport in the same run
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = help::EXCHANGE)]
pub(crate) struct ExchangeArgs {
    /// What is measured, in this order
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "all",
        help_heading = "What"
    )]
    pub(crate) transport: Vec<TransportArg>,

    /// Channels: subpartitions of the partition, channels of the gate
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,8,64", help_heading = "What",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CHANNELS)))]
    pub(crate) channels: Vec<u32>,

    /// A frame on the wire, header included
    #[arg(long, value_name = "SIZE", default_value = "32KiB", value_parser = buffer, help_heading = "What")]
    pub(crate) buffer: u32,

    /// Settings for a kind of network; QUIC only
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "loopback", help_heading = "What",
        value_parser = PossibleValuesParser::new(Profile::ALL.map(Profile::as_str)).try_map(|name| name.parse::<Profile>()))]
    pub(crate) profile: Vec<Profile>,

    /// Where the producing and the consuming task run; raw transports have one thread for everything
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_enum,
        default_value = "network",
        help_heading = "What"
    )]
    pub(crate) placement: Vec<Placement>,

    /// Also measure a small call, one outstanding, on the same connection while data saturates it; only: nothing else
    #[arg(
        long,
        value_name = "also|only",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "also",
        help_heading = "What"
    )]
    pub(crate) ping: Option<PingArg>,

    /// Bytes of such a call and of its answer
    #[arg(long, value_name = "SIZE", default_value = "64B", value_parser = payload, help_heading = "What")]
    pub(crate) payload: u32,

    /// Instead: one partition and gate per channel, once with every consumer reading and once with the last N stopped.
    /// The throughput is that of the others; raw transports are left out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CHANNELS)), help_heading = "What")]
    pub(crate) slow_consumers: Option<u32>,

    /// Length of a measurement
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration, help_heading = "How long")]
    pub(crate) duration: Duration,

    /// Data flows for so long before it is measured
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = warmup, help_heading = "How long")]
    pub(crate) warmup: Duration,

    /// Rounds: A B C A B C, so that a machine that changes its speed changes it for all
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "How long")]
    pub(crate) runs: u32,

    /// Write every result to this file
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub(crate) json: Option<PathBuf>,

    /// A `bench server` on another host, which produces [default: a second process on this one]
    #[arg(long, value_name = "HOST:PORT", requires = "certs", value_parser = host_and_port, help_heading = "Two hosts")]
    pub(crate) peer: Option<String>,

    /// Folder with cert.pem, key.pem and ca.pem of this end
    #[arg(
        long,
        value_name = "DIR",
        requires = "peer",
        help_heading = "Two hosts"
    )]
    pub(crate) certs: Option<PathBuf>,
}

/// The producing end, for a `bench` on another host
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = help::SERVER)]
pub(crate) struct ServerArgs {
    /// Where the command reaches this end (TCP); data uses free ports, TCP and UDP, of the same address
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    pub(crate) bind: BindAddr,

    /// Folder with cert.pem, key.pem and ca.pem of this end
    #[arg(long, value_name = "DIR")]
    pub(crate) certs: PathBuf,

    /// End with standard input, as a child of the command does.
    #[arg(long, hide = true)]
    pub(crate) child: bool,
}

/// A value of `--transport`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransportArg {
    All,
    One(TransportKind),
}

/// What `--ping` adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PingArg {
    /// Each measurement without and with it
    Also,
    /// Each measurement with it
    Only,
}

impl ExchangeArgs {
    /// What is to be measured, each once.
    pub(crate) fn transports(&self) -> Vec<TransportKind> {
        let mut chosen = Vec::new();
        for arg in &self.transport {
            let these = match arg {
                TransportArg::All => TransportKind::ALL.to_vec(),
                TransportArg::One(one) => vec![*one],
            };
            for one in these {
                if !chosen.contains(&one) {
                    chosen.push(one);
                }
            }
        }
        chosen
    }
}

impl ValueEnum for TransportArg {
    fn value_variants<'a>() -> &'a [Self] {
        const VARIANTS: [TransportArg; 7] = {
            let [a, b, c, d, e, f] = TransportKind::ALL;
            [
                TransportArg::All,
                TransportArg::One(a),
                TransportArg::One(b),
                TransportArg::One(c),
                TransportArg::One(d),
                TransportArg::One(e),
                TransportArg::One(f),
            ]
        };
        &VARIANTS
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        match self {
            Self::All => Some(clap::builder::PossibleValue::new("all").help("All of them")),
            Self::One(kind) => kind.to_possible_value(),
        }
    }
}

fn buffer(text: &str) -> Result<u32, String> {
    size(text, 1024, 1024 * 1024)
}

fn payload(text: &str) -> Result<u32, String> {
    size(text, 1, MAX_PAYLOAD)
}

fn size(text: &str, least: u32, most: u32) -> Result<u32, String> {
    let size: ByteSize = text.parse()?;
    u32::try_from(size.as_u64())
        .ok()
        .filter(|bytes| (least..=most).contains(bytes))
        .ok_or_else(|| {
            let shown = |bytes: u32| ByteSize::bytes(bytes.into());
            format!("{} to {} are allowed", shown(least), shown(most))
        })
}

fn duration(text: &str) -> Result<Duration, String> {
    time(text, Duration::from_millis(10))
}

fn warmup(text: &str) -> Result<Duration, String> {
    time(text, Duration::ZERO)
}

fn time(text: &str, least: Duration) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    if (least..=LONGEST).contains(&time) {
        Ok(time)
    } else {
        let (least, most) = (format_duration(least), format_duration(LONGEST));
        Err(format!("{least} to {most} are allowed"))
    }
}

fn host_and_port(text: &str) -> Result<String, String> {
    let parts = text.rsplit_once(':');
    match parts.map(|(host, port)| (host, port.parse::<u16>())) {
        Some((host, Ok(1..))) if !host.is_empty() => Ok(text.to_owned()),
        _ => Err("a host and a port are expected, like bench-2.example:6190".to_owned()),
    }
}

/// One measurement.
const LONGEST: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests;
