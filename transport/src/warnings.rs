//! Warnings that a peer can cause at will, at most one per class and minute.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// What went wrong, as coarse as an operator would count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FailureClass {
    /// The system gives no socket for a new peer.
    Accept,
    Dial,
    Handshake,
    Hello,
    Overload,
    StreamRefused,
}

/// When each class was last warned of, and how many warnings were held back since.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<BTreeMap<FailureClass, (Instant, u64)>>);

impl Warnings {
    /// Whether to warn now; if so, how many were held back since the last one.
    pub(crate) fn due(&self, now: Instant, class: FailureClass) -> Option<u64> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match table.get_mut(&class) {
            Some((last, held_back)) if now.saturating_duration_since(*last) < QUIET => {
                *held_back += 1;
                None
            }
            other => {
                let held_back = other.map_or(0, |(_, held_back)| *held_back);
                table.insert(class, (now, 0));
                Some(held_back)
            }
        }
    }
}

/// A peer that fails in a loop gives one line a minute, which shows on any dashboard and fills no disk.
const QUIET: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_warned_of_once_a_minute_and_the_rest_is_counted() {
        let warnings = Warnings::default();
        let start = crate::clock::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(warnings.due(at(0), FailureClass::Hello), Some(0));
        assert_eq!(warnings.due(at(1), FailureClass::Hello), None);
        assert_eq!(warnings.due(at(59), FailureClass::Hello), None);
        assert_eq!(warnings.due(at(2), FailureClass::Dial), Some(0));
        assert_eq!(warnings.due(at(60), FailureClass::Hello), Some(2));
        assert_eq!(warnings.due(at(61), FailureClass::Hello), None);
    }
}
