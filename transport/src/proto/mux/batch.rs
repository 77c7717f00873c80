//! What goes to the socket in one write.

use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

/// Frames in the order in which they go out. Large payloads stay the buffers that they are; small ones and headers are
/// laid together, because a slice each would cost more than the copy.
#[derive(Debug, Default)]
pub struct Batch {
    parts: Vec<Bytes>,
    next: usize,
    small: BytesMut,
    bytes: usize,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes put in since the last [`clear`](Self::clear).
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether nothing was put in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        self.parts.clear();
        self.next = 0;
        self.small.clear();
        self.bytes = 0;
    }

    /// Where headers and control frames go.
    pub(super) fn put_small(&mut self, encode: impl FnOnce(&mut BytesMut)) {
        if self.small.capacity() - self.small.len() < SMALL_BYTES {
            self.end_small();
            self.small.reserve(SMALL_CHUNK_BYTES);
        }
        let before = self.small.len();
        encode(&mut self.small);
        self.bytes += self.small.len() - before;
    }

    /// Adds payload.
    pub(super) fn put(&mut self, bytes: Bytes) {
        if bytes.len() <= SMALL_BYTES {
            self.put_small(|small| small.extend_from_slice(&bytes));
        } else {
            self.end_small();
            self.bytes += bytes.len();
            self.parts.push(bytes);
        }
    }

    /// Makes everything that was put in visible to [`slices`](Self::slices).
    pub(super) fn seal(&mut self) {
        self.end_small();
    }

    /// Fills `slices` with what is left, and says how many were filled.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let left = &self.parts[self.next..];
        for (slice, part) in slices.iter_mut().zip(left) {
            *slice = IoSlice::new(part);
        }
        left.len().min(slices.len())
    }

    /// Takes off what was written.
    pub fn advance(&mut self, mut written: usize) {
        while let Some(part) = self.parts.get_mut(self.next) {
            if part.len() > written {
                part.advance(written);
                return;
            }
            written -= part.len();
            *part = Bytes::new();
            self.next += 1;
        }
    }

    /// Whether everything was written.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.next == self.parts.len()
    }

    fn end_small(&mut self) {
        if !self.small.is_empty() {
            self.parts.push(self.small.split().freeze());
        }
    }
}

/// Up to here a copy is cheaper than a slice of its own, in the kernel and in rustls.
const SMALL_BYTES: usize = 1024;

/// Allocated at once for small parts.
const SMALL_CHUNK_BYTES: usize = 16 * 1024;
