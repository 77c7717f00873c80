//! What a slot table is asked, and what it asks for.

use std::time::Duration;

use super::report::ResourceProfile;
use crate::{
    config::TaskManagerSection,
    ids::{AllocationId, ExecutionId, JobId},
};

/// Size of a [`SlotTable`](super::SlotTable).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotTableConfig {
    /// Fixed slots.
    pub slots: u32,
    /// Bytes of memory of all slots together; a fixed slot has an equal part by default.
    pub memory_bytes: u64,
    /// A slot that is allocated but not active for so long is freed.
    pub slot_timeout: Duration,
}

impl From<&TaskManagerSection> for SlotTableConfig {
    fn from(section: &TaskManagerSection) -> Self {
        Self {
            slots: section.slots,
            memory_bytes: section.memory.as_u64(),
            slot_timeout: section.slot_timeout,
        }
    }
}

/// A wish for a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotRequest {
    /// Which slot; `None` for a new one made for this request from what memory is left.
    pub index: Option<u32>,
    /// The job that gets it.
    pub job: JobId,
    /// Its name everywhere.
    pub allocation: AllocationId,
    /// What it must have; `None` for an equal part of the node.
    pub profile: Option<ResourceProfile>,
}

/// The slot that a request got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocated {
    /// Which slot.
    pub index: u32,
    /// Whether it was free before; `false` if the same request had got it already.
    pub new: bool,
}

/// What the owner of the table must do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlotAction {
    /// Make a task end; when it has, call [`SlotTable::remove_task`](super::SlotTable::remove_task).
    FailTask {
        /// The task.
        task: ExecutionId,
        /// Why.
        reason: String,
    },
    /// A slot is free again: tell the ResourceManager; if the job has none left, let go of the job.
    SlotFreed {
        /// Which slot.
        index: u32,
        /// Who had it.
        job: JobId,
        /// Its name before.
        allocation: AllocationId,
        /// Why.
        reason: String,
    },
    /// The table was closed and its last slot is gone.
    Closed,
}
