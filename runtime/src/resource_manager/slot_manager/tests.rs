mod random;

use super::*;
use crate::{
    gateways::{LostTaskManager, SlotRequest},
    ids::FencingToken,
    rpc::RpcAddress,
};

fn tm(n: u32) -> ResourceId {
    ResourceId::new(&format!("tm-{n}")).unwrap()
}

fn job(n: u128) -> JobId {
    JobId::from_u128(n)
}

fn allocation(n: u128) -> AllocationId {
    AllocationId::from_u128(n)
}

fn free(slots: u32) -> Vec<ReportedSlot> {
    (0..slots)
        .map(|slot| ReportedSlot { slot, owner: None })
        .collect()
}

fn request(n: u128, slots: &[(u128, u32)]) -> SlotsRequest {
    SlotsRequest {
        job: job(n),
        job_master: JobMasterAddress {
            address: RpcAddress::local("jobmaster").unwrap(),
            token: FencingToken::from_u128(n),
        },
        slots: slots
            .iter()
            .map(|&(id, group)| SlotRequest {
                allocation: allocation(id),
                group,
            })
            .collect(),
        placement: Placement::Spread,
        avoid: Vec::new(),
    }
}

struct Slots {
    manager: SlotManager,
    now: Instant,
}

impl Slots {
    /// TaskManagers `tm-1` … with so many free slots.
    fn new(task_managers: &[u32]) -> Self {
        let mut slots = Self {
            manager: SlotManager::default(),
            now: thalweg_transport::now(),
        };
        for (n, &count) in (1..).zip(task_managers) {
            assert_eq!(slots.register(n, n.into(), count), "");
        }
        slots
    }

    fn register(&mut self, n: u32, instance: u128, slots: u32) -> String {
        let instance = InstanceId::from_u128(instance);
        let now = self.now;
        text(
            &self
                .manager
                .on_registered(now, &tm(n), instance, &free(slots)),
        )
    }

    fn unregister(&mut self, n: u32) -> String {
        let instance = InstanceId::from_u128(n.into());
        text(&self.manager.on_unregistered(&tm(n), instance))
    }

    fn request(&mut self, request: SlotsRequest) -> String {
        text(&self.manager.on_request(self.now, request))
    }

    fn confirm(&mut self, n: u32, id: u128) {
        let instance = InstanceId::from_u128(n.into());
        self.manager.on_confirmed(&tm(n), instance, allocation(id));
    }

    fn refuse(&mut self, n: u32, id: u128) -> String {
        let instance = InstanceId::from_u128(n.into());
        text(&self.manager.on_refused(&tm(n), instance, allocation(id)))
    }

    fn report(&mut self, n: u32, owners: &[Option<(u128, u128)>]) -> String {
        let report: Vec<_> = (0..)
            .zip(owners)
            .map(|(slot, owner)| ReportedSlot {
                slot,
                owner: owner.map(|(j, a)| (job(j), allocation(a))),
            })
            .collect();
        let instance = InstanceId::from_u128(n.into());
        text(&self.manager.on_report(&tm(n), instance, &report))
    }

    fn available(&mut self, n: u32, slot: u32, id: u128) -> String {
        let instance = InstanceId::from_u128(n.into());
        text(
            &self
                .manager
                .on_slot_available(instance, slot, allocation(id)),
        )
    }

    /// `.` for a slot without an owner, else the allocation.
    fn owners(&self, n: u32) -> String {
        let slots = self.manager.slots_of(&tm(n));
        let owner = |slot: &ReportedSlot| {
            slot.owner
                .map_or_else(|| ".".to_owned(), |(_, a)| a.as_u128().to_string())
        };
        slots.iter().map(owner).collect::<Vec<_>>().join(" ")
    }
}

/// `11@tm-1/0` for an assignment, `-11@tm-1` for a slot taken back.
fn text(actions: &[SlotAction]) -> String {
    let parts: Vec<_> = actions
        .iter()
        .map(|action| match action {
            SlotAction::Assign {
                task_manager,
                assignment,
                ..
            } => {
                let id = assignment.allocation.as_u128();
                format!("{id}@{task_manager}/{}", assignment.slot)
            }
            SlotAction::Free {
                task_manager,
                allocation,
            } => format!("-{}@{task_manager}", allocation.as_u128()),
        })
        .collect();
    parts.join(" ")
}

