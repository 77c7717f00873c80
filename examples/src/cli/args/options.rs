//! The options of each command.

use std::path::PathBuf;

use clap::{ValueEnum, builder::PossibleValuesParser};
use thalweg_runtime::ids::JobId;
use thalweg_transport::Profile;

use super::{help, job::JobArgs};

/// Run a job on a cluster in this process: JobManager, TaskManagers and client
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = help::RUN,
    subcommand_help_heading = "Jobs [default: wordcount]",
    subcommand_value_name = "JOB",
    override_usage = "cluster [run] [OPTIONS] [JOB [ARGS]]",
    next_help_heading = "Cluster"
)]
pub(crate) struct RunArgs {
    /// Configuration file, TOML
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Settings for a kind of network [default: loopback]
    #[arg(long, global = true, value_parser = PossibleValuesParser::new(Profile::ALL.map(Profile::as_str)))]
    pub(crate) profile: Option<String>,

    /// Transport between the nodes [default: quic]
    #[arg(long, global = true, value_parser = ["quic", "tcp"])]
    pub(crate) transport: Option<String>,

    /// Encryption with certificates on both sides; off only with tcp [default: mutual]
    #[arg(long, global = true, value_parser = ["mutual", "off"])]
    pub(crate) tls: Option<String>,

    /// Number of TaskManagers
    #[arg(
        long,
        global = true,
        value_name = "N",
        default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(1..=64)
    )]
    pub(crate) taskmanagers: u32,

    /// Slots of each TaskManager [default: 2]
    #[arg(long, global = true, value_name = "N")]
    pub(crate) slots: Option<u32>,

    /// One RPC service for all components, or one node with port and certificate for each
    #[arg(long, global = true, value_enum, default_value = "shared")]
    pub(crate) rpc: RpcSharingArg,

    #[command(flatten)]
    pub(crate) options: JobOptions,

    #[command(subcommand)]
    pub(crate) job: Option<JobArgs>,
}

/// Run a job on a running cluster and wait for its result
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = help::SUBMIT,
    subcommand_help_heading = "Jobs",
    subcommand_value_name = "JOB",
    override_usage = "cluster submit --config FILE [OPTIONS] JOB [ARGS]",
    next_help_heading = "Cluster"
)]
pub(crate) struct SubmitArgs {
    /// Configuration file of the client, TOML (required)
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Print the job's id and return, without waiting for the result
    #[arg(long, global = true, conflicts_with = "output")]
    pub(crate) detach: bool,

    #[command(flatten)]
    pub(crate) options: JobOptions,

    #[command(subcommand)]
    pub(crate) job: JobArgs,
}

/// What `run` and `submit` take.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Job")]
pub(crate) struct JobOptions {
    /// Parallel tasks of each kind [default: all slots]
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub(crate) parallelism: Option<u32>,

    /// Write the whole result to this file
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Print one JSON object about the job as the last line of standard output
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// How the components in one process talk to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RpcSharingArg {
    /// One RPC service for all components
    Shared,
    /// Each component is a node with a port and a certificate of its own
    Dedicated,
}

/// What `jobmanager` and `taskmanager` take.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct NodeArgs {
    /// Configuration file, TOML
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
}

/// Show TaskManagers, jobs and connections of a running cluster
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = help::STATUS)]
pub(crate) struct StatusArgs {
    /// Configuration file of the client, TOML
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Cancel a job of a running cluster
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = help::CANCEL)]
pub(crate) struct CancelArgs {
    /// Configuration file of the client, TOML
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,

    /// The job's id, 32 hexadecimal digits
    #[arg(value_name = "JOB_ID")]
    pub(crate) job: JobId,
}

/// Print the effective configuration as TOML
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = help::CONFIG)]
pub(crate) struct ConfigArgs {
    /// Configuration file, TOML; without it defaults and environment
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}
