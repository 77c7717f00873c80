//! When the consumers of a partition have processed all that was written.

use std::{
    pin::pin,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::Notify;

use super::error::ExchangeError;

/// Counts the subpartitions whose consumers have not acknowledged. The first outcome stays.
#[derive(Debug)]
pub(super) struct Acknowledgement {
    missing: AtomicUsize,
    outcome: OnceLock<Result<(), ExchangeError>>,
    decided: Notify,
}

impl Acknowledgement {
    pub(super) fn new(subpartitions: usize) -> Self {
        Self {
            missing: AtomicUsize::new(subpartitions),
            outcome: OnceLock::new(),
            decided: Notify::new(),
        }
    }

    /// One more subpartition is done; its caller knows that it was not before.
    pub(super) fn on_subpartition(&self) {
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.decide(Ok(()));
        }
    }

    /// No more will come.
    pub(super) fn fail(&self, error: &ExchangeError) {
        self.decide(Err(error.clone()));
    }

    pub(super) async fn wait(&self) -> Result<(), ExchangeError> {
        loop {
            let mut decided = pin!(self.decided.notified());
            decided.as_mut().enable();
            if let Some(outcome) = self.outcome.get() {
                return outcome.clone();
            }
            decided.await;
        }
    }

    fn decide(&self, outcome: Result<(), ExchangeError>) {
        if self.outcome.set(outcome).is_ok() {
            self.decided.notify_waiters();
        }
    }
}
