//! The state of one slot, what is reported of it, and what is to be done about it. Pure.

use thalweg_transport::ResourceId;

use crate::{
    gateways::SlotAssignment,
    ids::{AllocationId, InstanceId, JobId},
};

/// What a report says of one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReportedSlot {
    /// Its index.
    pub(crate) slot: u32,
    /// Who has it, if it is not free.
    pub(crate) owner: Option<(JobId, AllocationId)>,
}

/// Something to tell a TaskExecutor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SlotAction {
    /// Ask it to give a slot to a job; answer with [`SlotManager::on_confirmed`] or [`SlotManager::on_refused`].
    Assign {
        /// Its node.
        task_manager: ResourceId,
        /// Its registration.
        instance: InstanceId,
        /// The slot and the job.
        assignment: SlotAssignment,
    },
    /// Take back what a job no longer needs.
    Free {
        /// Its node.
        task_manager: ResourceId,
        /// The allocation.
        allocation: AllocationId,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    Free,
    Pending(Owner),
    Allocated(Owner),
    /// The TaskManager refused to give it: nobody gets it before a report says what it is.
    Suspect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) job: JobId,
    pub(super) allocation: AllocationId,
    /// Unknown if only a report told of the allocation.
    pub(super) group: Option<u32>,
}

impl Slot {
    pub(super) fn owner(&self) -> Option<Owner> {
        match *self {
            Self::Pending(owner) | Self::Allocated(owner) => Some(owner),
            Self::Free | Self::Suspect => None,
        }
    }

    /// The state that a report gives a slot that is not just being assigned. The group of a known allocation stays.
    pub(super) fn reported(reported: ReportedSlot, before: Option<&Self>) -> Self {
        let Some((job, allocation)) = reported.owner else {
            return Self::Free;
        };
        let group = before
            .and_then(Self::owner)
            .filter(|owner| owner.job == job && owner.allocation == allocation)
            .and_then(|owner| owner.group);
        Self::Allocated(Owner {
            job,
            allocation,
            group,
        })
    }
}
