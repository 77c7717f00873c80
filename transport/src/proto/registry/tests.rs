use super::*;
use crate::identity::ResourceId;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn rules(reuse: bool) -> Rules {
    Rules {
        reuse,
        max_age: DAY,
    }
}

fn peer(index: u32) -> ConnectionId {
    ConnectionId::new(ResourceId::new("tm-2").unwrap(), "tm-2:6121").with_index(index)
}

fn acquire(registry: &mut Registry, waiter: u64) -> Vec<Action<&'static str>> {
    let event = Event::Acquire {
        waiter: WaiterId(waiter),
        connection: peer(0),
    };
    registry.on_event(event).unwrap()
}

fn started(actions: &[Action<&'static str>]) -> LinkId {
    match actions {
        [Action::StartDial { link, .. }] => *link,
        other => panic!("one dial expected, not {other:?}"),
    }
}

fn on(registry: &mut Registry, event: Event<&'static str>) -> Vec<Action<&'static str>> {
    registry.on_event(event).unwrap()
}

/// Reports the success of a dial and gives the actions, but for the timer of a connection that is kept.
fn succeed(registry: &mut Registry, link: LinkId) -> Vec<Action<&'static str>> {
    let mut actions = on(registry, Event::DialSucceeded { link, jitter: 0 });
    let timer = Action::StartTimer { link, after: DAY };
    if registry.references(link) > 0 {
        assert_eq!(actions.pop(), Some(timer));
    }
    actions
}

fn ok(waiter: u64, link: LinkId) -> Action<&'static str> {
    Action::Answer {
        waiter: WaiterId(waiter),
        outcome: Ok(link),
    }
}

fn failed(waiter: u64, error: &'static str) -> Action<&'static str> {
    Action::Answer {
        waiter: WaiterId(waiter),
        outcome: Err(Refused::Dial(error)),
    }
}

fn close(link: LinkId, why: CloseCause) -> Action<&'static str> {
    Action::Close { link, why }
}

/// A registry with an open connection that waiter 0 holds.
fn open(reuse: bool) -> (Registry, LinkId) {
    let mut registry = Registry::new(rules(reuse));
    let link = started(&acquire(&mut registry, 0));
    assert_eq!(succeed(&mut registry, link), [ok(0, link)]);
    (registry, link)
}

#[test]
fn concurrent_callers_share_one_dial_and_are_all_answered() {
    let mut registry = Registry::new(rules(true));
    let link = started(&acquire(&mut registry, 0));
    for waiter in 1..10 {
        assert_eq!(acquire(&mut registry, waiter), []);
    }
    assert_eq!(registry.active(), 1);
    let answers = succeed(&mut registry, link);
    assert_eq!(answers, (0..10).map(|w| ok(w, link)).collect::<Vec<_>>());
    assert_eq!(registry.references(link), 10);
    assert_eq!(acquire(&mut registry, 10), [ok(10, link)]);
}

#[test]
fn a_failed_dial_answers_every_waiter_flink_18821() {
    let mut registry = Registry::new(rules(true));
    let link = started(&acquire(&mut registry, 0));
    acquire(&mut registry, 1);
    let error = "refused";
    let answers = on(&mut registry, Event::DialFailed { link, error });
    assert_eq!(answers, [failed(0, error), failed(1, error)]);
    assert_eq!(registry.active(), 0);
}

#[test]
fn a_failure_is_not_remembered_flink_20615() {
    let mut registry = Registry::new(rules(true));
    let first = started(&acquire(&mut registry, 0));
    let error = "refused";
    on(&mut registry, Event::DialFailed { link: first, error });
    let second = started(&acquire(&mut registry, 1));
    assert_ne!(first, second);
    assert_eq!(succeed(&mut registry, second), [ok(1, second)]);
}

