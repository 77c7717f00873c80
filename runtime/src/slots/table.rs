//! The slots of a TaskExecutor.

use std::{collections::BTreeMap, time::Instant};

use super::{
    budget::MemoryBudget,
    error::SlotError,
    report::{ResourceProfile, SlotState},
    request::{Allocated, SlotAction, SlotRequest, SlotTableConfig},
    slot::Slot,
    timers::{Ticket, TimerTable},
};
use crate::ids::{AllocationId, ExecutionId, JobId};

/// The slots of a TaskExecutor: which job has which, with what memory, which tasks run in it, and until when it must be
/// taken into use.
///
/// Slots 0 to `slots - 1` are fixed; a dynamic slot gets the lowest free index behind them and exists while it is
/// allocated. The memory of all allocated slots together never exceeds the node's. An allocation is in at most one slot,
/// a task in at most one allocation.
///
/// Follows Flink's `TaskSlotTableImpl`, with two differences: a slot whose last task ends after it was freed is freed by
/// that itself, and a repeated request for a slot that is being released is refused instead of confirmed.
#[derive(Debug)]
pub struct SlotTable {
    config: SlotTableConfig,
    state: State,
    memory: MemoryBudget,
    slots: BTreeMap<AllocationId, Slot>,
    by_index: BTreeMap<u32, AllocationId>,
    by_task: BTreeMap<ExecutionId, AllocationId>,
    timers: TimerTable<AllocationId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Closing,
    Closed,
}

impl SlotTable {
    /// A table whose slots are all free.
    #[must_use]
    pub fn new(config: SlotTableConfig) -> Self {
        Self {
            config,
            state: State::Running,
            memory: MemoryBudget::new(config.memory_bytes),
            slots: BTreeMap::new(),
            by_index: BTreeMap::new(),
            by_task: BTreeMap::new(),
            timers: TimerTable::new(),
        }
    }

    /// Gives a slot to a job. It is freed after the slot time-out unless it becomes active.
    ///
    /// The same request again gets the same slot.
    ///
    /// # Errors
    /// [`SlotError::Inconsistent`] if the allocation exists for another job, slot or profile,
    /// [`SlotError::WrongState`] if its slot is being released, [`SlotError::NoSuchSlot`], [`SlotError::Occupied`],
    /// [`SlotError::OverBudget`], [`SlotError::TooMany`] or [`SlotError::Closing`].
    pub fn allocate(
        &mut self,
        now: Instant,
        request: &SlotRequest,
    ) -> Result<Allocated, SlotError> {
        if self.state != State::Running {
            return Err(SlotError::Closing);
        }
        let profile = request.profile.unwrap_or_else(|| self.default_profile());
        if let Some(slot) = self.slots.get(&request.allocation) {
            return repeat(slot, request, profile);
        }
        let index = match request.index {
            Some(index) => self.free_index(index)?,
            None => self.dynamic_index()?,
        };
        self.memory.reserve(profile.memory_bytes)?;
        let slot = Slot::new(index, request.job, request.allocation, profile);
        self.slots.insert(request.allocation, slot);
        self.by_index.insert(index, request.allocation);
        self.timers
            .register(now, request.allocation, self.config.slot_timeout);
        Ok(Allocated { index, new: true })
    }

    /// The job uses the slot: it does not time out any more.
    ///
    /// # Errors
    /// [`SlotError::NotFound`], or [`SlotError::WrongState`] if it is being released.
    pub fn mark_active(&mut self, allocation: AllocationId) -> Result<(), SlotError> {
        self.slot_mut(allocation)?.set_state(SlotState::Active)?;
        self.timers.unregister(&allocation);
        Ok(())
    }

    /// [`mark_active`](Self::mark_active) if the slot belongs to this job; whether it is active now.
    ///
    /// A task may arrive before the answer to the slot offer: its submission activates the slot by this.
    pub fn try_mark_active(&mut self, job: JobId, allocation: AllocationId) -> bool {
        self.owner(allocation) == Some(job) && self.mark_active(allocation).is_ok()
    }

