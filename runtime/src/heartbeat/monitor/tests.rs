//! The life of a target, and a model of it.

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn id(name: &str) -> ResourceId {
    ResourceId::new(name).unwrap()
}

fn watching() -> (HeartbeatMonitor, Instant, MonitorId) {
    let now = thalweg_transport::now();
    let mut monitor = HeartbeatMonitor::new(HeartbeatConfig::default());
    let watch = monitor.monitor(now, id("tm")).unwrap();
    (monitor, now, watch)
}

#[test]
fn a_silent_target_times_out_once() {
    let (mut monitor, start, _) = watching();
    assert_eq!(monitor.next_deadline(), Some(start + 50 * SECOND));
    assert_eq!(monitor.on_tick(start + 49 * SECOND), []);
    assert_eq!(
        monitor.on_tick(start + 50 * SECOND),
        [Notice::TimedOut(id("tm"))]
    );
    assert_eq!(monitor.on_tick(start + 500 * SECOND), []);
    assert_eq!(monitor.state(&id("tm")), Some(TargetState::TimedOut));
    assert_eq!(monitor.next_deadline(), None);
}

#[test]
fn an_unmonitored_target_never_times_out() {
    let (mut monitor, start, _) = watching();
    assert!(monitor.unmonitor(&id("tm")));
    assert!(!monitor.unmonitor(&id("tm")));
    assert_eq!(monitor.on_tick(start + 100 * SECOND), []);
}

#[test]
fn heartbeats_keep_a_target_alive_and_silence_ends_it() {
    let (mut monitor, start, _) = watching();
    for beat in 1..20 {
        let now = start + beat * 40 * SECOND;
        assert_eq!(monitor.on_tick(now), []);
        assert!(monitor.on_heartbeat(now, &id("tm")));
    }
    let last = start + 760 * SECOND;
    assert_eq!(monitor.last_heartbeat(&id("tm")), Some(last));
    assert_eq!(monitor.on_tick(last + 50 * SECOND).len(), 1);
}

#[test]
fn a_late_heartbeat_does_not_revive_a_target() {
    let (mut monitor, start, _) = watching();
    monitor.on_tick(start + 50 * SECOND);
    assert!(!monitor.on_heartbeat(start + 51 * SECOND, &id("tm")));
    assert_eq!(monitor.state(&id("tm")), Some(TargetState::TimedOut));
}

#[test]
fn a_dead_target_is_watched_anew_when_it_registers_again() {
    let (mut monitor, start, first) = watching();
    monitor.on_tick(start + 50 * SECOND);
    let second = monitor.monitor(start + 60 * SECOND, id("tm")).unwrap();
    assert_ne!(first, second);
    assert_eq!(monitor.on_tick(start + 109 * SECOND), []);
    assert_eq!(monitor.on_tick(start + 110 * SECOND).len(), 1);
}

#[test]
fn monitoring_a_target_twice_changes_nothing() {
    let (mut monitor, start, _) = watching();
    assert_eq!(monitor.monitor(start + 10 * SECOND, id("tm")), None);
    assert_eq!(monitor.next_deadline(), Some(start + 50 * SECOND));
}

#[test]
fn unreachable_calls_in_a_row_lose_the_target_once() {
    let (mut monitor, start, watch) = watching();
    assert_eq!(monitor.on_call_unreachable(&id("tm"), watch), None);
    assert_eq!(
        monitor.on_call_unreachable(&id("tm"), watch),
        Some(Notice::Unreachable(id("tm")))
    );
    assert_eq!(monitor.on_call_unreachable(&id("tm"), watch), None);
    assert_eq!(monitor.on_tick(start + 100 * SECOND), []);
}

#[test]
fn an_answered_call_resets_the_count() {
    let (mut monitor, _, watch) = watching();
    for _ in 0..10 {
        assert_eq!(monitor.on_call_unreachable(&id("tm"), watch), None);
        monitor.on_call_answered(&id("tm"), watch);
    }
}