#[test]
fn a_caller_that_leaves_does_not_disturb_the_others_flink_19688() {
    let mut registry = Registry::new(rules(true));
    let link = started(&acquire(&mut registry, 0));
    acquire(&mut registry, 1);
    let waiter = WaiterId(0);
    assert_eq!(on(&mut registry, Event::CallerGone { waiter }), []);
    assert_eq!(succeed(&mut registry, link), [ok(1, link)]);
    assert_eq!(registry.references(link), 1);
}

#[test]
fn the_next_caller_after_a_cancelled_one_dials_afresh() {
    let mut registry = Registry::new(rules(true));
    let first = started(&acquire(&mut registry, 0));
    let waiter = WaiterId(0);
    let gone = on(&mut registry, Event::CallerGone { waiter });
    assert_eq!(gone, [Action::CancelDial { link: first }]);
    let second = started(&acquire(&mut registry, 1));
    let error = "cancelled";
    let late = on(&mut registry, Event::DialFailed { link: first, error });
    assert_eq!(late, []);
    assert_eq!(succeed(&mut registry, second), [ok(1, second)]);
}

#[test]
fn an_unwanted_late_connection_is_closed() {
    let mut registry = Registry::new(rules(true));
    let link = started(&acquire(&mut registry, 0));
    let waiter = WaiterId(0);
    on(&mut registry, Event::CallerGone { waiter });
    let late = succeed(&mut registry, link);
    assert_eq!(late, [close(link, CloseCause::Unwanted)]);
    assert_eq!(registry.active(), 0);
}

#[test]
fn a_dead_idle_connection_is_replaced_flink_28695() {
    let (mut registry, link) = open(true);
    on(&mut registry, Event::Released { link });
    assert_eq!(registry.cached(&peer(0)), Some(link));
    on(&mut registry, Event::Died { link });
    assert_eq!((registry.cached(&peer(0)), registry.active()), (None, 0));
    assert_ne!(started(&acquire(&mut registry, 1)), link);
}

#[test]
fn the_end_of_a_replaced_connection_leaves_its_successor_alone() {
    let (mut registry, old) = open(true);
    on(&mut registry, Event::Died { link: old });
    let new = started(&acquire(&mut registry, 1));
    succeed(&mut registry, new);
    on(&mut registry, Event::Died { link: old });
    on(&mut registry, Event::Released { link: old });
    assert_eq!(registry.cached(&peer(0)), Some(new));
    assert_eq!(registry.references(new), 1);
}

#[test]
fn reuse_decides_whether_a_free_connection_stays() {
    let (mut kept, link) = open(true);
    assert_eq!(on(&mut kept, Event::Released { link }), []);
    assert_eq!(acquire(&mut kept, 1), [ok(1, link)]);
    let (mut closed, link) = open(false);
    acquire(&mut closed, 1);
    assert_eq!(on(&mut closed, Event::Released { link }), []);
    let last = on(&mut closed, Event::Released { link });
    assert_eq!(last, [close(link, CloseCause::Unused)]);
    assert_eq!(closed.active(), 0);
}

#[test]
fn close_unused_closes_what_nobody_holds_and_nothing_else() {
    let unused = || Event::CloseUnused {
        connection: peer(0),
    };
    let (mut registry, link) = open(true);
    assert_eq!(on(&mut registry, unused()), []);
    on(&mut registry, Event::Released { link });
    assert_eq!(
        on(&mut registry, unused()),
        [close(link, CloseCause::Unused)]
    );
    assert_eq!(on(&mut registry, unused()), []);
    let dial = started(&acquire(&mut registry, 1));
    assert_eq!(on(&mut registry, unused()), [], "somebody waits");
    let waiter = WaiterId(1);
    let gone = on(&mut registry, Event::CallerGone { waiter });
    assert_eq!(gone, [Action::CancelDial { link: dial }]);
    assert_eq!(on(&mut registry, unused()), []);
}

#[test]
fn a_failed_dial_leaves_nothing_to_hand_out_flink_23030() {
    let mut registry = Registry::new(rules(true));
    let link = started(&acquire(&mut registry, 0));
    let error = "refused";
    on(&mut registry, Event::DialFailed { link, error });
    assert_eq!(registry.cached(&peer(0)), None);
    // Neither a late success nor a second failure of the same dial reaches anyone.
    let late = succeed(&mut registry, link);
    assert_eq!(late, [close(link, CloseCause::Unwanted)]);
    assert_eq!(on(&mut registry, Event::DialFailed { link, error }), []);
}

