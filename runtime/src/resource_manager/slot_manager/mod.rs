//! Which slots there are, who has them, and who waits for some. Pure.
//!
//! ```text
//!          assign            confirmed
//! FREE ───────────► PENDING ───────────► ALLOCATED
//!  ▲ ▲                 │ refused              │ freed, or a report says free
//!  │ ╰── report says ──┴► SUSPECT             │
//!  ╰──────────────────────────────────────────╯
//! ```

mod assign;
mod placement;
mod slot;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use thalweg_transport::ResourceId;

pub(super) use self::slot::{ReportedSlot, SlotAction};
use self::{
    assign::is_avoided,
    slot::{Owner, Slot},
};
use crate::{
    gateways::{JobMasterAddress, SlotsRequest},
    ids::{AllocationId, InstanceId, JobId},
    job::Placement,
};

/// The slots of all registered TaskManagers, and the requests of jobs that wait for some.
///
/// The open slots of a request are assigned together or not yet. Requests are tried in the order of their arrival; one
/// that cannot be met now does not hold up a later one that can (how long it may wait is for its JobMaster to say). No
/// slot is ever given twice: one that was assigned is free again only after its TaskManager has said so.
#[derive(Debug, Default)]
pub(crate) struct SlotManager {
    task_managers: BTreeMap<ResourceId, TaskManager>,
    requests: BTreeMap<JobId, JobRequest>,
    next_sequence: u64,
}

#[derive(Debug)]
struct TaskManager {
    instance: InstanceId,
    registered_at: Instant,
    slots: BTreeMap<u32, Slot>,
}

/// One slot that a request wants.
#[derive(Debug, Clone, Copy)]
struct Need {
    group: u32,
    /// Its place in the request: allocation ids are random, and slots are given in the order of the request.
    position: usize,
}

/// A job's request until all of it is confirmed.
#[derive(Debug)]
struct JobRequest {
    sequence: u64,
    job_master: JobMasterAddress,
    placement: Placement,
    /// Lost TaskManagers with the time of their loss.
    avoid: Vec<(ResourceId, Instant)>,
    /// Not assigned yet.
    open: BTreeMap<AllocationId, Need>,
    /// Assigned, not confirmed.
    pending: BTreeMap<AllocationId, Need>,
}

impl SlotManager {
    /// Takes a TaskManager in, in place of an earlier registration of the same id.
    #[must_use]
    pub(crate) fn on_registered(
        &mut self,
        now: Instant,
        id: &ResourceId,
        instance: InstanceId,
        report: &[ReportedSlot],
    ) -> Vec<SlotAction> {
        self.remove(id);
        let slots = report
            .iter()
            .map(|reported| (reported.slot, Slot::reported(*reported, None)))
            .collect();
        let task_manager = TaskManager {
            instance,
            registered_at: now,
            slots,
        };
        self.task_managers.insert(id.clone(), task_manager);
        self.assign()
    }

    /// Forgets a TaskManager; what was being assigned there is assigned elsewhere. An earlier registration is ignored.
    #[must_use]
    pub(crate) fn on_unregistered(
        &mut self,
        id: &ResourceId,
        instance: InstanceId,
    ) -> Vec<SlotAction> {
        if !self.is_registered(id, instance) {
            return Vec::new();
        }
        self.remove(id);
        self.assign()
    }

    /// Takes a report. It decides about every slot that is not just being assigned.
    #[must_use]
    pub(crate) fn on_report(
        &mut self,
        id: &ResourceId,
        instance: InstanceId,
        report: &[ReportedSlot],
    ) -> Vec<SlotAction> {
        let Some(task_manager) = self.registered(id, instance) else {
            return Vec::new();
        };
        let mut confirmed = Vec::new();
        let mut slots = BTreeMap::new();
        for reported in report {
            let now = match task_manager.slots.get(&reported.slot) {
                Some(&Slot::Pending(owner)) => {
                    if reported.owner != Some((owner.job, owner.allocation)) {
                        Slot::Pending(owner)
                    } else {
                        confirmed.push(owner);
                        Slot::Allocated(owner)
                    }
                }
                other => Slot::reported(*reported, other),
            };
            slots.insert(reported.slot, now);
        }
        for (&slot, &state) in &task_manager.slots {
            if matches!(state, Slot::Pending(_)) {
                slots.entry(slot).or_insert(state);
            }
        }
        task_manager.slots = slots;
        for owner in confirmed {
            self.confirm(owner);
        }
        self.assign()
    }

    /// A TaskManager freed a slot.
    #[must_use]
    pub(crate) fn on_slot_available(
        &mut self,
        instance: InstanceId,
        slot: u32,
        allocation: AllocationId,
    ) -> Vec<SlotAction> {
        let task_manager = self
            .task_managers
            .values_mut()
            .find(|task_manager| task_manager.instance == instance);
        let Some(state) = task_manager.and_then(|t| t.slots.get_mut(&slot)) else {
            return Vec::new();
        };
        match *state {
            Slot::Pending(owner) if owner.allocation == allocation => {
                *state = Slot::Free;
                self.reopen(owner);
            }
            Slot::Allocated(owner) if owner.allocation == allocation => *state = Slot::Free,
            Slot::Suspect => *state = Slot::Free,
            Slot::Free | Slot::Pending(_) | Slot::Allocated(_) => {}
        }
        self.assign()
    }