#[test]
fn all_slots_of_a_request_are_given_together_or_not_yet() {
    let mut slots = Slots::new(&[2]);
    assert_eq!(slots.request(request(1, &[(11, 0), (12, 0), (13, 0)])), "");
    assert_eq!(slots.owners(1), ". .");
    assert_eq!(slots.register(2, 2, 1), "11@tm-1/0 12@tm-2/0 13@tm-1/1");
    assert_eq!(slots.owners(1), "11 13");
}

#[test]
fn slots_are_given_in_the_order_of_the_request() {
    let mut slots = Slots::new(&[2, 2]);
    let asked = request(1, &[(14, 0), (11, 0), (13, 0), (12, 0)]);
    assert_eq!(
        slots.request(asked),
        "14@tm-1/0 11@tm-2/0 13@tm-1/1 12@tm-2/1"
    );
}

#[test]
fn a_request_that_cannot_be_met_does_not_hold_up_a_smaller_one() {
    let mut slots = Slots::new(&[2]);
    assert_eq!(slots.request(request(1, &[(11, 0), (12, 0), (13, 0)])), "");
    assert_eq!(slots.request(request(2, &[(21, 0)])), "21@tm-1/0");
    assert_eq!(slots.register(2, 2, 2), "11@tm-2/0 12@tm-1/1 13@tm-2/1");
}

#[test]
fn earlier_requests_are_served_first() {
    let mut slots = Slots::new(&[]);
    slots.request(request(2, &[(21, 0)]));
    slots.request(request(1, &[(11, 0)]));
    assert_eq!(slots.register(1, 1, 1), "21@tm-1/0");
}

#[test]
fn a_refused_slot_is_replaced_and_not_tried_before_a_report() {
    let mut slots = Slots::new(&[2]);
    assert_eq!(slots.request(request(1, &[(11, 0)])), "11@tm-1/0");
    assert_eq!(slots.refuse(1, 11), "11@tm-1/1");
    assert_eq!(slots.refuse(1, 11), "");
    assert_eq!(slots.refuse(1, 11), "", "nothing is pending");
    assert_eq!(slots.report(1, &[Some((9, 9)), None]), "11@tm-1/1");
    slots.confirm(1, 11);
    assert_eq!(slots.owners(1), "9 11");
}

#[test]
fn a_lost_task_manager_gives_its_pending_slots_to_others() {
    let mut slots = Slots::new(&[1, 1]);
    assert_eq!(slots.request(request(1, &[(11, 0)])), "11@tm-1/0");
    assert_eq!(slots.unregister(1), "11@tm-2/0");
    assert_eq!(slots.unregister(1), "");
    slots.confirm(2, 11);
    assert_eq!(slots.unregister(2), "", "the JobMaster asks again itself");
    assert_eq!(slots.register(3, 3, 1), "");
}

#[test]
fn an_old_registration_is_ignored() {
    let mut slots = Slots::new(&[1]);
    assert_eq!(slots.register(1, 100, 2), "");
    assert_eq!(slots.unregister(1), "");
    assert_eq!(slots.report(1, &[]), "");
    assert_eq!(slots.owners(1), ". .");
}

#[test]
fn a_report_frees_and_takes_slots_but_not_pending_ones() {
    let mut slots = Slots::new(&[2]);
    slots.request(request(1, &[(11, 0), (12, 0)]));
    slots.confirm(1, 11);
    assert_eq!(slots.report(1, &[None, None]), "", "12 is under way");
    assert_eq!(slots.owners(1), ". 12");
    slots.report(1, &[None, Some((1, 12))]);
    assert_eq!(
        slots.report(1, &[None, None]),
        "",
        "12 was confirmed by a report"
    );
    assert_eq!(slots.owners(1), ". .");
}