#[test]
fn acquiring_and_closing_in_turns_makes_progress_flink_1604() {
    let mut registry = Registry::new(rules(false));
    for waiter in 0..100 {
        let link = started(&acquire(&mut registry, waiter));
        let answered = succeed(&mut registry, link);
        assert_eq!(answered, [ok(waiter, link)]);
        let released = on(&mut registry, Event::Released { link });
        assert_eq!(released, [close(link, CloseCause::Unused)]);
        assert_eq!(on(&mut registry, Event::Died { link }), []);
    }
    assert_eq!(registry.active(), 0);
}

#[test]
fn waiters_follow_one_dial_while_other_peers_are_served_flink_15416() {
    let mut registry = Registry::new(rules(true));
    let slow = started(&acquire(&mut registry, 0));
    let (waiter, connection) = (WaiterId(1), peer(1));
    let quick = started(&on(&mut registry, Event::Acquire { waiter, connection }));
    assert_eq!(acquire(&mut registry, 2), []);
    let answered = succeed(&mut registry, quick);
    assert_eq!(answered, [ok(1, quick)]);
    let answered = succeed(&mut registry, slow);
    assert_eq!(answered, [ok(0, slow), ok(2, slow)]);
}

#[test]
fn each_index_is_a_connection_of_its_own_flink_15455() {
    let mut registry = Registry::new(rules(true));
    for round in 0..5 {
        for index in 0..3 {
            let event = Event::Acquire {
                waiter: WaiterId(u64::from(round * 3 + index)),
                connection: peer(index),
            };
            registry.on_event::<()>(event).unwrap();
        }
    }
    assert_eq!(registry.active(), 3);
}

#[test]
fn an_old_connection_without_users_is_closed() {
    let (mut registry, link) = open(true);
    on(&mut registry, Event::Released { link });
    let closed = on(&mut registry, Event::TimerFired { link });
    assert_eq!(closed, [close(link, CloseCause::Drained)]);
    assert_eq!(registry.active(), 0);
    assert_ne!(started(&acquire(&mut registry, 1)), link);
}

#[test]
fn an_old_connection_in_use_is_left_to_its_users_and_nobody_else_gets_it() {
    let (mut registry, old) = open(true);
    acquire(&mut registry, 1);
    let after = DAY;
    assert_eq!(
        on(&mut registry, Event::TimerFired { link: old }),
        [
            Action::Drain { link: old },
            Action::StartTimer { link: old, after }
        ]
    );
    assert_eq!((registry.cached(&peer(0)), registry.active()), (None, 0));
    let new = started(&acquire(&mut registry, 2));
    assert_eq!(succeed(&mut registry, new), [ok(2, new)]);
    assert_eq!(acquire(&mut registry, 3), [ok(3, new)]);
    assert_eq!(registry.active(), 1);
    assert_eq!(on(&mut registry, Event::Released { link: old }), []);
    let last = on(&mut registry, Event::Released { link: old });
    assert_eq!(last, [close(old, CloseCause::Drained)]);
    assert_eq!(on(&mut registry, Event::Died { link: old }), []);
    assert_eq!(on(&mut registry, Event::TimerFired { link: old }), []);
    assert_eq!(registry.cached(&peer(0)), Some(new));
}

#[test]
fn a_drained_connection_that_is_never_let_go_is_closed_when_it_is_overdue() {
    let (mut registry, link) = open(true);
    on(&mut registry, Event::TimerFired { link });
    let overdue = on(&mut registry, Event::TimerFired { link });
    assert_eq!(overdue, [close(link, CloseCause::Overdue)]);
    assert_eq!(on(&mut registry, Event::TimerFired { link }), []);
    assert_eq!(registry.references(link), 1);
    assert_eq!(on(&mut registry, Event::Released { link }), []);
    assert!(registry.links.is_empty());
}

