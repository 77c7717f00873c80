//! The first thing that went wrong in a task.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

/// Takes the first failure of several tasks, for whoever waits for it. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fault {
    shared: Arc<(OnceLock<String>, CancellationToken)>,
}

impl Fault {
    /// Remembers a failure unless there was one.
    pub(crate) fn report(&self, what: &str, reason: impl ToString) {
        let (text, happened) = &*self.shared;
        text.get_or_init(|| format!("{what}: {}", reason.to_string()));
        happened.cancel();
    }

    /// The failure, if there was one.
    pub(crate) fn get(&self) -> Option<String> {
        self.shared.0.get().cloned()
    }

    /// Waits for a failure.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub(crate) async fn happened(&self) -> String {
        self.shared.1.cancelled().await;
        self.get().unwrap_or_default()
    }
}
