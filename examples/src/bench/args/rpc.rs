//! `bench rpc`.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use thalweg_transport::Profile;

use super::{
    RunArgs,
    values::{CoresArg, LoadArg, TransportArg, buffer, chosen, payload},
};
use crate::bench::{
    help,
    spec::{MAX_CHANNELS, MAX_OUTSTANDING},
    transport_kind::{Placement, TransportKind},
};

/// Calls through gateways between two processes, alone and beside data, beside the raw transport in the same run
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = help::RPC)]
pub(crate) struct RpcArgs {
    /// What is measured, in this order
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "all",
        help_heading = "What"
    )]
    transport: Vec<TransportArg>,

    /// Calls that wait for their answer at any time
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,64", help_heading = "What",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_OUTSTANDING)))]
    pub(crate) outstanding: Vec<u32>,

    /// Bytes of a call and of its answer
    #[arg(long, value_name = "SIZE", default_value = "64B", value_parser = payload, help_heading = "What")]
    pub(crate) payload: u32,

    /// What calls are measured beside
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_enum,
        default_value = "idle,bulk",
        help_heading = "What"
    )]
    pub(crate) load: Vec<LoadArg>,

    /// Channels of the data beside calls
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "8", help_heading = "What",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CHANNELS)))]
    pub(crate) channels: Vec<u32>,

    /// A frame of that data on the wire, header included
    #[arg(long, value_name = "SIZE", default_value = "32KiB", value_parser = buffer, help_heading = "What")]
    pub(crate) buffer: u32,

    /// Settings for a kind of network; QUIC only
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "loopback", help_heading = "What",
        value_parser = PossibleValuesParser::new(Profile::ALL.map(Profile::as_str)).try_map(|name| name.parse::<Profile>()))]
    pub(crate) profile: Vec<Profile>,

    /// Where endpoint, callers, and tasks that move data run; raw transports have one thread for everything
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_enum,
        default_value = "network",
        help_heading = "What"
    )]
    pub(crate) placement: Vec<Placement>,

    /// Keep both processes on so many cores; all: where the system puts them. auto: 1 for one call outstanding and
    /// nothing beside it, else 2, and all with --peer
    #[arg(
        long,
        value_name = "auto|all|N",
        default_value = "auto",
        help_heading = "What"
    )]
    pub(crate) cores: CoresArg,

    #[command(flatten)]
    pub(crate) run: RunArgs,
}

impl RpcArgs {
    /// What is to be measured, each once.
    pub(crate) fn transports(&self) -> Vec<TransportKind> {
        chosen(&self.transport, &TransportKind::for_calls())
    }
}