#[test]
fn connections_of_one_age_do_not_all_go_at_once() {
    let age = |jitter| rules(true).age(jitter);
    assert_eq!((age(0), age(u16::MAX)), (DAY, DAY * 9 / 10));
    assert!(age(u16::MAX / 2) < age(u16::MAX / 3));
    let mut registry = Registry::new(rules(true));
    let link = started(&acquire(&mut registry, 0));
    let jitter = u16::MAX;
    let event = Event::DialSucceeded { link, jitter };
    let after = DAY * 9 / 10;
    let timer = Action::StartTimer { link, after };
    assert_eq!(on(&mut registry, event), [ok(0, link), timer]);
}

#[test]
fn shutting_down_answers_cancels_closes_and_refuses() {
    let (mut registry, link) = open(true);
    let connection = peer(1);
    let waiter = WaiterId(1);
    let dial = started(&on(&mut registry, Event::Acquire { waiter, connection }));
    let refused = |waiter| Action::Answer {
        waiter: WaiterId(waiter),
        outcome: Err(Refused::ShutDown),
    };
    assert_eq!(
        on(&mut registry, Event::ShutDown),
        [
            close(link, CloseCause::ShutDown),
            Action::CancelDial { link: dial },
            refused(1),
        ]
    );
    assert_eq!(acquire(&mut registry, 2), [refused(2)]);
    assert_eq!(
        succeed(&mut registry, dial),
        [close(dial, CloseCause::ShutDown)]
    );
    assert_eq!(on(&mut registry, Event::Released { link }), []);
    assert_eq!(on(&mut registry, Event::ShutDown), []);
}

#[test]
fn misuse_is_an_error_and_changes_nothing() {
    let (mut registry, link) = open(true);
    let misuse = |registry: &mut Registry, event: Event<()>| registry.on_event(event).unwrap_err();
    on(&mut registry, Event::Released { link });
    assert_eq!(
        misuse(&mut registry, Event::Released { link }),
        RegistryMisuse::ReleasedTooOften(link)
    );
    assert_eq!(registry.references(link), 0);
    let again = RegistryMisuse::ReportedTwice(link);
    let success = Event::DialSucceeded { link, jitter: 0 };
    assert_eq!(misuse(&mut registry, success), again);
    let error = ();
    assert_eq!(
        misuse(&mut registry, Event::DialFailed { link, error }),
        again
    );
    let never = LinkId(77);
    assert_eq!(
        misuse(&mut registry, Event::Died { link: never }),
        RegistryMisuse::NeverGivenOut(never)
    );
    assert_eq!(registry.cached(&peer(0)), Some(link));
    on(&mut registry, Event::Died { link });
    let dial = started(&acquire(&mut registry, 5));
    assert_eq!(
        misuse(&mut registry, Event::Died { link: dial }),
        RegistryMisuse::DiedBeforeItLived(dial)
    );
    assert_eq!(
        misuse(&mut registry, Event::TimerFired { link: dial }),
        RegistryMisuse::TimerWithoutConnection(dial)
    );
    let event = Event::Acquire {
        waiter: WaiterId(5),
        connection: peer(1),
    };
    assert_eq!(
        misuse(&mut registry, event),
        RegistryMisuse::WaiterTaken(WaiterId(5))
    );
}

#[test]
fn an_id_without_a_peer_shares_the_connection_of_its_address() {
    let mut registry = Registry::new(rules(true));
    let named = peer(0);
    let unnamed = ConnectionId::to_address(named.address.clone());
    assert_eq!(registry.shared(&unnamed), &unnamed);
    started(&acquire(&mut registry, 1));
    assert_eq!(registry.shared(&unnamed), &named);
    assert_eq!(registry.shared(&peer(1)), &peer(1), "another index");
    let other = ConnectionId::new(ResourceId::new("tm-3").unwrap(), named.address.clone());
    assert_eq!(registry.shared(&other), &other, "two names are two nodes");
}
