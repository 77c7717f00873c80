//! What a command ends with if it fails: a text and an exit code.

use std::{error::Error, fmt};

use thalweg_runtime::{StartError, config::ConfigError};
use thalweg_transport::chain;

use super::console::printable;

/// A failed command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    text: String,
    code: u8,
}

impl Failure {
    /// The operation failed: paths, ports, peers, jobs. Exit code 1.
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            code: FAILED,
        }
    }

    /// Flags, configuration or certificate files are wrong. Exit code 2, the same as clap's.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            code: WRONG_USAGE,
        }
    }

    /// The same with another exit code.
    pub(crate) fn with_code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Failure {
    /// Lines as they are, other control characters written out: texts may come from peers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, line) in self.text.lines().enumerate() {
            if index > 0 {
                f.write_str("\n       ")?;
            }
            f.write_str(&printable(line))?;
        }
        Ok(())
    }
}

impl Error for Failure {}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        let text = chain(&error);
        if error.is_usage() {
            Self::usage(text)
        } else {
            Self::failed(text)
        }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        // Its Display contains the sources.
        let text = error.to_string();
        if error.is_usage() {
            Self::usage(text)
        } else {
            Self::failed(text)
        }
    }
}

const FAILED: u8 = 1;
const WRONG_USAGE: u8 = 2;

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc};

    use super::*;

    #[test]
    fn wrong_usage_is_2_and_what_the_surroundings_do_is_1() {
        let unreadable = ConfigError::Read {
            path: "c.toml".into(),
            source: Arc::new(io::Error::from(io::ErrorKind::NotFound)),
        };
        let failure = Failure::from(unreadable);
        assert_eq!(failure.code(), 1);
        assert!(
            failure
                .to_string()
                .starts_with("configuration file c.toml cannot be read: ")
        );
        assert_eq!(Failure::from(StartError::NoCertificate).code(), 2);
        let nobody = StartError::NoJobManager {
            address: "127.0.0.1:6120".to_owned(),
            reason: "refused".to_owned(),
        };
        let failure = Failure::from(nobody);
        assert_eq!(failure.code(), 1);
        assert!(failure.to_string().contains("127.0.0.1:6120"));
    }

    #[test]
    fn several_problems_stand_below_each_other_and_cannot_control_the_terminal() {
        let failure = Failure::usage("one\ntwo \u{1b}[2J");
        assert_eq!(failure.to_string(), "one\n       two \\u{1b}[2J");
    }
}
