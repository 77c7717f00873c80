//! The table against a plain list of slots, driven by random operations.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::ids::VertexId;

const SLOTS: u32 = 3;
const MEMORY: u64 = 90;
const FIXED_MEMORY: u64 = 30;
const TIMEOUT: u64 = 10;

/// A slot of the reference: everything by searching.
#[derive(Debug, Clone)]
struct Known {
    index: u32,
    job: u8,
    name: u8,
    memory: u64,
    state: SlotState,
    tasks: Vec<u8>,
    deadline: Option<u64>,
}

#[derive(Debug, Default)]
struct Reference {
    slots: Vec<Known>,
    closing: bool,
}

#[derive(Debug, Clone)]
enum Step {
    Allocate {
        index: Option<u32>,
        job: u8,
        name: u8,
        memory: Option<u64>,
    },
    Activate(u8),
    Deactivate(u8),
    Free(u8),
    AddTask {
        name: u8,
        job: u8,
        task: u8,
    },
    RemoveTask {
        job: u8,
        task: u8,
    },
    Pass(u64),
    Close,
}

impl Reference {
    fn slot(&mut self, name: u8) -> Option<&mut Known> {
        self.slots.iter_mut().find(|slot| slot.name == name)
    }

    /// Whether the request is granted, and the slot.
    fn allocate(
        &mut self,
        now: u64,
        index: Option<u32>,
        job: u8,
        name: u8,
        memory: Option<u64>,
    ) -> Option<u32> {
        let memory = memory.unwrap_or(FIXED_MEMORY);
        if self.closing {
            return None;
        }
        if let Some(slot) = self.slot(name) {
            let same = slot.job == job
                && slot.memory == memory
                && index.is_none_or(|index| index == slot.index)
                && slot.state != SlotState::Releasing;
            return same.then_some(slot.index);
        }
        let taken = |index: u32| self.slots.iter().any(|slot| slot.index == index);
        let index = match index {
            Some(index) if index >= SLOTS || taken(index) => return None,
            Some(index) => index,
            None => (SLOTS..).find(|index| !taken(*index))?,
        };
        if self.slots.iter().map(|slot| slot.memory).sum::<u64>() + memory > MEMORY {
            return None;
        }
        self.slots.push(Known {
            index,
            job,
            name,
            memory,
            state: SlotState::Allocated,
            tasks: Vec::new(),
            deadline: Some(now + TIMEOUT),
        });
        Some(index)
    }

    fn set(&mut self, name: u8, state: SlotState, deadline: Option<u64>) -> bool {
        match self.slot(name) {
            Some(slot) if slot.state != SlotState::Releasing => {
                slot.state = state;
                slot.deadline = deadline;
                true
            }
            _ => false,
        }
    }

    /// How many tasks are to end, and whether the slot is gone.
    fn free(&mut self, name: u8) -> Option<(usize, bool)> {
        let slot = self.slot(name)?;
        if slot.state == SlotState::Releasing {
            return Some((0, false));
        }
        slot.state = SlotState::Releasing;
        slot.deadline = None;
        let tasks = slot.tasks.len();
        self.slots
            .retain(|slot| slot.name != name || !slot.tasks.is_empty());
        Some((tasks, tasks == 0))
    }
}

fn execution(job: u8, task: u8) -> ExecutionId {
    ExecutionId {
        job: JobId::from_u128(u128::from(job)),
        vertex: VertexId(0),
        subtask: u32::from(task),
        attempt: 0,
    }
}

fn allocation(name: u8) -> AllocationId {
    AllocationId::from_u128(u128::from(name))
}

fn count(actions: &[SlotAction]) -> (usize, bool) {
    let tasks = actions
        .iter()
        .filter(|action| matches!(action, SlotAction::FailTask { .. }))
        .count();
    let gone = actions
        .iter()
        .any(|action| matches!(action, SlotAction::SlotFreed { .. }));
    (tasks, gone)
}

fn step() -> impl Strategy<Value = Step> {
    let index = prop::option::of(0..SLOTS + 1);
    let memory = prop::option::of(prop::sample::select(vec![0, 10, 30, 50]));
    prop_oneof![
        6 => (index, 0..2_u8, 0..5_u8, memory).prop_map(|(index, job, name, memory)| Step::Allocate {
            index, job, name, memory
        }),
        4 => (0..5_u8).prop_map(Step::Activate),
        2 => (0..5_u8).prop_map(Step::Deactivate),
        2 => (0..5_u8).prop_map(Step::Free),
        6 => (0..5_u8, 0..2_u8, 0..4_u8).prop_map(|(name, job, task)| Step::AddTask { name, job, task }),
        4 => (0..2_u8, 0..4_u8).prop_map(|(job, task)| Step::RemoveTask { job, task }),
        3 => (1..8_u64).prop_map(Step::Pass),
        1 => Just(Step::Close),
    ]
}

