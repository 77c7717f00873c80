//! The jobs and their arguments.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use thalweg_runtime::config::ByteSize;

use super::help;

#[derive(Debug, Clone, Subcommand)]
#[command(subcommand_help_heading = "Jobs", subcommand_value_name = "JOB")]
pub(crate) enum JobArgs {
    #[command(name = "wordcount")]
    WordCount(WordCountArgs),
    Shuffle(ShuffleArgs),
}

/// Count words in files, or in a generated text
#[derive(Debug, Clone, Default, clap::Args)]
#[command(after_help = help::WORD_COUNT)]
pub(crate) struct WordCountArgs {
    /// Files, and folders with all they hold; without any, 32 MiB of generated text
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) exchange: ExchangeArgs,
}

/// Exchange generated records between all tasks and check every one of them
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = help::SHUFFLE)]
pub(crate) struct ShuffleArgs {
    /// Bytes to send, all tasks together
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub(crate) bytes: ByteSize,

    /// Bytes of a record, 24B to 64MiB
    #[arg(long, value_name = "SIZE", default_value = "1KiB")]
    pub(crate) record_size: ByteSize,

    /// Who sends to whom
    #[arg(long, value_enum, default_value = "all-to-all")]
    pub(crate) pattern: PatternArg,

    #[command(flatten)]
    pub(crate) exchange: ExchangeArgs,
}

/// What every job takes.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ExchangeArgs {
    /// How data is kept between tasks
    #[arg(long, value_enum, default_value = "pipelined")]
    pub(crate) exchange: ExchangeArg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ExchangeArg {
    /// Consumed while it is produced
    #[default]
    Pipelined,
    /// Stored first; not supported by this version
    Blocking,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PatternArg {
    /// Every task to every task; neighbours in a TaskManager exchange locally
    AllToAll,
    /// Sources on one TaskManager, sinks on another: all data crosses the network
    OneWay,
}

impl JobArgs {
    /// How data is kept between the job's tasks.
    pub(crate) fn exchange(&self) -> ExchangeArg {
        match self {
            Self::WordCount(args) => args.exchange.exchange,
            Self::Shuffle(args) => args.exchange.exchange,
        }
    }
}

impl Default for JobArgs {
    fn default() -> Self {
        Self::WordCount(WordCountArgs::default())
    }
}
