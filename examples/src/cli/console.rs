//! Standard output for results, standard error for everything else.

use std::{
    fmt,
    io::{self, IsTerminal, Write},
    sync::LazyLock,
};

use indicatif::MultiProgress;

use super::failure::Failure;

/// Writes a result. A reader that has seen enough (`cluster … | head -1`) is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let written = BARS.suspend(|| {
        let mut stdout = io::stdout().lock();
        stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush())
    });
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::failed(format!(
            "cannot write to standard output: {error}"
        ))),
        _ => Ok(()),
    }
}

/// Tells something on standard error. Nobody is left to tell if that is gone too.
pub(crate) fn tell(text: impl fmt::Display) {
    let _ = writeln!(Stderr, "{text}");
}

/// Tells about something that works but not as one would expect.
pub(crate) fn warn(text: &str) {
    tell(format_args!("warning: {}", printable(text)));
}

/// Whether standard error is a terminal that can move its cursor.
pub(crate) fn is_capable_terminal() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// The progress bars on standard error.
pub(crate) fn bars() -> &'static MultiProgress {
    &BARS
}

/// Standard error beside the progress bars: they are taken away while something is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        BARS.suspend(|| io::stderr().lock().write_all(bytes))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }

    fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> io::Result<()> {
        // One write for a whole line, so that lines of several threads do not mix.
        let line = text.to_string();
        self.write(line.as_bytes()).map(drop)
    }
}

/// The text with its control characters written out: names and messages come from anywhere.
pub(crate) fn printable(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            clean.extend(c.escape_default());
        } else {
            clean.push(c);
        }
    }
    clean
}

static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);
