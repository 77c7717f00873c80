//! Why user code ended early.

use std::fmt;

use thalweg_transport::chain;

use crate::job::{FailureCause, FailureKind};

/// The failure of a task, with what it means for the job.
///
/// Made from any error by `?`; [`permanent`](Self::permanent) says that another attempt cannot help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskError {
    cause: Option<FailureCause>,
}

impl TaskError {
    /// A failure of user code; the job may start again.
    #[must_use]
    pub fn user(message: impl Into<String>) -> Self {
        Self::of_kind(FailureKind::User, message)
    }

    /// A failure that another attempt cannot cure: wrong data, a wrong configuration. The job fails without a restart.
    #[must_use]
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::of_kind(FailureKind::UserPermanent, message)
    }

    /// A failure of another kind.
    #[must_use]
    pub fn of_kind(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            cause: Some(FailureCause::new(kind, message)),
        }
    }

    /// The task was told to stop and did: no failure.
    #[must_use]
    pub fn cancelled() -> Self {
        Self { cause: None }
    }

    /// Whether the task only obeyed a cancellation.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cause.is_none()
    }

    /// The cause, unless the task only obeyed a cancellation.
    #[must_use]
    pub fn into_cause(self) -> Option<FailureCause> {
        self.cause
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Some(cause) => cause.fmt(f),
            None => f.write_str("cancelled"),
        }
    }
}

impl<E: std::error::Error + 'static> From<E> for TaskError {
    fn from(error: E) -> Self {
        Self::user(chain(&error))
    }
}
