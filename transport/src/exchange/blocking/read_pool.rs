//! The memory of all readers of blocking partitions of a node.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::sync::Semaphore;

use super::view::ViewCore;
use crate::exchange::{buffer::BufferMut, error::BufferError, local_pool::LocalPool};

/// A local pool that readers use in turn.
///
/// Any number of readers share it without a guarantee for each. What they hold comes back in one of three ways:
///
/// - A reader takes buffers only for what its consumer has asked for. A consumer on another node holds a buffer for each
///   block that is read for it, so that the block leaves as soon as that node reads its streams. One that gives credit
///   and does not read keeps what was read for it until its stream or its connection ends.
/// - What a consumer of this node has asked for and does not take can be read again: it is dropped when others have
///   waited for [`RECLAIM_AFTER`].
/// - What a consumer of this node has taken is its own until it drops it. Nobody takes it back: a consumer that keeps
///   every buffer that there is holds up all readers of the node until it drops one.
///
/// A limited number of readers wait for buffers at the same time, so that the pool's own queue of requests stays short;
/// the others wait here, in their order.
#[derive(Debug)]
pub(super) struct ReadPool {
    pool: LocalPool,
    turns: Semaphore,
    loaded: Mutex<Loaded>,
}

/// Views with blocks that were not taken, oldest first.
#[derive(Debug, Default)]
struct Loaded {
    next: u64,
    views: BTreeMap<u64, Weak<ViewCore>>,
}

impl Drop for ReadPool {
    fn drop(&mut self) {
        // Buffers that consumers still hold would keep the guarantee alive beside that of the next pool.
        self.pool.close();
    }
}

impl ReadPool {
    pub(super) fn new(pool: LocalPool, turns: usize) -> Self {
        Self {
            pool,
            turns: Semaphore::new(turns.clamp(1, Semaphore::MAX_PERMITS)),
            loaded: Mutex::default(),
        }
    }

    /// Waits for a buffer, and gives up to `most` if there are more.
    pub(super) async fn request(&self, most: usize) -> Result<Vec<BufferMut>, BufferError> {
        let mut buffers = Vec::with_capacity(most);
        if most == 0 {
            return Ok(buffers);
        }
        let _turn = self
            .turns
            .acquire()
            .await
            .map_err(|_| BufferError::Closed)?;
        let mut request = pin!(self.pool.request());
        let first = loop {
            match tokio::time::timeout(RECLAIM_AFTER, &mut request).await {
                Ok(answer) => break answer?,
                Err(_) => self.reclaim(),
            }
        };
        buffers.push(first);
        while buffers.len() < most
            && let Some(buffer) = self.pool.try_request()?
        {
            buffers.push(buffer);
        }
        Ok(buffers)
    }

    /// Notes that a view has blocks that were not taken. Under the view's lock, like `forget`.
    pub(super) fn note(&self, view: &Arc<ViewCore>) -> u64 {
        let mut loaded = self.lock();
        let number = loaded.next;
        loaded.next += 1;
        loaded.views.insert(number, Arc::downgrade(view));
        number
    }

    pub(super) fn forget(&self, number: u64) {
        self.lock().views.remove(&number);
    }

    /// Drops what the first view has that has something to drop.
    fn reclaim(&self) {
        loop {
            let first = self.lock().views.pop_first();
            let Some((_, view)) = first else {
                return;
            };
            if view.upgrade().is_some_and(|view| view.unload()) {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A consumer that wants what it has asked for takes it in less; one that does not costs others this much for each view
/// of it whose blocks have to be dropped.
const RECLAIM_AFTER: Duration = Duration::from_millis(20);
