//! Pauses between attempts: capped exponential with jitter.

use std::time::Duration;

/// Pauses that double from a first one up to a longest one.
///
/// The jitter is an argument, so that equal arguments give equal pauses: half of a pause is fixed, the other half is
/// scaled by the jitter. Nodes that failed at the same moment thus spread over half a pause, and none comes back at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    initial: Duration,
    max: Duration,
}

impl Backoff {
    /// Pauses from `initial` to `max`; an `initial` above `max` is cut to it.
    #[must_use]
    pub fn new(initial: Duration, max: Duration) -> Self {
        Self {
            initial: initial.min(max),
            max,
        }
    }

    /// The pause after this many failures (1 after the first attempt failed), between half of the full pause and all of
    /// it.
    ///
    /// `jitter` is a fraction from 0 to 1; a value outside is cut to that range, and what is no number counts as 1.
    #[must_use]
    pub fn pause(&self, failures: u32, jitter: f64) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let full = self
            .initial
            .checked_mul(1 << doublings)
            .map_or(self.max, |pause| pause.min(self.max));
        let jitter = if jitter.is_nan() {
            1.0
        } else {
            jitter.clamp(0.0, 1.0)
        };
        let fixed = full / 2;
        let scaled = (full - fixed).as_secs_f64() * jitter;
        (fixed + Duration::try_from_secs_f64(scaled).unwrap_or(full - fixed)).min(full)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn pauses_double_up_to_the_longest() {
        let backoff = Backoff::new(100 * MS, 1000 * MS);
        let full: Vec<_> = (1..=6).map(|n| backoff.pause(n, 1.0).as_millis()).collect();
        assert_eq!(full, [100, 200, 400, 800, 1000, 1000]);
        assert_eq!(backoff.pause(3, 0.0), 200 * MS);
        assert_eq!(backoff.pause(u32::MAX, 0.5), 750 * MS);
    }

    proptest! {
        #[test]
        fn a_pause_stays_in_its_band_and_never_overflows(
            initial in 0..=u64::MAX, max in 0..=u64::MAX, failures: u32, jitter: f64,
        ) {
            let backoff = Backoff::new(Duration::from_secs(initial), Duration::from_secs(max));
            let full = backoff.pause(failures, 1.0);
            let pause = backoff.pause(failures, jitter);
            prop_assert!(pause <= full && full <= Duration::from_secs(max));
            prop_assert!(pause >= full / 2);
        }

        #[test]
        fn full_pauses_never_shrink(initial in 0..10_000_u64, max in 0..100_000_u64, failures in 0..40_u32) {
            let backoff = Backoff::new(Duration::from_millis(initial), Duration::from_millis(max));
            prop_assert!(backoff.pause(failures, 1.0) <= backoff.pause(failures + 1, 1.0));
        }
    }
}
