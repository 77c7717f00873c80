//! Buffer debloating: buffers as small as what is under way takes a second to consume.
//!
//! The rules and figures are Flink's: a sample every 200 ms, a target of 1 s, an exponential average over 20 samples,
//! sizes from 256 bytes to the whole buffer, and only changes of a quarter are worth a message.

use std::time::{Duration, Instant};

/// Time between two samples of a gate.
pub const DEBLOAT_PERIOD: Duration = Duration::from_millis(200);

/// Smallest size that is announced, in bytes.
pub const MIN_DEBLOATED_BYTES: u32 = 256;

/// Decides how large a gate's producers should make their buffers.
#[derive(Debug, Clone)]
pub struct BufferDebloater {
    min: u32,
    max: u32,
    /// The average, in 1/256 bytes.
    size: u64,
    announced: u32,
}

impl BufferDebloater {
    /// For buffers of `max` bytes, which is what producers use until they are told.
    #[must_use]
    pub fn new(max: u32) -> Self {
        let max = max.max(1);
        Self {
            min: MIN_DEBLOATED_BYTES.min(max),
            max,
            size: u64::from(max) * FRACTION,
            announced: max,
        }
    }

    /// The size that was announced last, in bytes.
    #[must_use]
    pub fn announced(&self) -> u32 {
        self.announced
    }

    /// Takes a sample: bytes that the gate consumes in a second of work, and buffers that are queued in it or announced
    /// to it. Gives the new size if it is worth announcing.
    pub fn on_sample(&mut self, bytes_per_second: u64, buffers_in_use: u32) -> Option<u32> {
        // The target of 1 s makes the wanted bytes under way equal to the throughput.
        let each = bytes_per_second / u64::from(buffers_in_use.max(1));
        // Growth is limited as shrinking is, which cannot go below 0: both are equally fast then.
        let wanted = each.saturating_mul(FRACTION).min(self.size * 2);
        let average = (self.size * (SAMPLES - 1) + wanted * 2) / (SAMPLES + 1);
        let (min, max) = (u64::from(self.min), u64::from(self.max));
        self.size = average.clamp(min * FRACTION, max * FRACTION);
        let size = u32::try_from(self.size / FRACTION).unwrap_or(self.max);
        let at_limit = size == self.min || size == self.max;
        if size == self.announced
            || (!at_limit && size.abs_diff(self.announced) < self.announced / 4)
        {
            return None;
        }
        self.announced = size;
        Some(size)
    }
}

/// Measures what a gate consumes while it has something to consume: an idle gate is not a slow one.
#[derive(Debug, Clone)]
pub struct ThroughputMeter {
    since: Instant,
    bytes: u64,
    idle: Duration,
    idle_since: Option<Instant>,
}

impl ThroughputMeter {
    /// Begins now.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            since: now,
            bytes: 0,
            idle: Duration::ZERO,
            idle_since: None,
        }
    }

    /// The consumer found nothing.
    pub fn on_idle(&mut self, now: Instant) {
        self.idle_since.get_or_insert(now);
    }

    /// The consumer found something.
    pub fn on_busy(&mut self, now: Instant) {
        if let Some(since) = self.idle_since.take() {
            self.idle += now.saturating_duration_since(since);
        }
    }

    /// Bytes per second of work since the last sample, where `total` counts all bytes so far; `None` without work.
    pub fn sample(&mut self, now: Instant, total: u64) -> Option<u64> {
        if self.idle_since.is_some() {
            self.on_busy(now);
            self.on_idle(now);
        }
        let busy = now.saturating_duration_since(self.since);
        let busy = busy.saturating_sub(self.idle).as_nanos();
        (self.since, self.idle) = (now, Duration::ZERO);
        if busy == 0 {
            // What was consumed in no time counts with the next sample.
            return None;
        }
        let bytes = u128::from(total.saturating_sub(self.bytes));
        self.bytes = total;
        Some(u64::try_from(bytes * 1_000_000_000 / busy).unwrap_or(u64::MAX))
    }
}

/// Samples in the average: each new one weighs 2 / (20 + 1).
const SAMPLES: u64 = 20;

