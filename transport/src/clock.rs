//! The only place that reads the clock.

use std::time::Instant;

/// Now, on the clock of tokio's timers: it stands still where a test has paused tokio's time.
#[must_use]
pub fn now() -> Instant {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that the lint leads to"
    )]
    tokio::time::Instant::now().into_std()
}
