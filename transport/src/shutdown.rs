//! The owner of spawned tasks: stops them, in two phases, with a deadline.

use std::{future::Future, time::Duration};

use tokio::{runtime::Handle, task::JoinHandle};
use tokio_util::{
    sync::{CancellationToken, WaitForCancellationFuture},
    task::TaskTracker,
};
use tracing::Instrument;

/// Owns the tasks of one component. Clones share it; [`child`](Self::child) makes a part that can be stopped alone.
///
/// Phase one is [`cancel`](Self::cancel): tasks see it in [`cancelled`](Self::cancelled) and wind up. Phase two is
/// [`finish`](Self::finish): it waits for them until a deadline. Dropping it stops nothing.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    token: CancellationToken,
    tracker: TaskTracker,
}

impl Shutdown {
    /// A new owner without tasks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An owner that is cancelled with this one, and whose tasks this one does not wait for.
    #[must_use]
    pub fn child(&self) -> Self {
        Self {
            token: self.token.child_token(),
            tracker: TaskTracker::new(),
        }
    }

    /// Spawns a task on the current runtime. It is polled until it ends by itself: it has to watch
    /// [`cancelled`](Self::cancelled).
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tracker.spawn(task.in_current_span())
    }

    /// Spawns a task on another runtime.
    pub fn spawn_on<F>(&self, task: F, runtime: &Handle) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tracker.spawn_on(task.in_current_span(), runtime)
    }

    /// Spawns a task that is dropped as soon as the owner is cancelled.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn spawn_until_cancelled<F>(&self, task: F) -> JoinHandle<Option<F::Output>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let token = self.token.clone();
        self.tracker
            .spawn(async move { token.run_until_cancelled(task).await }.in_current_span())
    }

    /// Phase one: tells every task to stop.
    pub fn cancel(&self) {
        self.token.cancel();
    }

    /// Whether [`cancel`](Self::cancel) was called, here or on a parent.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Waits for phase one.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub fn cancelled(&self) -> WaitForCancellationFuture<'_> {
        self.token.cancelled()
    }

    /// The token, for code that wants `run_until_cancelled`.
    #[must_use]
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Phase two: cancels if that was not done, and waits for the tasks.
    ///
    /// # Errors
    /// The number of tasks that still run when the deadline passes.
    ///
    /// # Cancel safety
    /// Cancel-safe; call it again to go on waiting.
    pub async fn finish(&self, deadline: Duration) -> Result<(), usize> {
        self.cancel();
        self.tracker.close();
        tokio::time::timeout(deadline, self.tracker.wait())
            .await
            .map_err(|_| self.tracker.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn finish_waits_for_tasks_that_wind_up() {
        let shutdown = Shutdown::new();
        let inner = shutdown.clone();
        shutdown.spawn(async move { inner.cancelled().await });
        shutdown.finish(Duration::from_secs(1)).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn finish_counts_tasks_that_do_not_stop() {
        let shutdown = Shutdown::new();
        shutdown.spawn(std::future::pending::<()>());
        assert_eq!(shutdown.finish(Duration::from_secs(1)).await, Err(1));
    }

    #[tokio::test]
    async fn a_child_stops_with_its_parent_but_not_the_reverse() {
        let parent = Shutdown::new();
        let child = parent.child();
        child.cancel();
        assert!(!parent.is_cancelled());
        let other = parent.child();
        parent.cancel();
        assert!(other.is_cancelled());
    }
}
