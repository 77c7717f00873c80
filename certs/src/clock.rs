//! The wall clock, in whole seconds since 1970-01-01 UTC.
//!
//! Certificates are valid between two calendar times, so this crate needs the wall clock and not the monotonic one.
//! Everything else takes the time as an argument.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Seconds of a day, as certificates count them: no leap seconds, no time zones.
pub(crate) const DAY_SECONDS: i64 = 86_400;

/// Reads the wall clock.
pub(crate) fn now() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}

/// A time as people and JSON readers take it: `2026-11-30T04:10:03Z`.
pub(crate) fn text(unix_seconds: i64) -> String {
    OffsetDateTime::from_unix_timestamp(unix_seconds)
        .ok()
        .and_then(|at| at.format(&Rfc3339).ok())
        .unwrap_or_else(|| format!("{unix_seconds} seconds after 1970"))
}

/// The same time for the standard library; times before 1970 become 1970.
pub(crate) fn system_time(unix_seconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(unix_seconds).unwrap_or(0))
}
