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
/// One that takes over from registrations that came to nothing goes from Idle to Waiting.
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
    Idle { waits: bool },
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
        Self::after_failures(config, 0)
    }

    /// A registration that has not begun and takes over from so many that came to nothing: if there were any, it first
    /// waits as after the last of as many failures.
    #[must_use]
    pub fn after_failures(config: RegistrationConfig, failures: u32) -> Self {
        let mut delay = config.initial_delay;
        for _ in 1..failures {
            if delay >= config.max_delay {
                break;
            }
            delay = double(delay, config.max_delay);
        }
        Self {
            config,
            state: State::Idle {
                waits: failures > 0,
            },
            attempt: Attempt(0),
            timeout: config.initial_timeout,
            delay,
        }
    }

    /// Takes an event; `None` if it changes nothing (a stale result, a second start).
    pub fn on_event(&mut self, event: Event) -> Option<Action> {
        match (self.state, event) {
            (State::Done, _) => None,
            (_, Event::Cancelled) => Some(self.end(End::Cancelled)),
            (State::Idle { waits: true }, Event::Start) => Some(self.wait(Next::Connect)),
            (State::Idle { waits: false }, Event::Start) => Some(self.connect()),
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
mod tests;
