//! The node's network memory: a bounded number of buffers of one size, shared by local pools with a guaranteed minimum.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    buffer::BufferMut,
    error::BufferError,
    local_pool::{LocalInner, LocalPool},
};
use crate::config::TransportConfig;

/// The bounded buffers of a node. Cloning is cheap; clones share it.
///
/// Memory is taken from the system when a buffer is first used and kept for the next use. One lock guards the
/// accounts of all local pools; nothing is called while it is held. Each local pool is guaranteed its minimum by
/// accounting: a buffer beyond a minimum is handed out only while every unused guarantee is still covered.
///
/// What is not guaranteed is shared in proportion to what each local pool may have beyond its minimum. A pool may exceed
/// its share while others do not use theirs, but an eighth of what is not guaranteed stays for those below their share:
/// a pool that comes late to a busy node gets on at once, and the ones above their share make room as their buffers
/// return.
///
/// ```
/// use std::time::Duration;
///
/// use thalweg_transport::exchange::{BufferError, BufferPool};
///
/// let pool = BufferPool::with_buffers(100, 32_744, Duration::from_secs(30));
/// let one = pool.local(40, 80)?;
/// let other = pool.local(40, 40)?;
/// assert!(matches!(pool.local(40, 40), Err(BufferError::Insufficient { available: 20, .. })));
///
/// // The one may have what nobody was promised, but not what the other one was.
/// let buffers: Vec<_> = std::iter::from_fn(|| one.try_request().ok().flatten()).collect();
/// assert_eq!((buffers.len(), pool.stats().used), (60, 60));
/// assert!(other.try_request()?.is_some());
/// drop(buffers);
/// assert_eq!(pool.stats().used, 0);
/// # Ok::<(), BufferError>(())
/// ```
#[derive(Debug, Clone)]
pub struct BufferPool {
    inner: Arc<PoolInner>,
}

impl BufferPool {
    /// A pool of `config.buffer_pool` bytes in frames of `config.buffer_size`; a buffer takes a frame's payload.
    #[must_use]
    pub fn new(config: &TransportConfig) -> Self {
        let total = config.buffer_pool / u64::from(config.buffer_size).max(1);
        Self::with_buffers(
            usize::try_from(total).unwrap_or(usize::MAX),
            config.payload_size(),
            config.buffer_request_timeout,
        )
    }

    /// A pool of so many buffers of so many bytes; 0 bytes count as 1.
    #[must_use]
    pub fn with_buffers(total: usize, buffer_bytes: usize, request_timeout: Duration) -> Self {
        Self {
            inner: Arc::new(PoolInner {
                total,
                buffer_bytes: buffer_bytes.max(1),
                request_timeout,
                state: Mutex::default(),
            }),
        }
    }

    /// Makes a local pool that may always have `min` buffers, and up to `max` while others do not need them.
    ///
    /// # Errors
    /// [`BufferError::Insufficient`] if the guarantees of all pools would exceed the node's buffers.
    pub fn local(&self, min: usize, max: usize) -> Result<LocalPool, BufferError> {
        let index = self.inner.open_account(min, max.max(min))?;
        Ok(LocalPool::new(LocalInner::new(self.inner.clone(), index)))
    }

    /// Bytes that one buffer takes.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        self.inner.buffer_bytes
    }

    /// The gauges of every open local pool, in no particular order.
    #[must_use]
    pub fn local_stats(&self) -> Vec<LocalPoolStats> {
        let state = self.inner.lock();
        let open = state.accounts.iter().filter(|account| account.open);
        open.map(|account| LocalPoolStats {
            name: account.name.clone(),
            min: account.min,
            size: state.size(self.inner.total, account),
            max: account.max,
            used: account.used,
        })
        .collect()
    }

    /// The gauges.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let state = self.inner.lock();
        PoolStats {
            total: self.inner.total,
            used: state.used,
            peak: state.peak,
            guaranteed: state.guaranteed,
            allocated: state.used + state.free.len(),
            waiting: state.waiters.len(),
        }
    }
}

/// Gauges of a [`BufferPool`], in buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// What the node may use.
    pub total: usize,
    /// In use: being written, queued, in flight, held by consumers, or promised as credit.
    pub used: usize,
    /// The most that were in use.
    pub peak: usize,
    /// Sum of the local pools' minimums.
    pub guaranteed: usize,
    /// Buffers whose memory was taken from the system.
    pub allocated: usize,
    /// Requests that wait.
    pub waiting: usize,
}

