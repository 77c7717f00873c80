//! Blocking operations on files, a bounded number at a time, and the folders that the files lie in.

use std::{
    future::Future,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use tokio::{runtime::Handle, sync::Semaphore, task::JoinHandle};

use super::{spill_dir::SpillDir, spill_error::SpillError};
use crate::{identity::ResourceId, shutdown::Shutdown};

/// The disk of a node, for data that is spilled. Cloning is cheap; clones share it.
///
/// Files lie in a folder of this node and process in each of the given folders, in turn. At most `operations` of them
/// are read or written at the same time, on the blocking threads of a runtime; more wait in their order. Folders that a
/// dead process has left are removed at the start; this one's are removed by [`close`](Self::close), or with the last
/// handle.
///
/// Memory: each operation that runs has a scratch space of at most 64 KiB and four buffers of the node.
#[derive(Debug, Clone)]
pub struct IoManager {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    dirs: Box<[SpillDir]>,
    next: AtomicUsize,
    slots: Arc<Semaphore>,
    operations: usize,
    runtime: Handle,
    tasks: Shutdown,
    scratch: Mutex<Vec<Scratch>>,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    files: AtomicUsize,
    written: AtomicU64,
    read: AtomicU64,
}

impl IoManager {
    /// Makes a folder in each of `dirs` and removes those of dead processes. Blocks on the disk, for a start-up.
    ///
    /// The operations run on the blocking threads of `runtime`, on behalf of tasks of `tasks`. 0 operations count as 1.
    ///
    /// # Errors
    /// [`SpillError`] naming the folder that cannot be used.
    pub fn start(
        dirs: &[PathBuf],
        node: &ResourceId,
        operations: usize,
        runtime: Handle,
        tasks: Shutdown,
    ) -> Result<Self, SpillError> {
        let dirs = dirs
            .iter()
            .map(|dir| SpillDir::create(dir, node))
            .collect::<Result<Box<[_]>, _>>()?;
        if dirs.is_empty() {
            return Err(SpillError::NoFolder);
        }
        let operations = operations.clamp(1, Semaphore::MAX_PERMITS);
        Ok(Self {
            inner: Arc::new(Inner {
                dirs,
                next: AtomicUsize::new(0),
                slots: Arc::new(Semaphore::new(operations)),
                operations,
                runtime,
                tasks,
                scratch: Mutex::default(),
                counters: Counters::default(),
            }),
        })
    }

    /// The folders of this node and process.
    pub fn dirs(&self) -> impl Iterator<Item = &Path> {
        self.inner.dirs.iter().map(SpillDir::path)
    }

    /// The gauges.
    #[must_use]
    pub fn stats(&self) -> IoStats {
        let inner = &self.inner;
        IoStats {
            operations: inner.operations,
            running: inner.operations - inner.slots.available_permits(),
            files: inner.counters.files.load(Ordering::Relaxed),
            bytes_written: inner.counters.written.load(Ordering::Relaxed),
            bytes_read: inner.counters.read.load(Ordering::Relaxed),
        }
    }

    /// Removes the folders and what is in them. Files that are still open can be read until they are closed; nothing new
    /// can be written.
    ///
    /// # Cancel safety
    /// What has begun goes on.
    pub async fn close(&self) {
        let inner = self.inner.clone();
        let removal = inner.clone().runtime.spawn_blocking(move || {
            for dir in &inner.dirs {
                dir.remove();
            }
        });
        // If the runtime is gone, the last handle removes the folders.
        let _ = removal.await;
    }

    /// Runs a blocking operation when it is its turn. It runs even if nobody waits for it.
    pub(super) fn submit<T, F>(&self, operation: F) -> Operation<T>
    where
        F: FnOnce(&mut Scratch) -> T + Send + 'static,
        T: Send + 'static,
    {
        let inner = self.inner.clone();
        let runtime = self.inner.runtime.clone();
        let task = async move {
            let slot = inner.slots.clone().acquire_owned().await.ok()?;
            let blocking = inner.clone();
            let done = inner.runtime.spawn_blocking(move || {
                let mut scratch = blocking.take_scratch();
                let result = operation(&mut scratch);
                blocking.put_scratch(scratch);
                drop(slot);
                result
            });
            done.await.ok()
        };
        Operation(self.inner.tasks.spawn_on(task, &runtime))
    }

    /// Runs a task that makes one result out of several operations, and makes it even if nobody waits for it.
    pub(super) fn chain<T, F>(&self, task: F) -> Operation<T>
    where
        F: Future<Output = Option<T>> + Send + 'static,
        T: Send + 'static,
    {
        Operation(self.inner.tasks.spawn_on(task, &self.inner.runtime))
    }

    /// Spawns a task that waits for operations.
    pub(super) fn spawn<F>(&self, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.inner.tasks.spawn_on(task, &self.inner.runtime);
    }

    /// The path of a new file, in the next folder.
    pub(super) fn next_path(&self) -> Arc<Path> {
        let inner = &self.inner;
        let number = inner.next.fetch_add(1, Ordering::Relaxed);
        let dir = &inner.dirs[number % inner.dirs.len()];
        dir.path().join(format!("{number}.spill")).into()
    }

    /// Removes a file when it is its turn.
    pub(super) fn remove(&self, path: Arc<Path>) {
        drop(self.submit(move |_| {
            if let Err(error) = std::fs::remove_file(&path) {
                tracing::debug!(path = %path.display(), %error, "a spilled file was not removed");
            }
        }));
    }

    pub(super) fn on_file(&self) {
        self.inner.counters.files.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn on_file_gone(&self) {
        self.inner.counters.files.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn on_written(&self, bytes: u64) {
        let written = &self.inner.counters.written;
        written.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn on_read(&self, bytes: u64) {
        self.inner.counters.read.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn operations(&self) -> usize {
        self.inner.operations
    }
}

impl Inner {
    fn take_scratch(&self) -> Scratch {
        let mut idle = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        idle.pop().unwrap_or_default()
    }

    fn put_scratch(&self, scratch: Scratch) {
        let mut idle = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(scratch);
    }
}

/// Gauges of an [`IoManager`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct IoStats {
    /// Operations that may run at the same time.
    pub operations: usize,
    /// Those that run.
    pub running: usize,
    /// Spilled files.
    pub files: usize,
    /// Bytes written to them so far.
    pub bytes_written: u64,
    /// Bytes read from them so far.
    pub bytes_read: u64,
}

/// A blocking operation that was submitted. Dropping it does not stop it.
#[derive(Debug)]
pub(super) struct Operation<T>(JoinHandle<Option<T>>);

impl<T> Operation<T> {
    /// Waits for its result; must not be called again after it. Cancel-safe.
    pub(super) async fn done(&mut self) -> Option<T> {
        (&mut self.0).await.ok().flatten()
    }

    /// Its result.
    pub(super) async fn wait(self) -> Result<T, SpillError> {
        self.0.await.ok().flatten().ok_or(SpillError::Closed)
    }
}

/// Memory that an operation works in; its contents are left over from others.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// One block before or after compression.
    pub(super) block: Vec<u8>,
    /// Blocks on their way to the disk.
    pub(super) out: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn start(dirs: &[&Path], operations: usize) -> IoManager {
        let dirs: Vec<_> = dirs.iter().map(|dir| dir.to_path_buf()).collect();
        let node = ResourceId::new("node-1").unwrap();
        IoManager::start(&dirs, &node, operations, Handle::current(), Shutdown::new()).unwrap()
    }

    #[tokio::test]
    async fn files_go_to_the_folders_in_turn_and_the_folders_end_with_the_manager() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let io = start(&[a.path(), b.path()], 2);
        let paths: Vec<_> = (0..4).map(|_| io.next_path()).collect();
        for (path, dir) in paths.iter().zip([&a, &b, &a, &b]) {
            assert!(path.starts_with(dir.path()), "{}", path.display());
            std::fs::write(path, b"x").unwrap();
        }
        io.close().await;
        assert!(std::fs::read_dir(a.path()).unwrap().next().is_none());
        let again = start(&[a.path()], 2);
        std::fs::write(again.next_path(), b"x").unwrap();
        drop(again);
        assert!(std::fs::read_dir(a.path()).unwrap().next().is_none());
    }

    #[tokio::test]
    async fn no_more_operations_run_than_allowed_and_those_that_wait_keep_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let io = start(&[dir.path()], 2);
        let (done, order) = mpsc::channel();
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let operations: Vec<_> = (0..6)
            .map(|number| {
                let (done, gate, io) = (done.clone(), gate.clone(), io.clone());
                io.clone().submit(move |_| {
                    gate.lock().unwrap().recv().unwrap();
                    assert!(io.stats().running <= 2);
                    done.send(number).unwrap();
                })
            })
            .collect();
        for _ in 0..6 {
            release.send(()).unwrap();
        }
        for operation in operations {
            operation.wait().await.unwrap();
        }
        let order: Vec<usize> = order.try_iter().collect();
        for (place, number) in order.iter().enumerate() {
            assert!(number.abs_diff(place) <= 1, "{order:?}");
        }
    }

    #[tokio::test]
    async fn a_panic_in_an_operation_is_an_error_of_that_one() {
        let dir = tempfile::tempdir().unwrap();
        let io = start(&[dir.path()], 1);
        let bad = io.submit(|_| -> u32 { panic!("on purpose") });
        assert_eq!(bad.wait().await, Err(SpillError::Closed));
        assert_eq!(io.submit(|_| 7).wait().await, Ok(7));
    }
}
