//! How often each peer may call a method. Pure.

use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    time::{Duration, Instant},
};

/// Bounds calls per second, for each peer and method on its own: as many as a second may have at once, then one for each
/// part of a second that has passed.
///
/// It remembers one moment for each peer and method; when there are [`MAX_CALLERS`], those that did not call within the
/// last second are forgotten, which is looked for ten times a second at most.
#[derive(Debug, Default)]
pub(super) struct RateLimiter {
    /// By method and peer: when a caller that used up what it had would have its whole second again.
    callers: BTreeMap<u32, BTreeMap<Box<str>, Instant>>,
    count: usize,
    /// When idle ones were looked for last: with too many callers each unknown one would cost a search.
    searched: Option<Instant>,
}

impl RateLimiter {
    /// Whether this peer may call this method now; counts the call if so.
    pub(super) fn allow(
        &mut self,
        now: Instant,
        (peer, method): (&str, u32),
        max_per_second: NonZeroU32,
    ) -> bool {
        let each = SECOND / max_per_second.get();
        if let Some(full) = self
            .callers
            .get_mut(&method)
            .and_then(|callers| callers.get_mut(peer))
        {
            let next = (*full).max(now) + each;
            if next > now + SECOND {
                return false;
            }
            *full = next;
            return true;
        }
        if self.count >= MAX_CALLERS {
            let is_due = |last: Instant| now.saturating_duration_since(last) >= SEARCH_INTERVAL;
            if self.searched.is_none_or(is_due) {
                self.searched = Some(now);
                self.forget_idle(now);
            }
            if self.count >= MAX_CALLERS {
                return false;
            }
        }
        let callers = self.callers.entry(method).or_default();
        callers.insert(peer.into(), now + each);
        self.count += 1;
        true
    }

    /// Who has its whole second again is as good as unknown.
    fn forget_idle(&mut self, now: Instant) {
        for callers in self.callers.values_mut() {
            callers.retain(|_, full| *full > now);
        }
        self.callers.retain(|_, callers| !callers.is_empty());
        self.count = self.callers.values().map(BTreeMap::len).sum();
    }
}

const SEARCH_INTERVAL: Duration = Duration::from_millis(100);
const SECOND: Duration = Duration::from_secs(1);
/// Several methods of each node of the largest cluster. Peers with certificates cannot choose their names; of others, who
/// can, as many as this are heard in a second.
const MAX_CALLERS: usize = 65_536;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn most(number: u32) -> NonZeroU32 {
        NonZeroU32::new(number).unwrap()
    }

    #[test]
    fn a_second_has_so_many_calls_at_once_or_spread() {
        let start = thalweg_transport::now();
        let mut limiter = RateLimiter::default();
        let mut burst = |now| {
            let calls = 0..10_000;
            calls
                .filter(|_| limiter.allow(now, ("tm-1", 7), most(1000)))
                .count()
        };
        assert_eq!(burst(start), 1000);
        assert_eq!(burst(start), 0);
        assert_eq!(burst(start + SECOND / 10), 100);
        assert_eq!(burst(start + 5 * SECOND), 1000);
    }

    #[test]
    fn peers_and_methods_are_counted_apart() {
        let now = thalweg_transport::now();
        let mut limiter = RateLimiter::default();
        assert!(limiter.allow(now, ("tm-1", 7), most(1)));
        assert!(!limiter.allow(now, ("tm-1", 7), most(1)));
        assert!(limiter.allow(now, ("tm-2", 7), most(1)));
        assert!(limiter.allow(now, ("tm-1", 8), most(1)));
    }

    #[test]
    fn callers_are_bounded_and_idle_ones_are_forgotten() {
        let now = thalweg_transport::now();
        let mut limiter = RateLimiter::default();
        for number in 0..MAX_CALLERS {
            assert!(limiter.allow(now, (&number.to_string(), 7), most(10)));
        }
        assert!(!limiter.allow(now, ("one more", 7), most(10)));
        assert!(
            limiter.allow(now, ("0", 7), most(10)),
            "a known one goes on"
        );
        assert!(limiter.allow(now + SECOND, ("one more", 7), most(10)));
        assert_eq!(limiter.count, 1);
    }

    proptest! {
        #[test]
        fn no_window_of_a_second_has_twice_as_many(
            pauses in prop::collection::vec(0..400_u64, 1..300),
            number in 1..50_u32,
        ) {
            let start = thalweg_transport::now();
            let mut limiter = RateLimiter::default();
            let mut taken = Vec::new();
            let mut clock = 0;
            for pause in pauses {
                clock += pause;
                let now = start + Duration::from_millis(clock);
                if limiter.allow(now, ("tm", 1), most(number)) {
                    taken.push(clock);
                }
            }
            for (first, begin) in taken.iter().enumerate() {
                let window = taken[first..].iter().filter(|at| **at < begin + 1000).count();
                prop_assert!(window <= 2 * number as usize, "{window} in a second");
            }
        }
    }
}
