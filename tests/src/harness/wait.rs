//! Waits with a deadline, for tests over real networks.

use std::time::Duration;

/// What a test's step may take on a machine that does much else; none takes a hundredth of it on an idle one.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// The future's output.
///
/// # Panics
/// If it does not come within [`DEADLINE`]; the message names `what`.
pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(DEADLINE, future).await;
    waited.unwrap_or_else(|_| panic!("{what}: not within {DEADLINE:?}"))
}

/// Looks every 2 ms whether the condition holds.
///
/// # Panics
/// As [`in_time`].
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    in_time(what, wait).await;
}
