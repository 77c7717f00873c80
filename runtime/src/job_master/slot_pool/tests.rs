use super::*;
use crate::{
    gateways::TaskManagerReport,
    ids::JobId,
    slots::{ResourceProfile, SlotReport, SlotState, SlotStatus},
};

const TIMEOUT: Duration = Duration::from_secs(30);

struct Pool {
    pool: SlotPool,
    now: Instant,
    next: u128,
}

impl Pool {
    /// Two slots of group 0, one of group 7.
    fn new() -> Self {
        Self {
            pool: SlotPool::new(&BTreeMap::from([(0, 2), (7, 1)])),
            now: thalweg_transport::now(),
            next: 0,
        }
    }

    fn full() -> Self {
        let mut pool = Self::new();
        pool.request();
        assert_eq!(pool.offer("tm-1", &[(1, 0), (2, 1)]), [1, 2]);
        assert_eq!(pool.offer("tm-2", &[(3, 0)]), [3]);
        pool
    }

    fn request(&mut self) -> Vec<(u128, u32)> {
        let next = &mut self.next;
        let new_id = || {
            *next += 1;
            AllocationId::from_u128(*next)
        };
        self.pool
            .request(self.now + TIMEOUT, new_id)
            .into_iter()
            .map(|request| (request.allocation.as_u128(), request.group))
            .collect()
    }

    fn offer(&mut self, task_manager: &str, offers: &[(u128, u32)]) -> Vec<u128> {
        let offers: Vec<_> = offers
            .iter()
            .map(|&(allocation, slot)| SlotOffer {
                allocation: AllocationId::from_u128(allocation),
                slot,
            })
            .collect();
        let accepted = self.pool.offer(&tm(task_manager), &offers);
        accepted.iter().map(|id| id.as_u128()).collect()
    }

    fn lose(&mut self, task_manager: &str) -> bool {
        let now = self.now;
        self.pool
            .on_task_manager_lost(now, &tm(task_manager), "its connection broke")
    }
}

fn tm(name: &str) -> ResourceId {
    ResourceId::new(name).unwrap()
}

fn status(name: &str, total: u32, free: u32) -> TaskManagerStatus {
    let owner = Some((JobId::from_u128(1), AllocationId::from_u128(1)));
    let slots = (0..total)
        .map(|index| SlotStatus {
            index,
            state: if index < free {
                SlotState::Free
            } else {
                SlotState::Active
            },
            profile: ResourceProfile { memory_bytes: 0 },
            allocation: owner.filter(|_| index >= free),
        })
        .collect();
    TaskManagerStatus {
        id: tm(name),
        address: String::new(),
        last_heartbeat_ms: 0,
        report: TaskManagerReport {
            slots: SlotReport { slots },
            identity: None,
            tls: "off".to_owned(),
            certificate_expires: None,
            certificate_fingerprint: None,
            connections: Vec::new(),
        },
    }
}

#[test]
fn a_lost_task_manager_that_is_there_again_is_not_avoided() {
    let mut pool = Pool::full();
    assert!(pool.lose("tm-2"));
    assert_eq!(pool.pool.avoid(pool.now).len(), 1);
    pool.pool.on_task_manager_registered(&tm("tm-2"));
    assert!(pool.pool.avoid(pool.now).is_empty());
}

#[test]
fn a_pool_is_complete_when_every_slot_was_offered() {
    let mut pool = Pool::new();
    assert!(!pool.pool.is_waiting());
    assert_eq!(pool.request(), [(1, 0), (2, 0), (3, 7)]);
    assert_eq!(pool.request(), [(1, 0), (2, 0), (3, 7)], "the same again");
    assert_eq!(pool.offer("tm-1", &[(2, 0), (1, 1)]), [2, 1]);
    assert!(pool.pool.is_waiting() && !pool.pool.is_complete());
    assert_eq!(pool.request(), [(3, 7)]);
    assert_eq!(pool.offer("tm-2", &[(3, 0)]), [3]);
    assert!(!pool.pool.is_waiting() && pool.pool.is_complete());
    assert_eq!(pool.request(), []);
    let owners = pool.pool.owners();
    assert_eq!(owners[&(0, 1)], tm("tm-1"));
    assert_eq!(owners[&(7, 0)], tm("tm-2"));
    assert_eq!(pool.pool.allocations_at(&tm("tm-2")).len(), 1);
}