    /// The job does not use the slot for now: it times out again, from now on.
    ///
    /// # Errors
    /// [`SlotError::NotFound`], or [`SlotError::WrongState`] if it is being released.
    pub fn mark_inactive(
        &mut self,
        now: Instant,
        allocation: AllocationId,
    ) -> Result<(), SlotError> {
        self.slot_mut(allocation)?.set_state(SlotState::Allocated)?;
        self.timers
            .register(now, allocation, self.config.slot_timeout);
        Ok(())
    }

    /// Takes a slot back: at once if it has no tasks, else when they have ended, which the actions ask for.
    ///
    /// A slot that is being released already stays so; its tasks are not asked again.
    ///
    /// # Errors
    /// [`SlotError::NotFound`].
    pub fn free(
        &mut self,
        allocation: AllocationId,
        reason: &str,
    ) -> Result<Vec<SlotAction>, SlotError> {
        let slot = self.slot_mut(allocation)?;
        if slot.state == SlotState::Releasing {
            return Ok(Vec::new());
        }
        slot.state = SlotState::Releasing;
        slot.release_reason = reason.to_owned();
        let tasks: Vec<_> = slot.tasks().collect();
        self.timers.unregister(&allocation);
        if tasks.is_empty() {
            return Ok(self.remove(allocation));
        }
        let fail = |task| SlotAction::FailTask {
            task,
            reason: reason.to_owned(),
        };
        Ok(tasks.into_iter().map(fail).collect())
    }

    /// Puts a task into an active slot of its job.
    ///
    /// # Errors
    /// [`SlotError::DuplicateTask`], [`SlotError::NotFound`], [`SlotError::WrongJob`], [`SlotError::WrongState`] or
    /// [`SlotError::TooMany`].
    pub fn add_task(
        &mut self,
        allocation: AllocationId,
        task: ExecutionId,
    ) -> Result<(), SlotError> {
        if self.by_task.contains_key(&task) {
            return Err(SlotError::DuplicateTask { task });
        }
        self.slot_mut(allocation)?.add_task(task)?;
        self.by_task.insert(task, allocation);
        Ok(())
    }

    /// A task has ended. If it was the last one of a slot that is being released, the slot is free.
    ///
    /// An unknown task changes nothing.
    pub fn remove_task(&mut self, task: &ExecutionId) -> Vec<SlotAction> {
        let Some(allocation) = self.by_task.remove(task) else {
            return Vec::new();
        };
        let Ok(slot) = self.slot_mut(allocation) else {
            return Vec::new();
        };
        slot.remove_task(task);
        if slot.state == SlotState::Releasing && slot.is_empty() {
            self.remove(allocation)
        } else {
            Vec::new()
        }
    }

    /// Reserves memory of a task's slot for the task, until it is released or the task ends.
    ///
    /// # Errors
    /// [`SlotError::NoSuchTask`], or [`SlotError::OverBudget`] if the slot has not as much.
    pub fn reserve_memory(&mut self, task: &ExecutionId, bytes: u64) -> Result<(), SlotError> {
        let slot = self
            .by_task
            .get(task)
            .and_then(|allocation| self.slots.get_mut(allocation))
            .ok_or(SlotError::NoSuchTask { task: *task })?;
        slot.reserve(task, bytes)
    }

    /// Gives memory of a task back, at most what it has reserved.
    pub fn release_memory(&mut self, task: &ExecutionId, bytes: u64) {
        if let Some(allocation) = self.by_task.get(task)
            && let Some(slot) = self.slots.get_mut(allocation)
        {
            slot.release(task, bytes);
        }
    }

    /// The slots whose time is up, each once; hand each ticket to [`on_timeout`](Self::on_timeout).
    pub fn expired(&mut self, now: Instant) -> Vec<Ticket<AllocationId>> {
        self.timers.expired(now)
    }