#[test]
fn a_freed_slot_goes_to_who_waits() {
    let mut slots = Slots::new(&[1]);
    slots.request(request(1, &[(11, 0)]));
    slots.confirm(1, 11);
    assert_eq!(slots.request(request(2, &[(21, 0)])), "");
    assert_eq!(slots.available(1, 0, 99), "", "another allocation");
    assert_eq!(slots.available(1, 0, 11), "21@tm-1/0");
    assert_eq!(
        slots.available(1, 0, 21),
        "21@tm-1/0",
        "given up before it was confirmed: still wanted"
    );
}

#[test]
fn a_repeated_request_asks_only_for_what_is_not_there() {
    let mut slots = Slots::new(&[2]);
    slots.request(request(1, &[(11, 0), (12, 0)]));
    slots.confirm(1, 11);
    assert_eq!(slots.request(request(1, &[(11, 0), (12, 0)])), "");
    slots.available(1, 0, 11);
    assert_eq!(slots.request(request(1, &[(11, 0), (12, 0)])), "11@tm-1/0");
}

#[test]
fn a_replaced_request_leaves_what_its_job_may_hold_already() {
    let mut slots = Slots::new(&[3]);
    slots.request(request(1, &[(11, 0), (12, 0)]));
    slots.confirm(1, 11);
    assert_eq!(slots.request(request(1, &[(13, 0)])), "13@tm-1/2");
    assert_eq!(
        slots.owners(1),
        "11 12 13",
        "12 was offered, its confirmation is late"
    );
    assert_eq!(slots.available(1, 1, 12), "", "the job refused it");
    assert_eq!(slots.owners(1), "11 . 13");
}

#[test]
fn a_lost_task_manager_is_avoided_until_it_registers_again() {
    let mut slots = Slots::new(&[2, 1]);
    slots.now += Duration::from_secs(10);
    let mut asked = request(1, &[(11, 0)]);
    asked.avoid = vec![LostTaskManager {
        id: tm(1),
        lost_ms_ago: 500,
    }];
    assert_eq!(slots.request(asked.clone()), "11@tm-2/0");
    slots.confirm(2, 11);
    asked.slots[0].allocation = allocation(12);
    assert_eq!(slots.request(asked.clone()), "", "tm-1 is known to be dead");
    assert_eq!(slots.register(1, 100, 1), "12@tm-1/0");
}

#[test]
fn what_is_being_assigned_at_a_lost_task_manager_is_assigned_elsewhere() {
    let mut slots = Slots::new(&[1, 1]);
    let mut asked = request(1, &[(11, 0)]);
    assert_eq!(slots.request(asked.clone()), "11@tm-1/0");
    asked.avoid = vec![LostTaskManager {
        id: tm(1),
        lost_ms_ago: 0,
    }];
    assert_eq!(slots.request(asked), "-11@tm-1 11@tm-2/0");
}

#[test]
fn a_released_job_gives_everything_back() {
    let mut slots = Slots::new(&[2]);
    slots.request(request(1, &[(11, 0), (12, 0)]));
    slots.confirm(1, 11);
    assert_eq!(
        text(&slots.manager.release_job(job(1))),
        "-11@tm-1 -12@tm-1"
    );
    assert_eq!(slots.request(request(2, &[(21, 0)])), "", "not free yet");
    slots.confirm(1, 12);
    assert_eq!(slots.available(1, 1, 12), "21@tm-1/1");
}

#[test]
fn separate_groups_keep_apart_from_slots_that_the_job_holds() {
    let mut slots = Slots::new(&[3, 1]);
    let mut asked = request(1, &[(11, 0)]);
    asked.placement = Placement::SeparateGroups;
    assert_eq!(slots.request(asked.clone()), "11@tm-1/0");
    slots.confirm(1, 11);
    asked.slots = request(1, &[(12, 1)]).slots;
    assert_eq!(slots.request(asked.clone()), "12@tm-2/0");
    slots.confirm(2, 12);
    asked.slots = request(1, &[(13, 1)]).slots;
    assert_eq!(slots.request(asked), "", "tm-1 serves the other group");
}
