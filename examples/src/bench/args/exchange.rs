//! `bench exchange`.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use thalweg_transport::Profile;

use super::{
    RunArgs,
    values::{PingArg, TransportArg, buffer, chosen, payload},
};
use crate::bench::{
    help,
    spec::MAX_CHANNELS,
    transport_kind::{Placement, TransportKind},
};

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
    transport: Vec<TransportArg>,

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

    #[command(flatten)]
    pub(crate) run: RunArgs,
}

impl ExchangeArgs {
    /// What is to be measured, each once.
    pub(crate) fn transports(&self) -> Vec<TransportKind> {
        chosen(&self.transport, &TransportKind::for_data())
    }
}
