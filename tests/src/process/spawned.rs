//! One running process.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// A process whose output is collected line by line. Dropping it kills it.
#[derive(Debug)]
pub struct Spawned {
    child: Child,
    output: Arc<Output>,
}

/// A process that has ended.
#[derive(Debug)]
pub struct Finished {
    /// Its process id.
    pub pid: u32,
    /// How.
    pub status: ExitStatus,
    /// Everything on standard output.
    pub stdout: String,
    /// Everything on standard error.
    pub stderr: String,
}

impl Finished {
    /// The exit code; `None` after a signal.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }
}

impl Spawned {
    /// Starts a program in a folder, with these variables beside a clean `THALWEG__` environment.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start<A: AsRef<OsStr>>(
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
        folder: &Path,
        environment: &[(&str, &str)],
    ) -> Self {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("THALWEG__") {
                command.env_remove(name);
            }
        }
        let mut child = command
            .args(arguments)
            .envs(environment.iter().copied())
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let output = Arc::new(Output::default());
        collect(
            child.stdout.take().expect("stdout is a pipe"),
            &output,
            Stream::Out,
        );
        collect(
            child.stderr.take().expect("stderr is a pipe"),
            &output,
            Stream::Err,
        );
        Self { child, output }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line on standard output that `matches`, and gives it.
    ///
    /// # Panics
    /// After the deadline, or when the process has ended without such a line, with all that it printed.
    pub fn wait_stdout(&self, deadline: Duration, matches: impl Fn(&str) -> bool) -> String {
        self.wait(deadline, Stream::Out, matches)
    }

    /// As [`wait_stdout`](Self::wait_stdout), for standard error.
    ///
    /// # Panics
    /// As [`wait_stdout`](Self::wait_stdout).
    pub fn wait_stderr(&self, deadline: Duration, matches: impl Fn(&str) -> bool) -> String {
        self.wait(deadline, Stream::Err, matches)
    }

    /// What it printed on standard error so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.output.lock().text(Stream::Err)
    }

    /// What it printed on standard output so far.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.output.lock().text(Stream::Out)
    }

    /// Whether it still runs.
    pub fn is_running(&self) -> bool {
        self.output.lock().open > 0
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).expect("a process id is positive");
        // A process that has just ended takes no signal, and that is fine.
        let _ = kill(Pid::from_raw(pid), signal);
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// After the deadline, with all that it printed.
    pub fn finish(mut self, deadline: Duration) -> Finished {
        let end = now() + deadline;
        let mut lines = self.output.lock();
        while lines.open > 0 {
            lines = self.output.wait(lines, end, "the process did not end");
        }
        drop(lines);
        // Both pipes are closed: the process is ending.
        let status = self.child.wait().expect("a child can be waited for");
        let lines = self.output.lock();
        Finished {
            pid: self.child.id(),
            status,
            stdout: lines.text(Stream::Out),
            stderr: lines.text(Stream::Err),
        }
    }

    fn wait(&self, deadline: Duration, stream: Stream, matches: impl Fn(&str) -> bool) -> String {
        let end = now() + deadline;
        let mut lines = self.output.lock();
        loop {
            let found = lines
                .lines
                .iter()
                .find(|(from, line)| *from == stream && matches(line));
            if let Some((_, line)) = found {
                return line.clone();
            }
            assert!(
                lines.open > 0,
                "the process ended without the awaited line:\n{}",
                lines.all()
            );
            lines = self
                .output
                .wait(lines, end, "the awaited line did not come");
        }
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Out,
    Err,
}

#[derive(Debug)]
struct Lines {
    lines: Vec<(Stream, String)>,
    open: u32,
}

impl Lines {
    fn text(&self, stream: Stream) -> String {
        let lines = self.lines.iter().filter(|(from, _)| *from == stream);
        lines.map(|(_, line)| format!("{line}\n")).collect()
    }

    fn all(&self) -> String {
        self.lines
            .iter()
            .map(|(stream, line)| format!("{stream:?}: {line}\n"))
            .collect()
    }
}

#[derive(Debug)]
struct Output {
    lines: Mutex<Lines>,
    changed: Condvar,
}

impl Default for Output {
    fn default() -> Self {
        Self {
            lines: Mutex::new(Lines {
                lines: Vec::new(),
                open: 2,
            }),
            changed: Condvar::new(),
        }
    }
}

impl Output {
    fn lock(&self) -> std::sync::MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        lines: std::sync::MutexGuard<'a, Lines>,
        end: Instant,
        what: &str,
    ) -> std::sync::MutexGuard<'a, Lines> {
        let left = end.saturating_duration_since(now());
        assert!(!left.is_zero(), "{what}:\n{}", lines.all());
        self.changed
            .wait_timeout(lines, left)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }
}

fn collect(pipe: impl Read + Send + 'static, output: &Arc<Output>, stream: Stream) {
    let output = Arc::clone(output);
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        loop {
            line.clear();
            match pipe.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => {
                    let text = String::from_utf8_lossy(&line)
                        .trim_end_matches('\n')
                        .to_owned();
                    output.lock().lines.push((stream, text));
                    output.changed.notify_all();
                }
            }
        }
        output.lock().open -= 1;
        output.changed.notify_all();
    });
}

/// The real clock, on which real processes run.
#[expect(
    clippy::disallowed_methods,
    reason = "deadlines of real processes run on the real clock"
)]
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}
