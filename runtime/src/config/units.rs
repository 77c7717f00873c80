//! Sizes and durations as people write them.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

/// A number of bytes, written `32KiB`, `64MiB`, `1GiB`, `10MB` (decimal), `4096B` or `4096`.
///
/// `Display` uses the largest binary unit that divides the number, so that reading it back gives the same number.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ByteSize(u64);

impl ByteSize {
    /// A number of bytes.
    #[must_use]
    pub const fn bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// A number of 1024 bytes each.
    ///
    /// # Panics
    /// If the product does not fit 64 bits; meant for constants.
    #[must_use]
    pub const fn kib(count: u64) -> Self {
        Self(count.checked_mul(1 << 10).expect("a constant that fits"))
    }

    /// A number of 1024 * 1024 bytes each.
    ///
    /// # Panics
    /// If the product does not fit 64 bits; meant for constants.
    #[must_use]
    pub const fn mib(count: u64) -> Self {
        Self(count.checked_mul(1 << 20).expect("a constant that fits"))
    }

    /// The number of bytes.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = BINARY_UNITS
            .into_iter()
            .find(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor))
            .unwrap_or(("B", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = || {
            format!(
                "{text:?} is no size: expected a whole number with B, KiB, MiB, GiB, TiB, KB, MB, GB or TB, \
                 like 64KiB"
            )
        };
        let (number, unit) = split_number(text.trim()).ok_or_else(expected)?;
        let factor = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "kib" => 1 << 10,
            "mib" => 1 << 20,
            "gib" => 1 << 30,
            "tib" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(expected()),
        };
        number
            .checked_mul(factor)
            .map(Self)
            .ok_or_else(|| format!("{text:?} is too large for a size: at most 2^64 - 1 bytes"))
    }
}

/// Reads a duration: whole numbers with `ns`, `us`, `ms`, `s`, `m`, `h` or `d`, largest unit first (`1m30s`).
///
/// # Errors
/// A message that names the text and what is expected; also if the sum does not fit.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let expected = || {
        format!(
            "{text:?} is no duration: expected whole numbers with ns, us, ms, s, m, h or d, like 250ms, 10s or 1m30s"
        )
    };
    let mut rest = text.trim();
    let mut nanos: u128 = 0;
    let mut last = u128::MAX;
    if rest.is_empty() {
        return Err(expected());
    }
    while !rest.is_empty() {
        let (number, tail) = split_number(rest).ok_or_else(expected)?;
        let end = tail
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let (_, factor) = TIME_UNITS
            .into_iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(expected)?;
        if factor >= last {
            return Err(expected());
        }
        last = factor;
        nanos = u128::from(number)
            .checked_mul(factor)
            .and_then(|part| nanos.checked_add(part))
            .ok_or_else(|| too_long(text))?;
        rest = tail.trim_start();
    }
    let seconds = u64::try_from(nanos / NANOS_PER_SECOND).map_err(|_| too_long(text))?;
    let nanos = u32::try_from(nanos % NANOS_PER_SECOND).map_err(|_| too_long(text))?;
    Ok(Duration::new(seconds, nanos))
}

/// Writes a duration with the largest unit that divides it; [`parse_duration`] reads the same value back.
///
/// Days are used from two on: `24h`, `30d`.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    let (unit, factor) = TIME_UNITS
        .into_iter()
        .find(|(unit, factor)| nanos.is_multiple_of(*factor) && (*unit != "d" || nanos > *factor))
        .unwrap_or(("ns", 1));
    format!("{}{unit}", nanos / factor)
}

/// The digits at the start of a text and what follows, spaces between them skipped.
fn split_number(text: &str) -> Option<(u64, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((digits.parse().ok()?, rest.trim_start()))
}

fn too_long(text: &str) -> String {
    format!("{text:?} is too long for a duration: at most 2^64 - 1 seconds")
}

const BINARY_UNITS: [(&str, u64); 4] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];

/// Nanoseconds of each unit, largest first.
const TIME_UNITS: [(&str, u128); 7] = [
    ("d", 86_400 * NANOS_PER_SECOND),
    ("h", 3_600 * NANOS_PER_SECOND),
    ("m", 60 * NANOS_PER_SECOND),
    ("s", NANOS_PER_SECOND),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

const NANOS_PER_SECOND: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512B", 512),
            ("32KiB", 32 << 10),
            ("64 MiB", 64 << 20),
            ("1gib", 1 << 30),
            ("10MB", 10_000_000),
            ("3KB", 3000),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for bad in [
            "",
            "KiB",
            "-1",
            "1.5GiB",
            "12 parsecs",
            "20000000TiB",
            "1 2",
        ] {
            let error = bad.parse::<ByteSize>().unwrap_err();
            assert!(error.contains(&format!("{bad:?}")), "{error}");
        }
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, millis) in [
            ("250ms", 250),
            ("10s", 10_000),
            ("5m", 300_000),
            ("1m30s", 90_000),
            ("1m 30s", 90_000),
            ("24h", 86_400_000),
            ("30d", 30 * 86_400_000),
            ("0s", 0),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(millis)),
                "{text}"
            );
        }
        for bad in [
            "",
            "10",
            "s",
            "1.5s",
            "10 sec",
            "30s1m",
            "1s1s",
            "-1s",
            "999999999999999999d",
        ] {
            let error = parse_duration(bad).unwrap_err();
            assert!(error.contains(&format!("{bad:?}")), "{error}");
        }
    }

    #[test]
    fn durations_are_written_with_one_unit() {
        for text in ["250ms", "10s", "5m", "1h", "24h", "30d", "90s", "7us", "0s"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(bytes: u64, seconds: u64, nanos in 0..1_000_000_000_u32) {
            prop_assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
            let duration = Duration::new(seconds, nanos);
            // A duration near the end of the range in nanoseconds has more digits than a 64-bit number.
            if u64::try_from(duration.as_nanos()).is_ok() {
                prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
            }
        }

        #[test]
        fn no_text_makes_the_readers_panic(text in ".{0,40}") {
            let _ = text.parse::<ByteSize>();
            let _ = parse_duration(&text);
        }
    }
}