    /// Takes a job's request; it replaces an earlier one of the same job. Allocations that were given already are left
    /// as they are: one that is not asked for any more may be held by the job before its TaskManager has confirmed it,
    /// and one that the job does not want is refused when it is offered. Only what is asked for and is at an avoided
    /// TaskManager is taken back.
    #[must_use]
    pub(crate) fn on_request(&mut self, now: Instant, request: SlotsRequest) -> Vec<SlotAction> {
        let avoid: Vec<(ResourceId, Instant)> = request
            .avoid
            .into_iter()
            .map(|lost| {
                let ago = Duration::from_millis(lost.lost_ms_ago);
                (lost.id, now.checked_sub(ago).unwrap_or(now))
            })
            .collect();
        let mut open: BTreeMap<AllocationId, Need> = request
            .slots
            .iter()
            .enumerate()
            .map(|(position, slot)| {
                let group = slot.group;
                (slot.allocation, Need { group, position })
            })
            .collect();
        let mut pending = BTreeMap::new();
        let mut actions = Vec::new();
        for (id, task_manager) in &mut self.task_managers {
            let avoided = is_avoided(&avoid, id, task_manager.registered_at);
            for state in task_manager.slots.values_mut() {
                let Some(owner) = state.owner().filter(|owner| owner.job == request.job) else {
                    continue;
                };
                if !open.contains_key(&owner.allocation) {
                    continue;
                }
                if avoided {
                    *state = Slot::Suspect;
                    actions.push(SlotAction::Free {
                        task_manager: id.clone(),
                        allocation: owner.allocation,
                    });
                } else if let Some(need) = open.remove(&owner.allocation)
                    && matches!(state, Slot::Pending(_))
                {
                    pending.insert(owner.allocation, need);
                }
            }
        }
        let sequence = self.requests.get(&request.job).map(|old| old.sequence);
        let sequence = sequence.unwrap_or_else(|| {
            self.next_sequence += 1;
            self.next_sequence
        });
        let job = request.job;
        let request = JobRequest {
            sequence,
            job_master: request.job_master,
            placement: request.placement,
            avoid,
            open,
            pending,
        };
        self.requests.insert(job, request);
        self.drop_if_done(job);
        actions.extend(self.assign());
        actions
    }

    /// A TaskManager gave the slot that it was asked for.
    pub(crate) fn on_confirmed(
        &mut self,
        id: &ResourceId,
        instance: InstanceId,
        allocation: AllocationId,
    ) {
        if let Some(state) = self.pending_slot(id, instance, allocation)
            && let Slot::Pending(owner) = *state
        {
            *state = Slot::Allocated(owner);
            self.confirm(owner);
        }
    }

    /// A TaskManager did not give the slot that it was asked for, or did not answer: another one is tried.
    #[must_use]
    pub(crate) fn on_refused(
        &mut self,
        id: &ResourceId,
        instance: InstanceId,
        allocation: AllocationId,
    ) -> Vec<SlotAction> {
        if let Some(state) = self.pending_slot(id, instance, allocation)
            && let Slot::Pending(owner) = *state
        {
            *state = Slot::Suspect;
            self.reopen(owner);
        }
        self.assign()
    }

    /// Drops a job's request and takes back what it was given. Its slots are free when their TaskManagers say so.
    #[must_use]
    pub(crate) fn release_job(&mut self, job: JobId) -> Vec<SlotAction> {
        self.requests.remove(&job);
        let mut actions = Vec::new();
        for (id, task_manager) in &self.task_managers {
            for owner in task_manager.slots.values().filter_map(|slot| slot.owner()) {
                if owner.job == job {
                    actions.push(SlotAction::Free {
                        task_manager: id.clone(),
                        allocation: owner.allocation,
                    });
                }
            }
        }
        actions
    }

    /// Who has each slot of a TaskManager now, assignments under way included; empty for an unknown one.
    #[must_use]
    pub(crate) fn slots_of(&self, id: &ResourceId) -> Vec<ReportedSlot> {
        let Some(task_manager) = self.task_managers.get(id) else {
            return Vec::new();
        };
        task_manager
            .slots
            .iter()
            .map(|(&slot, state)| ReportedSlot {
                slot,
                owner: state.owner().map(|owner| (owner.job, owner.allocation)),
            })
            .collect()
    }

    fn remove(&mut self, id: &ResourceId) {
        let Some(task_manager) = self.task_managers.remove(id) else {
            return;
        };
        for state in task_manager.slots.into_values() {
            if let Slot::Pending(owner) = state {
                self.reopen(owner);
            }
        }
    }

    /// An assignment came to nothing: the request has to get another slot, if it still wants one.
    fn reopen(&mut self, owner: Owner) {
        if let Some(request) = self.requests.get_mut(&owner.job)
            && let Some(need) = request.pending.remove(&owner.allocation)
        {
            request.open.insert(owner.allocation, need);
        }
    }

    fn confirm(&mut self, owner: Owner) {
        if let Some(request) = self.requests.get_mut(&owner.job) {
            request.pending.remove(&owner.allocation);
            self.drop_if_done(owner.job);
        }
    }

    fn drop_if_done(&mut self, job: JobId) {
        let done = |request: &JobRequest| request.open.is_empty() && request.pending.is_empty();
        if self.requests.get(&job).is_some_and(done) {
            self.requests.remove(&job);
        }
    }

    fn pending_slot(
        &mut self,
        id: &ResourceId,
        instance: InstanceId,
        allocation: AllocationId,
    ) -> Option<&mut Slot> {
        self.registered(id, instance)?
            .slots
            .values_mut()
            .find(|slot| matches!(slot, Slot::Pending(owner) if owner.allocation == allocation))
    }

    fn registered(&mut self, id: &ResourceId, instance: InstanceId) -> Option<&mut TaskManager> {
        self.task_managers
            .get_mut(id)
            .filter(|task_manager| task_manager.instance == instance)
    }

    fn is_registered(&self, id: &ResourceId, instance: InstanceId) -> bool {
        self.task_managers
            .get(id)
            .is_some_and(|task_manager| task_manager.instance == instance)
    }
}
