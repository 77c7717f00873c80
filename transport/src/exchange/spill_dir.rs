//! The folder of one process in a folder for temporary files.

use std::{
    fs::{self, DirBuilder, File, TryLockError},
    path::{Path, PathBuf},
};

use super::spill_error::SpillError;
use crate::identity::ResourceId;

/// A folder `thalweg-spill-<node>-<process>-<random>` with a file `lock` in it, which this process keeps locked.
///
/// The system unlocks the file when the process ends, however it ends, so that a folder whose lock can be had belongs
/// to nobody. A process that is just making its folder has no file of that name yet: it is locked first and named then.
#[derive(Debug)]
pub(super) struct SpillDir {
    path: PathBuf,
    _lock: File,
}

impl SpillDir {
    /// Makes one, and removes what dead processes have left in `parent`.
    pub(super) fn create(parent: &Path, node: &ResourceId) -> Result<Self, SpillError> {
        let failed = |operation, path: &Path| {
            let path = path.to_path_buf();
            move |error: std::io::Error| SpillError::io(operation, &path, &error)
        };
        remove_stale(parent).map_err(failed("list the folder", parent))?;
        let process = std::process::id();
        let name = format!("{PREFIX}{node}-{process}-{:08x}", fastrand::u32(..));
        let path = parent.join(name);
        private()
            .create(&path)
            .map_err(failed("make the folder", &path))?;
        let unnamed = path.join("lock.new");
        let lock = File::create_new(&unnamed).map_err(failed("make", &unnamed))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::Error(error) => SpillError::io("lock", &unnamed, &error),
            TryLockError::WouldBlock => {
                SpillError::io("lock", &unnamed, &std::io::ErrorKind::WouldBlock.into())
            }
        })?;
        let named = path.join(LOCK);
        fs::rename(&unnamed, &named).map_err(failed("name", &named))?;
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the folder with everything in it. One that is gone is fine.
    pub(super) fn remove(&self) {
        if let Err(error) = fs::remove_dir_all(&self.path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            let path = self.path.display();
            tracing::warn!(%path, %error, "a folder of spilled data was not removed");
        }
    }
}

impl Drop for SpillDir {
    fn drop(&mut self) {
        self.remove();
    }
}

/// What cannot be looked at, or belongs to another user, stays.
fn remove_stale(parent: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(parent)?.flatten() {
        let is_ours = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(PREFIX));
        if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let path = entry.path();
        let Ok(lock) = File::open(path.join(LOCK)) else {
            continue;
        };
        if lock.try_lock().is_err() {
            continue;
        }
        match fs::remove_dir_all(&path) {
            Ok(()) => tracing::info!(path = %path.display(), "removed what a dead process spilled"),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "what a dead process spilled stays");
            }
        }
    }
    Ok(())
}

/// Spilled records are nobody else's business.
fn private() -> DirBuilder {
    let builder = DirBuilder::new();
    #[cfg(unix)]
    let builder = {
        use std::os::unix::fs::DirBuilderExt;
        let mut builder = builder;
        builder.mode(0o700);
        builder
    };
    builder
}

const PREFIX: &str = "thalweg-spill-";
const LOCK: &str = "lock";

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> ResourceId {
        ResourceId::new("tm-1").unwrap()
    }

    #[test]
    fn what_a_dead_process_left_is_removed_and_what_lives_stays() {
        let temp = tempfile::tempdir().unwrap();
        let alive = SpillDir::create(temp.path(), &node()).unwrap();
        fs::write(alive.path().join("0.spill"), b"kept").unwrap();
        let dead = temp.path().join("thalweg-spill-tm-1-999999-00000000");
        let unfinished = temp.path().join("thalweg-spill-tm-1-999999-00000001");
        let foreign = temp.path().join("somebody-else");
        for dir in [&dead, &unfinished, &foreign] {
            fs::create_dir(dir).unwrap();
            fs::write(dir.join("0.spill"), b"x").unwrap();
        }
        fs::write(dead.join(LOCK), b"").unwrap();
        let other = SpillDir::create(temp.path(), &node()).unwrap();
        assert!(!dead.exists());
        assert!(unfinished.exists() && foreign.exists());
        assert_eq!(fs::read(alive.path().join("0.spill")).unwrap(), b"kept");
        assert_ne!(alive.path(), other.path());
        let path = other.path().to_path_buf();
        drop(other);
        assert!(!path.exists() && alive.path().exists());
    }

    #[test]
    fn a_folder_that_cannot_be_used_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let missing = temp.path().join("missing");
        let error = SpillDir::create(&missing, &node()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&missing.display().to_string()), "{text}");
    }

    #[cfg(unix)]
    #[test]
    fn others_cannot_look_into_the_folder() {
        use std::os::unix::fs::PermissionsExt;
        let temp = tempfile::tempdir().unwrap();
        let dir = SpillDir::create(temp.path(), &node()).unwrap();
        let mode = fs::metadata(dir.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
