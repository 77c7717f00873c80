//! When a sender asks its targets.

use std::time::{Duration, Instant};

/// The requests of a sender: the first at once, then one each interval.
///
/// Requests that were missed, because the process stood still, are not made up for.
#[derive(Debug, Clone, Copy)]
pub struct HeartbeatSchedule {
    interval: Duration,
    next: Instant,
}

impl HeartbeatSchedule {
    /// A schedule whose first request is due at once.
    #[must_use]
    pub fn new(now: Instant, interval: Duration) -> Self {
        Self {
            interval,
            next: now,
        }
    }

    /// Whether all targets are to be asked now; sets the next time if so.
    pub fn on_tick(&mut self, now: Instant) -> bool {
        if now < self.next {
            return false;
        }
        let regular = self.next + self.interval;
        self.next = if regular > now {
            regular
        } else {
            now + self.interval
        };
        true
    }

    /// When the next request is due.
    #[must_use]
    pub fn next_deadline(&self) -> Instant {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_request_is_due_at_once_then_one_each_interval() {
        let start = thalweg_transport::now();
        let interval = Duration::from_secs(10);
        let mut schedule = HeartbeatSchedule::new(start, interval);
        assert!(schedule.on_tick(start));
        assert!(!schedule.on_tick(start));
        assert!(!schedule.on_tick(start + Duration::from_millis(9_999)));
        assert!(schedule.on_tick(start + Duration::from_millis(10_003)));
        assert_eq!(schedule.next_deadline(), start + 2 * interval);
    }

    #[test]
    fn missed_requests_are_not_made_up_for() {
        let start = thalweg_transport::now();
        let interval = Duration::from_secs(10);
        let mut schedule = HeartbeatSchedule::new(start, interval);
        let late = start + Duration::from_secs(1005);
        assert!(schedule.on_tick(late));
        assert!(!schedule.on_tick(late));
        assert_eq!(schedule.next_deadline(), late + interval);
    }
}
