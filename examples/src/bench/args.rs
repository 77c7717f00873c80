//! The command line.

mod exchange;
mod rpc;
mod values;

use std::{path::PathBuf, time::Duration};

use clap::{Parser, Subcommand};
use thalweg_transport::BindAddr;

pub(crate) use exchange::ExchangeArgs;
pub(crate) use rpc::RpcArgs;
pub(crate) use values::{CoresArg, LoadArg, PingArg};

use super::help;
use crate::cli::args::GlobalArgs;
use values::{duration, host_and_port, warmup};

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
    Rpc(RpcArgs),
    Server(ServerArgs),
}

/// How long it takes, where the other end is, and where the results go.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RunArgs {
    /// Length of a measurement
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration, help_heading = "How long")]
    pub(crate) duration: Duration,

    /// What is measured runs for so long before it is measured
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = warmup, help_heading = "How long")]
    pub(crate) warmup: Duration,

    /// Rounds: A B C A B C, so that a machine that changes its speed changes it for all
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "How long")]
    pub(crate) runs: u32,

    /// Write every result to this file
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub(crate) json: Option<PathBuf>,

    /// A `bench server` on another host as the other end [default: a second process on this one]
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

/// The end that produces and answers, for a `bench` on another host
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

#[cfg(test)]
mod tests;
