//! Runs a registration with real connects and calls.

use std::{fmt, future::Future, time::Duration};

use super::retrying::{
    Action, Attempt, End, Event, RegistrationConfig, RetryingRegistration, jittered,
};

/// What the target answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer<S, R> {
    /// It took the registration.
    Success(S),
    /// It will never take it.
    Rejected(R),
    /// It did not take it this time; the text says why.
    Refused(String),
}

/// Why connecting or a call gave no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptError<E> {
    /// Another attempt may succeed.
    Retry(E),
    /// No attempt can succeed: an address that is none, an identity that is refused.
    Fatal(E),
    /// The time-out of the call passed; [`run`] keeps it too, so a call need not.
    TimedOut,
}

/// How a registration ended that nobody cancelled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<G, S, R, E> {
    /// The target took it.
    Registered {
        /// The gateway that was used.
        gateway: G,
        /// What the target said.
        success: S,
    },
    /// The target will never take it.
    Rejected(R),
    /// An error that no attempt can mend.
    Failed(E),
}

/// At whom to register.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// Its name in the log.
    pub name: &'a str,
    /// Registrations in a row that it took and that came to nothing: this one waits before it begins, as after so many
    /// failed attempts.
    pub failures: u32,
}

impl<'a> Target<'a> {
    /// A target that nothing bad is known of.
    #[must_use]
    pub fn new(name: &'a str) -> Self {
        Self { name, failures: 0 }
    }
}

/// Connects and calls until there is an outcome.
///
/// `call` gets the gateway and the time-out of the attempt; a call that takes longer is dropped, so it must be cancel-safe
/// and the registration idempotent at the target. A call that reports a time-out of its own before that is not repeated
/// before that either. `random` gives numbers from 0 to 1 that spread the delays. `connect` keeps its own time-out: a dial
/// has a budget of its own. A target that never answers is asked for ever: put a time-out around.
///
/// # Cancel safety
/// Cancel-safe: dropping it is the cancellation. The attempt in flight is dropped with it, and no answer is reported.
pub async fn run<G, S, R, E, C, CF, K, KF>(
    target: Target<'_>,
    config: RegistrationConfig,
    mut connect: C,
    mut call: K,
    mut random: impl FnMut() -> f64,
) -> Outcome<G, S, R, E>
where
    G: Clone,
    E: fmt::Display,
    C: FnMut() -> CF,
    CF: Future<Output = Result<G, AttemptError<E>>>,
    K: FnMut(G, Duration) -> KF,
    KF: Future<Output = Result<Answer<S, R>, AttemptError<E>>>,
{
    let mut run = Run {
        target: target.name,
        machine: RetryingRegistration::after_failures(config, target.failures),
        gateway: None,
        outcome: None,
    };
    let mut event = Event::Start;
    loop {
        let action = run
            .machine
            .on_event(event)
            .expect("one action is worked on at a time, so its result is never stale");
        event = match action {
            Action::Connect(attempt) => {
                run.gateway = None;
                let result = connect().await;
                run.connected(attempt, result)
            }
            Action::Call { attempt, timeout } => {
                let gateway = run
                    .gateway
                    .clone()
                    .expect("the machine calls after it has connected");
                let result = limited(timeout, call(gateway, timeout)).await;
                run.answered(attempt, result)
            }
            Action::Wait { attempt, delay } => {
                let delay = jittered(delay, random());
                tracing::debug!(target_name = target.name, ?delay, "registration waits");
                tokio::time::sleep(delay).await;
                Event::Waited(attempt)
            }
            Action::Done(End::Succeeded | End::Rejected | End::Failed | End::Cancelled) => {
                return run
                    .outcome
                    .expect("the event that ended the machine left its outcome");
            }
        };
    }
}

/// The result of a call, or that its time is over; that is never told early, because the next attempt follows at once.
async fn limited<T, E>(
    timeout: Duration,
    call: impl Future<Output = Result<T, AttemptError<E>>>,
) -> Result<T, AttemptError<E>> {
    let end = tokio::time::sleep(timeout);
    tokio::pin!(end);
    tokio::select! {
        biased;
        result = call => match result {
            Err(AttemptError::TimedOut) => {}
            result => return result,
        },
        () = &mut end => return Err(AttemptError::TimedOut),
    }
    end.await;
    Err(AttemptError::TimedOut)
}

