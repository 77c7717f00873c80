//! When to connect, to call and to wait until a registration has an answer.

use std::time::Duration;

/// Time-outs and delays of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegistrationConfig {
    /// Time-out of the first call. Default 100 ms: a leader that lives answers sooner.
    pub initial_timeout: Duration,
    /// Longest time-out of a call; each call that timed out doubles it up to here. Default 30 s.
    pub max_timeout: Duration,
    /// Delay after the first failure. Default 100 ms, so that the order in which processes start does not matter.
    pub initial_delay: Duration,
    /// Longest delay; each failure doubles it up to here. Default 10 s.
    pub max_delay: Duration,
}

impl Default for RegistrationConfig {
    fn default() -> Self {
        Self {
            initial_timeout: Duration::from_millis(100),
            max_timeout: Duration::from_secs(30),
            initial_delay: Duration::from_millis(100),
            max_delay: Duration::from_secs(10),
        }
    }
}

/// The attempts of one registration, until success, rejection or cancellation.
///
/// Follows Flink's `RetryingRegistration`, with two differences: delays after failures double from a small value
/// instead of being fixed at 10 s and 30 s, and a call that failed connects anew, because here a gateway dies with its
/// stream.
///
/// ```text
///         Start          Connected            Succeeded, Rejected
/// Idle ──────────► Connecting ───────► Calling ───────────────────► Done
///                   ▲    │             ▲ │  ▲│ TimedOut: at once, twice the time-out
///            Waited │    │ Failed      │ │  └┘
///                   │    ▼        Waited │
///                 Waiting ◄──────────────┘ Failed (connect again), Refused (call again)
/// ```
///
/// Every action carries an [`Attempt`]; its result is fed back with the same one. A result of an older attempt is
/// ignored. `Failed` that cannot be retried and `Cancelled` lead to `Done` from everywhere.
#[derive(Debug, Clone)]
pub struct RetryingRegistration {
    config: RegistrationConfig,
    state: State,
    attempt: Attempt,
    timeout: Duration,
    delay: Duration,
}

/// Which action a result belongs to; each action has a higher one than those before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(u64);

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Begin; only the first one counts.
    Start,
    /// There is a gateway.
    Connected(Attempt),
    /// The target took the registration.
    Succeeded(Attempt),
    /// The target will never take it.
    Rejected(Attempt),
    /// The target did not take it this time.
    Refused(Attempt),
    /// The call had no answer within its time-out.
    TimedOut(Attempt),
    /// Connecting or the call failed.
    Failed {
        /// Which.
        attempt: Attempt,
        /// Whether another attempt can help.
        retryable: bool,
    },
    /// The delay is over.
    Waited(Attempt),
    /// Nobody wants the registration any more.
    Cancelled,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Get a gateway; answer with `Connected` or `Failed`.
    Connect(Attempt),
    /// Call through the gateway; answer with `Succeeded`, `Rejected`, `Refused`, `TimedOut` or `Failed`.
    Call {
        /// Which.
        attempt: Attempt,
        /// Limit of the call.
        timeout: Duration,
    },
    /// Wait, then answer with `Waited`.
    Wait {
        /// Which.
        attempt: Attempt,
        /// Longest wait; see [`jittered`].
        delay: Duration,
    },
    /// Nothing more.
    Done(End),
}

/// How a registration ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The target took it.
    Succeeded,
    /// The target will never take it.
    Rejected,
    /// An error that no repetition can mend.
    Failed,
    /// Nobody wanted it any more; not a failure.
    Cancelled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Connecting,
    Calling,
    Waiting { then: Next },
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Connect,
    Call,
}

impl RetryingRegistration {
    /// A registration that has not begun.
    #[must_use]
    pub fn new(config: RegistrationConfig) -> Self {
        Self {
            config,
            state: State::Idle,
            attempt: Attempt(0),
            timeout: config.initial_timeout,
            delay: config.initial_delay,
        }
    }

    /// Takes an event; `None` if it changes nothing (a stale result, a second start).
    pub fn on_event(&mut self, event: Event) -> Option<Action> {
        match (self.state, event) {
            (State::Done, _) => None,
            (_, Event::Cancelled) => Some(self.end(End::Cancelled)),
            (State::Idle, Event::Start) => Some(self.connect()),
            (_, Event::Start) => None,
            (_, event) if event.attempt() != Some(self.attempt) => None,
            (
                State::Connecting | State::Calling,
                Event::Failed {
                    retryable: false, ..
                },
            ) => Some(self.end(End::Failed)),
            (State::Connecting, Event::Connected(_)) => Some(self.call()),
            (State::Connecting | State::Calling, Event::Failed { .. }) => {
                Some(self.wait(Next::Connect))
            }
            (State::Calling, Event::Succeeded(_)) => Some(self.end(End::Succeeded)),
            (State::Calling, Event::Rejected(_)) => Some(self.end(End::Rejected)),
            (State::Calling, Event::Refused(_)) => Some(self.wait(Next::Call)),
            (State::Calling, Event::TimedOut(_)) => {
                self.timeout = double(self.timeout, self.config.max_timeout);
                Some(self.call())
            }
            (State::Waiting { then }, Event::Waited(_)) => Some(match then {
                Next::Connect => self.connect(),
                Next::Call => self.call(),
            }),
            _ => None,
        }
    }

    /// Whether there is nothing more to do.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    fn connect(&mut self) -> Action {
        self.state = State::Connecting;
        Action::Connect(self.advance())
    }

    fn call(&mut self) -> Action {
        self.state = State::Calling;
        Action::Call {
            attempt: self.advance(),
            timeout: self.timeout,
        }
    }

    fn wait(&mut self, then: Next) -> Action {
        let delay = self.delay;
        self.state = State::Waiting { then };
        self.timeout = self.config.initial_timeout;
        self.delay = double(delay, self.config.max_delay);
        Action::Wait {
            attempt: self.advance(),
            delay,
        }
    }

    fn end(&mut self, end: End) -> Action {
        self.state = State::Done;
        Action::Done(end)
    }

    fn advance(&mut self) -> Attempt {
        self.attempt = Attempt(self.attempt.0.saturating_add(1));
        self.attempt
    }
}

impl Event {
    fn attempt(self) -> Option<Attempt> {
        match self {
            Self::Connected(attempt)
            | Self::Succeeded(attempt)
            | Self::Rejected(attempt)
            | Self::Refused(attempt)
            | Self::TimedOut(attempt)
            | Self::Failed { attempt, .. }
            | Self::Waited(attempt) => Some(attempt),
            Self::Start | Self::Cancelled => None,
        }
    }
}

/// A delay between half and all of `delay`, so that nodes that failed together do not come back together.
///
/// `fraction` is a random number from 0 to 1; others are brought into that range.
#[must_use]
pub fn jittered(delay: Duration, fraction: f64) -> Duration {
    let fraction = if fraction.is_nan() {
        1.0
    } else {
        fraction.clamp(0.0, 1.0)
    };
    delay / 2 + (delay / 2).mul_f64(fraction)
}

fn double(value: Duration, most: Duration) -> Duration {
    value.saturating_mul(2).min(most)
}

#[cfg(test)]
mod tests {
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
        let Some(Action::Call { attempt, timeout }) = machine.on_event(Event::TimedOut(attempt))
        else {
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
        fn every_action_has_a_new_attempt_and_done_is_the_last(choices in prop::collection::vec(0..8_u8, 0..200)) {
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
}