/// Gauges of one local pool, in buffers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocalPoolStats {
    /// Whose it is; empty if nobody said.
    pub name: Arc<str>,
    /// What is guaranteed.
    pub min: usize,
    /// Its share now: what it may have whatever others ask for.
    pub size: usize,
    /// What it may have while others do not need it.
    pub max: usize,
    /// In use.
    pub used: usize,
}

/// What all local pools share.
#[derive(Debug)]
pub(super) struct PoolInner {
    total: usize,
    buffer_bytes: usize,
    request_timeout: Duration,
    state: Mutex<PoolState>,
}

impl PoolInner {
    pub(super) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    pub(super) fn request_timeout(&self) -> Duration {
        self.request_timeout
    }

    pub(super) fn account(&self, index: usize) -> LocalPoolStats {
        let state = self.lock();
        let account = &state.accounts[index];
        LocalPoolStats {
            name: account.name.clone(),
            min: account.min,
            size: state.size(self.total, account),
            max: account.max,
            used: account.used,
        }
    }

    pub(super) fn name_account(&self, index: usize, name: Arc<str>) {
        let old = std::mem::replace(&mut self.lock().accounts[index].name, name);
        drop(old);
    }

    fn open_account(&self, min: usize, max: usize) -> Result<usize, BufferError> {
        let mut state = self.lock();
        let available = self.total - state.guaranteed;
        if min > available {
            return Err(BufferError::Insufficient {
                required: min,
                available,
                total: self.total,
                buffer_bytes: self.buffer_bytes,
            });
        }
        state.guaranteed += min;
        state.unused_guarantee += min;
        let account = Account {
            name: Arc::default(),
            min,
            max,
            used: 0,
            open: true,
        };
        state.appetite += account.appetite(self.total);
        if let Some(index) = state.vacant.pop() {
            state.accounts[index] = account;
            return Ok(index);
        }
        state.accounts.push(account);
        Ok(state.accounts.len() - 1)
    }

