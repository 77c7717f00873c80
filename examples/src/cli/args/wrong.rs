//! What is wrong with a command line, in one line like every other error.

use clap::{
    CommandFactory, Subcommand,
    error::{ContextKind, ContextValue, ErrorKind},
};

use super::{Args, JobArgs};

/// The text of an error of the parser without its usage, in one line and without `error: `.
pub(crate) fn one_line(error: &clap::Error) -> String {
    one_line_of(error, "command or job", || {
        format!(
            "commands are {}; jobs are {}",
            names_in(&Args::command()),
            names_in(&JobArgs::augment_subcommands(clap::Command::new("jobs")))
        )
    })
}

/// The same for any command line: `what` a first word may be, and which ones there are.
pub(crate) fn one_line_of(
    error: &clap::Error,
    what: &str,
    known: impl FnOnce() -> String,
) -> String {
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand)
    {
        let similar = error.get(ContextKind::SuggestedSubcommand);
        return unknown(what, name, similar, known);
    }
    let text = error.render().to_string();
    let lines = text
        .lines()
        .map(str::trim)
        .take_while(|line| END.iter().all(|end| !line.starts_with(end)))
        .filter(|line| !line.is_empty());
    let joined: Vec<String> = lines
        .map(|line| match line.strip_prefix("tip: ") {
            Some(tip) => format!("({tip})"),
            None => line.to_owned(),
        })
        .collect();
    let joined = joined.join(" ");
    joined.strip_prefix("error: ").unwrap_or(&joined).to_owned()
}

/// The names of a command's subcommands.
pub(crate) fn names_in(command: &clap::Command) -> String {
    let shown = command
        .get_subcommands()
        .filter(|command| command.get_name() != "help");
    let names: Vec<&str> = shown.map(clap::Command::get_name).collect();
    names.join(", ")
}

fn unknown(
    what: &str,
    name: &str,
    similar: Option<&ContextValue>,
    known: impl FnOnce() -> String,
) -> String {
    let similar: Vec<String> = match similar {
        Some(ContextValue::String(name)) => vec![format!("'{name}'")],
        Some(ContextValue::Strings(names)) => {
            names.iter().map(|name| format!("'{name}'")).collect()
        }
        _ => Vec::new(),
    };
    if similar.is_empty() {
        format!("unknown {what} '{name}': {}", known())
    } else {
        let similar = similar.join(" or ");
        format!("unknown {what} '{name}' (did you mean {similar}?)")
    }
}

/// What begins the part of an error that is the same for all.
const END: [&str; 2] = ["Usage:", "For more information"];

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn errors_of_the_parser_become_one_line() {
        for (args, told) in [
            (
                &["run", "--transport", "quick"][..],
                "invalid value 'quick' for '--transport <TRANSPORT>' [possible values: quic, tcp] \
                 (a similar value exists: 'quic')",
            ),
            (
                &["status"],
                "the following required arguments were not provided: --config <FILE>",
            ),
            (
                &["statsu"],
                "unknown command or job 'statsu' (did you mean 'status'?)",
            ),
        ] {
            let line = ["cluster"].iter().chain(args);
            let error = Args::try_parse_from(line).unwrap_err();
            assert_eq!(one_line(&error), told);
        }
        let error = Args::try_parse_from(["cluster", "run", "zzz"]).unwrap_err();
        let line = one_line(&error);
        assert!(
            line.starts_with("unknown command or job 'zzz': commands are run, jobmanager, ")
                && line.contains("; jobs are wordcount, shuffle"),
            "{line}"
        );
    }
}
