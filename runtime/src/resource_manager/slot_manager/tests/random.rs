//! Random sequences of events against TaskManagers that keep their own books.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Register(u32),
    Unregister(u32),
    Request(u128, usize, bool),
    /// The oldest assignment is delivered, and confirmed, refused or left without an answer.
    Deliver(u8),
    Report(u32),
    FreeOne(u32, u32),
    Release(u128),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..3_u32).prop_map(Step::Register),
        1 => (0..3_u32).prop_map(Step::Unregister),
        4 => (0..3_u128, 0..4_usize, any::<bool>()).prop_map(|(j, n, s)| Step::Request(j, n, s)),
        12 => (0..4_u8).prop_map(Step::Deliver),
        6 => (0..3_u32).prop_map(Step::Report),
        4 => (0..3_u32, 0..SLOTS).prop_map(|(t, s)| Step::FreeOne(t, s)),
        1 => (0..3_u128).prop_map(Step::Release),
    ];
    proptest::collection::vec(step, 0..120)
}

/// A TaskManager as it really is.
struct Real {
    instance: InstanceId,
    slots: Vec<Option<(JobId, AllocationId)>>,
}

#[derive(Default)]
struct World {
    manager: SlotManager,
    real: BTreeMap<ResourceId, Real>,
    sent: std::collections::VecDeque<SlotAction>,
    next: u128,
}

impl World {
    fn send(&mut self, actions: Vec<SlotAction>) {
        for action in &actions {
            if let SlotAction::Assign {
                task_manager,
                instance,
                assignment,
            } = action
            {
                let real = &self.real[task_manager];
                assert_eq!(real.instance, *instance, "only live ones are given work");
                let known = self.manager.slots_of(task_manager);
                let slot = known.iter().find(|slot| slot.slot == assignment.slot);
                let owner = (assignment.job, assignment.allocation);
                assert_eq!(slot.and_then(|slot| slot.owner), Some(owner));
            }
        }
        self.sent.extend(actions);
        self.check();
    }

    fn check(&self) {
        let mut seen = BTreeSet::new();
        for (id, task_manager) in &self.manager.task_managers {
            assert_eq!(
                task_manager.slots.len(),
                SLOTS as usize,
                "slots are conserved"
            );
            for state in task_manager.slots.values() {
                if let Slot::Pending(owner) = state {
                    assert!(seen.insert(owner.allocation), "{id}: assigned twice");
                    let request = self.manager.requests.get(&owner.job);
                    let open = request.is_some_and(|r| r.open.contains_key(&owner.allocation));
                    assert!(!open, "{id}: what is being assigned is not asked for");
                }
            }
        }
        for request in self.manager.requests.values() {
            for allocation in request.pending.keys() {
                assert!(seen.contains(allocation), "every pending one has a slot");
                assert!(!request.open.contains_key(allocation));
            }
        }
    }

    fn deliver(&mut self, answer: u8) {
        let Some(action) = self.sent.pop_front() else {
            return;
        };
        match action {
            SlotAction::Assign {
                task_manager,
                instance,
                assignment,
            } => {
                let slot = self
                    .real
                    .get_mut(&task_manager)
                    .filter(|real| real.instance == instance)
                    .map(|real| &mut real.slots[assignment.slot as usize]);
                let owner = (assignment.job, assignment.allocation);
                let given = match slot {
                    Some(slot) if slot.is_none_or(|has| has == owner) && answer != 1 => {
                        *slot = Some(owner);
                        answer != 2
                    }
                    _ => false,
                };
                let id = assignment.allocation;
                if given {
                    self.manager.on_confirmed(&task_manager, instance, id);
                    self.check();
                } else {
                    let actions = self.manager.on_refused(&task_manager, instance, id);
                    self.send(actions);
                }
            }
            SlotAction::Free {
                task_manager,
                allocation,
            } => {
                let Some(real) = self.real.get_mut(&task_manager) else {
                    return;
                };
                let held = real
                    .slots
                    .iter()
                    .position(|slot| slot.is_some_and(|(_, id)| id == allocation));
                if let Some(slot) = held {
                    self.free(&task_manager, u32::try_from(slot).unwrap());
                }
            }
        }
    }

    fn free(&mut self, id: &ResourceId, slot: u32) {
        let Some(real) = self.real.get_mut(id) else {
            return;
        };
        if let Some((_, allocation)) = real.slots[slot as usize].take() {
            let instance = real.instance;
            let actions = self.manager.on_slot_available(instance, slot, allocation);
            self.send(actions);
        }
    }

    fn report(&mut self, id: &ResourceId) {
        let Some(real) = self.real.get(id) else {
            return;
        };
        let report: Vec<_> = (0..)
            .zip(&real.slots)
            .map(|(slot, &owner)| ReportedSlot { slot, owner })
            .collect();
        let instance = real.instance;
        let actions = self.manager.on_report(id, instance, &report);
        self.send(actions);
    }

    fn step(&mut self, now: Instant, step: Step) {
        match step {
            Step::Register(n) => {
                self.next += 1;
                let instance = InstanceId::from_u128(self.next);
                let slots = vec![None; SLOTS as usize];
                self.real.insert(tm(n), Real { instance, slots });
                let actions = self
                    .manager
                    .on_registered(now, &tm(n), instance, &free(SLOTS));
                self.send(actions);
            }
            Step::Unregister(n) => {
                if let Some(real) = self.real.remove(&tm(n)) {
                    let actions = self.manager.on_unregistered(&tm(n), real.instance);
                    self.send(actions);
                }
            }
            Step::Request(n, count, separate) => {
                let ids: Vec<_> = (0..count)
                    .map(|i| {
                        self.next += 1;
                        (self.next, u32::try_from(i % 2).unwrap())
                    })
                    .collect();
                let mut asked = request(n, &ids);
                if separate {
                    asked.placement = Placement::SeparateGroups;
                }
                let actions = self.manager.on_request(now, asked);
                self.send(actions);
            }
            Step::Deliver(answer) => self.deliver(answer),
            Step::Report(n) => self.report(&tm(n)),
            Step::FreeOne(n, slot) => self.free(&tm(n), slot),
            Step::Release(n) => {
                let actions = self.manager.release_job(job(n));
                self.send(actions);
            }
        }
    }
}

const SLOTS: u32 = 3;

proptest! {
    #[test]
    fn no_slot_is_given_twice_and_all_come_back(steps in steps()) {
        let mut world = World::default();
        let mut now = thalweg_transport::now();
        for step in steps {
            now += Duration::from_millis(10);
            world.step(now, step);
        }
        // All jobs end, everything under way arrives, everybody reports: all slots are free.
        for n in 0..3 {
            world.step(now, Step::Release(n));
        }
        while !world.sent.is_empty() {
            world.deliver(0);
        }
        for n in 0..3 {
            for slot in 0..SLOTS {
                world.free(&tm(n), slot);
            }
            world.report(&tm(n));
        }
        for id in world.real.keys() {
            let slots = world.manager.slots_of(id);
            prop_assert_eq!(slots.len(), SLOTS as usize);
            prop_assert!(slots.iter().all(|slot| slot.owner.is_none()), "{:?}", slots);
        }
    }
}
