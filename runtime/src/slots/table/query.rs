//! What a table says about itself.

use super::SlotTable;
use crate::{
    ids::{AllocationId, ExecutionId, JobId},
    slots::{
        report::{ResourceProfile, SlotReport, SlotState, SlotStatus},
        slot::Slot,
    },
};

impl SlotTable {
    /// All slots as the ResourceManager is told.
    #[must_use]
    pub fn report(&self) -> SlotReport {
        let free = |index| SlotStatus {
            index,
            state: SlotState::Free,
            profile: self.default_profile(),
            allocation: None,
        };
        let fixed = (0..self.config.slots)
            .map(|index| self.at(index).map_or_else(|| free(index), Slot::status));
        let dynamic = self
            .by_index
            .range(self.config.slots..)
            .filter_map(|(index, _)| self.at(*index).map(Slot::status));
        SlotReport {
            slots: fixed.chain(dynamic).collect(),
        }
    }

    /// What a fixed slot has.
    #[must_use]
    pub fn default_profile(&self) -> ResourceProfile {
        ResourceProfile {
            memory_bytes: self.config.memory_bytes / u64::from(self.config.slots.max(1)),
        }
    }

    /// What the node has.
    #[must_use]
    pub fn total_profile(&self) -> ResourceProfile {
        ResourceProfile {
            memory_bytes: self.config.memory_bytes,
        }
    }

    /// The slot of an allocation.
    #[must_use]
    pub fn status(&self, allocation: AllocationId) -> Option<SlotStatus> {
        self.slots.get(&allocation).map(Slot::status)
    }

    /// The job of an allocation.
    #[must_use]
    pub fn owner(&self, allocation: AllocationId) -> Option<JobId> {
        self.slots.get(&allocation).map(|slot| slot.job)
    }

    /// The allocation in a slot.
    #[must_use]
    pub fn allocation_at(&self, index: u32) -> Option<AllocationId> {
        self.by_index.get(&index).copied()
    }

    /// The slots of a job by index, those that are being released too.
    pub fn slots_of(&self, job: JobId) -> impl Iterator<Item = SlotStatus> {
        self.by_index
            .keys()
            .filter_map(|index| self.at(*index))
            .filter(move |slot| slot.job == job)
            .map(Slot::status)
    }

    /// The allocations of a job in one state: the allocated ones are offered, the active ones reported.
    pub fn allocations_of(
        &self,
        job: JobId,
        state: SlotState,
    ) -> impl Iterator<Item = AllocationId> {
        self.slots_of(job)
            .filter(move |slot| slot.state == state)
            .filter_map(|slot| slot.allocation.map(|(_, allocation)| allocation))
    }

    /// The tasks of a job.
    pub fn tasks_of(&self, job: JobId) -> impl Iterator<Item = ExecutionId> {
        self.by_task
            .keys()
            .copied()
            .filter(move |task| task.job == job)
    }

    /// The slot that a task is in.
    #[must_use]
    pub fn allocation_of(&self, task: &ExecutionId) -> Option<AllocationId> {
        self.by_task.get(task).copied()
    }
}
