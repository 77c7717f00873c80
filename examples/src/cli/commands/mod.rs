//! What each command does.

mod job;
mod look;
mod node;

use super::{
    args::{Args, Command},
    failure::Failure,
};

/// Runs a command to its end.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let quiet = args.global.quiet;
    match args.command {
        Command::Run(args) => job::run(args, quiet).await,
        Command::Submit(args) => job::submit(args, quiet).await,
        Command::JobManager(args) => node::job_manager(&args).await,
        Command::TaskManager(args) => node::task_manager(&args).await,
        Command::Status(args) => look::status(&args).await,
        Command::Cancel(args) => look::cancel(&args).await,
        Command::Config(args) => look::config(&args),
    }
}
