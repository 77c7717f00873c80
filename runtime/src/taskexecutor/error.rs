//! Refusals of a TaskExecutor, as they travel.

use crate::{
    job::{FailureCause, FailureKind},
    rpc::{HandlerError, RpcError},
    slots::SlotError,
    task::TaskError,
};

/// No connection to the ResourceManager that asks.
pub(super) fn wrong_resource_manager() -> HandlerError {
    HandlerError::new(
        "slot.wrong_resource_manager",
        "this TaskExecutor is not registered at the ResourceManager that asks",
    )
}

/// The slot table refuses.
pub(super) fn slot(error: &SlotError) -> HandlerError {
    let kind = match error {
        SlotError::Occupied { .. } => "slot.occupied",
        SlotError::NotFound { .. } | SlotError::NoSuchSlot { .. } => "slot.not_found",
        SlotError::Closing => "slot.closing",
        SlotError::DuplicateTask { .. } => "task.duplicate",
        _ => "slot.refused",
    };
    let refusal = HandlerError::new(kind, error.to_string());
    if error.is_retryable() {
        refusal.retryable()
    } else {
        refusal
    }
}

/// No connection to the JobMaster that asks, or to another session of it. It may be connected at the next attempt.
pub(super) fn wrong_job_master(message: String) -> HandlerError {
    HandlerError::from(FailureCause::new(FailureKind::Transport, message)).retryable()
}

/// The job cannot run here, whoever tries.
pub(super) fn invalid_job(message: String) -> HandlerError {
    FailureCause::new(FailureKind::InvalidJob, message).into()
}

/// The node cannot start a task.
pub(super) fn no_thread(error: &std::io::Error) -> HandlerError {
    let text = format!("no thread for the task: {error}");
    HandlerError::from(FailureCause::new(FailureKind::Resources, text)).retryable()
}

/// What a JobMaster that does not take a task's word means for the task. A late answer or a full mailbox is no reason to
/// give the job up.
pub(super) fn job_master_failed(what: &str, error: &RpcError) -> TaskError {
    let cause = FailureCause::from_rpc(error);
    TaskError::of_kind(cause.kind, format!("{what}: {}", cause.message))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_job_master_that_is_late_or_busy_leaves_the_job_its_restarts() {
        let late = RpcError::TimedOut {
            method: "JobMaster.update_task_state".to_owned(),
            address: "thalweg:///jobmaster".to_owned(),
            after: Duration::from_secs(10),
            caller: None,
        };
        let busy = RpcError::Overloaded {
            what: "mailbox".to_owned(),
            limit: 1,
        };
        for error in [late, busy] {
            let cause = job_master_failed("not told", &error).into_cause().unwrap();
            assert!(!cause.kind.is_permanent(), "{cause:?}");
            assert!(cause.message.starts_with("not told: "), "{cause}");
        }
        let early = RpcError::Handler(wrong_job_master("no connection".to_owned()));
        assert!(!FailureCause::from_rpc(&early).kind.is_permanent());
    }

    #[test]
    fn a_refusal_of_the_job_master_keeps_its_kind() {
        for kind in [FailureKind::Limit, FailureKind::Internal] {
            let refusal = RpcError::Handler(FailureCause::new(kind, "no").into());
            let cause = job_master_failed("not taken", &refusal).into_cause();
            assert_eq!(cause.unwrap().kind, kind);
        }
    }
}
