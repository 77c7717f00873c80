//! The bounds of each peer, shared by all streams to it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
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

    /// Calls that are counted now.
    #[cfg(test)]
    pub(super) fn calls(&self) -> u32 {
        lock(&self.budget).calls()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        lock(&self.budget.budget).give_back(self.bytes);
    }
}
