//! The life of slots, by example.

use std::time::Duration;

use super::*;
use crate::{ids::VertexId, slots::SlotReport};

const SECOND: Duration = Duration::from_secs(1);
const JOB: JobId = JobId::from_u128(1);
const OTHER_JOB: JobId = JobId::from_u128(2);
const FIRST: AllocationId = AllocationId::from_u128(11);
const SECOND_ONE: AllocationId = AllocationId::from_u128(12);

fn table() -> (SlotTable, Instant) {
    let config = SlotTableConfig {
        slots: 2,
        memory_bytes: 100,
        slot_timeout: 10 * SECOND,
    };
    (SlotTable::new(config), thalweg_transport::now())
}

fn request(index: Option<u32>, allocation: AllocationId) -> SlotRequest {
    SlotRequest {
        index,
        job: JOB,
        allocation,
        profile: None,
    }
}

fn memory(memory_bytes: u64) -> Option<ResourceProfile> {
    Some(ResourceProfile { memory_bytes })
}

fn task(subtask: u32) -> ExecutionId {
    ExecutionId {
        job: JOB,
        vertex: VertexId(0),
        subtask,
        attempt: 0,
    }
}

/// A table with one active slot.
fn active() -> (SlotTable, Instant) {
    let (mut table, now) = table();
    table.allocate(now, &request(Some(0), FIRST)).unwrap();
    table.mark_active(FIRST).unwrap();
    (table, now)
}

fn freed(index: u32, allocation: AllocationId, reason: &str) -> SlotAction {
    SlotAction::SlotFreed {
        index,
        job: JOB,
        allocation,
        reason: reason.to_owned(),
    }
}

#[test]
fn the_same_request_again_gets_the_same_slot() {
    for (index, expected) in [(Some(1), 1), (None, 2)] {
        let (mut table, now) = table();
        let first = table.allocate(now, &request(index, FIRST)).unwrap();
        assert_eq!((first.index, first.new), (expected, true));
        let again = table.allocate(now, &request(index, FIRST)).unwrap();
        assert_eq!((again.index, again.new), (expected, false));
        let dynamic = table.allocate(now, &request(None, FIRST)).unwrap();
        assert_eq!((dynamic.index, dynamic.new), (expected, false));
        table.mark_active(FIRST).unwrap();
        assert!(table.allocate(now, &request(index, FIRST)).is_ok());
    }
}

#[test]
fn the_same_allocation_with_other_content_is_refused() {
    for index in [Some(0), None] {
        let (mut table, now) = table();
        table.allocate(now, &request(index, FIRST)).unwrap();
        let before = table.report();
        let mut other_job = request(index, FIRST);
        other_job.job = OTHER_JOB;
        let mut other_profile = request(index, FIRST);
        other_profile.profile = memory(1);
        for request in [other_job, other_profile, request(Some(1), FIRST)] {
            let refused = table.allocate(now, &request);
            assert!(
                matches!(refused, Err(SlotError::Inconsistent { .. })),
                "{refused:?}"
            );
        }
        assert_eq!(table.report(), before);
    }
}

#[test]
fn a_taken_slot_and_one_that_does_not_exist_are_refused() {
    let (mut table, now) = table();
    table.allocate(now, &request(Some(0), FIRST)).unwrap();
    assert_eq!(
        table.allocate(now, &request(Some(0), SECOND_ONE)),
        Err(SlotError::Occupied {
            index: 0,
            by: FIRST,
            job: JOB
        })
    );
    let missing = table
        .allocate(now, &request(Some(2), SECOND_ONE))
        .unwrap_err();
    assert_eq!(
        missing.to_string(),
        "slot 2 does not exist: this node has slots 0 to 1"
    );
}

#[test]
fn a_request_over_the_budget_is_refused_and_leaks_nothing() {
    let (mut table, now) = table();
    let mut large = request(None, FIRST);
    large.profile = memory(101);
    for _ in 0..3 {
        assert!(matches!(
            table.allocate(now, &large),
            Err(SlotError::OverBudget {
                asked: 101,
                free: 100,
                total: 100
            })
        ));
    }
    assert_eq!(table.next_deadline(), None);
    large.profile = memory(100);
    assert!(table.allocate(now, &large).is_ok());
    assert!(table.allocate(now, &request(Some(0), SECOND_ONE)).is_err());
    table.free(FIRST, "done").unwrap();
    assert!(table.allocate(now, &request(Some(0), SECOND_ONE)).is_ok());
}

