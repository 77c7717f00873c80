//! The memory of a running process.

use std::{fs, thread, time::Duration};

/// Follows the peak of a process's resident memory until the process ends.
#[derive(Debug)]
pub struct PeakMemory(thread::JoinHandle<u64>);

impl PeakMemory {
    /// Begins to look at the process with this id.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        Self(thread::spawn(move || follow(pid)))
    }

    /// The peak in bytes, after the process has ended; 0 if it was never seen.
    ///
    /// # Panics
    /// If the kernel reports something else than a number.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.0.join().expect("the kernel reports numbers")
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "samples a kernel counter on the real clock; nothing waits for it"
)]
fn follow(pid: u32) -> u64 {
    let mut peak = 0;
    while let Some(bytes) = high_water_mark(pid) {
        peak = bytes.max(peak);
        thread::sleep(SAMPLE);
    }
    peak
}

/// `None` if there is no such process, or only what its parent has not collected yet.
fn high_water_mark(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib = line.trim().strip_suffix(" kB")?;
    Some(kib.parse::<u64>().expect("VmHWM is a number of kB") * 1024)
}

/// The counter only grows: what is missed is what grows in the last moments of the process.
const SAMPLE: Duration = Duration::from_millis(10);