#[test]
fn unknown_and_taken_allocations_are_refused() {
    let mut pool = Pool::full();
    assert_eq!(pool.offer("tm-1", &[(1, 0), (9, 1)]), [1], "again, unknown");
    assert_eq!(pool.offer("tm-2", &[(1, 0)]), [], "another TaskManager");
    assert_eq!(pool.offer("tm-1", &[(1, 5)]), [], "another slot");
}

#[test]
fn lost_slots_are_asked_for_under_new_ids_elsewhere() {
    let mut pool = Pool::full();
    assert!(!pool.lose("tm-9"));
    assert!(pool.pool.avoid(pool.now).is_empty(), "it gave nothing");
    assert!(pool.lose("tm-2"));
    assert_eq!(pool.request(), [(4, 7)]);
    assert_eq!(pool.offer("tm-2", &[(3, 0)]), [], "the lost slot");
    pool.now += Duration::from_millis(1500);
    assert_eq!(
        pool.pool.avoid(pool.now),
        [LostTaskManager {
            id: tm("tm-2"),
            lost_ms_ago: 1500
        }]
    );
    assert_eq!(pool.offer("tm-3", &[(4, 0)]), [4]);
    assert!(pool.pool.avoid(pool.now).is_empty());
}

#[test]
fn a_slot_that_its_task_manager_cannot_serve_is_asked_for_anew() {
    let mut pool = Pool::full();
    let failed = AllocationId::from_u128(1);
    assert!(
        !pool.pool.on_slot_failed(&tm("tm-2"), failed),
        "not its own"
    );
    assert!(pool.pool.on_slot_failed(&tm("tm-1"), failed));
    assert!(!pool.pool.on_slot_failed(&tm("tm-1"), failed));
    assert_eq!(pool.request(), [(4, 0)]);
}

#[test]
fn the_wait_has_one_deadline() {
    let mut pool = Pool::new();
    assert_eq!(pool.pool.next_deadline(), None);
    let deadline = pool.now + TIMEOUT;
    pool.request();
    pool.now += Duration::from_secs(5);
    pool.request();
    assert_eq!(pool.pool.next_deadline(), Some(deadline));
}

#[test]
fn everything_is_given_back_at_the_end() {
    let mut pool = Pool::full();
    assert_eq!(pool.pool.release().len(), 3);
    assert_eq!(pool.offer("tm-1", &[(1, 0)]), []);
    assert!(pool.pool.release().is_empty());
}

#[test]
fn the_error_says_what_was_asked_what_exists_and_who_was_lost() {
    let mut pool = Pool::new();
    pool.request();
    pool.offer("tm-1", &[(1, 0)]);
    pool.lose("tm-2");
    let overview = [status("tm-1", 2, 1), status("tm-3", 2, 0)];
    let cause = pool
        .pool
        .unavailable("words (0a1b2c3d)", Placement::Spread, Ok(&overview));
    assert_eq!(
        cause.message,
        "no slots for job words (0a1b2c3d): 3 asked (1 held), 4 exist (tm-1 1/2 free, tm-3 0/2 free); \
         TaskManager tm-2 was lost: its connection broke"
    );
    assert_eq!(cause.kind, FailureKind::Resources);
    let cause = pool
        .pool
        .unavailable("j", Placement::SeparateGroups, Ok(&[]));
    assert!(
        cause.message.contains(
            "0 exist (no TaskManager is registered); no two of the 2 slot groups may share a TaskManager"
        ),
        "{cause}"
    );
    let cause = pool
        .pool
        .unavailable("j", Placement::Spread, Err("no answer"));
    assert!(
        cause
            .message
            .contains("the ResourceManager did not say what exists: no answer"),
        "{cause}"
    );
}
