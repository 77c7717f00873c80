//! The `bench` command: the transports beside what lies below them, in the same run.
//!
//! The command consumes and calls; a second process, `bench server`, produces and answers. Both are driven by the command
//! over a control connection of its own, so that the two ends may be on one host or on two.
//!
//! ```text
//! exchange, rpc ─► plan ─► case (pure)
//!     └─► rounds ─► report ─► figures (pure)
//!            └─► measure ─► client ─► {ours, raw, peers} ─► tasks, counters
//! server ─► session ────────────────► {ours, raw, peers}
//! ```

mod args;
mod bulk;
mod case;
mod client;
mod control;
mod cores;
mod counters;
mod exchange;
mod fault;
mod figures;
mod help;
mod machine;
mod measure;
mod ours;
mod peer;
#[cfg(feature = "peers")]
mod peers;
mod plan;
mod raw;
mod report;
mod rounds;
mod rpc;
mod security;
mod server;
mod session;
mod spec;
mod statistics;
mod tasks;
mod told;
mod transport_kind;
mod usage;

use std::{ffi::OsString, process::ExitCode};

use clap::CommandFactory;

use crate::cli::{
    self,
    args::{names_in, one_line_of},
    failure::Failure,
    logging,
};
use args::{Args, Command};

/// Runs the `bench` command with these arguments, the program's name first.
///
/// Results go to standard output, everything else to standard error. The exit code is 0 for success, 1 for a failure,
/// 2 for wrong usage, 130 or 143 if Ctrl-C or SIGTERM came before the end.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    cli::parse_and_run(args, one_line, start)
}

fn one_line(error: &clap::Error) -> String {
    one_line_of(error, "command", || {
        format!("commands are {}", names_in(&Args::command()))
    })
}

fn start(args: Args) -> Result<(), Failure> {
    // Plaintext is asked for by name here: the warning about it says nothing new.
    let level = match &args.command {
        Command::Server(server) if !server.child => "info,thalweg_transport::tcp=error",
        _ => "warn,thalweg_transport::tcp=error",
    };
    logging::start(&args.global, level)?;
    let quiet = args.global.quiet;
    cli::block_on(async move {
        match args.command {
            Command::Exchange(args) => exchange::run(&args, quiet).await,
            Command::Rpc(args) => rpc::run(&args, quiet).await,
            Command::Server(args) => server::run(&args).await,
        }
    })
}
