//! Numbers as people read them.

use std::time::Duration;

/// `1,048,576`
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `512 B`, `1.50 GiB`
pub(crate) fn bytes(number: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, shift)| number >> shift > 0) {
        Some((unit, shift)) => format!("{:.2} {unit}", number as f64 / (1_u64 << shift) as f64),
        None => format!("{number} B"),
    }
}

/// `812.3 MB/s` (decimal), or nothing for a time too short to say.
pub(crate) fn rate(number: u64, duration: Duration) -> Option<String> {
    let seconds = duration.as_secs_f64();
    (seconds >= 0.001).then(|| format!("{:.1} MB/s", number as f64 / seconds / 1e6))
}

/// `250 ms`, `3.2 s`, `4 min 07 s`, `2 h 05 min`
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{} ms", duration.as_millis()),
        1..=59 => format!("{:.1} s", duration.as_millis() as f64 / 1000.0),
        60..=3599 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// `1 task`, `2 tasks`
pub(crate) fn plural(number: u64, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {noun}{s}", count(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_scaled() {
        assert_eq!(
            [0, 999, 1_000, 1_048_576].map(count),
            ["0", "999", "1,000", "1,048,576"]
        );
        assert_eq!(
            [0, 1023, 1024, 3 << 29, u64::MAX].map(bytes),
            ["0 B", "1023 B", "1.00 KiB", "1.50 GiB", "16777216.00 TiB"]
        );
        assert_eq!(
            rate(1_000_000, Duration::from_secs(2)).as_deref(),
            Some("0.5 MB/s")
        );
        assert_eq!(rate(1, Duration::ZERO), None);
    }

    #[test]
    fn durations_have_two_units_at_most() {
        let text = |millis| duration(Duration::from_millis(millis));
        assert_eq!(
            [0, 250, 3_200, 59_999, 247_000, 7_500_000].map(text),
            [
                "0 ms",
                "250 ms",
                "3.2 s",
                "60.0 s",
                "4 min 07 s",
                "2 h 05 min"
            ]
        );
    }
}
