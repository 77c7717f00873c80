//! The slots of one job: asked for, offered, held, lost. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    time::{Duration, Instant},
};

use thalweg_transport::ResourceId;

use super::execution_graph::SlotOwners;
use crate::{
    gateways::{LostTaskManager, SlotOffer, SlotRequest, TaskManagerStatus},
    ids::AllocationId,
    job::{FailureCause, FailureKind, Placement},
};

/// The slots that a job needs, one for each (slot group, index), and who has given them.
///
/// Held slots are kept from one attempt to the next. What is missing is asked for under an allocation id; a slot that
/// was lost is asked for under a new one, so that a late offer of the lost slot is refused.
#[derive(Debug)]
pub(crate) struct SlotPool {
    slots: BTreeMap<(u32, u32), PoolSlot>,
    lost: BTreeMap<ResourceId, Loss>,
    deadline: Option<Instant>,
}

#[derive(Debug, Default)]
struct PoolSlot {
    allocation: Option<AllocationId>,
    holder: Option<Holder>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Holder {
    task_manager: ResourceId,
    slot: u32,
}

#[derive(Debug)]
struct Loss {
    at: Instant,
    reason: String,
}

/// A slot that the job holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeldSlot {
    /// Its name.
    pub(crate) allocation: AllocationId,
    /// Its TaskManager.
    pub(crate) task_manager: ResourceId,
}

impl SlotPool {
    /// An empty pool of a job that needs so many slots of each group.
    #[must_use]
    pub(crate) fn new(groups: &BTreeMap<u32, u32>) -> Self {
        let slots = groups
            .iter()
            .flat_map(|(&group, &count)| (0..count).map(move |index| (group, index)))
            .map(|key| (key, PoolSlot::default()))
            .collect();
        Self {
            slots,
            lost: BTreeMap::new(),
            deadline: None,
        }
    }

    /// What is missing, for a request to the ResourceManager; empty if nothing is. `new_id` names the slots that were
    /// not asked for yet. The pool waits from now on, at most until `deadline` if it did not wait before.
    pub(crate) fn request(
        &mut self,
        deadline: Instant,
        mut new_id: impl FnMut() -> AllocationId,
    ) -> Vec<SlotRequest> {
        let mut requests = Vec::new();
        for (&(group, _), slot) in &mut self.slots {
            if slot.holder.is_none() {
                let allocation = *slot.allocation.get_or_insert_with(&mut new_id);
                requests.push(SlotRequest { allocation, group });
            }
        }
        if !requests.is_empty() {
            self.deadline.get_or_insert(deadline);
        }
        requests
    }

    /// Whether slots were asked for that have not come.
    #[must_use]
    pub(crate) fn is_waiting(&self) -> bool {
        self.deadline.is_some()
    }

    /// When the wait ends.
    #[must_use]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Whether every slot is held.
    #[must_use]
    pub(crate) fn is_complete(&self) -> bool {
        self.slots.values().all(|slot| slot.holder.is_some())
    }

    /// Takes offered slots and gives those that the job wants; the others are to be freed. The same offer again is
    /// accepted again.
    pub(crate) fn offer(
        &mut self,
        task_manager: &ResourceId,
        offers: &[SlotOffer],
    ) -> Vec<AllocationId> {
        let mut accepted = Vec::new();
        for offer in offers {
            let holder = Holder {
                task_manager: task_manager.clone(),
                slot: offer.slot,
            };
            let known = self
                .slots
                .values_mut()
                .find(|slot| slot.allocation == Some(offer.allocation));
            if let Some(slot) = known
                && *slot.holder.get_or_insert_with(|| holder.clone()) == holder
            {
                accepted.push(offer.allocation);
            }
        }
        if self.is_complete() {
            self.deadline = None;
            self.lost.clear();
        }
        accepted
    }

    /// A TaskManager, last heard at this time, is gone, with all its slots. Says whether the job held any there.
    pub(crate) fn on_task_manager_lost(
        &mut self,
        heard: Instant,
        task_manager: &ResourceId,
        reason: impl Into<String>,
    ) -> bool {
        let mut held = false;
        for slot in self.slots.values_mut() {
            if slot.is_at(task_manager) {
                *slot = PoolSlot::default();
                held = true;
            }
        }
        if held || self.is_waiting() {
            let reason = reason.into();
            let loss = Loss { at: heard, reason };
            self.lost.insert(task_manager.clone(), loss);
        }
        held
    }