struct Run<'a, G, S, R, E> {
    target: &'a str,
    machine: RetryingRegistration,
    gateway: Option<G>,
    outcome: Option<Outcome<G, S, R, E>>,
}

impl<G: Clone, S, R, E: fmt::Display> Run<'_, G, S, R, E> {
    fn connected(&mut self, attempt: Attempt, result: Result<G, AttemptError<E>>) -> Event {
        match result {
            Ok(gateway) => {
                self.gateway = Some(gateway);
                Event::Connected(attempt)
            }
            // While connecting, a time-out is a failure like others: only calls have one of their own.
            Err(AttemptError::TimedOut) => {
                tracing::info!(target_name = self.target, "connecting timed out");
                Event::Failed {
                    attempt,
                    retryable: true,
                }
            }
            Err(error) => self.failed(attempt, error),
        }
    }

    fn answered(
        &mut self,
        attempt: Attempt,
        result: Result<Answer<S, R>, AttemptError<E>>,
    ) -> Event {
        match result {
            Ok(Answer::Success(success)) => {
                self.outcome = self
                    .gateway
                    .take()
                    .map(|gateway| Outcome::Registered { gateway, success });
                Event::Succeeded(attempt)
            }
            Ok(Answer::Rejected(rejection)) => {
                self.outcome = Some(Outcome::Rejected(rejection));
                Event::Rejected(attempt)
            }
            Ok(Answer::Refused(reason)) => {
                tracing::info!(target_name = self.target, %reason, "registration refused, trying again");
                Event::Refused(attempt)
            }
            Err(error) => self.failed(attempt, error),
        }
    }

    fn failed(&mut self, attempt: Attempt, error: AttemptError<E>) -> Event {
        match error {
            AttemptError::TimedOut => {
                tracing::debug!(target_name = self.target, "registration timed out");
                Event::TimedOut(attempt)
            }
            AttemptError::Retry(error) => {
                tracing::info!(target_name = self.target, %error, "registration failed, trying again");
                Event::Failed {
                    attempt,
                    retryable: true,
                }
            }
            AttemptError::Fatal(error) => {
                self.outcome = Some(Outcome::Failed(error));
                Event::Failed {
                    attempt,
                    retryable: false,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::{Cell, RefCell},
        collections::VecDeque,
        future::pending,
    };

    use super::*;

    type Call = Result<Answer<&'static str, &'static str>, AttemptError<&'static str>>;
    type Ended = Outcome<u32, &'static str, &'static str, &'static str>;

    /// Results in order; `None` is one that never comes.
    struct Script {
        connects: RefCell<VecDeque<Result<u32, AttemptError<&'static str>>>>,
        calls: RefCell<VecDeque<Option<Call>>>,
        made: Cell<u32>,
    }

    impl Script {
        fn new(
            connects: impl IntoIterator<Item = Result<u32, AttemptError<&'static str>>>,
            calls: impl IntoIterator<Item = Option<Call>>,
        ) -> Self {
            Self {
                connects: RefCell::new(connects.into_iter().collect()),
                calls: RefCell::new(calls.into_iter().collect()),
                made: Cell::new(0),
            }
        }

        async fn run(&self) -> (Ended, Duration) {
            self.run_with(Target::new("leader"), 1.0).await
        }

        async fn run_with(&self, target: Target<'_>, fraction: f64) -> (Ended, Duration) {
            let began = thalweg_transport::now();
            let connect = || {
                let result = self.connects.borrow_mut().pop_front();
                async move { result.expect("a scripted connect") }
            };
            let call = |_gateway, _timeout| {
                self.made.set(self.made.get() + 1);
                let result = self.calls.borrow_mut().pop_front();
                async move {
                    match result.expect("a scripted call") {
                        Some(result) => result,
                        None => pending().await,
                    }
                }
            };
            let limit = Duration::from_secs(60);
            let config = RegistrationConfig::default();
            let run = run(target, config, connect, call, || fraction);
            let outcome = tokio::time::timeout(limit, run).await.expect("in time");
            (outcome, thalweg_transport::now() - began)
        }
    }

    fn success() -> Option<Call> {
        Some(Ok(Answer::Success("welcome")))
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_connect_is_repeated_after_the_delay() {
        let script = Script::new(
            [
                Err(AttemptError::Retry("down")),
                Err(AttemptError::TimedOut),
                Ok(7),
            ],
            [success()],
        );
        let (outcome, took) = script.run().await;
        assert!(matches!(
            outcome,
            Outcome::Registered {
                gateway: 7,
                success: "welcome"
            }
        ));
        assert_eq!(took.as_millis(), 300);
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_that_cannot_be_mended_fails_at_once() {
        let script = Script::new([Err(AttemptError::Fatal("no address"))], []);
        assert_eq!(script.run().await.0, Outcome::Failed("no address"));
    }

    #[tokio::test(start_paused = true)]
    async fn two_timeouts_take_three_initial_timeouts() {
        let script = Script::new([Ok(1)], [None, None, success()]);
        let (outcome, took) = script.run().await;
        assert!(matches!(outcome, Outcome::Registered { .. }));
        assert!(took >= Duration::from_millis(300) && took < Duration::from_millis(310));
    }

    #[tokio::test(start_paused = true)]
    async fn timeouts_that_the_call_reports_early_do_not_hasten_the_next_attempt() {
        let early = || Some(Err(AttemptError::TimedOut));
        let script = Script::new([Ok(1)], [early(), early(), early(), success()]);
        let (outcome, took) = script.run().await;
        assert!(matches!(outcome, Outcome::Registered { .. }));
        assert_eq!(took.as_millis(), 100 + 200 + 400);
    }

    #[tokio::test(start_paused = true)]
    async fn delays_are_spread_by_random_numbers_over_their_upper_half() {
        for (fraction, expected) in [(0.0, 150), (0.5, 225), (1.0, 300)] {
            let down = || Err(AttemptError::Retry("down"));
            let script = Script::new([down(), down(), Ok(7)], [success()]);
            let (_, took) = script.run_with(Target::new("leader"), fraction).await;
            assert_eq!(took.as_millis(), expected, "{fraction}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn registrations_that_came_to_nothing_delay_the_next_one() {
        for (failures, expected) in [(0, 0), (1, 100), (3, 400), (200, 10_000)] {
            let script = Script::new([Ok(7)], [success()]);
            let name = "leader";
            let (_, took) = script.run_with(Target { name, failures }, 1.0).await;
            assert_eq!(took.as_millis(), expected, "{failures}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_waits_and_is_repeated_on_the_same_gateway() {
        let refused = Some(Ok(Answer::Refused("not yet".to_owned())));
        let script = Script::new([Ok(1)], [refused, success()]);
        let (outcome, took) = script.run().await;
        assert!(matches!(outcome, Outcome::Registered { gateway: 1, .. }));
        assert_eq!(took.as_millis(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rejection_ends_it() {
        let script = Script::new([Ok(1)], [Some(Ok(Answer::Rejected("wrong leader")))]);
        assert_eq!(script.run().await.0, Outcome::Rejected("wrong leader"));
        assert_eq!(script.made.get(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_call_waits_and_connects_anew() {
        let script = Script::new(
            [Ok(1), Ok(2)],
            [Some(Err(AttemptError::Retry("lost"))), success()],
        );
        let (outcome, took) = script.run().await;
        assert!(matches!(outcome, Outcome::Registered { gateway: 2, .. }));
        assert_eq!(took.as_millis(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn no_attempt_follows_a_cancellation() {
        let script = Script::new([Ok(1)], [None, None, None]);
        let cancelled = tokio::time::timeout(Duration::from_millis(150), script.run()).await;
        assert!(cancelled.is_err());
        tokio::time::advance(Duration::from_secs(120)).await;
        assert_eq!(script.made.get(), 2);
    }
}