#[test]
fn dynamic_slots_are_bounded_even_without_memory() {
    let (mut table, now) = table();
    for n in 0..MAX_DYNAMIC_SLOTS {
        let mut empty = request(None, AllocationId::from_u128(u128::from(n)));
        empty.profile = memory(0);
        table.allocate(now, &empty).unwrap();
    }
    let mut more = request(None, AllocationId::from_u128(9999));
    more.profile = memory(0);
    assert!(matches!(
        table.allocate(now, &more),
        Err(SlotError::TooMany { .. })
    ));
}

#[test]
fn freeing_a_slot_fails_its_tasks_and_waits_for_them() {
    let (mut table, now) = active();
    table.add_task(FIRST, task(0)).unwrap();
    table.add_task(FIRST, task(1)).unwrap();
    let actions = table.free(FIRST, "job is over").unwrap();
    let fail = |n| SlotAction::FailTask {
        task: task(n),
        reason: "job is over".to_owned(),
    };
    assert_eq!(actions, [fail(0), fail(1)]);
    assert_eq!(table.status(FIRST).unwrap().state, SlotState::Releasing);
    assert_eq!(table.free(FIRST, "again"), Ok(Vec::new()));
    assert!(table.mark_active(FIRST).is_err() && !table.try_mark_active(JOB, FIRST));
    assert!(table.mark_inactive(now, FIRST).is_err());
    assert!(table.add_task(FIRST, task(2)).is_err());
    let repeated = table.allocate(now, &request(Some(0), FIRST));
    assert!(matches!(repeated, Err(SlotError::WrongState { .. })));
    assert_eq!(table.remove_task(&task(1)), []);
    assert_eq!(
        table.remove_task(&task(0)),
        [freed(0, FIRST, "job is over")]
    );
    assert_eq!(table.remove_task(&task(0)), []);
    assert_eq!(table.report().free(), 2);
    assert_eq!(
        table.free(FIRST, "late"),
        Err(SlotError::NotFound { allocation: FIRST })
    );
}

#[test]
fn the_table_is_closed_only_when_all_tasks_have_ended() {
    let (mut table, now) = active();
    table.allocate(now, &request(Some(1), SECOND_ONE)).unwrap();
    table.add_task(FIRST, task(0)).unwrap();
    let actions = table.close("shutdown");
    assert_eq!(actions.len(), 2);
    assert!(actions.contains(&freed(1, SECOND_ONE, "shutdown")));
    assert!(!table.is_closed());
    assert_eq!(
        table.allocate(now, &request(Some(1), SECOND_ONE)),
        Err(SlotError::Closing)
    );
    assert_eq!(table.close("again"), []);
    let last = table.remove_task(&task(0));
    assert_eq!(last, [freed(0, FIRST, "shutdown"), SlotAction::Closed]);
    assert!(table.is_closed());
}

#[test]
fn an_empty_table_closes_at_once() {
    let (mut table, now) = table();
    assert_eq!(table.close("shutdown"), [SlotAction::Closed]);
    assert!(table.is_closed());
    assert!(table.allocate(now, &request(None, FIRST)).is_err());
}

#[test]
fn an_allocated_slot_times_out() {
    let (mut table, now) = table();
    table.allocate(now, &request(Some(0), FIRST)).unwrap();
    assert_eq!(table.next_deadline(), Some(now + 10 * SECOND));
    assert_eq!(table.expired(now + 9 * SECOND), []);
    let tickets = table.expired(now + 10 * SECOND);
    assert_eq!(
        table.on_timeout(&tickets[0]),
        [freed(
            0,
            FIRST,
            "the slot was not taken into use within 10 s"
        )]
    );
    assert_eq!(table.on_timeout(&tickets[0]), []);
    assert_eq!(table.report().free(), 2);
}

