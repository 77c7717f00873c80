//! What this process has used so far.

use std::{fs, ops::Sub, time::Duration};

use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeVal,
};
use serde::{Deserialize, Serialize};

/// Processor time and memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// User and system time of all threads since the start.
    pub(crate) cpu: Duration,
    /// Most memory that was resident since [`reset_peak`], in KiB; `None` where the system does not say.
    pub(crate) rss_peak_kib: Option<u64>,
}

impl Usage {
    /// Of this process, now.
    pub(crate) fn now() -> Self {
        let cpu = getrusage(UsageWho::RUSAGE_SELF).map_or(Duration::ZERO, |usage| {
            duration(usage.user_time()) + duration(usage.system_time())
        });
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            cpu,
            rss_peak_kib: peak_of(&status),
        }
    }
}

impl Sub for Usage {
    type Output = Self;

    /// The processor time between two moments, and the peak of the later one.
    fn sub(self, earlier: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            rss_peak_kib: self.rss_peak_kib,
        }
    }
}

/// Starts the peak anew with what is resident now. Memory that the allocator keeps from earlier is part of that.
pub(crate) fn reset_peak() {
    // Without it the peak is that since the start of the process.
    if let Err(error) = fs::write("/proc/self/clear_refs", "5") {
        tracing::debug!(%error, "the peak of the resident memory cannot be reset");
    }
}

fn duration(time: TimeVal) -> Duration {
    let (seconds, micros) = (time.tv_sec(), time.tv_usec());
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
        + Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

fn peak_of(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_from_the_status() {
        assert_eq!(peak_of("VmPeak:\t 9 kB\nVmHWM:\t    5124 kB\n"), Some(5124));
        assert_eq!(peak_of("VmPeak:\t 9 kB\n"), None);
    }

    #[test]
    fn work_uses_time_and_memory() {
        let before = Usage::now();
        let mut block = vec![0_u8; 16 << 20];
        let mut sum = 0_u64;
        while (Usage::now() - before).cpu < Duration::from_millis(20) {
            block
                .iter_mut()
                .for_each(|byte| *byte = byte.wrapping_add(1));
            sum += u64::from(block[0]);
        }
        assert!(sum > 0);
        assert!(Usage::now().rss_peak_kib.is_some_and(|kib| kib > 16 << 10));
    }
}
