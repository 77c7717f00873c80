//! What is wrong with a configuration, and where it was written.

use std::{fmt, io, path::PathBuf, sync::Arc};

use thiserror::Error;

/// A configuration that cannot be used.
///
/// Every variant but [`Read`](Self::Read) is wrong usage; a file that cannot be read is a failure of the machine.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("configuration file {} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Arc<io::Error>,
    },
    /// The file is not TOML.
    #[error("{path} line {line}, column {column}: {message}", path = path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// In characters, from 1.
        column: usize,
        /// What the parser expected.
        message: String,
    },
    /// Keys that do not exist, or values that are not allowed: one per line.
    #[error("{0}")]
    Invalid(Problems),
}

impl ConfigError {
    /// Whether the user wrote something wrong, as opposed to a file that cannot be read.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        !matches!(self, Self::Read { .. })
    }

    /// The single problems; empty for the other variants.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::Invalid(problems) => &problems.0,
            Self::Read { .. } | Self::Syntax { .. } => &[],
        }
    }
}

/// The value, unless there are problems.
pub(super) fn finish<T>(value: T, problems: Vec<Problem>) -> Result<T, ConfigError> {
    if problems.is_empty() {
        Ok(value)
    } else {
        Err(ConfigError::Invalid(Problems(problems)))
    }
}

/// One or more problems, printed one per line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub(super) Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

/// One key that does not exist, or one value that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The key as `section.key`, or the name that is none.
    pub key: String,
    /// One line: the key, the value, what is allowed.
    pub message: String,
    /// Where it was written; `None` if it is a default.
    pub origin: Option<Origin>,
}

impl Problem {
    /// A value that is not allowed; `literal` is the value as it stands in TOML.
    pub(super) fn value(key: &str, literal: &str, allowed: impl fmt::Display) -> Self {
        Self::rule(key, format!("{key} = {literal} is not allowed: {allowed}"))
    }

    /// A rule that a key breaks.
    pub(super) fn rule(key: &str, message: String) -> Self {
        Self {
            key: key.to_owned(),
            message,
            origin: None,
        }
    }

    pub(super) fn at(mut self, origin: Origin) -> Self {
        self.origin = Some(origin);
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.origin {
            Some(origin) => write!(f, " [{origin}]"),
            None => Ok(()),
        }
    }
}

/// Where a value was written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// A default of the command that runs.
    Command,
    /// A line of the file.
    File {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
    },
    /// An environment variable.
    Environment(String),
    /// A flag.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command => f.write_str("default of this command"),
            Self::File { path, line } => write!(f, "{} line {line}", path.display()),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Flag => f.write_str("given by a flag"),
        }
    }
}
