//! What the owner of a TaskExecutor can wait for.

use std::sync::Arc;

use tokio::sync::watch;

use crate::job::FailureCause;

/// Whether a TaskExecutor is registered, and the fatal error that it met. Clones share it.
///
/// A fatal error is final: the owner has to stop the TaskManager.
#[derive(Debug, Clone)]
pub struct TaskExecutorStatus {
    registered: Arc<watch::Sender<bool>>,
    fatal: Arc<watch::Sender<Option<FailureCause>>>,
}

impl TaskExecutorStatus {
    pub(super) fn new() -> Self {
        Self {
            registered: Arc::new(watch::Sender::new(false)),
            fatal: Arc::new(watch::Sender::new(None)),
        }
    }

    /// Waits for a registration at the ResourceManager.
    ///
    /// # Errors
    /// The fatal error that came first.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub async fn registered(&self) -> Result<(), FailureCause> {
        let mut registered = self.registered.subscribe();
        tokio::select! {
            biased;
            cause = self.failed() => Err(cause),
            _ = registered.wait_for(|registered| *registered) => Ok(()),
        }
    }

    /// Whether it is registered now.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        *self.registered.borrow()
    }

    /// Waits for a fatal error; for ever if there is none.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub async fn failed(&self) -> FailureCause {
        let mut fatal = self.fatal.subscribe();
        let found = fatal.wait_for(Option::is_some).await;
        match found.as_deref() {
            Ok(Some(cause)) => cause.clone(),
            // The sender lives in `self`.
            _ => std::future::pending().await,
        }
    }

    pub(super) fn set_registered(&self, registered: bool) {
        self.registered.send_replace(registered);
    }

    /// The first fatal error counts.
    pub(super) fn set_fatal(&self, cause: FailureCause) {
        tracing::error!(%cause, "fatal error of the TaskManager");
        self.fatal.send_if_modified(|fatal| {
            let first = fatal.is_none();
            fatal.get_or_insert(cause);
            first
        });
    }
}
