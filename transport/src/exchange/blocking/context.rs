//! What a node lends to its blocking partitions.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::read_pool::ReadPool;
use crate::{
    config::{Compression, TransportConfig},
    exchange::{error::BufferError, io_manager::IoManager, pool::BufferPool},
};

/// The disk and the memory of a node's blocking partitions. Cloning is cheap; clones share it.
///
/// All readers of all blocking partitions of a node share one local pool of [`READ_BUFFERS`] guaranteed buffers and at
/// most a quarter of the node's; it exists while there are such partitions. Buffers that consumers of this node have taken
/// count until they are dropped: one that keeps all of them holds up every reader of the node until it drops one.
#[derive(Debug, Clone)]
pub struct BlockingContext {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    io: IoManager,
    pool: BufferPool,
    compression: Compression,
    reads: Mutex<Weak<ReadPool>>,
}

impl BlockingContext {
    /// Collects the parts; the compression comes from the configuration.
    #[must_use]
    pub fn new(config: &TransportConfig, io: IoManager, pool: BufferPool) -> Self {
        Self {
            inner: Arc::new(Inner {
                io,
                pool,
                compression: config.blocking_compression,
                reads: Mutex::default(),
            }),
        }
    }

    /// The disk.
    #[must_use]
    pub fn io(&self) -> &IoManager {
        &self.inner.io
    }

    pub(in crate::exchange) fn pool(&self) -> &BufferPool {
        &self.inner.pool
    }

    pub(super) fn compression(&self) -> Compression {
        self.inner.compression
    }

    /// The pool of all readers.
    pub(super) fn reads(&self) -> Result<Arc<ReadPool>, BufferError> {
        let inner = &self.inner;
        let mut reads = inner.reads.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reads) = reads.upgrade() {
            return Ok(reads);
        }
        let most = inner.pool.stats().total / 4;
        let local = inner.pool.local(READ_BUFFERS, most)?;
        let made = Arc::new(ReadPool::new(local, inner.io.operations() * 2));
        *reads = Arc::downgrade(&made);
        Ok(made)
    }
}

/// Buffers that the readers of a node's blocking partitions are guaranteed together.
pub const READ_BUFFERS: usize = 16;