/// Parts of a byte that the average keeps.
const FRACTION: u64 = 256;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAX: u32 = 32 * 1024;

    fn after(debloater: &mut BufferDebloater, samples: usize, rate: u64, buffers: u32) -> u32 {
        for _ in 0..samples {
            debloater.on_sample(rate, buffers);
        }
        debloater.announced()
    }

    #[test]
    fn the_size_goes_to_the_throughput_by_the_buffers_in_use() {
        let mut debloater = BufferDebloater::new(MAX);
        let size = after(&mut debloater, 200, 200_000, 20);
        assert!((10_000..13_334).contains(&size), "{size}");
        let size = after(&mut debloater, 200, 400_000, 20);
        assert!((16_000..=20_000).contains(&size), "{size}");
    }

    #[test]
    fn no_buffers_in_use_count_as_one() {
        let (mut none, mut one) = (BufferDebloater::new(MAX), BufferDebloater::new(MAX));
        assert_eq!(
            after(&mut none, 50, 9_000, 0),
            after(&mut one, 50, 9_000, 1)
        );
    }

    #[test]
    fn one_sample_weighs_two_parts_in_twenty_one() {
        let mut debloater = BufferDebloater::new(MAX);
        debloater.on_sample(0, 1);
        assert_eq!(debloater.size / FRACTION, u64::from(MAX) * 19 / 21);
    }

    #[test]
    fn a_standing_gate_shrinks_its_buffers_to_the_minimum_and_no_further() {
        let mut debloater = BufferDebloater::new(MAX);
        assert_eq!(after(&mut debloater, 100, 0, 1), MIN_DEBLOATED_BYTES);
        assert_eq!(debloater.on_sample(0, 1), None, "it is said once");
    }

    #[test]
    fn a_fast_gate_grows_its_buffers_to_the_maximum_at_the_pace_at_which_they_shrink() {
        let mut debloater = BufferDebloater::new(MAX);
        after(&mut debloater, 100, 0, 1);
        let before = debloater.size;
        debloater.on_sample(u64::MAX, 1);
        assert_eq!(debloater.size - before, before * 2 / 21);
        assert_eq!(after(&mut debloater, 100, u64::MAX, 1), MAX);
    }

    #[test]
    fn changes_below_a_quarter_are_not_announced() {
        let mut debloater = BufferDebloater::new(MAX);
        assert_eq!(debloater.on_sample(0, 1), None);
        assert_eq!(debloater.on_sample(0, 1), None);
        let third = debloater.on_sample(0, 1).unwrap();
        assert!(third <= MAX * 3 / 4 && third > MAX * 2 / 3, "{third}");
    }

    #[test]
    fn the_limits_are_announced_however_small_the_change() {
        let mut debloater = BufferDebloater::new(1000);
        after(&mut debloater, 100, 0, 1);
        debloater.announced = 270;
        assert_eq!(debloater.on_sample(0, 1), Some(MIN_DEBLOATED_BYTES));
        after(&mut debloater, 100, u64::MAX, 1);
        debloater.announced = 999;
        assert_eq!(debloater.on_sample(u64::MAX, 1), Some(1000));
    }

    proptest! {
        #[test]
        fn sizes_stay_within_their_limits(
            max in any::<u32>(), samples in proptest::collection::vec((any::<u64>(), any::<u32>()), 0..50),
        ) {
            let mut debloater = BufferDebloater::new(max);
            for (rate, buffers) in samples {
                if let Some(size) = debloater.on_sample(rate, buffers) {
                    prop_assert!(size >= MIN_DEBLOATED_BYTES.min(max.max(1)) && size <= max.max(1));
                }
            }
        }
    }

    #[test]
    fn throughput_counts_the_time_of_work_only() {
        let start = crate::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut meter = ThroughputMeter::new(start);
        meter.on_idle(at(50));
        meter.on_idle(at(100));
        meter.on_busy(at(150));
        meter.on_busy(at(160));
        assert_eq!(meter.sample(at(200), 100), Some(1000), "100 ms of work");
        meter.on_idle(at(200));
        assert_eq!(meter.sample(at(400), 100), None);
        assert_eq!(meter.sample(at(600), 100), None, "still idle");
        meter.on_busy(at(700));
        assert_eq!(meter.sample(at(800), 300), Some(2000));
    }

    #[test]
    fn what_is_consumed_in_no_time_counts_later() {
        let start = crate::now();
        let mut meter = ThroughputMeter::new(start);
        assert_eq!(meter.sample(start, 100), None);
        let later = start + Duration::from_millis(100);
        assert_eq!(meter.sample(later, 100), Some(1000));
    }
}
