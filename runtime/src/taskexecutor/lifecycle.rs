//! The life of one task attempt at its TaskExecutor. Pure.
//!
//! ```text
//! CREATED ─► DEPLOYING ─► INITIALIZING ─► RUNNING ─► FINISHED
//!                any of these ─► CANCELING ─► CANCELED
//!                any of these ─► FAILED
//! ```

use crate::job::{FailureCause, FailureKind, TaskState};

/// The machine of one attempt.
///
/// A task that is failed from outside (its slot is taken back, its JobMaster is lost) is told to stop like a cancelled
/// one, and ends as failed with that cause whatever its code returns. The first order counts, but a failure outweighs a
/// cancellation.
#[derive(Debug)]
pub struct TaskLifecycle {
    state: TaskState,
    /// A failure that came from outside.
    failure: Option<FailureCause>,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// A terminal state.
    pub state: TaskState,
    /// The cause of [`TaskState::Failed`].
    pub failure: Option<FailureCause>,
}

impl TaskLifecycle {
    /// An attempt that was accepted and has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: TaskState::Created,
            failure: None,
        }
    }

    /// The state now.
    #[must_use]
    pub fn state(&self) -> TaskState {
        self.state
    }

    /// The failure that came from outside, or that it ended with.
    #[must_use]
    pub fn failure(&self) -> Option<&FailureCause> {
        self.failure.as_ref()
    }

    /// The next phase begins: deploying, initializing, running, in this order. `false` if the attempt is to stop instead.
    pub fn advance(&mut self, to: TaskState) -> bool {
        let next = matches!(
            (self.state, to),
            (TaskState::Created, TaskState::Deploying)
                | (TaskState::Deploying, TaskState::Initializing)
                | (TaskState::Initializing, TaskState::Running)
        );
        if next {
            self.state = to;
        }
        next
    }

    /// Somebody wants it to stop; whether that is news.
    pub fn cancel(&mut self) -> bool {
        if self.state.is_terminal() || self.state == TaskState::Canceling {
            return false;
        }
        self.state = TaskState::Canceling;
        true
    }

    /// It must not go on; whether that is news. A cancelled one that has not stopped fails from now on.
    pub fn fail(&mut self, cause: FailureCause) -> bool {
        if self.state.is_terminal() || self.failure.is_some() {
            return false;
        }
        self.failure = Some(cause);
        self.state = TaskState::Canceling;
        true
    }

    /// Its code and everything around it has ended. `Err(None)` stands for a task that obeyed a cancellation.
    ///
    /// A task that finished while it was being cancelled counts as cancelled: somebody relies on its not having
    /// finished. The second call repeats the ending of the first.
    pub fn end(&mut self, outcome: Result<(), Option<FailureCause>>) -> Ending {
        if !self.state.is_terminal() {
            let (state, failure) = match (self.failure.take(), outcome) {
                (Some(failure), _) => (TaskState::Failed, Some(failure)),
                (None, _) if self.state == TaskState::Canceling => (TaskState::Canceled, None),
                (None, Ok(())) => (TaskState::Finished, None),
                (None, Err(Some(failure))) => (TaskState::Failed, Some(failure)),
                (None, Err(None)) => {
                    let text = "the task says that it was cancelled, but nobody cancelled it";
                    let failure = FailureCause::new(FailureKind::User, text);
                    (TaskState::Failed, Some(failure))
                }
            };
            self.state = state;
            self.failure = failure;
        }
        Ending {
            state: self.state,
            failure: self.failure.clone(),
        }
    }
}

impl Default for TaskLifecycle {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASES: [TaskState; 3] = [
        TaskState::Deploying,
        TaskState::Initializing,
        TaskState::Running,
    ];

    fn cause(text: &str) -> FailureCause {
        FailureCause::new(FailureKind::User, text)
    }

    /// An attempt after so many phases.
    fn after(phases: usize) -> TaskLifecycle {
        let mut task = TaskLifecycle::new();
        for phase in &PHASES[..phases] {
            assert!(task.advance(*phase));
        }
        task
    }

    #[test]
    fn phases_come_in_order() {
        let mut task = TaskLifecycle::new();
        assert!(!task.advance(TaskState::Running));
        assert!(task.advance(TaskState::Deploying));
        assert!(!task.advance(TaskState::Deploying));
        assert!(task.advance(TaskState::Initializing));
        assert!(task.advance(TaskState::Running));
        let ending = task.end(Ok(()));
        assert_eq!((ending.state, ending.failure), (TaskState::Finished, None));
    }

    #[test]
    fn every_phase_can_be_cancelled() {
        for phases in 0..=3 {
            let mut task = after(phases);
            assert!(task.cancel());
            assert!(!task.cancel(), "no news");
            assert!(PHASES.iter().all(|phase| !task.advance(*phase)));
            for outcome in [Ok(()), Err(None), Err(Some(cause("late")))] {
                assert_eq!(task.end(outcome).state, TaskState::Canceled);
            }
        }
    }

    #[test]
    fn every_phase_can_fail_from_inside_and_from_outside() {
        for phases in 0..=3 {
            let mut inside = after(phases);
            let ending = inside.end(Err(Some(cause("inside"))));
            assert_eq!(ending.failure, Some(cause("inside")));
            assert!(!inside.cancel() && !inside.fail(cause("late")));
            assert_eq!(inside.end(Ok(())), ending, "the first ending stays");

            let mut outside = after(phases);
            assert!(outside.fail(cause("outside")));
            assert!(!outside.fail(cause("again")));
            let ending = outside.end(Err(None));
            assert_eq!(ending.state, TaskState::Failed);
            assert_eq!(ending.failure, Some(cause("outside")));
        }
    }

    #[test]
    fn a_failure_outweighs_a_cancellation() {
        let mut task = after(3);
        task.cancel();
        assert!(task.fail(cause("slot lost")));
        assert_eq!(task.end(Err(None)).state, TaskState::Failed);
    }

    #[test]
    fn a_cancellation_that_nobody_asked_for_is_a_failure() {
        let ending = after(3).end(Err(None));
        assert_eq!(ending.state, TaskState::Failed);
        assert_eq!(ending.failure.unwrap().kind, FailureKind::User);
    }
}
