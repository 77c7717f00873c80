//! The `cluster` command.

mod args;
mod backend;
mod commands;
mod console;
mod execute;
mod failure;
mod human;
mod job;
mod logging;
mod output;
mod progress;
mod report;
mod settings;
mod status;
mod stop;
mod table;

use std::{ffi::OsString, process::ExitCode, time::Duration};

use clap::{CommandFactory, Parser, error::ErrorKind};

use args::{Args, Command};
use failure::Failure;

/// Runs the `cluster` command with these arguments, the program's name first.
///
/// Results go to standard output, everything else to standard error. The exit code is 0 for success, 1 for a failure,
/// 2 for wrong usage, 130 or 143 for a job interrupted by Ctrl-C or SIGTERM.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = match Args::try_parse_from(args::with_command(&Args::command(), args)) {
        Ok(args) => args,
        Err(error)
            if error.exit_code() == 2
                && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand =>
        {
            return end_with(&Failure::usage(args::one_line(&error)));
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
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
    let result = runtime.block_on(commands::run(args));
    // What blocks in the background must not hold a command that is done.
    runtime.shutdown_timeout(BACKGROUND);
    result
}

/// Limit for background work after the end of a command.
const BACKGROUND: Duration = Duration::from_millis(500);
