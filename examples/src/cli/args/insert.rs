//! `cluster JOB …` means `cluster run JOB …`.

use std::ffi::OsString;

use clap::Command;

/// Puts `run` where the command is left out: before a job, before options of `run`, and where nothing is given.
///
/// What is neither a command nor a job stays as it is, so that the error lists the commands.
pub(crate) fn with_command(
    program: &Command,
    args: impl IntoIterator<Item = OsString>,
) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    if is_run(program, args.get(1..).unwrap_or_default()) {
        args.insert(1.min(args.len()), "run".into());
    }
    args
}

fn is_run(program: &Command, args: &[OsString]) -> bool {
    let Some(run) = program.find_subcommand("run") else {
        return false;
    };
    let mut of_run = false;
    let mut rest = args.iter().filter_map(|arg| arg.to_str());
    while let Some(arg) = rest.next() {
        if ["-h", "--help", "-V", "--version"].contains(&arg) {
            return of_run;
        }
        let Some(option) = arg.strip_prefix("--").filter(|option| !option.is_empty()) else {
            if arg.starts_with('-') && arg.len() > 1 {
                continue;
            }
            let is_job = run.find_subcommand(arg).is_some();
            return of_run || is_job;
        };
        let (name, value) = option
            .split_once('=')
            .map_or((option, None), |(name, value)| (name, Some(value)));
        let find = |command: &Command| {
            command
                .get_arguments()
                .find(|known| known.get_long() == Some(name))
                .map(|known| known.get_action().takes_values())
        };
        let (global, own) = (find(program), find(run));
        of_run |= global.is_none() && own.is_some();
        if global.or(own) == Some(true) && value.is_none() {
            rest.next();
        }
    }
    true
}
