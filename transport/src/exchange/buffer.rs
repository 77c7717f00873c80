//! One buffer of network memory: written by its owner, then frozen and shared.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use super::local_pool::LocalInner;

/// A writable buffer of a pool. Dropping it gives its memory back to the pool.
pub struct BufferMut {
    data: Vec<u8>,
    /// Bytes that may be written: all of it, or what its writer has limited it to.
    limit: usize,
    local: Option<Arc<LocalInner>>,
}

impl BufferMut {
    pub(super) fn new(data: Vec<u8>, local: Arc<LocalInner>) -> Self {
        Self {
            data,
            limit: local.buffer_bytes(),
            local: Some(local),
        }
    }

    pub(super) fn is_of(&self, local: &Arc<LocalInner>) -> bool {
        matches!(&self.local, Some(own) if Arc::ptr_eq(own, local))
    }

    /// Bytes written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether nothing is written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Bytes that still fit.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.limit.saturating_sub(self.data.len())
    }

    /// Lets it take no more than so many bytes in all.
    pub(super) fn limit_to(&mut self, bytes: usize) {
        self.limit = self.limit.min(bytes);
    }

    /// Appends as much of `bytes` as fits and says how much that was.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let take = bytes.len().min(self.remaining());
        self.data.extend_from_slice(&bytes[..take]);
        take
    }

    pub(super) fn clear(&mut self) {
        self.data.clear();
    }

    /// Its first `length` bytes, or all if it has fewer, to be written in place: all of them count as written.
    pub(super) fn space(&mut self, length: usize) -> &mut [u8] {
        let size = self.data.len() + self.remaining();
        self.data.resize(length.min(size), 0);
        &mut self.data
    }

    /// Replaces its bytes with what `change` makes of them in `spare`, which becomes its memory; its own becomes the
    /// spare one. `change` is given as much room as a buffer has, and says how much of it it has used, or `None` if it
    /// cannot: then nothing is replaced.
    pub(super) fn replace_with(
        &mut self,
        spare: &mut Vec<u8>,
        change: impl FnOnce(&[u8], &mut [u8]) -> Option<usize>,
    ) -> bool {
        let size = self
            .local
            .as_ref()
            .map_or(self.limit, |local| local.buffer_bytes());
        spare.reserve_exact(size.saturating_sub(spare.len()));
        spare.resize(size, 0);
        let Some(length) = change(&self.data, spare) else {
            return false;
        };
        spare.truncate(length);
        std::mem::swap(&mut self.data, spare);
        true
    }

    pub(super) fn truncate(&mut self, length: usize) {
        self.data.truncate(length);
    }

    /// Makes it immutable. Its memory goes back to the pool when the last clone or slice is dropped, which for a sent
    /// buffer is after the transport needs it no more.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }

    /// Bytes of another owner in the account of this buffer, which goes back to the pool when they are dropped.
    pub(super) fn stand_for(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Accounted {
            bytes,
            _place: self,
        })
    }

    pub(super) fn into_parts(mut self) -> (Vec<u8>, Option<Arc<LocalInner>>) {
        (std::mem::take(&mut self.data), self.local.take())
    }
}

/// Foreign bytes and the buffer whose place they take.
struct Accounted {
    bytes: Bytes,
    _place: BufferMut,
}

impl AsRef<[u8]> for Accounted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for BufferMut {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for BufferMut {
    fn drop(&mut self) {
        if let Some(local) = self.local.take() {
            let mut data = std::mem::take(&mut self.data);
            data.clear();
            local.give_back(data);
        }
    }
}

impl fmt::Debug for BufferMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferMut")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
