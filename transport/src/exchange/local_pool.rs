//! One user's part of the node's buffers: a result partition's, or an input gate's.

use std::sync::Arc;

use super::{
    buffer::BufferMut,
    error::BufferError,
    pool::{PoolInner, Taken},
};

/// A part of a [`BufferPool`](super::BufferPool) with a guaranteed minimum and a maximum. Clones share it.
///
/// The guarantee ends with [`close`](Self::close), or when the last clone and the last of its buffers are dropped.
///
/// ```
/// # use std::time::Duration;
/// # use thalweg_transport::exchange::BufferPool;
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = BufferPool::with_buffers(4, 1024, Duration::from_secs(30));
/// let local = pool.local(1, 2)?;
/// let mut buffer = local.request().await?;
/// assert_eq!(buffer.append(&[7; 2000]), 1024);
/// let full = local.request().await?;
/// assert!(local.try_request()?.is_none(), "two are its maximum");
///
/// // Frozen, a buffer is shared without a copy; it comes back with the last of its slices.
/// let (head, tail) = { let bytes = buffer.freeze(); (bytes.slice(..10), bytes.slice(1000..)) };
/// drop((head, full));
/// assert_eq!(local.used(), 1);
/// drop(tail);
/// assert_eq!(local.used(), 0);
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(run()).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct LocalPool {
    inner: Arc<LocalInner>,
}

impl LocalPool {
    pub(super) fn new(inner: LocalInner) -> Self {
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Takes a buffer if one is to be had at once.
    ///
    /// # Errors
    /// [`BufferError::Closed`].
    pub fn try_request(&self) -> Result<Option<BufferMut>, BufferError> {
        self.inner.pool.try_take(&self.inner, 0)
    }

    /// As [`try_request`](Self::try_request), up to [`OVERDRAFT_BUFFERS`] beyond the maximum: for who is in the middle
    /// of something that has to be finished before it can wait.
    ///
    /// # Errors
    /// [`BufferError::Closed`].
    pub fn try_request_overdraft(&self) -> Result<Option<BufferMut>, BufferError> {
        self.inner.pool.try_take(&self.inner, OVERDRAFT_BUFFERS)
    }

    /// Says in gauges whose pool it is.
    pub fn set_name(&self, name: &str) {
        self.inner
            .pool
            .name_account(self.inner.index, Arc::from(name));
    }

    /// Waits for a buffer; requests of the node are served in their order, as far as their pools may have more.
    ///
    /// Beyond the guaranteed minimum the wait has no limit: it is backpressure, and ends when this pool's own buffers
    /// are consumed. Below it others owe the buffer, and the wait ends after `buffer_request_timeout`; for that a
    /// tokio runtime with a clock is needed.
    ///
    /// # Errors
    /// [`BufferError::TimedOut`] and [`BufferError::Closed`].
    ///
    /// # Cancel safety
    /// Cancel-safe: a buffer that was handed to a dropped request goes back to the pool.
    pub async fn request(&self) -> Result<BufferMut, BufferError> {
        let pool = &self.inner.pool;
        let (id, wait, guaranteed) = match pool.take_or_wait(&self.inner)? {
            Taken::Buffer(buffer) => return Ok(buffer),
            Taken::Wait {
                id,
                wait,
                guaranteed,
            } => (id, wait, guaranteed),
        };
        let _forget = Forget { pool, id };
        if guaranteed {
            match tokio::time::timeout(pool.request_timeout(), wait).await {
                Ok(answer) => answer.map_err(|_| BufferError::Closed),
                Err(_) => Err(pool.timed_out(self.inner.index)),
            }
        } else {
            wait.await.map_err(|_| BufferError::Closed)
        }
    }

    /// Whether the buffer is one of this pool's.
    pub(super) fn owns(&self, buffer: &BufferMut) -> bool {
        buffer.is_of(&self.inner)
    }

    /// Bytes that one buffer takes.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        self.inner.buffer_bytes()
    }

    /// Buffers in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.inner.pool.account(self.inner.index).used
    }

    /// The guaranteed minimum; 0 after `close`.
    #[must_use]
    pub fn min(&self) -> usize {
        self.inner.pool.account(self.inner.index).min
    }

    /// The share now: what the pool may have whatever others ask for; between the minimum and the maximum.
    #[must_use]
    pub fn size(&self) -> usize {
        self.inner.pool.account(self.inner.index).size
    }

    /// The maximum.
    #[must_use]
    pub fn max(&self) -> usize {
        self.inner.pool.account(self.inner.index).max
    }

    /// Ends the guarantee and fails every waiting and later request. Buffers in use go back when they are dropped.
    pub fn close(&self) {
        self.inner.pool.close_account(self.inner.index);
    }
}

/// What the handles and the buffers of a local pool share.
#[derive(Debug)]
pub(super) struct LocalInner {
    pool: Arc<PoolInner>,
    index: usize,
}

impl LocalInner {
    pub(super) fn new(pool: Arc<PoolInner>, index: usize) -> Self {
        Self { pool, index }
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }

    pub(super) fn buffer_bytes(&self) -> usize {
        self.pool.buffer_bytes()
    }

    pub(super) fn give_back(&self, data: Vec<u8>) {
        self.pool.give_back(self.index, data);
    }
}

impl Drop for LocalInner {
    fn drop(&mut self) {
        self.pool.vacate_account(self.index);
    }
}

/// Buffers beyond a pool's maximum that finish what was begun (Flink's `max-overdraft-buffers-per-gate`).
pub const OVERDRAFT_BUFFERS: usize = 5;

/// Takes a request out of the queue when its future is dropped or done.
struct Forget<'a> {
    pool: &'a Arc<PoolInner>,
    id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.pool.forget_waiter(self.id);
    }
}
