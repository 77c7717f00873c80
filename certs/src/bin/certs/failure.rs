//! What a command ends with if it fails: one line and an exit code.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use thalweg_certs::CertError;

/// A failed command.
#[derive(Debug)]
pub(crate) struct Failure {
    line: String,
    code: u8,
}

impl Failure {
    pub(crate) fn output(error: &dyn Error) -> Self {
        Self {
            line: format!("cannot write to standard output: {}", chain(error)),
            code: FAILED,
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl From<CertError> for Failure {
    fn from(error: CertError) -> Self {
        Self {
            line: chain(&error),
            code: if error.is_input_error() {
                WRONG_INPUT
            } else {
                FAILED
            },
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

fn chain(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        line = format!("{line}: {cause}");
        source = cause.source();
    }
    crate::output::printable(&line)
}

/// The operation failed: paths, disks.
const FAILED: u8 = 1;

/// The flags, or the certificate and key files, are wrong. The same code as clap's.
const WRONG_INPUT: u8 = 2;
