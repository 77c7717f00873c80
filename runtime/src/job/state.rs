//! States of jobs and tasks, and what is reported about them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{ExecutionId, JobId};

/// Life of a job.
///
/// ```text
/// CREATED ─► RUNNING ─► FINISHED
///              │  ▲ ╲
///              │  │  ╰► FAILING ──► FAILED
///              │  ╰── RESTARTING ◄─╯
///              ╰────► CANCELING ──► CANCELED
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum JobState {
    /// Accepted; slots are being requested.
    Created,
    /// Tasks are deployed.
    Running,
    /// A task failed; the others are being cancelled.
    Failing,
    /// Waiting for the restart delay or for slots.
    Restarting,
    /// A cancellation is under way.
    Canceling,
    /// Over, with its result published.
    Finished,
    /// Over, with a cause.
    Failed,
    /// Over, by request.
    Canceled,
}

impl JobState {
    /// Whether nothing changes any more.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Finished | Self::Failed | Self::Canceled)
    }

    /// The name in outputs: `RUNNING`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "CREATED",
            Self::Running => "RUNNING",
            Self::Failing => "FAILING",
            Self::Restarting => "RESTARTING",
            Self::Canceling => "CANCELING",
            Self::Finished => "FINISHED",
            Self::Failed => "FAILED",
            Self::Canceled => "CANCELED",
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Life of one attempt of a subtask (Flink's `ExecutionState`).
///
/// ```text
/// CREATED ─► SCHEDULED ─► DEPLOYING ─► INITIALIZING ─► RUNNING ─► FINISHED
///                 any of these ─► CANCELING ─► CANCELED
///                 any of these ─► FAILED
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TaskState {
    /// Known to the JobMaster only.
    Created,
    /// Waiting for a slot.
    Scheduled,
    /// Sent to a TaskExecutor.
    Deploying,
    /// Partitions and gates are set up, user code is made.
    Initializing,
    /// User code runs.
    Running,
    /// Told to stop.
    Canceling,
    /// Ended normally.
    Finished,
    /// Ended by request.
    Canceled,
    /// Ended with a cause.
    Failed,
}

impl TaskState {
    /// Whether nothing changes any more.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Finished | Self::Canceled | Self::Failed)
    }

    /// The name in outputs: `RUNNING`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "CREATED",
            Self::Scheduled => "SCHEDULED",
            Self::Deploying => "DEPLOYING",
            Self::Initializing => "INITIALIZING",
            Self::Running => "RUNNING",
            Self::Canceling => "CANCELING",
            Self::Finished => "FINISHED",
            Self::Canceled => "CANCELED",
            Self::Failed => "FAILED",
        }
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a task or a job failed, as it travels to the client: the kind survives every hop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureCause {
    /// What kind of failure it is.
    pub kind: FailureKind,
    /// One line for people, with the causes joined by `: `, at most 4 KiB.
    pub message: String,
}

impl FailureCause {
    /// A cause; a longer message is cut.
    #[must_use]
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        let mut message: String = message.into();
        if message.len() > MAX_MESSAGE_BYTES {
            let mut cut = MAX_MESSAGE_BYTES;
            while !message.is_char_boundary(cut) {
                cut -= 1;
            }
            message.truncate(cut);
        }
        Self { kind, message }
    }
}

impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for FailureCause {}

/// Kinds of failure; append only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum FailureKind {
    /// User code returned an error or panicked.
    User,
    /// User code returned an error that another attempt cannot cure: the job fails without a restart.
    UserPermanent,
    /// A TaskManager is gone.
    TaskManagerLost,
    /// A partition was not there, or its producer failed.
    Partition,
    /// A connection between two nodes failed.
    Transport,
    /// Slots, buffers or memory were not to be had.
    Resources,
    /// The job itself is wrong: unknown task type, bad configuration.
    InvalidJob,
    /// A limit of the cluster was exceeded.
    Limit,
    /// The cluster is shutting down or changed its leader.
    Cluster,
    /// A task did not react to its cancellation.
    Cancellation,
    /// Something else.
    Internal,
}

