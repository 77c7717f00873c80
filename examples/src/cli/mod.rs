//! The `cluster` command.

pub(crate) mod args;
mod backend;
mod commands;
pub(crate) mod console;
mod execute;
pub(crate) mod failure;
pub(crate) mod human;
mod job;
pub(crate) mod logging;
pub(crate) mod output;
pub(crate) mod progress;
mod report;
mod settings;
mod status;
pub(crate) mod stop;
pub(crate) mod table;

use std::{ffi::OsString, process::ExitCode, time::Duration};

use clap::{CommandFactory, Parser, error::ErrorKind};

use args::{Args, Command};
use failure::Failure;

/// Runs the `cluster` command with these arguments, the program's name first.
///
/// Results go to standard output, everything else to standard error. The exit code is 0 for success, 1 for a failure,
/// 2 for wrong usage, 130 or 143 for a job interrupted by Ctrl-C or SIGTERM.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = args::with_command(&Args::command(), args);
    parse_and_run(args, args::one_line, start)
}

/// What every command of this crate does: usage errors in one line, help on standard output, exit codes.
pub(crate) fn parse_and_run<A: Parser>(
    args: impl IntoIterator<Item = OsString>,
    one_line: fn(&clap::Error) -> String,
    start: impl FnOnce(A) -> Result<(), Failure>,
) -> ExitCode {
    let args = match A::try_parse_from(args) {
        Ok(args) => args,
        Err(error)
            if error.exit_code() == 2
                && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand =>
        {
            return end_with(&Failure::usage(one_line(&error)));
        }
        Err(error) => {
            // Help goes to standard output, whose reader may have gone.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match start(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => end_with(&failure),
    }
}

/// Runs a command on a runtime of this thread.
pub(crate) fn block_on(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
    let result = runtime.block_on(command);
    // What blocks in the background must not hold a command that is done.
    runtime.shutdown_timeout(BACKGROUND);
    result
}

fn end_with(failure: &Failure) -> ExitCode {
    console::tell(format_args!("error: {failure}"));
    ExitCode::from(failure.code())
}

fn start(args: Args) -> Result<(), Failure> {
    let level = match args.command {
        Command::JobManager(_) | Command::TaskManager(_) => "info",
        // Nodes in this process come and go with their job: what befalls them is the command's error, told once.
        Command::Run(_) | Command::Config(_) => "warn",
        // A client has one connection: as above.
        Command::Submit(_) | Command::Status(_) | Command::Cancel(_) => {
            "warn,thalweg_transport=error"
        }
    };
    logging::start(&args.global, level)?;
    block_on(commands::run(args))
}

/// Limit for background work after the end of a command.
const BACKGROUND: Duration = Duration::from_millis(500);
