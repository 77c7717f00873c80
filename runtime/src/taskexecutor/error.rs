//! Refusals of a TaskExecutor, as they travel.

use crate::{
    job::{FailureCause, FailureKind},
    rpc::{HandlerError, RpcError},
    slots::SlotError,
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

/// No connection to the JobMaster that asks, or to another session of it.
pub(super) fn wrong_job_master(message: String) -> HandlerError {
    FailureCause::new(FailureKind::Cluster, message).into()
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

/// What a JobMaster that cannot be reached means for a task.
pub(super) fn job_master_lost(what: &str, error: &RpcError) -> FailureCause {
    FailureCause::new(FailureKind::Cluster, format!("{what}: {error}"))
}