impl FailureKind {
    /// All kinds.
    pub const ALL: [Self; 11] = [
        Self::User,
        Self::UserPermanent,
        Self::TaskManagerLost,
        Self::Partition,
        Self::Transport,
        Self::Resources,
        Self::InvalidJob,
        Self::Limit,
        Self::Cluster,
        Self::Cancellation,
        Self::Internal,
    ];

    /// The word for it in the errors of calls.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::UserPermanent => "user_permanent",
            Self::TaskManagerLost => "task_manager_lost",
            Self::Partition => "partition",
            Self::Transport => "transport",
            Self::Resources => "resources",
            Self::InvalidJob => "invalid_job",
            Self::Limit => "limit",
            Self::Cluster => "cluster",
            Self::Cancellation => "cancellation",
            Self::Internal => "internal",
        }
    }

    /// Whether another attempt would end the same way.
    #[must_use]
    pub fn is_permanent(self) -> bool {
        matches!(self, Self::UserPermanent | Self::InvalidJob | Self::Limit)
    }

    /// Whether a job may start again after it: not if that would end the same way, nor if the cluster stops.
    #[must_use]
    pub fn allows_restart(self) -> bool {
        !self.is_permanent() && self != Self::Cluster
    }
}

/// Counters of one task attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TaskMetrics {
    /// Records read from all inputs.
    pub records_in: u64,
    /// Records written to all outputs.
    pub records_out: u64,
    /// Payload bytes that came over the network.
    pub bytes_remote: u64,
    /// Payload bytes that came from a task of the same TaskManager.
    pub bytes_local: u64,
    /// Streams that the task's remote channels opened.
    pub streams: u64,
    /// How far the task is, 0 to 10,000, if it knows.
    pub progress: Option<u32>,
}

impl TaskMetrics {
    /// Adds the counters of another task.
    pub fn add(&mut self, other: &Self) {
        self.records_in = self.records_in.saturating_add(other.records_in);
        self.records_out = self.records_out.saturating_add(other.records_out);
        self.bytes_remote = self.bytes_remote.saturating_add(other.bytes_remote);
        self.bytes_local = self.bytes_local.saturating_add(other.bytes_local);
        self.streams = self.streams.saturating_add(other.streams);
    }
}

/// One task in a status report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStatus {
    /// The latest attempt.
    pub execution: ExecutionId,
    /// The vertex's name.
    pub name: String,
    /// Its state.
    pub state: TaskState,
    /// Where it runs, if it was deployed.
    pub task_manager: Option<thalweg_transport::ResourceId>,
    /// Its counters so far.
    pub metrics: TaskMetrics,
}

/// One job in a status report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStatus {
    /// The job.
    pub id: JobId,
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: JobState,
    /// Restarts so far.
    pub restarts: u32,
    /// The last failure: the cause of the end if the state is [`JobState::Failed`], else that of the last restart.
    pub failure: Option<FailureCause>,
    /// Its tasks, vertex by vertex.
    pub tasks: Vec<TaskStatus>,
    /// Counters of the current attempt, summed over the tasks.
    pub totals: TaskMetrics,
    /// Transport connections between the job's TaskManagers, dialled ones only.
    pub connections: u64,
    /// Time since submission, or from submission to the end, in milliseconds.
    pub duration_ms: u64,
    /// Bytes of the published result; 0 until the job is finished.
    pub result_bytes: u64,
}

/// Longest message of a [`FailureCause`].
const MAX_MESSAGE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut_at_a_character() {
        let cause = FailureCause::new(FailureKind::User, "ä".repeat(4000));
        assert_eq!(cause.message.len(), 4096);
        let odd = FailureCause::new(FailureKind::User, format!("x{}", "ä".repeat(4000)));
        assert_eq!(odd.message.len(), 4095);
    }
}
