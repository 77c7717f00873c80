//! Failure causes as they travel in the errors of calls.

use crate::{
    job::{FailureCause, FailureKind},
    rpc::{HandlerError, RpcError},
};

/// An endpoint that answers with a failure cause: [`FailureCause::from_rpc`] reads it back with the same kind.
impl From<FailureCause> for HandlerError {
    fn from(cause: FailureCause) -> Self {
        Self::new(format!("{PREFIX}{}", word(cause.kind)), cause.message)
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

fn word(kind: FailureKind) -> &'static str {
    WORDS
        .iter()
        .find(|(candidate, _)| *candidate == kind)
        .map_or("internal", |(_, word)| word)
}

fn kind(word: &str) -> FailureKind {
    if word.starts_with("slot.") {
        return FailureKind::Resources;
    }
    let word = word.strip_prefix(PREFIX);
    WORDS
        .iter()
        .find(|(_, candidate)| Some(*candidate) == word)
        .map_or(FailureKind::Internal, |(kind, _)| *kind)
}

/// Begins the kind of a [`HandlerError`] that carries a failure cause.
const PREFIX: &str = "failure.";

const WORDS: [(FailureKind, &str); 10] = [
    (FailureKind::User, "user"),
    (FailureKind::TaskManagerLost, "task_manager_lost"),
    (FailureKind::Partition, "partition"),
    (FailureKind::Transport, "transport"),
    (FailureKind::Resources, "resources"),
    (FailureKind::InvalidJob, "invalid_job"),
    (FailureKind::Limit, "limit"),
    (FailureKind::Cluster, "cluster"),
    (FailureKind::Cancellation, "cancellation"),
    (FailureKind::Internal, "internal"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_survives_the_way_through_a_call() {
        for (kind, _) in WORDS {
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
