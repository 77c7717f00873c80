//! Work beside the main thread that ends with what it is for: registrations, and waiting for a connection's end.

use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    registration::AttemptError,
    rpc::{Context, Endpoint, RpcError},
};

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
