//! How an endpoint ended.

use std::future::Future;

use tokio::sync::watch;

use super::error::HandlerError;

/// Why an endpoint did not end well.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TerminationError {
    /// [`on_start`](super::Endpoint::on_start) failed.
    #[error("could not start endpoint {endpoint}: {cause}")]
    StartFailed {
        /// The endpoint's name.
        endpoint: String,
        /// What it answered.
        cause: HandlerError,
    },
    /// [`on_stop`](super::Endpoint::on_stop) failed; the endpoint has ended nevertheless.
    #[error("stopping endpoint {endpoint} failed: {cause}")]
    StopFailed {
        /// The endpoint's name.
        endpoint: String,
        /// What it answered.
        cause: HandlerError,
    },
    /// Its code panicked.
    #[error("endpoint {endpoint} crashed: {cause}")]
    Crashed {
        /// The endpoint's name.
        endpoint: String,
        /// The panic's message.
        cause: String,
    },
    /// Another endpoint of the service crashed, and took the service with it.
    #[error("endpoint {endpoint} ended because its sibling {sibling} crashed: {cause}")]
    SiblingCrashed {
        /// The endpoint's name.
        endpoint: String,
        /// Which one crashed.
        sibling: String,
        /// The panic's message.
        cause: String,
    },
    /// It did not stop before the deadline of [`RpcService::close`](super::RpcService::close), or its runtime ended.
    #[error("endpoint {endpoint} has not been properly stopped")]
    NotStopped {
        /// The endpoint's name.
        endpoint: String,
    },
}

/// The result of an endpoint, as it is announced.
pub(super) type Outcome = watch::Receiver<Option<Result<(), TerminationError>>>;

/// Waits for the end of an endpoint. Cancel-safe.
pub(super) fn outcome(
    endpoint: &str,
    mut outcome: Outcome,
) -> impl Future<Output = Result<(), TerminationError>> + Send + 'static + use<> {
    let endpoint = endpoint.to_owned();
    async move {
        match outcome.wait_for(Option::is_some).await {
            Ok(result) => result.clone().unwrap_or(Ok(())),
            Err(_) => Err(TerminationError::NotStopped { endpoint }),
        }
    }
}
