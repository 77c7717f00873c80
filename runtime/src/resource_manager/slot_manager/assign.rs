//! Gives free slots to requests. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use thalweg_transport::ResourceId;

use super::{
    SlotAction, SlotManager,
    placement::{Candidate, Choice, place},
    slot::{Owner, Slot},
};
use crate::{
    gateways::SlotAssignment,
    ids::{AllocationId, JobId},
};

impl SlotManager {
    /// Gives slots to every request that can be met.
    pub(super) fn assign(&mut self) -> Vec<SlotAction> {
        let mut waiting: Vec<(u64, JobId)> = self
            .requests
            .iter()
            .filter(|(_, request)| !request.open.is_empty())
            .map(|(&job, request)| (request.sequence, job))
            .collect();
        waiting.sort_unstable();
        let mut actions = Vec::new();
        for (_, job) in waiting {
            let Some(request) = self.requests.get(&job) else {
                continue;
            };
            let mut needs: BTreeMap<u32, Vec<AllocationId>> = BTreeMap::new();
            let mut open: Vec<_> = request.open.iter().collect();
            open.sort_by_key(|(_, need)| need.position);
            for (&allocation, need) in open {
                needs.entry(need.group).or_default().push(allocation);
            }
            let candidates = self.candidates(job, &request.avoid);
            let Some(choices) = place(candidates, &needs, request.placement) else {
                continue;
            };
            for choice in choices {
                actions.extend(self.give(job, choice));
            }
        }
        actions
    }

    fn give(&mut self, job: JobId, choice: Choice) -> Option<SlotAction> {
        let request = self.requests.get_mut(&job)?;
        let task_manager = self.task_managers.get_mut(&choice.task_manager)?;
        let need = request.open.remove(&choice.allocation)?;
        request.pending.insert(choice.allocation, need);
        let owner = Owner {
            job,
            allocation: choice.allocation,
            group: Some(choice.group),
        };
        task_manager.slots.insert(choice.slot, Slot::Pending(owner));
        Some(SlotAction::Assign {
            instance: task_manager.instance,
            assignment: SlotAssignment {
                slot: choice.slot,
                job,
                allocation: choice.allocation,
                job_master: request.job_master.clone(),
            },
            task_manager: choice.task_manager,
        })
    }

    fn candidates(&self, job: JobId, avoid: &[(ResourceId, Instant)]) -> Vec<Candidate> {
        self.task_managers
            .iter()
            .filter(|(id, task_manager)| !is_avoided(avoid, id, task_manager.registered_at))
            .map(|(id, task_manager)| {
                let slots = task_manager.slots.iter();
                let groups: BTreeSet<u32> = task_manager
                    .slots
                    .values()
                    .filter_map(|slot| slot.owner())
                    .filter(|owner| owner.job == job)
                    .filter_map(|owner| owner.group)
                    .collect();
                Candidate {
                    id: id.clone(),
                    free: slots
                        .filter(|(_, state)| **state == Slot::Free)
                        .map(|(&slot, _)| slot)
                        .collect(),
                    groups,
                }
            })
            .collect()
    }
}

/// A TaskManager is avoided if it was lost and has not registered since.
pub(super) fn is_avoided(
    avoid: &[(ResourceId, Instant)],
    id: &ResourceId,
    registered_at: Instant,
) -> bool {
    avoid
        .iter()
        .any(|(lost, at)| lost == id && registered_at <= *at)
}