    /// Frees a slot that was not taken into use in time; nothing if the ticket counts no more.
    pub fn on_timeout(&mut self, ticket: &Ticket<AllocationId>) -> Vec<SlotAction> {
        if !self.timers.is_valid(ticket) {
            return Vec::new();
        }
        let seconds = self.config.slot_timeout.as_secs_f64();
        let reason = format!("the slot was not taken into use within {seconds} s");
        self.free(*ticket.key(), &reason).unwrap_or_default()
    }

    /// When [`expired`](Self::expired) has something to hand out.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.timers.next_deadline()
    }

    /// Frees all slots and gives no more; [`SlotAction::Closed`] comes once, when the last one is gone.
    pub fn close(&mut self, reason: &str) -> Vec<SlotAction> {
        if self.state != State::Running {
            return Vec::new();
        }
        let mut actions = Vec::new();
        for allocation in self.by_index.values().copied().collect::<Vec<_>>() {
            actions.extend(self.free(allocation, reason).unwrap_or_default());
        }
        self.state = State::Closing;
        actions.extend(self.close_if_empty());
        actions
    }

    /// Whether the table was closed and all tasks have ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    fn at(&self, index: u32) -> Option<&Slot> {
        self.slots.get(self.by_index.get(&index)?)
    }

    fn slot_mut(&mut self, allocation: AllocationId) -> Result<&mut Slot, SlotError> {
        self.slots
            .get_mut(&allocation)
            .ok_or(SlotError::NotFound { allocation })
    }

    fn free_index(&self, index: u32) -> Result<u32, SlotError> {
        if index >= self.config.slots {
            let slots = self.config.slots;
            return Err(SlotError::NoSuchSlot { index, slots });
        }
        match self.at(index) {
            None => Ok(index),
            Some(slot) => Err(SlotError::Occupied {
                index,
                by: slot.allocation,
                job: slot.job,
            }),
        }
    }

    fn dynamic_index(&self) -> Result<u32, SlotError> {
        (self.config.slots..self.config.slots.saturating_add(MAX_DYNAMIC_SLOTS))
            .find(|index| !self.by_index.contains_key(index))
            .ok_or_else(|| SlotError::TooMany {
                limit: MAX_DYNAMIC_SLOTS,
                of: "dynamic slots".to_owned(),
            })
    }

    /// Forgets an empty slot.
    fn remove(&mut self, allocation: AllocationId) -> Vec<SlotAction> {
        let Some(slot) = self.slots.remove(&allocation) else {
            return Vec::new();
        };
        self.by_index.remove(&slot.index);
        self.memory.release(slot.profile.memory_bytes);
        let mut actions = vec![SlotAction::SlotFreed {
            index: slot.index,
            job: slot.job,
            allocation,
            reason: slot.release_reason,
        }];
        actions.extend(self.close_if_empty());
        actions
    }

    fn close_if_empty(&mut self) -> Option<SlotAction> {
        let closed = self.state == State::Closing && self.slots.is_empty();
        closed.then(|| {
            self.state = State::Closed;
            SlotAction::Closed
        })
    }
}

/// Answers a request whose allocation exists.
fn repeat(
    slot: &Slot,
    request: &SlotRequest,
    profile: ResourceProfile,
) -> Result<Allocated, SlotError> {
    let same_index = request.index.is_none_or(|index| index == slot.index);
    if slot.job != request.job || slot.profile != profile || !same_index {
        return Err(SlotError::Inconsistent {
            allocation: slot.allocation,
            index: slot.index,
            job: slot.job,
            memory_bytes: slot.profile.memory_bytes,
        });
    }
    if slot.state == SlotState::Releasing {
        return Err(slot.wrong_state(SlotState::Allocated));
    }
    Ok(Allocated {
        index: slot.index,
        new: false,
    })
}

/// Dynamic slots of a node, whatever memory they ask for: as many as fixed ones may be configured.
const MAX_DYNAMIC_SLOTS: u32 = 1024;

mod query;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
