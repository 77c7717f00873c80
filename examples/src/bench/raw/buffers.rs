//! Buffers as large and as many as those of our gate.

use std::sync::{Arc, Mutex, PoisonError};

use thalweg_transport::TransportConfig;

use crate::bench::spec::Spec;

/// A free list. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Buffers {
    free: Arc<Mutex<Vec<Vec<u8>>>>,
    size: usize,
}

impl Buffers {
    pub(super) fn new(spec: &Spec, config: &TransportConfig) -> Self {
        let size = config.payload_size();
        let buffers = (0..spec.receive_buffers(config)).map(|_| Vec::with_capacity(size));
        Self {
            free: Arc::new(Mutex::new(buffers.collect())),
            size,
        }
    }

    /// Bytes that one takes.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// An empty one. There are at least two for each stream, and a stream takes one at a time.
    pub(super) fn take(&self) -> Vec<u8> {
        let free = self.lock().pop();
        free.unwrap_or_else(|| Vec::with_capacity(self.size))
    }

    pub(super) fn give_back(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        self.lock().push(buffer);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
