//! Failure causes as they travel in the errors of calls.

use crate::{
    job::{FailureCause, FailureKind},
    rpc::{HandlerError, RpcError},
};

/// An endpoint that answers with a failure cause: [`FailureCause::from_rpc`] reads it back with the same kind.
impl From<FailureCause> for HandlerError {
    fn from(cause: FailureCause) -> Self {
        Self::new(format!("{PREFIX}{}", cause.kind.as_str()), cause.message)
    }
}

impl FailureCause {
    /// Why a call to a TaskExecutor failed: the cause that it answered with, else a kind that fits the error.
    #[must_use]
    pub fn from_rpc(error: &RpcError) -> Self {
        let kind = match error {
            RpcError::Handler(error) => kind(&error.kind),
            RpcError::Connection { .. }
            | RpcError::RecipientUnreachable { .. }
            | RpcError::TimedOut { .. } => FailureKind::Transport,
            RpcError::Overloaded { .. } => FailureKind::Resources,
            RpcError::TooLarge { .. } => FailureKind::Limit,
            RpcError::Stopped { .. } => FailureKind::Cluster,
            _ => FailureKind::Internal,
        };
        Self::new(kind, error.to_string())
    }
}

fn kind(word: &str) -> FailureKind {
    if word.starts_with("slot.") {
        return FailureKind::Resources;
    }
    let word = word.strip_prefix(PREFIX);
    FailureKind::ALL
        .into_iter()
        .find(|kind| Some(kind.as_str()) == word)
        .unwrap_or(FailureKind::Internal)
}

/// Begins the kind of a [`HandlerError`] that carries a failure cause.
const PREFIX: &str = "failure.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_survives_the_way_through_a_call() {
        for kind in FailureKind::ALL {
            let cause = FailureCause::new(kind, "because");
            let error = RpcError::Handler(cause.clone().into());
            assert_eq!(FailureCause::from_rpc(&error), cause);
        }
    }

    #[test]
    fn other_errors_get_a_kind_that_fits() {
        let kind = |word: &str| {
            FailureCause::from_rpc(&RpcError::Handler(HandlerError::new(word, "x"))).kind
        };
        assert_eq!(kind("slot.not_found"), FailureKind::Resources);
        assert_eq!(kind("failure.unheard_of"), FailureKind::Internal);
        assert_eq!(kind("x"), FailureKind::Internal);
    }
}
