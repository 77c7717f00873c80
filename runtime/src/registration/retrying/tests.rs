//! Attempts, time-outs and delays.

use proptest::prelude::*;

use super::*;

fn started() -> (RetryingRegistration, Attempt) {
    let mut machine = RetryingRegistration::new(RegistrationConfig::default());
    match machine.on_event(Event::Start) {
        Some(Action::Connect(attempt)) => (machine, attempt),
        other => panic!("{other:?}"),
    }
}

fn calling() -> (RetryingRegistration, Attempt) {
    let (mut machine, attempt) = started();
    match machine.on_event(Event::Connected(attempt)) {
        Some(Action::Call { attempt, timeout }) => {
            assert_eq!(timeout, Duration::from_millis(100));
            (machine, attempt)
        }
        other => panic!("{other:?}"),
    }
}

fn failed(attempt: Attempt) -> Event {
    Event::Failed {
        attempt,
        retryable: true,
    }
}

#[test]
fn timeouts_double_to_the_cap_and_repeat_at_once() {
    let (mut machine, mut attempt) = calling();
    let mut series = Vec::new();
    for _ in 0..11 {
        match machine.on_event(Event::TimedOut(attempt)) {
            Some(Action::Call {
                attempt: next,
                timeout,
            }) => {
                attempt = next;
                series.push(timeout.as_millis());
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        series,
        [
            200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000, 30_000
        ]
    );
}

#[test]
fn delays_double_to_the_cap_after_any_failure() {
    let (mut machine, mut attempt) = started();
    let mut series = Vec::new();
    for round in 0..9 {
        if round % 2 == 1 {
            let Some(Action::Call { attempt: next, .. }) =
                machine.on_event(Event::Connected(attempt))
            else {
                panic!("no call");
            };
            attempt = next;
        }
        let Some(Action::Wait {
            attempt: next,
            delay,
        }) = machine.on_event(failed(attempt))
        else {
            panic!("no wait");
        };
        series.push(delay.as_millis());
        let Some(Action::Connect(next)) = machine.on_event(Event::Waited(next)) else {
            panic!("no connect");
        };
        attempt = next;
    }
    assert_eq!(
        series,
        [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]
    );
}

#[test]
fn a_refusal_waits_then_calls_with_the_initial_timeout() {
    let (mut machine, attempt) = calling();
    let Some(Action::Call { attempt, timeout }) = machine.on_event(Event::TimedOut(attempt)) else {
        panic!("no call");
    };
    assert_eq!(timeout, Duration::from_millis(200));
    let Some(Action::Wait { attempt, .. }) = machine.on_event(Event::Refused(attempt)) else {
        panic!("no wait");
    };
    let again = machine.on_event(Event::Waited(attempt));
    assert!(
        matches!(again, Some(Action::Call { timeout, .. }) if timeout == Duration::from_millis(100)),
        "{again:?}"
    );
}

#[test]
fn a_rejection_is_final() {
    let (mut machine, attempt) = calling();
    assert_eq!(
        machine.on_event(Event::Rejected(attempt)),
        Some(Action::Done(End::Rejected))
    );
    assert_eq!(machine.on_event(Event::Succeeded(attempt)), None);
    assert!(machine.is_done());
}

#[test]
fn an_error_that_cannot_be_mended_ends_the_registration() {
    let (mut machine, attempt) = started();
    assert_eq!(
        machine.on_event(Event::Failed {
            attempt,
            retryable: false
        }),
        Some(Action::Done(End::Failed))
    );
}

#[test]
fn answers_of_an_older_attempt_are_ignored() {
    let (mut machine, old) = calling();
    machine.on_event(Event::TimedOut(old)).unwrap();
    for event in [
        Event::Succeeded(old),
        Event::Rejected(old),
        Event::TimedOut(old),
        failed(old),
    ] {
        assert_eq!(machine.on_event(event), None, "{event:?}");
    }
    assert!(!machine.is_done());
}

#[test]
fn cancellation_is_no_failure_and_stops_everything() {
    let (mut machine, attempt) = calling();
    assert_eq!(
        machine.on_event(Event::Cancelled),
        Some(Action::Done(End::Cancelled))
    );
    assert_eq!(machine.on_event(Event::Succeeded(attempt)), None);
    assert_eq!(machine.on_event(Event::Cancelled), None);
}

#[test]
fn only_the_first_start_counts() {
    let (mut machine, _) = started();
    assert_eq!(machine.on_event(Event::Start), None);
}

proptest! {
    #[test]
    fn delays_stay_in_the_jitter_band(millis in 0_u64..100_000, fraction: f64) {
        let delay = Duration::from_millis(millis);
        let jittered = jittered(delay, fraction);
        prop_assert!(jittered >= delay / 2 && jittered <= delay);
    }

    #[test]
    fn every_action_has_a_new_attempt_and_stale_results_end_nothing(choices in prop::collection::vec(0..8_u8, 0..200)) {
        let mut machine = RetryingRegistration::new(RegistrationConfig::default());
        let mut last = Attempt(0);
        let mut done = 0;
        let mut action = machine.on_event(Event::Start);
        for choice in choices {
            match action {
                Some(Action::Connect(attempt) | Action::Call { attempt, .. } | Action::Wait { attempt, .. }) => {
                    prop_assert!(attempt > last);
                    last = attempt;
                }
                Some(Action::Done(_)) => done += 1,
                None => {}
            }
            let event = match choice {
                0 => Event::Connected(last),
                1 => Event::Refused(last),
                2 => Event::TimedOut(last),
                3 => failed(last),
                4 | 5 => Event::Waited(last),
                6 => Event::Succeeded(Attempt(last.0.wrapping_sub(1))),
                _ => Event::Rejected(Attempt(last.0 / 2)),
            };
            let stale = choice >= 6 && last.0 > 0;
            action = machine.on_event(event);
            prop_assert!(!stale || action.is_none());
        }
        prop_assert_eq!(done, 0);
    }
}
