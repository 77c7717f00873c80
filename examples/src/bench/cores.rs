//! The cores that a process may use.

use std::{fs, sync::OnceLock};

use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};

use crate::cli::failure::Failure;

/// Keeps every thread of this process, and those that they start, on the last so many of the cores that it was started
/// with; with `None` on all of these. The last ones, because systems handle interrupts on the first.
pub(crate) fn keep_to(count: Option<u32>) -> Result<(), Failure> {
    let failed = |reason: String| Failure::failed(format!("cannot choose cores: {reason}"));
    let allowed = started_with().map_err(|error| failed(error.to_string()))?;
    let wanted = count.map_or(allowed.len(), |count| count as usize);
    let cores = allowed
        .len()
        .checked_sub(wanted)
        .and_then(|left| allowed.get(left..))
        .ok_or_else(|| failed(format!("{wanted} are wanted, {} are there", allowed.len())))?;
    let mut set = CpuSet::new();
    for &core in cores {
        set.set(core).map_err(|error| failed(error.to_string()))?;
    }
    let threads = fs::read_dir("/proc/self/task").map_err(|error| failed(error.to_string()))?;
    for thread in threads.flatten() {
        let id = thread.file_name().to_str().and_then(|id| id.parse().ok());
        if let Some(id) = id
            && let Err(error) = sched_setaffinity(Pid::from_raw(id), &set)
            // A thread that has just ended needs no core.
            && error != nix::errno::Errno::ESRCH
        {
            return Err(failed(error.to_string()));
        }
    }
    Ok(())
}

/// How many there are to choose from.
pub(crate) fn available() -> usize {
    started_with().map_or(1, Vec::len)
}

/// Read once, before the first change.
fn started_with() -> nix::Result<&'static Vec<usize>> {
    static CORES: OnceLock<Vec<usize>> = OnceLock::new();
    if let Some(cores) = CORES.get() {
        return Ok(cores);
    }
    let set = sched_getaffinity(Pid::from_raw(0))?;
    let cores = (0..CpuSet::count()).filter(|core| set.is_set(*core) == Ok(true));
    Ok(CORES.get_or_init(|| cores.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> usize {
        let set = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let cores = (0..CpuSet::count()).filter(|core| set.is_set(*core) == Ok(true));
        cores.count()
    }

    #[test]
    fn a_process_is_kept_on_so_many_cores_and_let_go() {
        let all = available();
        keep_to(Some(1)).unwrap();
        let kept = std::thread::scope(|scope| scope.spawn(now).join().unwrap());
        assert_eq!((now(), kept), (1, 1));
        keep_to(None).unwrap();
        assert_eq!(now(), all);
        let error = keep_to(Some(MORE)).unwrap_err().to_string();
        assert!(error.contains("1024 are wanted"), "{error}");
        assert_eq!(now(), all);
    }

    const MORE: u32 = 1024;
}
