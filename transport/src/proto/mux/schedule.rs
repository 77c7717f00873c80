//! Which stream sends next.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
};

use super::machine::Key;

/// Streams with something to send: highest priority first, in turn within a priority.
///
/// An entry is named by a ticket; a stream whose ticket is another one (it was rescheduled, or its place in the table
/// was given to a new stream) has left the entry behind, and the caller skips it.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    levels: BTreeMap<Reverse<i32>, VecDeque<(Key, u64)>>,
    tickets: u64,
}

impl Schedule {
    /// Puts a stream at the end of its priority's queue and gives its ticket.
    pub(super) fn push(&mut self, priority: i32, key: Key) -> u64 {
        self.tickets += 1;
        self.levels
            .entry(Reverse(priority))
            .or_default()
            .push_back((key, self.tickets));
        self.tickets
    }

    /// Takes the stream whose turn it is.
    pub(super) fn pop(&mut self) -> Option<(Key, u64)> {
        let mut level = self.levels.first_entry()?;
        let next = level.get_mut().pop_front();
        if level.get().is_empty() {
            level.remove();
        }
        next
    }

    pub(super) fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.levels.clear();
    }
}
