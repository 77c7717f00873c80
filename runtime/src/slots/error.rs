//! Why a slot table refuses something.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::report::SlotState;
use crate::ids::{AllocationId, ExecutionId, JobId};

/// Why a [`SlotTable`](super::SlotTable) refused an operation; the table is unchanged then.
///
/// Travels in answers to slot requests: variants are only appended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Error)]
#[non_exhaustive]
pub enum SlotError {
    /// The slot belongs to another allocation.
    #[error("slot {index} is occupied by allocation {by} of job {job}")]
    Occupied {
        /// The slot.
        index: u32,
        /// Whose it is.
        by: AllocationId,
        /// The job of that allocation.
        job: JobId,
    },
    /// The allocation exists with another job, slot or profile.
    #[error(
        "allocation {allocation} exists differently: slot {index} of job {job} with {memory_bytes} bytes"
    )]
    Inconsistent {
        /// The allocation.
        allocation: AllocationId,
        /// Its slot.
        index: u32,
        /// Its job.
        job: JobId,
        /// Memory of its slot.
        memory_bytes: u64,
    },
    /// There is no such slot.
    #[error("slot {index} does not exist: this node has slots 0 to {last}", last = slots.saturating_sub(1))]
    NoSuchSlot {
        /// The index asked for.
        index: u32,
        /// How many fixed slots there are.
        slots: u32,
    },
    /// More memory than is free.
    #[error("{asked} bytes are asked for, {free} of {total} are free")]
    OverBudget {
        /// Bytes asked for.
        asked: u64,
        /// Bytes that are free.
        free: u64,
        /// Bytes of the node, or of the slot.
        total: u64,
    },
    /// The node has as many slots in use as it may have, or a slot as many tasks.
    #[error("no more than {limit} {of} are allowed")]
    TooMany {
        /// The limit.
        limit: u32,
        /// Of what.
        of: String,
    },
    /// No slot has this allocation.
    #[error("no slot has allocation {allocation}")]
    NotFound {
        /// The allocation.
        allocation: AllocationId,
    },
    /// The slot is in a state that does not permit it.
    #[error("the slot of allocation {allocation} is {state}, {needed} is needed")]
    WrongState {
        /// The allocation.
        allocation: AllocationId,
        /// The state of its slot.
        state: SlotState,
        /// A state that would permit it.
        needed: SlotState,
    },
    /// The slot belongs to another job than the task.
    #[error("allocation {allocation} belongs to job {owner}, not to job {job}")]
    WrongJob {
        /// The allocation.
        allocation: AllocationId,
        /// Its job.
        owner: JobId,
        /// The job of the task.
        job: JobId,
    },
    /// The task runs already.
    #[error("task {task} is already here")]
    DuplicateTask {
        /// The task.
        task: ExecutionId,
    },
    /// No such task runs here.
    #[error("task {task} is not here")]
    NoSuchTask {
        /// The task.
        task: ExecutionId,
    },
    /// The table is closing: the node shuts down.
    #[error("the node is shutting down, its slots are closed")]
    Closing,
}

impl SlotError {
    /// Whether the same request may succeed later at the same node.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Occupied { .. }
                | Self::OverBudget { .. }
                | Self::TooMany { .. }
                | Self::WrongState { .. }
        )
    }
}
