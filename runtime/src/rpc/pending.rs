//! Calls that wait for an answer, and how many there may be. Pure.

use std::collections::HashMap;

/// Calls under way on one stream, by their number. Each is completed once: by its answer, by its caller giving up, or
/// by the stream's end, whichever comes first.
#[derive(Debug)]
pub(super) struct PendingCalls<W> {
    next: u64,
    waiters: HashMap<u64, W>,
    crowd: Crowd,
}

impl<W> PendingCalls<W> {
    pub(super) fn new() -> Self {
        Self {
            next: 0,
            waiters: HashMap::new(),
            crowd: Crowd::default(),
        }
    }

    /// Numbers a call. Numbers are not used again in the life of a stream.
    pub(super) fn issue(&mut self, waiter: W) -> u64 {
        let call = self.next;
        self.next += 1;
        self.waiters.insert(call, waiter);
        self.crowd.joined(self.waiters.len());
        call
    }

    /// Whether the call that was issued last comes alone.
    pub(super) fn is_alone(&self) -> bool {
        self.crowd.is_alone()
    }

    /// The answer of a call has come, or its caller has given up: who waits, or `None` if that was settled before.
    pub(super) fn complete(&mut self, call: u64) -> Option<W> {
        self.waiters.remove(&call)
    }

    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// The stream has ended: everyone who still waits.
    pub(super) fn drain(&mut self) -> Vec<W> {
        std::mem::take(&mut self.waiters).into_values().collect()
    }
}

/// Tells calls that come one by one from those that come in crowds: what is sent of a crowd is joined.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    /// Most calls at the same time since there was none, and before that.
    now: usize,
    before: usize,
}

impl Crowd {
    /// One more call; so many there are with it.
    pub(super) fn joined(&mut self, calls: usize) {
        if calls == 1 {
            self.before = std::mem::replace(&mut self.now, 1);
        } else {
            self.now = self.now.max(calls);
        }
    }

    /// Whether no other call was there at the same time, nor at that of the call before.
    pub(super) fn is_alone(&self) -> bool {
        self.now.max(self.before) <= 1
    }
}

/// Bounds of what is under way to, or served for, one peer.
#[derive(Debug)]
pub(super) struct Budget {
    calls: u32,
    bytes: u64,
    max_calls: u32,
    max_bytes: u64,
}

/// Which bound is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exceeded {
    Calls(u32),
    Bytes(u64),
}

impl Budget {
    pub(super) fn new(max_calls: u32, max_bytes: u64) -> Self {
        Self {
            calls: 0,
            bytes: 0,
            max_calls,
            max_bytes,
        }
    }

    /// Counts a call with so many bytes of arguments.
    pub(super) fn take(&mut self, bytes: u64) -> Result<(), Exceeded> {
        if self.calls >= self.max_calls {
            return Err(Exceeded::Calls(self.max_calls));
        }
        let total = self
            .bytes
            .checked_add(bytes)
            .filter(|total| *total <= self.max_bytes)
            .ok_or(Exceeded::Bytes(self.max_bytes))?;
        self.calls += 1;
        self.bytes = total;
        Ok(())
    }

    /// A counted call is over.
    pub(super) fn give_back(&mut self, bytes: u64) {
        self.calls -= 1;
        self.bytes -= bytes;
    }

    /// Calls that are counted now.
    #[cfg(test)]
    pub(super) fn calls(&self) -> u32 {
        self.calls
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[test]
    fn late_reply_is_ignored() {
        let mut calls = PendingCalls::new();
        let first = calls.issue('a');
        assert_eq!(calls.complete(first), Some('a'));
        assert_eq!(calls.complete(first), None);
        assert_eq!(calls.complete(first + 1), None);
    }

    #[test]
    fn the_first_of_a_crowd_is_not_taken_for_a_lone_call() {
        let mut calls = PendingCalls::new();
        for _ in 0..3 {
            let call = calls.issue(());
            assert!(calls.is_alone());
            calls.complete(call);
        }
        let first = calls.issue(());
        let second = calls.issue(());
        assert!(!calls.is_alone());
        calls.complete(first);
        calls.complete(second);
        let next = calls.issue(());
        assert!(!calls.is_alone());
        calls.complete(next);
        calls.issue(());
        assert!(calls.is_alone());
    }

    #[test]
    fn a_bound_that_is_reached_is_named() {
        let mut budget = Budget::new(2, 100);
        budget.take(60).unwrap();
        assert_eq!(budget.take(41), Err(Exceeded::Bytes(100)));
        assert_eq!(budget.take(u64::MAX), Err(Exceeded::Bytes(100)));
        budget.take(40).unwrap();
        assert_eq!(budget.take(0), Err(Exceeded::Calls(2)));
        budget.give_back(60);
        budget.take(60).unwrap();
        assert_eq!(budget.calls(), 2);
    }

    proptest! {
        #[test]
        fn each_call_completes_exactly_once(events in vec((any::<bool>(), 0u64..20), 0..100)) {
            let mut calls = PendingCalls::new();
            let mut open = BTreeSet::new();
            for (issue, number) in events {
                if issue {
                    let call = calls.issue(());
                    prop_assert!(open.insert(call));
                } else {
                    prop_assert_eq!(calls.complete(number).is_some(), open.remove(&number));
                }
            }
            prop_assert_eq!(calls.drain().len(), open.len());
            prop_assert_eq!(calls.drain().len(), 0);
        }
    }
}
