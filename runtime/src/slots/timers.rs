//! Time-outs as data: who registered one, until when, and whether a ticket still counts.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Time-outs by key, each with a ticket that is valid until the time-out is unregistered or registered again.
///
/// Follows Flink's `DefaultTimerService`: a time-out that was already on its way when it was cancelled is recognised by
/// its ticket and ignored.
#[derive(Debug)]
pub struct TimerTable<K> {
    timers: BTreeMap<K, Timer>,
    last: u64,
}

/// One registration of a time-out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket<K> {
    key: K,
    number: u64,
}

impl<K> Ticket<K> {
    /// Whose time-out it is.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.key
    }
}

#[derive(Debug)]
struct Timer {
    number: u64,
    /// `None` once the ticket was handed out by `expired`.
    deadline: Option<Instant>,
}

impl<K: Ord + Clone> TimerTable<K> {
    /// A table without time-outs.
    #[must_use]
    pub fn new() -> Self {
        Self {
            timers: BTreeMap::new(),
            last: 0,
        }
    }

    /// Registers a time-out; one that the key had before counts no more.
    pub fn register(&mut self, now: Instant, key: K, delay: Duration) -> Ticket<K> {
        self.last += 1;
        let timer = Timer {
            number: self.last,
            deadline: Some(now + delay),
        };
        self.timers.insert(key.clone(), timer);
        Ticket {
            key,
            number: self.last,
        }
    }

    /// Takes a time-out back; whether there was one.
    pub fn unregister(&mut self, key: &K) -> bool {
        self.timers.remove(key).is_some()
    }

    /// Takes all time-outs back.
    pub fn clear(&mut self) {
        self.timers.clear();
    }

    /// Whether the time-out of a ticket still counts.
    #[must_use]
    pub fn is_valid(&self, ticket: &Ticket<K>) -> bool {
        self.timers
            .get(&ticket.key)
            .is_some_and(|timer| timer.number == ticket.number)
    }

    /// The time-outs that have passed, each once; they stay valid until they are unregistered.
    pub fn expired(&mut self, now: Instant) -> Vec<Ticket<K>> {
        self.timers
            .iter_mut()
            .filter(|(_, timer)| timer.deadline.is_some_and(|deadline| deadline <= now))
            .map(|(key, timer)| {
                timer.deadline = None;
                Ticket {
                    key: key.clone(),
                    number: timer.number,
                }
            })
            .collect()
    }

    /// When [`expired`](Self::expired) has something to hand out.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.timers
            .values()
            .filter_map(|timer| timer.deadline)
            .min()
    }
}

impl<K: Ord + Clone> Default for TimerTable<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_ticket_is_valid_while_it_is_registered() {
        let mut timers = TimerTable::new();
        let ticket = timers.register(thalweg_transport::now(), 'a', SECOND);
        assert!(timers.is_valid(&ticket));
        assert!(timers.unregister(&'a'));
        assert!(!timers.is_valid(&ticket));
        assert!(!timers.unregister(&'a'));
    }

    #[test]
    fn registering_again_outdates_the_ticket_before() {
        let now = thalweg_transport::now();
        let mut timers = TimerTable::new();
        let old = timers.register(now, 'a', SECOND);
        let new = timers.register(now, 'a', 2 * SECOND);
        assert!(!timers.is_valid(&old));
        assert!(timers.is_valid(&new));
        assert_eq!(timers.next_deadline(), Some(now + 2 * SECOND));
    }

    #[test]
    fn clearing_outdates_every_ticket() {
        let now = thalweg_transport::now();
        let mut timers = TimerTable::new();
        let tickets = ['a', 'b'].map(|key| timers.register(now, key, SECOND));
        timers.clear();
        assert!(tickets.iter().all(|ticket| !timers.is_valid(ticket)));
        assert_eq!(timers.expired(now + SECOND), []);
    }

    #[test]
    fn an_expired_ticket_is_handed_out_once_and_stays_valid() {
        let now = thalweg_transport::now();
        let mut timers = TimerTable::new();
        let ticket = timers.register(now, 'a', SECOND);
        assert_eq!(timers.expired(now), []);
        assert_eq!(timers.expired(now + SECOND), std::slice::from_ref(&ticket));
        assert_eq!(timers.expired(now + 2 * SECOND), []);
        assert_eq!(timers.next_deadline(), None);
        assert!(timers.is_valid(&ticket));
        assert_eq!(ticket.key(), &'a');
    }
}