    /// A TaskManager that was lost is there again: it may be chosen.
    pub(crate) fn on_task_manager_registered(&mut self, task_manager: &ResourceId) {
        self.lost.remove(task_manager);
    }

    /// A TaskManager says that it cannot serve a slot. Says whether the job held or awaited it.
    pub(crate) fn on_slot_failed(
        &mut self,
        task_manager: &ResourceId,
        allocation: AllocationId,
    ) -> bool {
        let failed = self.slots.values_mut().find(|slot| {
            slot.allocation == Some(allocation)
                && (slot.holder.is_none() || slot.is_at(task_manager))
        });
        failed.map(|slot| *slot = PoolSlot::default()).is_some()
    }

    /// TaskManagers that are not to be chosen again, unless they have registered since.
    #[must_use]
    pub(crate) fn avoid(&self, now: Instant) -> Vec<LostTaskManager> {
        self.lost
            .iter()
            .map(|(id, loss)| LostTaskManager {
                id: id.clone(),
                lost_ms_ago: millis(now.saturating_duration_since(loss.at)),
            })
            .collect()
    }

    /// Who has which slot.
    #[must_use]
    pub(crate) fn owners(&self) -> SlotOwners {
        self.held()
            .into_iter()
            .map(|(key, slot)| (key, slot.task_manager))
            .collect()
    }

    /// The held slots by (slot group, index).
    #[must_use]
    pub(crate) fn held(&self) -> BTreeMap<(u32, u32), HeldSlot> {
        self.slots
            .iter()
            .filter_map(|(&key, slot)| {
                let held = HeldSlot {
                    allocation: slot.allocation?,
                    task_manager: slot.holder.as_ref()?.task_manager.clone(),
                };
                Some((key, held))
            })
            .collect()
    }

    /// The slots held at one TaskManager.
    #[must_use]
    pub(crate) fn allocations_at(&self, task_manager: &ResourceId) -> Vec<AllocationId> {
        self.slots
            .values()
            .filter(|slot| slot.is_at(task_manager))
            .filter_map(|slot| slot.allocation)
            .collect()
    }

    /// Gives everything back: what was held and has to be freed. Later offers are refused.
    pub(crate) fn release(&mut self) -> Vec<HeldSlot> {
        let held = self.held().into_values().collect();
        self.slots.clear();
        self.lost.clear();
        self.deadline = None;
        held
    }

    /// Why the job gets no slots: what was asked, what exists, and who was lost. `overview` is what the ResourceManager
    /// has, or why it did not say.
    #[must_use]
    pub(crate) fn unavailable(
        &self,
        job: &str,
        placement: Placement,
        overview: Result<&[TaskManagerStatus], &str>,
    ) -> FailureCause {
        let mut text = format!("no slots for job {job}: {} asked", self.slots.len());
        let held = self.held().len();
        if held > 0 {
            let _ = write!(text, " ({held} held)");
        }
        match overview {
            Ok(task_managers) => {
                let total: usize = task_managers
                    .iter()
                    .map(|t| t.report.slots.slots.len())
                    .sum();
                let list: Vec<String> = task_managers.iter().map(describe).collect();
                let _ = write!(text, ", {total} exist");
                if list.is_empty() {
                    text.push_str(" (no TaskManager is registered)");
                } else {
                    let _ = write!(text, " ({})", list.join(", "));
                }
            }
            Err(error) => {
                let _ = write!(
                    text,
                    "; the ResourceManager did not say what exists: {error}"
                );
            }
        }
        if placement == Placement::SeparateGroups {
            let groups: BTreeSet<u32> = self.slots.keys().map(|&(group, _)| group).collect();
            let _ = write!(
                text,
                "; no two of the {} slot groups may share a TaskManager",
                groups.len()
            );
        }
        for (id, loss) in &self.lost {
            let _ = write!(text, "; TaskManager {id} was lost: {}", loss.reason);
        }
        FailureCause::new(FailureKind::Resources, text)
    }
}

impl PoolSlot {
    fn is_at(&self, task_manager: &ResourceId) -> bool {
        self.holder
            .as_ref()
            .is_some_and(|holder| holder.task_manager == *task_manager)
    }
}

fn describe(status: &TaskManagerStatus) -> String {
    let slots = &status.report.slots;
    format!("{} {}/{} free", status.id, slots.free(), slots.slots.len())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
