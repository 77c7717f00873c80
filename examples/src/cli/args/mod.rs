//! The command line.

mod help;
mod insert;
mod job;
mod options;
mod wrong;

use clap::{Parser, Subcommand, ValueEnum};

pub(crate) use insert::with_command;
pub(crate) use job::{ExchangeArg, JobArgs, PatternArg};
#[cfg(test)]
pub(crate) use job::{ExchangeArgs, ShuffleArgs, WordCountArgs};
pub(crate) use options::{
    CancelArgs, ConfigArgs, JobOptions, NodeArgs, RpcSharingArg, RunArgs, StatusArgs, SubmitArgs,
};
pub(crate) use wrong::{names_in, one_line, one_line_of};

/// The TLS-secured example cluster: a dataflow engine over QUIC or TCP
///
/// Without a command, `run` is meant: a whole cluster in this process, a job on it, and the end.
#[derive(Debug, Parser)]
#[command(name = "cluster", version, override_usage = help::USAGE, after_help = help::EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Messages")]
pub(crate) struct GlobalArgs {
    /// What is logged on standard error: off, error, warn, info, debug or trace, also by part: info,thalweg_transport=debug
    /// [default: info for what runs until it is stopped, else warn]
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,

    /// Form of the log
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "FORMAT",
        default_value = "text"
    )]
    pub(crate) log_format: LogFormat,

    /// No progress and no summary, only results, warnings and errors
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

/// Forms of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object per line
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(RunArgs),
    #[command(
        name = "jobmanager",
        about = "Run a JobManager until Ctrl-C or SIGTERM",
        after_help = help::JOB_MANAGER
    )]
    JobManager(NodeArgs),
    #[command(
        name = "taskmanager",
        about = "Run a TaskManager until Ctrl-C or SIGTERM",
        after_help = help::TASK_MANAGER
    )]
    TaskManager(NodeArgs),
    Submit(SubmitArgs),
    Status(StatusArgs),
    Cancel(CancelArgs),
    Config(ConfigArgs),
}

#[cfg(test)]
mod tests;