    /// Ends the guarantee and every waiting request of the account. Buffers in use come back later.
    pub(super) fn close_account(&self, index: usize) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let account = &mut state.accounts[index];
        if !account.open {
            return;
        }
        state.guaranteed -= account.min;
        state.unused_guarantee -= account.min.saturating_sub(account.used);
        state.appetite -= account.appetite(self.total);
        (account.min, account.open) = (0, false);
        let waiters = std::mem::take(&mut state.waiters);
        let (ended, left): (VecDeque<_>, VecDeque<_>) = waiters
            .into_iter()
            .partition(|waiter| waiter.local.index() == index);
        state.waiters = left;
        drop(guard);
        // Dropping a reply wakes its requester, and may drop the last handle of a local pool.
        drop(ended);
        self.serve_waiters();
    }

    /// Nobody has a handle or a buffer of the account any more.
    pub(super) fn vacate_account(&self, index: usize) {
        self.close_account(index);
        self.lock().vacant.push(index);
    }

    /// Takes a buffer if one may be had at once, up to `overdraft` beyond the maximum.
    pub(super) fn try_take(
        &self,
        local: &Arc<LocalInner>,
        overdraft: usize,
    ) -> Result<Option<BufferMut>, BufferError> {
        let data = {
            let mut state = self.lock();
            if !state.accounts[local.index()].open {
                return Err(BufferError::Closed);
            }
            if !state.may_take(self.total, local.index(), overdraft) {
                return Ok(None);
            }
            state.take(local.index())
        };
        Ok(Some(self.buffer(data, local.clone())))
    }

    /// Queues a request behind those that wait already, or takes a buffer.
    pub(super) fn take_or_wait(&self, local: &Arc<LocalInner>) -> Result<Taken, BufferError> {
        let (reply, wait) = oneshot::channel();
        let mut state = self.lock();
        let account = &state.accounts[local.index()];
        if !account.open {
            return Err(BufferError::Closed);
        }
        let guaranteed = account.used < account.min;
        if state.may_take(self.total, local.index(), 0) {
            let data = state.take(local.index());
            drop(state);
            return Ok(Taken::Buffer(self.buffer(data, local.clone())));
        }
        let id = state.next_waiter;
        state.next_waiter += 1;
        state.waiters.push_back(Waiter {
            id,
            local: local.clone(),
            reply,
        });
        Ok(Taken::Wait {
            id,
            wait,
            guaranteed,
        })
    }

    /// The requester went away.
    pub(super) fn forget_waiter(&self, id: u64) {
        let mut state = self.lock();
        let at = state.waiters.iter().position(|waiter| waiter.id == id);
        let gone = at.and_then(|at| state.waiters.remove(at));
        drop(state);
        drop(gone);
    }

    pub(super) fn give_back(&self, index: usize, data: Vec<u8>) {
        self.lock().put(index, data);
        self.serve_waiters();
    }

    pub(super) fn timed_out(&self, index: usize) -> BufferError {
        let state = self.lock();
        let account = &state.accounts[index];
        BufferError::TimedOut {
            seconds: self.request_timeout.as_secs(),
            used: account.used,
            guaranteed: account.min,
            node_used: state.used,
            total: self.total,
        }
    }

    /// Hands buffers to the requests that may have one, oldest first. A loop, because a requester that went away gives
    /// its buffer back.
    fn serve_waiters(&self) {
        loop {
            let (waiter, data) = {
                let mut state = self.lock();
                let total = self.total;
                let eligible = state
                    .waiters
                    .iter()
                    .position(|waiter| state.may_take(total, waiter.local.index(), 0));
                let Some(waiter) = eligible.and_then(|at| state.waiters.remove(at)) else {
                    return;
                };
                let data = state.take(waiter.local.index());
                (waiter, data)
            };
            let index = waiter.local.index();
            if let Err(unwanted) = waiter.reply.send(self.buffer(data, waiter.local)) {
                let (data, local) = unwanted.into_parts();
                self.lock().put(index, data);
                drop(local);
            }
        }
    }

    fn buffer(&self, data: Option<Vec<u8>>, local: Arc<LocalInner>) -> BufferMut {
        let data = data.unwrap_or_else(|| Vec::with_capacity(self.buffer_bytes));
        BufferMut::new(data, local)
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answer to a request.
pub(super) enum Taken {
    Buffer(BufferMut),
    Wait {
        id: u64,
        wait: oneshot::Receiver<BufferMut>,
        /// Whether the request is below the guarantee, so that others owe it the buffer.
        guaranteed: bool,
    },
}

/// What a local pool was promised and what it has.
#[derive(Debug)]
struct Account {
    name: Arc<str>,
    min: usize,
    max: usize,
    used: usize,
    open: bool,
}

impl Account {
    /// What it may have beyond its minimum. A pool without a limit wants no more than there is.
    fn appetite(&self, total: usize) -> usize {
        self.max.min(total).saturating_sub(self.min)
    }
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    local: Arc<LocalInner>,
    reply: oneshot::Sender<BufferMut>,
}

#[derive(Debug, Default)]
struct PoolState {
    free: Vec<Vec<u8>>,
    used: usize,
    peak: usize,
    guaranteed: usize,
    /// The sum of `min - used` over the accounts where that is positive.
    unused_guarantee: usize,
    /// The sum of what the open accounts may have beyond their minimums.
    appetite: usize,
    accounts: Vec<Account>,
    vacant: Vec<usize>,
    waiters: VecDeque<Waiter>,
    next_waiter: u64,
}

impl PoolState {
    fn may_take(&self, total: usize, index: usize, overdraft: usize) -> bool {
        let account = &self.accounts[index];
        let free = total - self.used;
        if !account.open || account.used >= account.max.saturating_add(overdraft) || free == 0 {
            return false;
        }
        if account.used < account.min {
            return true;
        }
        let reserved = if account.used < self.size(total, account) {
            0
        } else {
            (total - self.guaranteed) / RESERVED_PART
        };
        free > self.unused_guarantee + reserved
    }

    /// The account's minimum and its part of what nobody was promised.
    fn size(&self, total: usize, account: &Account) -> usize {
        let (surplus, appetite) = (total - self.guaranteed, account.appetite(total));
        if self.appetite <= surplus {
            return account.min + appetite;
        }
        // Both factors are at most the node's buffers, of which there are fewer than 2^32.
        let part = appetite as u64 * surplus as u64 / self.appetite as u64;
        account.min + usize::try_from(part).unwrap_or(usize::MAX)
    }

    fn take(&mut self, index: usize) -> Option<Vec<u8>> {
        let account = &mut self.accounts[index];
        if account.used < account.min {
            self.unused_guarantee -= 1;
        }
        account.used += 1;
        self.used += 1;
        self.peak = self.peak.max(self.used);
        self.free.pop()
    }

    fn put(&mut self, index: usize, data: Vec<u8>) {
        let account = &mut self.accounts[index];
        account.used -= 1;
        if account.used < account.min {
            self.unused_guarantee += 1;
        }
        self.used -= 1;
        self.free.push(data);
    }
}

/// The part of the buffers beyond all guarantees that pools above their share leave alone.
const RESERVED_PART: usize = 8;

#[cfg(test)]
mod tests;