proptest! {
    #[test]
    fn the_table_behaves_like_a_plain_list(steps in prop::collection::vec(step(), 1..150)) {
        let start = thalweg_transport::now();
        let mut table = SlotTable::new(SlotTableConfig {
            slots: SLOTS,
            memory_bytes: MEMORY,
            slot_timeout: Duration::from_secs(TIMEOUT),
        });
        let mut reference = Reference::default();
        let mut clock = 0;
        let mut closed = 0;
        for step in steps {
            let now = start + Duration::from_secs(clock);
            let mut all = Vec::new();
            match step {
                Step::Allocate { index, job, name, memory } => {
                    let request = SlotRequest {
                        index,
                        job: JobId::from_u128(u128::from(job)),
                        allocation: allocation(name),
                        profile: memory.map(|memory_bytes| ResourceProfile { memory_bytes }),
                    };
                    let got = table.allocate(now, &request).ok().map(|allocated| allocated.index);
                    prop_assert_eq!(got, reference.allocate(clock, index, job, name, memory));
                }
                Step::Activate(name) => prop_assert_eq!(
                    table.mark_active(allocation(name)).is_ok(),
                    reference.set(name, SlotState::Active, None)
                ),
                Step::Deactivate(name) => prop_assert_eq!(
                    table.mark_inactive(now, allocation(name)).is_ok(),
                    reference.set(name, SlotState::Allocated, Some(clock + TIMEOUT))
                ),
                Step::Free(name) => {
                    let actions = table.free(allocation(name), "test").ok();
                    prop_assert_eq!(actions.as_deref().map(count), reference.free(name));
                    all.extend(actions.into_iter().flatten());
                }
                Step::AddTask { name, job, task } => {
                    let running = reference.slots.iter().any(|s| s.job == job && s.tasks.contains(&task));
                    let slot = reference.slot(name).filter(|s| s.job == job && s.state == SlotState::Active);
                    let expected = !running && slot.is_some();
                    if let Some(slot) = slot.filter(|_| expected) {
                        slot.tasks.push(task);
                    }
                    prop_assert_eq!(table.add_task(allocation(name), execution(job, task)).is_ok(), expected);
                }
                Step::RemoveTask { job, task } => {
                    let mut gone = false;
                    reference.slots.retain_mut(|slot| {
                        let held = slot.job == job && slot.tasks.contains(&task);
                        slot.tasks.retain(|other| !held || *other != task);
                        let ends = held && slot.tasks.is_empty() && slot.state == SlotState::Releasing;
                        gone |= ends;
                        !ends
                    });
                    all = table.remove_task(&execution(job, task));
                    prop_assert_eq!(count(&all), (0, gone));
                }
                Step::Pass(seconds) => {
                    clock += seconds;
                    let due: Vec<_> = reference
                        .slots
                        .iter()
                        .filter(|slot| slot.deadline.is_some_and(|deadline| deadline <= clock))
                        .map(|slot| slot.name)
                        .collect();
                    let tickets = table.expired(start + Duration::from_secs(clock));
                    prop_assert_eq!(tickets.len(), due.len());
                    for ticket in &tickets {
                        all.extend(table.on_timeout(ticket));
                    }
                    for name in due {
                        reference.free(name);
                    }
                }
                Step::Close => {
                    all = table.close("test");
                    let names: Vec<_> = reference.slots.iter().map(|slot| slot.name).collect();
                    for name in names {
                        reference.free(name);
                    }
                    reference.closing = true;
                }
            }
            closed += all.iter().filter(|action| **action == SlotAction::Closed).count();
            prop_assert_eq!(closed, usize::from(reference.closing && reference.slots.is_empty()));
            prop_assert_eq!(table.is_closed(), closed == 1);
            let mut expected: Vec<_> = reference.slots.iter().map(|s| (s.index, s.state, s.memory)).collect();
            expected.sort_unstable_by_key(|(index, ..)| *index);
            let reported: Vec<_> = table
                .report()
                .slots
                .iter()
                .filter(|slot| slot.state != SlotState::Free)
                .map(|slot| (slot.index, slot.state, slot.profile.memory_bytes))
                .collect();
            prop_assert_eq!(&reported, &expected);
            prop_assert!(reported.iter().map(|(.., memory)| memory).sum::<u64>() <= MEMORY);
            let next = reference.slots.iter().filter_map(|slot| slot.deadline).min();
            let next = next.map(|seconds| start + Duration::from_secs(seconds));
            prop_assert_eq!(table.next_deadline(), next);
        }
    }
}
