//! How long a task holds the thread that it shares.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// Measures the steps of one task, each from the moment when the task gets its thread until it gives it back. Reads no
/// clock; any thread may look while a step lasts.
#[derive(Debug)]
pub(super) struct Hold {
    start: Instant,
    /// When the step that lasts now began, in microseconds from 1 after the start; 0 between steps.
    step: AtomicU64,
    /// The longest step that is over, in microseconds.
    longest: AtomicU64,
    /// What was told last.
    told: AtomicU64,
}

impl Hold {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            start: now,
            step: AtomicU64::new(0),
            longest: AtomicU64::new(0),
            told: AtomicU64::new(0),
        }
    }

    /// The task gets the thread.
    pub(super) fn begin(&self, now: Instant) {
        self.step.store(self.micros(now), Ordering::Relaxed);
    }

    /// The task gives it back.
    pub(super) fn end(&self, now: Instant) {
        let step = self.step.swap(0, Ordering::Relaxed);
        if step > 0 {
            let lasted = self.micros(now).saturating_sub(step);
            self.longest.fetch_max(lasted, Ordering::Relaxed);
        }
    }

    /// The longest step, if it is too long and twice as long as what was told before.
    pub(super) fn news(&self, now: Instant) -> Option<Duration> {
        let current = match self.step.load(Ordering::Relaxed) {
            0 => 0,
            step => self.micros(now).saturating_sub(step),
        };
        let longest = current.max(self.longest.load(Ordering::Relaxed));
        let told = self.told.load(Ordering::Relaxed);
        if longest < TOO_LONG_MICROS.max(told.saturating_mul(2)) {
            return None;
        }
        self.told.store(longest, Ordering::Relaxed);
        Some(Duration::from_micros(longest))
    }

    fn micros(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.start).as_micros();
        u64::try_from(since).unwrap_or(u64::MAX).saturating_add(1)
    }
}

/// 100 ms: a hundred times what a light task may take, and a twentieth of the default keep-alive interval, so that the
/// warning comes before peers notice.
const TOO_LONG_MICROS: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn hold() -> (Hold, impl Fn(u64) -> Instant) {
        let start = thalweg_transport::now();
        (Hold::new(start), move |millis| {
            start + Duration::from_millis(millis)
        })
    }

    #[test]
    fn short_steps_are_no_news_however_many_there_are() {
        let (hold, at) = hold();
        for step in 0..100 {
            hold.begin(at(step * 100));
            hold.end(at(step * 100 + 99));
        }
        assert_eq!(hold.news(at(10_000)), None);
    }

    #[test]
    fn a_long_step_is_told_while_it_lasts_and_again_when_it_is_twice_as_long() {
        let (hold, at) = hold();
        hold.begin(at(0));
        assert_eq!(hold.news(at(99)), None);
        assert_eq!(hold.news(at(150)), Some(Duration::from_millis(150)));
        assert_eq!(hold.news(at(299)), None);
        assert_eq!(hold.news(at(300)), Some(Duration::from_millis(300)));
        hold.end(at(600));
        assert_eq!(hold.news(at(601)), Some(Duration::from_millis(600)));
        assert_eq!(hold.news(at(9_999)), None, "it is over");
    }
}
