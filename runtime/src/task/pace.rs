//! When a task that shares its thread gives way.

/// Counts what a task moves through one input or output, and says when others are to have their turn. Pure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    turn: usize,
    left: usize,
}

impl Pace {
    /// Of a task on a thread of its own: nobody waits for it. Its turn of all bytes that can be counted never ends.
    pub(crate) fn alone() -> Self {
        Self::with_turn(usize::MAX)
    }

    /// Of a task that shares the thread of its node's connections.
    pub(crate) fn shared() -> Self {
        Self::with_turn(TURN_BYTES)
    }

    fn with_turn(turn: usize) -> Self {
        Self { turn, left: turn }
    }

    /// A record of so many bytes was moved.
    #[inline]
    pub(crate) fn count(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes + RECORD_COST);
    }

    /// Whether the turn is over; the next one begins.
    #[inline]
    pub(crate) fn turn_is_over(&mut self) -> bool {
        if self.left > 0 {
            return false;
        }
        self.left = self.turn;
        true
    }
}

/// What every task that moves bulk data on a network thread gives way after: without it, calls beside it wait
/// milliseconds.
const TURN_BYTES: usize = 128 * 1024;

/// A record costs its task time however short it is: at most 2048 records are in a turn.
const RECORD_COST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(mut pace: Pace, record: usize) -> Option<usize> {
        (1..=10_000).find(|_| {
            pace.count(record);
            pace.turn_is_over()
        })
    }

    #[test]
    fn a_turn_ends_after_so_many_bytes_or_records_and_never_on_a_thread_of_its_own() {
        assert_eq!(turn(Pace::shared(), TURN_BYTES), Some(1));
        assert_eq!(turn(Pace::shared(), 960), Some(128));
        assert_eq!(turn(Pace::shared(), 0), Some(2048));
        assert_eq!(turn(Pace::alone(), 1 << 30), None);
    }

    #[test]
    fn the_next_turn_is_as_long() {
        let mut pace = Pace::shared();
        pace.count(TURN_BYTES);
        assert!(pace.turn_is_over());
        assert!(!pace.turn_is_over());
        assert_eq!(turn(pace, 960), Some(128));
    }
}