#[test]
fn threshold_zero_switches_the_detection_off() {
    let now = thalweg_transport::now();
    let config = HeartbeatConfig {
        failure_threshold: 0,
        ..HeartbeatConfig::default()
    };
    let mut monitor = HeartbeatMonitor::new(config);
    let watch = monitor.monitor(now, id("tm")).unwrap();
    for _ in 0..100 {
        assert_eq!(monitor.on_call_unreachable(&id("tm"), watch), None);
    }
}

#[test]
fn results_of_calls_before_a_new_registration_do_not_count() {
    let (mut monitor, start, old) = watching();
    monitor.unmonitor(&id("tm"));
    let new = monitor.monitor(start, id("tm")).unwrap();
    for _ in 0..3 {
        assert_eq!(monitor.on_call_unreachable(&id("tm"), old), None);
    }
    assert_eq!(monitor.on_call_unreachable(&id("tm"), new), None);
    monitor.on_call_answered(&id("tm"), old);
    assert!(monitor.on_call_unreachable(&id("tm"), new).is_some());
}

#[test]
fn unknown_targets_have_no_heartbeat_and_are_ignored() {
    let (mut monitor, start, _) = watching();
    assert_eq!(monitor.last_heartbeat(&id("other")), None);
    assert!(!monitor.on_heartbeat(start, &id("other")));
    assert_eq!(monitor.state(&id("other")), None);
}

#[test]
fn stopping_ends_all_watching() {
    let (mut monitor, start, _) = watching();
    monitor.monitor(start, id("tm-2"));
    assert_eq!(monitor.running_targets().count(), 2);
    monitor.stop();
    assert_eq!(monitor.on_tick(start + 100 * SECOND), []);
    assert_eq!(monitor.next_deadline(), None);
}

/// What the model knows of a target: deadline and failures while it runs.
type Model = BTreeMap<u8, Option<(u64, u32, MonitorId)>>;

proptest! {
    #[test]
    fn each_watch_ends_with_at_most_one_notice(
        steps in prop::collection::vec((0..6_u8, 0..3_u8, 0..40_u64), 1..200),
    ) {
        let start = thalweg_transport::now();
        let mut monitor = HeartbeatMonitor::new(HeartbeatConfig::default());
        let mut model = Model::new();
        let mut clock = 0;
        for (step, name, pause) in steps {
            clock += pause;
            let now = start + Duration::from_secs(clock);
            let target = id(&format!("tm-{name}"));
            let entry = model.get(&name).copied().flatten();
            match step {
                0 => {
                    let watch = monitor.monitor(now, target);
                    prop_assert_eq!(watch.is_some(), entry.is_none());
                    if let Some(watch) = watch {
                        model.insert(name, Some((clock + 50, 0, watch)));
                    }
                }
                1 => {
                    prop_assert_eq!(monitor.unmonitor(&target), model.remove(&name).is_some());
                }
                2 => {
                    prop_assert_eq!(monitor.on_heartbeat(now, &target), entry.is_some());
                    if let Some((_, failures, watch)) = entry {
                        model.insert(name, Some((clock + 50, failures, watch)));
                    }
                }
                3 => if let Some((deadline, failures, watch)) = entry {
                    let notice = monitor.on_call_unreachable(&target, watch);
                    prop_assert_eq!(notice.is_some(), failures + 1 >= 2);
                    let left = notice.is_none().then_some((deadline, failures + 1, watch));
                    model.insert(name, left);
                },
                4 => if let Some((deadline, _, watch)) = entry {
                    monitor.on_call_answered(&target, watch);
                    model.insert(name, Some((deadline, 0, watch)));
                },
                _ => {
                    let mut expected = Vec::new();
                    for (name, entry) in &mut model {
                        if entry.is_some_and(|(deadline, ..)| deadline <= clock) {
                            *entry = None;
                            expected.push(Notice::TimedOut(id(&format!("tm-{name}"))));
                        }
                    }
                    prop_assert_eq!(monitor.on_tick(now), expected);
                }
            }
            let next = model.values().flatten().map(|(deadline, ..)| *deadline).min();
            let next = next.map(|seconds| start + Duration::from_secs(seconds));
            prop_assert_eq!(monitor.next_deadline(), next);
        }
    }
}
