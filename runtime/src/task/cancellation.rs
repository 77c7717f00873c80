//! Telling a task to stop.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio_util::sync::CancellationToken;

use super::TaskError;

/// The order to stop, seen by every read and write of one task. Clones share it.
///
/// A flag beside the token: looking at the flag costs a load, at the token a lock, and tasks look once a record.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cancellation {
    flag: Arc<AtomicBool>,
    token: CancellationToken,
    interrupt: CancellationToken,
}

impl Cancellation {
    pub(crate) fn cancel(&self) {
        self.flag.store(true, Ordering::Release);
        self.token.cancel();
    }

    /// The order was not obeyed: what the task waits for, whatever it is, is waited for no longer.
    pub(crate) fn interrupt(&self) {
        self.cancel();
        self.interrupt.cancel();
    }

    /// Runs user code until it is interrupted, which drops it where it waits. Code that never waits goes on.
    pub(crate) async fn run_code(
        &self,
        code: impl Future<Output = Result<(), TaskError>>,
    ) -> Result<(), TaskError> {
        self.interrupt
            .run_until_cancelled(code)
            .await
            .unwrap_or_else(|| Err(TaskError::cancelled()))
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }

    pub(crate) async fn cancelled(&self) {
        self.token.cancelled().await;
    }

    pub(crate) fn check(&self) -> Result<(), TaskError> {
        if self.is_cancelled() {
            Err(TaskError::cancelled())
        } else {
            Ok(())
        }
    }

    /// Waits for the future, or for the order to stop.
    pub(crate) async fn run<T>(&self, future: impl Future<Output = T>) -> Result<T, TaskError> {
        self.token
            .run_until_cancelled(future)
            .await
            .ok_or_else(TaskError::cancelled)
    }
}
