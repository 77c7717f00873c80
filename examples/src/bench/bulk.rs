//! What all ends that move bulk data have in common.

use bytes::Bytes;

/// The block that a producer sends again and again: what is measured is its way, not its making.
pub(crate) fn block(bytes: usize) -> Bytes {
    Bytes::from(vec![FILLING; bytes])
}

/// Bulk gives way after so many bytes, as ARCHITECTURE.md asks of every task that moves it.
pub(crate) const YIELD_BYTES: usize = 128 * 1024;

/// Any byte does; nothing on the way compresses.
const FILLING: u8 = 0xa5;
