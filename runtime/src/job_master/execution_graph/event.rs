//! What happens to an execution graph, and what it wants done.

use std::{collections::BTreeMap, time::Instant};

use thalweg_transport::ResourceId;

use crate::{
    ids::ExecutionId,
    job::{FailureCause, JobState, TaskMetrics, TaskState},
};

/// Which TaskManager has the slot of which (slot group, index in the group).
pub(crate) type SlotOwners = BTreeMap<(u32, u32), ResourceId>;

/// Something that happened to a job.
#[derive(Debug, Clone)]
pub(crate) enum GraphEvent {
    /// The job is to begin.
    Start,
    /// Every slot of the attempt is there.
    SlotsReady(SlotOwners),
    /// The slots were not to be had in time: the job fails with this, without a restart.
    SlotsUnavailable(FailureCause),
    /// A TaskExecutor accepted a task.
    Submitted(ExecutionId),
    /// A TaskExecutor did not accept a task, or did not answer.
    SubmissionFailed(ExecutionId, FailureCause),
    /// A TaskExecutor says that a task changed its state.
    TaskUpdate {
        /// The attempt.
        execution: ExecutionId,
        /// Its state.
        state: TaskState,
        /// Why, for [`TaskState::Failed`].
        failure: Option<FailureCause>,
        /// Its counters.
        metrics: TaskMetrics,
    },
    /// A TaskExecutor lists the tasks of the job that it has.
    Report {
        /// Its node.
        task_manager: ResourceId,
        /// Its tasks.
        tasks: Vec<(ExecutionId, TaskState, TaskMetrics)>,
    },
    /// A TaskManager is gone, with everything that ran there.
    TaskManagerLost {
        /// Its node.
        task_manager: ResourceId,
        /// One line: how it was noticed.
        reason: String,
    },
    /// The pause before a restart is over.
    RestartDue,
    /// The job is to stop.
    Cancel,
    /// The job is to fail for a reason that no task reported.
    Fail(FailureCause),
}

/// Something that the owner of the machine has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GraphAction {
    /// Get the slots of this attempt, then send [`GraphEvent::SlotsReady`].
    RequestSlots {
        /// The attempt that begins.
        attempt: u32,
    },
    /// Submit every task of this attempt to the owner of its slot.
    Deploy {
        /// The attempt.
        attempt: u32,
    },
    /// Tell a TaskExecutor to stop a task.
    CancelTask {
        /// The task.
        execution: ExecutionId,
        /// Where it is.
        task_manager: ResourceId,
    },
    /// Send [`GraphEvent::RestartDue`] at this time.
    RestartAt(Instant),
    /// The job is over with this terminal state: publish its result if it has finished, free its slots.
    End(JobState),
}
