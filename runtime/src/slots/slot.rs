//! One slot that a job has.

use std::collections::BTreeMap;

use super::{
    budget::MemoryBudget,
    error::SlotError,
    report::{ResourceProfile, SlotState, SlotStatus},
};
use crate::ids::{AllocationId, ExecutionId, JobId};

/// A slot with its tasks.
///
/// ```text
/// Allocated ◄────► Active
///     │               │
///     └──► Releasing ◄┘      (only while it has tasks; without, it is removed at once)
/// ```
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) index: u32,
    pub(super) job: JobId,
    pub(super) allocation: AllocationId,
    pub(super) profile: ResourceProfile,
    pub(super) state: SlotState,
    /// Why it is given back; empty before.
    pub(super) release_reason: String,
    memory: MemoryBudget,
    /// Bytes that each task has reserved.
    tasks: BTreeMap<ExecutionId, u64>,
}

impl Slot {
    pub(super) fn new(
        index: u32,
        job: JobId,
        allocation: AllocationId,
        profile: ResourceProfile,
    ) -> Self {
        Self {
            index,
            job,
            allocation,
            profile,
            state: SlotState::Allocated,
            release_reason: String::new(),
            memory: MemoryBudget::new(profile.memory_bytes),
            tasks: BTreeMap::new(),
        }
    }

    pub(super) fn status(&self) -> SlotStatus {
        SlotStatus {
            index: self.index,
            state: self.state,
            profile: self.profile,
            allocation: Some((self.job, self.allocation)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    pub(super) fn tasks(&self) -> impl Iterator<Item = ExecutionId> {
        self.tasks.keys().copied()
    }

    /// Moves between allocated and active.
    pub(super) fn set_state(&mut self, state: SlotState) -> Result<(), SlotError> {
        if self.state == SlotState::Releasing {
            return Err(self.wrong_state(SlotState::Allocated));
        }
        self.state = state;
        Ok(())
    }

    pub(super) fn add_task(&mut self, task: ExecutionId) -> Result<(), SlotError> {
        if task.job != self.job {
            return Err(SlotError::WrongJob {
                allocation: self.allocation,
                owner: self.job,
                job: task.job,
            });
        }
        if self.state != SlotState::Active {
            return Err(self.wrong_state(SlotState::Active));
        }
        if self.tasks.len() >= MAX_TASKS as usize {
            return Err(SlotError::TooMany {
                limit: MAX_TASKS,
                of: "tasks of a slot".to_owned(),
            });
        }
        self.tasks.insert(task, 0);
        Ok(())
    }

    /// Forgets a task and what it has reserved.
    pub(super) fn remove_task(&mut self, task: &ExecutionId) {
        if let Some(reserved) = self.tasks.remove(task) {
            self.memory.release(reserved);
        }
    }

    pub(super) fn reserve(&mut self, task: &ExecutionId, bytes: u64) -> Result<(), SlotError> {
        let reserved = self
            .tasks
            .get_mut(task)
            .ok_or(SlotError::NoSuchTask { task: *task })?;
        self.memory.reserve(bytes)?;
        *reserved += bytes;
        Ok(())
    }

    /// Gives back at most what the task has.
    pub(super) fn release(&mut self, task: &ExecutionId, bytes: u64) {
        if let Some(reserved) = self.tasks.get_mut(task) {
            let bytes = bytes.min(*reserved);
            *reserved -= bytes;
            self.memory.release(bytes);
        }
    }

    pub(super) fn wrong_state(&self, needed: SlotState) -> SlotError {
        SlotError::WrongState {
            allocation: self.allocation,
            state: self.state,
            needed,
        }
    }
}

impl From<super::budget::OverBudget> for SlotError {
    fn from(over: super::budget::OverBudget) -> Self {
        Self::OverBudget {
            asked: over.asked,
            free: over.free,
            total: over.total,
        }
    }
}

/// Tasks of one slot: a slot has at most one subtask of each vertex, and no graph has as many vertices.
const MAX_TASKS: u32 = 4096;
