//! The only place that reads the clock.

use std::{future::pending, time::Instant};

/// Now, on the clock of tokio's timers: it stands still where a test has paused tokio's time.
#[must_use]
pub fn now() -> Instant {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that the lint leads to"
    )]
    tokio::time::Instant::now().into_std()
}

/// Waits until then, or for ever without a time: a branch of a `select!` that may have no deadline.
pub(crate) async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => pending().await,
    }
}
