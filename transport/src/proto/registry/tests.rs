use super::*;
use crate::identity::ResourceId;

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
    let mut registry = Registry::new(reuse);
    let link = started(&acquire(&mut registry, 0));
    assert_eq!(
        on(&mut registry, Event::DialSucceeded { link }),
        [ok(0, link)]
    );
    (registry, link)
}

#[test]
fn concurrent_callers_share_one_dial_and_are_all_answered() {
    let mut registry = Registry::new(true);
    let link = started(&acquire(&mut registry, 0));
    for waiter in 1..10 {
        assert_eq!(acquire(&mut registry, waiter), []);
    }
    assert_eq!(registry.active(), 1);
    let answers = on(&mut registry, Event::DialSucceeded { link });
    assert_eq!(answers, (0..10).map(|w| ok(w, link)).collect::<Vec<_>>());
    assert_eq!(registry.references(link), 10);
    assert_eq!(acquire(&mut registry, 10), [ok(10, link)]);
}

#[test]
fn a_failed_dial_answers_every_waiter_flink_18821() {
    let mut registry = Registry::new(true);
    let link = started(&acquire(&mut registry, 0));
    acquire(&mut registry, 1);
    let error = "refused";
    let answers = on(&mut registry, Event::DialFailed { link, error });
    assert_eq!(answers, [failed(0, error), failed(1, error)]);
    assert_eq!(registry.active(), 0);
}

#[test]
fn a_failure_is_not_remembered_flink_20615() {
    let mut registry = Registry::new(true);
    let first = started(&acquire(&mut registry, 0));
    let error = "refused";
    on(&mut registry, Event::DialFailed { link: first, error });
    let second = started(&acquire(&mut registry, 1));
    assert_ne!(first, second);
    assert_eq!(
        on(&mut registry, Event::DialSucceeded { link: second }),
        [ok(1, second)]
    );
}

#[test]
fn a_caller_that_leaves_does_not_disturb_the_others_flink_19688() {
    let mut registry = Registry::new(true);
    let link = started(&acquire(&mut registry, 0));
    acquire(&mut registry, 1);
    let waiter = WaiterId(0);
    assert_eq!(on(&mut registry, Event::CallerGone { waiter }), []);
    assert_eq!(
        on(&mut registry, Event::DialSucceeded { link }),
        [ok(1, link)]
    );
    assert_eq!(registry.references(link), 1);
}

#[test]
fn the_next_caller_after_a_cancelled_one_dials_afresh() {
    let mut registry = Registry::new(true);
    let first = started(&acquire(&mut registry, 0));
    let waiter = WaiterId(0);
    let gone = on(&mut registry, Event::CallerGone { waiter });
    assert_eq!(gone, [Action::CancelDial { link: first }]);
    let second = started(&acquire(&mut registry, 1));
    let error = "cancelled";
    let late = on(&mut registry, Event::DialFailed { link: first, error });
    assert_eq!(late, []);
    assert_eq!(
        on(&mut registry, Event::DialSucceeded { link: second }),
        [ok(1, second)]
    );
}

#[test]
fn an_unwanted_late_connection_is_closed() {
    let mut registry = Registry::new(true);
    let link = started(&acquire(&mut registry, 0));
    let waiter = WaiterId(0);
    on(&mut registry, Event::CallerGone { waiter });
    let late = on(&mut registry, Event::DialSucceeded { link });
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
    on(&mut registry, Event::DialSucceeded { link: new });
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
    let mut registry = Registry::new(true);
    let link = started(&acquire(&mut registry, 0));
    let error = "refused";
    on(&mut registry, Event::DialFailed { link, error });
    assert_eq!(registry.cached(&peer(0)), None);
    // Neither a late success nor a second failure of the same dial reaches anyone.
    let late = on(&mut registry, Event::DialSucceeded { link });
    assert_eq!(late, [close(link, CloseCause::Unwanted)]);
    assert_eq!(on(&mut registry, Event::DialFailed { link, error }), []);
}

#[test]
fn acquiring_and_closing_in_turns_makes_progress_flink_1604() {
    let mut registry = Registry::new(false);
    for waiter in 0..100 {
        let link = started(&acquire(&mut registry, waiter));
        let answered = on(&mut registry, Event::DialSucceeded { link });
        assert_eq!(answered, [ok(waiter, link)]);
        let released = on(&mut registry, Event::Released { link });
        assert_eq!(released, [close(link, CloseCause::Unused)]);
        assert_eq!(on(&mut registry, Event::Died { link }), []);
    }
    assert_eq!(registry.active(), 0);
}

#[test]
fn waiters_follow_one_dial_while_other_peers_are_served_flink_15416() {
    let mut registry = Registry::new(true);
    let slow = started(&acquire(&mut registry, 0));
    let (waiter, connection) = (WaiterId(1), peer(1));
    let quick = started(&on(&mut registry, Event::Acquire { waiter, connection }));
    assert_eq!(acquire(&mut registry, 2), []);
    let answered = on(&mut registry, Event::DialSucceeded { link: quick });
    assert_eq!(answered, [ok(1, quick)]);
    let answered = on(&mut registry, Event::DialSucceeded { link: slow });
    assert_eq!(answered, [ok(0, slow), ok(2, slow)]);
}

#[test]
fn each_index_is_a_connection_of_its_own_flink_15455() {
    let mut registry = Registry::new(true);
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
        on(&mut registry, Event::DialSucceeded { link: dial }),
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
    assert_eq!(misuse(&mut registry, Event::DialSucceeded { link }), again);
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
    let mut registry = Registry::new(true);
    let named = peer(0);
    let unnamed = ConnectionId::to_address(named.address.clone());
    assert_eq!(registry.shared(&unnamed), &unnamed);
    started(&acquire(&mut registry, 1));
    assert_eq!(registry.shared(&unnamed), &named);
    assert_eq!(registry.shared(&peer(1)), &peer(1), "another index");
    let other = ConnectionId::new(ResourceId::new("tm-3").unwrap(), named.address.clone());
    assert_eq!(registry.shared(&other), &other, "two names are two nodes");
}
