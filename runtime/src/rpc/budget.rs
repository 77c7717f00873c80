//! The bounds of each peer, shared by all streams to it.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{
    config::RpcConfig,
    error::RpcError,
    pending::{Budget, Exceeded},
    sync::lock,
};

/// The bounds of all peers in one direction.
#[derive(Debug, Default)]
pub(super) struct Budgets(Mutex<HashMap<String, Weak<PeerBudget>>>);

/// The bounds of one peer.
#[derive(Debug)]
pub(super) struct PeerBudget {
    peer: String,
    budget: Mutex<Budget>,
    /// Bytes that wait to be written, on all streams.
    queued: AtomicUsize,
    /// Bytes of frames that are not whole yet, on all streams.
    partial: AtomicUsize,
    max_bytes: usize,
}

/// What one stream holds of a frame that is not whole yet; dropping it gives its share back.
#[derive(Debug)]
pub(super) struct Partial {
    budget: Arc<PeerBudget>,
    bytes: usize,
}

/// One call that is counted; dropping it gives its share back.
#[derive(Debug)]
pub(super) struct Permit {
    budget: Arc<PeerBudget>,
    bytes: u64,
}

impl Budgets {
    /// The bounds of a peer, kept while somebody holds them.
    pub(super) fn of(&self, peer: &str, config: &RpcConfig) -> Arc<PeerBudget> {
        let mut budgets = lock(&self.0);
        if let Some(budget) = budgets.get(peer).and_then(Weak::upgrade) {
            return budget;
        }
        budgets.retain(|_, budget| budget.strong_count() > 0);
        let budget = Arc::new(PeerBudget {
            peer: peer.to_owned(),
            budget: Mutex::new(Budget::new(
                config.max_pending_calls,
                config.max_pending_bytes,
            )),
            queued: AtomicUsize::new(0),
            partial: AtomicUsize::new(0),
            max_bytes: usize::try_from(config.max_pending_bytes).unwrap_or(usize::MAX),
        });
        budgets.insert(peer.to_owned(), Arc::downgrade(&budget));
        budget
    }
}

impl PeerBudget {
    /// Counts a call.
    ///
    /// # Errors
    /// [`RpcError::Overloaded`].
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> Result<Permit, RpcError> {
        let bytes = bytes as u64;
        lock(&self.budget).take(bytes).map_err(|exceeded| {
            let (what, limit) = match exceeded {
                Exceeded::Calls(limit) => ("calls", u64::from(limit)),
                Exceeded::Bytes(limit) => ("bytes", limit),
            };
            RpcError::Overloaded {
                what: format!("pending {what} of {}", self.peer),
                limit,
            }
        })?;
        Ok(Permit {
            budget: Arc::clone(self),
            bytes,
        })
    }

    /// Counts bytes that are to wait for a writer; `slack` more of them than else. Any number while none wait.
    pub(super) fn queue(&self, bytes: usize, slack: usize) -> bool {
        let waiting = self.queued.fetch_add(bytes, Ordering::AcqRel);
        let fits =
            waiting == 0 || waiting.saturating_add(bytes) <= self.max_bytes.saturating_add(slack);
        if !fits {
            self.unqueue(bytes);
        }
        fits
    }

    /// Bytes were written, or their stream has ended.
    pub(super) fn unqueue(&self, bytes: usize) {
        self.queued.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// For a stream that begins to read frames.
    pub(super) fn partial(self: &Arc<Self>) -> Partial {
        Partial {
            budget: Arc::clone(self),
            bytes: 0,
        }
    }

    /// Calls that are counted now.
    #[cfg(test)]
    pub(super) fn calls(&self) -> u32 {
        lock(&self.budget).calls()
    }
}

impl Partial {
    /// Says how many bytes the stream holds now. False if the peer's streams hold more than an honest caller sends: as
    /// much as may be pending in calls, and as much again in messages without answer.
    pub(super) fn hold(&mut self, bytes: usize) -> bool {
        let total = &self.budget.partial;
        let before = total.fetch_add(bytes, Ordering::AcqRel);
        total.fetch_sub(self.bytes, Ordering::AcqRel);
        let now = (before + bytes).saturating_sub(self.bytes);
        self.bytes = bytes;
        now <= self.budget.max_bytes.saturating_mul(2)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        self.budget.partial.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        lock(&self.budget.budget).give_back(self.bytes);
    }
}
