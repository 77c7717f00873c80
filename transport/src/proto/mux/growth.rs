//! How far the receive windows of streams may grow.

use super::machine::{Key, Mux};

/// How receive windows grow beyond the one that every stream starts with.
///
/// A window grows when its sender was blocked and the reader then found the end of what had come: it is the window that
/// holds the two up. So bulk has its full window after four round trips; a stream whose reader is slower than
/// the network, that is not read, or that carries little, stays small. What all streams of a connection have beyond their
/// start is bounded; when it is used up, those that have more than an equal share give back what their readers read, until
/// those that asked have got something.
///
/// So does a stream that idles, but only with what its sender has not heard of yet, less than a quarter of its window. The
/// rest stays granted until it is used: no frame takes back what was announced, and as the sender may use it up at any
/// moment, a bound that counted it as free would be none. When the stream is used again, its reader gives it back.
///
/// Payload that goes past the queue (see [`Passing`](super::Passing)) counts as read when it comes: such a stream's window
/// grows whenever its sender is blocked, so something else has to hold the sender back, as the credits of channels do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth {
    /// What a window grows to at first, in bytes; then it doubles.
    pub first: u32,
    /// What it may grow to, in bytes.
    pub max: u32,
    /// Bytes beyond the start for all streams of the connection together.
    pub budget: u64,
}

/// What the streams of a connection have of the budget.
#[derive(Debug, Default)]
pub(super) struct Grants {
    /// Bytes that are granted; the sum over all streams.
    pub(super) granted: u64,
    /// Streams that have asked, and may ask again.
    asking: u32,
    /// One has asked in vain since there was room.
    starved: bool,
    /// Where to look next for something to take back.
    next: usize,
}

impl Grants {
    /// What each stream has if all that ask have the same.
    fn share(&self, budget: u64) -> u32 {
        let share = budget / u64::from(self.asking.max(1));
        u32::try_from(share).unwrap_or(u32::MAX)
    }
}

impl Mux {
    /// A sender is blocked.
    pub(super) fn on_blocked(&mut self, key: Key) {
        if let Some(stream) = self.stream(key) {
            stream.recv.is_blocked = true;
            self.grow(key);
        }
    }

    /// Raises the window of a blocked sender whose reader waits for it, as the budget allows.
    fn grow(&mut self, key: Key) {
        let Growth { first, max, budget } = self.config.growth;
        let start = self.config.local.window;
        let Some(stream) = self.slots.get_mut(key.0).and_then(Option::as_mut) else {
            return;
        };
        let recv = &mut stream.recv;
        if !recv.is_blocked || recv.buffered() > 0 || recv.is_over() {
            return;
        }
        recv.is_blocked = false;
        if !std::mem::replace(&mut recv.asked, true) {
            self.grants.asking += 1;
        }
        let size = start.saturating_add(recv.granted);
        let wanted = if size < first {
            first
        } else {
            size.saturating_mul(2)
        };
        let more = wanted.min(max).saturating_sub(size);
        if more == 0 {
            return;
        }
        if self.grants.granted + u64::from(more) > budget {
            self.grants.starved = true;
            self.collect();
            if self.grants.granted + u64::from(more) > budget {
                return;
            }
        }
        let Some(stream) = self.slots.get_mut(key.0).and_then(Option::as_mut) else {
            return;
        };
        self.grants.granted += u64::from(more);
        if stream.recv.grow(more) {
            self.windows.push_back(key);
        }
    }

    /// Takes back what a few streams have, beyond an equal share, read and not announced: they may not be read again for
    /// long.
    fn collect(&mut self) {
        let start = self.config.local.window;
        let share = self.grants.share(self.config.growth.budget);
        for _ in 0..COLLECTED.min(self.slots.len()) {
            let at = self.grants.next % self.slots.len();
            self.grants.next = at + 1;
            if let Some(stream) = &mut self.slots[at] {
                self.grants.granted -= u64::from(stream.recv.give_back(share));
                if stream.recv.make_due(stream.recv.update(start)) {
                    self.windows.push_back(Key(at));
                }
            }
        }
    }

    /// Bytes that were read make a WINDOW frame due, or go back to the budget if others need them more.
    pub(super) fn on_read(&mut self, key: Key) {
        self.grow(key);
        let start = self.config.local.window;
        let budget = self.config.growth.budget;
        let grants = &mut self.grants;
        let Some(stream) = self.slots.get_mut(key.0).and_then(Option::as_mut) else {
            return;
        };
        if grants.starved {
            let share = grants.share(budget);
            grants.granted -= u64::from(stream.recv.give_back(share));
            // Whoever is still blocked asks again after its next window.
            grants.starved = grants.granted > budget / 2;
        }
        if stream.recv.make_due(stream.recv.update(start)) {
            self.windows.push_back(key);
        }
    }

    /// The receiving half is over: what it had goes back.
    pub(super) fn release_grant(&mut self, key: Key) {
        let Some(stream) = self.slots.get_mut(key.0).and_then(Option::as_mut) else {
            return;
        };
        if !stream.recv.is_over() {
            return;
        }
        self.grants.granted -= u64::from(std::mem::take(&mut stream.recv.granted));
        if std::mem::take(&mut stream.recv.asked) {
            self.grants.asking -= 1;
        }
    }
}

/// Streams that are looked at when one asks in vain: work per frame is constant, and they ask often.
const COLLECTED: usize = 8;
