//! The log on standard error.

use tracing_subscriber::EnvFilter;

use super::{
    args::{GlobalArgs, LogFormat},
    console::{self, Stderr},
    failure::Failure,
};

/// Sets up the log of this process.
pub(crate) fn start(args: &GlobalArgs, default: &str) -> Result<(), Failure> {
    let filter = filter(args, default)?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Stderr)
        .with_ansi(console::is_capable_terminal())
        .with_target(false);
    let set = match args.log_format {
        LogFormat::Text => log.compact().try_init(),
        LogFormat::Json => log.json().with_target(true).try_init(),
    };
    set.map_err(|error| Failure::failed(format!("cannot set up the log: {error}")))
}

fn filter(args: &GlobalArgs, default: &str) -> Result<EnvFilter, Failure> {
    let level = match &args.log_level {
        Some(level) => level.as_str(),
        None if args.quiet => "warn",
        None => default,
    };
    let known = level.split(',').all(|part| {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
        LEVELS.contains(&level.trim().to_ascii_lowercase().as_str())
    });
    EnvFilter::try_new(level).ok().filter(|_| known).ok_or_else(|| {
        Failure::usage(format!(
            "--log-level {level:?} is not allowed: {}, or by part like info,thalweg_transport=debug",
            LEVELS.join(", ")
        ))
    })
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

#[cfg(test)]
mod tests {
    use super::*;

    fn args(level: Option<&str>, quiet: bool) -> GlobalArgs {
        GlobalArgs {
            log_level: level.map(str::to_owned),
            log_format: LogFormat::Text,
            quiet,
        }
    }

    #[test]
    fn the_level_is_the_flag_else_what_fits_the_command() {
        let shown = |level, quiet| filter(&args(level, quiet), "info").unwrap().to_string();
        assert_eq!(shown(None, false), "info");
        assert_eq!(shown(None, true), "warn");
        assert_eq!(shown(Some("debug"), true), "debug");
        assert!(
            shown(Some("info,thalweg_transport=debug"), false).contains("thalweg_transport=debug")
        );
    }

    #[test]
    fn an_unknown_level_is_wrong_usage() {
        for level in ["loud", "info,thalweg=loud", ""] {
            let failure = filter(&args(Some(level), false), "info").unwrap_err();
            assert_eq!(failure.code(), 2);
            assert!(
                failure.to_string().contains("off, error, warn"),
                "{failure}"
            );
        }
    }
}
