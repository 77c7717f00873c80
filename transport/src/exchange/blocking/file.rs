//! The one file of a blocking partition.

use std::{
    fs::{File, OpenOptions},
    path::Path,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use crate::exchange::{io_manager::IoManager, spill_error::SpillError};

/// A spilled file; it is removed when the partition and the last view have let it go.
///
/// It is open for as long as somebody writes or reads it: a finished partition without readers holds no file
/// descriptor, one with any number of readers holds one.
#[derive(Debug)]
pub(super) struct SpillFile {
    path: Arc<Path>,
    io: IoManager,
    open: Mutex<Weak<OpenFile>>,
}

impl SpillFile {
    /// A file that does not exist yet.
    pub(super) fn new(io: IoManager) -> Self {
        let path = io.next_path();
        io.on_file();
        Self {
            path,
            io,
            open: Mutex::default(),
        }
    }

    /// Makes it, for writing. Blocks.
    pub(super) fn create(&self) -> Result<OpenFile, SpillError> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        OpenFile::open(&options, &self.path, &self.io, "make")
    }

    /// Opens it for reading, or gives what another reader has opened. Blocks.
    pub(super) fn open(&self) -> Result<Arc<OpenFile>, SpillError> {
        let lock = || self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = lock().upgrade() {
            return Ok(open);
        }
        let options = OpenOptions::new().read(true).clone();
        let file = Arc::new(OpenFile::open(&options, &self.path, &self.io, "open")?);
        *lock() = Arc::downgrade(&file);
        Ok(file)
    }
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        self.io.on_file_gone();
        self.io.remove(self.path.clone());
    }
}

/// A file that is open, and its name for errors. Every call blocks.
#[derive(Debug)]
pub(super) struct OpenFile {
    file: File,
    path: Arc<Path>,
    io: IoManager,
}

impl OpenFile {
    fn open(
        options: &OpenOptions,
        path: &Arc<Path>,
        io: &IoManager,
        operation: &'static str,
    ) -> Result<Self, SpillError> {
        let file = options
            .open(path)
            .map_err(|error| SpillError::io(operation, path, &error))?;
        Ok(Self {
            file,
            path: path.clone(),
            io: io.clone(),
        })
    }

    pub(super) fn write_at(&self, bytes: &[u8], at: u64) -> Result<(), SpillError> {
        positioned::write_all_at(&self.file, bytes, at)
            .map_err(|error| SpillError::io("write to", &self.path, &error))?;
        self.io.on_written(bytes.len() as u64);
        Ok(())
    }

    /// Fills `bytes` with what stands there.
    pub(super) fn read_at(&self, bytes: &mut [u8], place: Place) -> Result<(), SpillError> {
        match positioned::read_exact_at(&self.file, bytes, place.at) {
            Ok(()) => {
                self.io.on_read(bytes.len() as u64);
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(self.damaged(place, "the file ends there"))
            }
            Err(error) => Err(SpillError::io("read", &self.path, &error)),
        }
    }

    pub(super) fn damaged(&self, place: Place, reason: &'static str) -> SpillError {
        SpillError::Damaged {
            path: self.path.clone(),
            region: place.region,
            at: place.at,
            reason,
        }
    }
}

/// A byte of a file, and the region that it should belong to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) region: usize,
    pub(super) at: u64,
}

/// Reading and writing at a place, without a shared position.
#[cfg(unix)]
mod positioned {
    use std::{fs::File, io, os::unix::fs::FileExt};

    pub(super) fn write_all_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        file.write_all_at(bytes, at)
    }

    pub(super) fn read_exact_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
        file.read_exact_at(bytes, at)
    }
}

/// The same where the system's calls may do less than they are asked for.
#[cfg(windows)]
mod positioned {
    use std::{fs::File, io, os::windows::fs::FileExt};

    pub(super) fn write_all_at(file: &File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match file.seek_write(bytes, at)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => (bytes, at) = (&bytes[count..], at + count as u64),
            }
        }
        Ok(())
    }

    pub(super) fn read_exact_at(file: &File, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match file.seek_read(bytes, at)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => (bytes, at) = (&mut bytes[count..], at + count as u64),
            }
        }
        Ok(())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::{ResourceId, Shutdown};

    #[tokio::test]
    async fn a_full_disk_is_an_error_that_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let io = IoManager::start(
            &[dir.path().to_path_buf()],
            &ResourceId::new("node").unwrap(),
            1,
            tokio::runtime::Handle::current(),
            Shutdown::new(),
        )
        .unwrap();
        let options = OpenOptions::new().write(true).clone();
        let full = Arc::from(Path::new("/dev/full"));
        let file = OpenFile::open(&options, &full, &io, "open").unwrap();
        let error = file.write_at(b"x", 0).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot write to /dev/full: No space left"),
            "{error}"
        );
        assert_eq!(io.stats().bytes_written, 0);
    }
}