#[test]
fn activating_a_slot_ends_its_timeout_even_when_that_is_on_its_way() {
    for try_first in [false, true] {
        let (mut table, now) = table();
        table.allocate(now, &request(Some(0), FIRST)).unwrap();
        let on_its_way = table.expired(now + 10 * SECOND);
        if try_first {
            assert!(!table.try_mark_active(OTHER_JOB, FIRST));
            assert!(table.try_mark_active(JOB, FIRST));
        } else {
            table.mark_active(FIRST).unwrap();
        }
        assert_eq!(table.next_deadline(), None);
        assert_eq!(table.on_timeout(&on_its_way[0]), []);
        assert_eq!(table.status(FIRST).unwrap().state, SlotState::Active);
    }
}

#[test]
fn an_inactive_slot_times_out_again_from_then_on() {
    let (mut table, now) = active();
    table.add_task(FIRST, task(0)).unwrap();
    table.mark_inactive(now + 5 * SECOND, FIRST).unwrap();
    assert_eq!(table.next_deadline(), Some(now + 15 * SECOND));
    let tickets = table.expired(now + 15 * SECOND);
    assert!(matches!(
        table.on_timeout(&tickets[0])[..],
        [SlotAction::FailTask { .. }]
    ));
    assert_eq!(table.next_deadline(), None);
}

#[test]
fn tasks_need_an_active_slot_of_their_job_and_run_once() {
    let (mut table, now) = table();
    let unknown = SlotError::NotFound { allocation: FIRST };
    assert_eq!(table.add_task(FIRST, task(0)), Err(unknown.clone()));
    assert_eq!(table.mark_active(FIRST), Err(unknown));
    table.allocate(now, &request(Some(0), FIRST)).unwrap();
    assert!(matches!(
        table.add_task(FIRST, task(0)),
        Err(SlotError::WrongState { .. })
    ));
    table.mark_active(FIRST).unwrap();
    let foreign = ExecutionId {
        job: OTHER_JOB,
        ..task(0)
    };
    assert!(matches!(
        table.add_task(FIRST, foreign),
        Err(SlotError::WrongJob { .. })
    ));
    table.add_task(FIRST, task(0)).unwrap();
    assert_eq!(
        table.add_task(FIRST, task(0)),
        Err(SlotError::DuplicateTask { task: task(0) })
    );
    assert_eq!(table.tasks_of(JOB).collect::<Vec<_>>(), [task(0)]);
    assert_eq!(table.allocation_of(&task(0)), Some(FIRST));
    assert_eq!(table.remove_task(&task(0)), []);
    assert_eq!(table.status(FIRST).unwrap().state, SlotState::Active);
}

#[test]
fn tasks_reserve_no_more_memory_than_their_slot_has() {
    let (mut table, _) = active();
    assert!(table.reserve_memory(&task(0), 1).is_err());
    table.add_task(FIRST, task(0)).unwrap();
    table.add_task(FIRST, task(1)).unwrap();
    table.reserve_memory(&task(0), 30).unwrap();
    assert!(matches!(
        table.reserve_memory(&task(1), 21),
        Err(SlotError::OverBudget {
            asked: 21,
            free: 20,
            total: 50
        })
    ));
    table.release_memory(&task(1), 30);
    assert!(table.reserve_memory(&task(1), 21).is_err());
    table.release_memory(&task(0), 10);
    table.reserve_memory(&task(1), 30).unwrap();
    table.remove_task(&task(1));
    table.reserve_memory(&task(0), 30).unwrap();
}

#[test]
fn the_report_lists_fixed_slots_always_and_dynamic_ones_while_they_exist() {
    let (mut table, now) = active();
    let mut dynamic = request(None, SECOND_ONE);
    dynamic.profile = memory(30);
    table.allocate(now, &dynamic).unwrap();
    let seen: Vec<_> = table
        .report()
        .slots
        .iter()
        .map(|slot| (slot.index, slot.state, slot.profile.memory_bytes))
        .collect();
    assert_eq!(
        seen,
        [
            (0, SlotState::Active, 50),
            (1, SlotState::Free, 50),
            (2, SlotState::Allocated, 30)
        ]
    );
    let offered: Vec<_> = table.allocations_of(JOB, SlotState::Allocated).collect();
    assert_eq!(offered, [SECOND_ONE]);
    let bytes = postcard::to_stdvec(&table.report()).unwrap();
    assert_eq!(
        postcard::from_bytes::<SlotReport>(&bytes).unwrap(),
        table.report()
    );
    table.free(SECOND_ONE, "done").unwrap();
    assert_eq!(table.report().slots.len(), 2);
}
