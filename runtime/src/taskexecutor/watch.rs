//! Noticing that a gateway's connection has ended.

use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    registration::AttemptError,
    rpc::{Context, Endpoint, RpcError},
};

/// Runs `then` on the main thread when calls through a client cannot succeed any more; `closed` is the client's
/// [`closed`](crate::gateways::TaskExecutorClient::closed). Dropping the guard ends the watch.
pub(super) fn watch<E: Endpoint>(
    cx: &mut Context<E>,
    closed: impl Fn() -> Option<RpcError> + Send + 'static,
    then: impl FnOnce(&mut E, &mut Context<E>, RpcError) + Send + 'static,
) -> DropGuard {
    let probe = async move {
        loop {
            if let Some(error) = closed() {
                return error;
            }
            tokio::time::sleep(PROBE_INTERVAL).await;
        }
    };
    spawn_scoped(cx, probe, then)
}

/// Runs a future beside the main thread until the guard is dropped, and a function with its output on it.
pub(super) fn spawn_scoped<E: Endpoint, T: Send + 'static>(
    cx: &mut Context<E>,
    future: impl Future<Output = T> + Send + 'static,
    then: impl FnOnce(&mut E, &mut Context<E>, T) + Send + 'static,
) -> DropGuard {
    let scope = CancellationToken::new();
    let guard = scope.clone().drop_guard();
    let ended = scope.clone();
    cx.spawn(
        async move { scope.run_until_cancelled_owned(future).await },
        move |state, cx, output| {
            // The scope may have ended while the output waited for the main thread.
            if let Some(output) = output.filter(|_| !ended.is_cancelled()) {
                then(state, cx, output);
            }
        },
    );
    guard
}

/// Tells failures that another attempt may mend from those that it cannot.
pub(super) fn attempt_error(error: RpcError) -> AttemptError<RpcError> {
    match error {
        RpcError::TimedOut { .. } => AttemptError::TimedOut,
        // The leader at this address is another one, or does not want this node.
        RpcError::Fenced { .. } | RpcError::NotAuthorized { .. } => AttemptError::Fatal(error),
        _ => AttemptError::Retry(error),
    }
}

/// Far below the transport's idle time-out, so that it adds nothing to speak of to it.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);
