//! Where an attempt runs: on a thread of its own, or on the network thread of its node.

use std::{
    any::Any,
    future::Future,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    thread,
};

use thalweg_transport::{BoxFuture, Shutdown, now};
use tokio::runtime::{Builder, Handle};

use super::hold::Hold;
use crate::{
    config::TaskPlacement,
    job::FailureKind,
    shuffle::ShuffleEnvironment,
    task::{Pace, TaskError},
};

/// How an attempt's code and all around it ended.
pub(super) type Outcome = Result<(), TaskError>;

/// An attempt's code and all around it.
pub(super) type Attempt = BoxFuture<'static, Outcome>;

/// A place for an attempt.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// A thread with a current-thread runtime of its own: user code may block and compute for as long as it likes, and
    /// neither a connection's keep-alive nor another task waits for it. Data crosses between this thread and the network
    /// thread buffer by buffer.
    OwnThread,
    /// The network thread, which also carries the data: for code that never keeps it.
    Network {
        /// The network thread's.
        runtime: Handle,
        /// Owner of the node's tasks: what has not ended when the node does is dropped where it waits.
        owner: Shutdown,
    },
}

impl Place {
    /// The place of a task that is light or not.
    pub(super) fn of(placement: TaskPlacement, shuffle: &ShuffleEnvironment, light: bool) -> Self {
        match (placement, shuffle.connections()) {
            (TaskPlacement::Network, Some(connections)) if light => Self::Network {
                runtime: connections.runtime().clone(),
                owner: connections.tasks().clone(),
            },
            _ => Self::OwnThread,
        }
    }

    /// The pace of tasks there.
    pub(super) fn pace(&self) -> Pace {
        match self {
            Self::OwnThread => Pace::alone(),
            Self::Network { .. } => Pace::shared(),
        }
    }

    /// What measures tasks there.
    pub(super) fn hold(&self) -> Option<Arc<Hold>> {
        match self {
            Self::OwnThread => None,
            Self::Network { .. } => Some(Arc::new(Hold::new(now()))),
        }
    }

    /// Runs an attempt. `ended` is called there when it is over and gone, whatever it panics at.
    ///
    /// # Errors
    /// The system gives no thread; the attempt is dropped then, and `ended` is not called.
    pub(super) fn run(
        self,
        name: String,
        hold: Option<Arc<Hold>>,
        attempt: Attempt,
        ended: impl FnOnce(Outcome) + Send + 'static,
    ) -> io::Result<()> {
        let attempt = Contained {
            attempt: Some(attempt),
            hold,
        };
        match self {
            Self::OwnThread => {
                let runtime = Builder::new_current_thread().enable_all().build()?;
                let run = move || {
                    let outcome = runtime.block_on(attempt);
                    // What user code has left on the runtime must not hold the ending up.
                    runtime.shutdown_background();
                    ended(outcome);
                };
                thread::Builder::new().name(name).spawn(run).map(drop)
            }
            Self::Network { runtime, owner } => {
                let token = owner.token().clone();
                let ending = OnEnd(Some(ended));
                let run = async move {
                    let outcome = token.run_until_cancelled_owned(attempt).await;
                    ending.tell(outcome.unwrap_or_else(|| Err(node_ended())));
                };
                drop(owner.spawn_on(run, &runtime));
                Ok(())
            }
        }
    }
}

/// An attempt whose panics are its failure, at whatever point of it or of its drop they come.
struct Contained {
    attempt: Option<Attempt>,
    hold: Option<Arc<Hold>>,
}

impl Future for Contained {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let Self { attempt, hold } = &mut *self;
        let Some(hold) = hold else {
            return step(attempt, cx);
        };
        hold.begin(now());
        let polled = step(attempt, cx);
        hold.end(now());
        polled
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        if let Err(error) = discard(&mut self.attempt) {
            tracing::warn!(%error, "a task panicked while it was dropped");
        }
    }
}

fn step(attempt: &mut Option<Attempt>, cx: &mut Context<'_>) -> Poll<Outcome> {
    let Some(running) = attempt else {
        return Poll::Pending;
    };
    let polled = catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx)));
    let outcome = match polled {
        Ok(Poll::Pending) => return Poll::Pending,
        Ok(Poll::Ready(outcome)) => outcome,
        Err(panic) => Err(panicked(FailureKind::Internal, &*panic)),
    };
    let discarded = discard(attempt);
    Poll::Ready(outcome.and(discarded))
}

fn discard(attempt: &mut Option<Attempt>) -> Outcome {
    let attempt = attempt.take();
    catch_unwind(AssertUnwindSafe(|| drop(attempt)))
        .map_err(|panic| panicked(FailureKind::Internal, &*panic))
}

/// Tells the end of an attempt, also when it is dropped with its runtime.
struct OnEnd<F: FnOnce(Outcome)>(Option<F>);

impl<F: FnOnce(Outcome)> OnEnd<F> {
    fn tell(mut self, outcome: Outcome) {
        if let Some(ended) = self.0.take() {
            ended(outcome);
        }
    }
}

impl<F: FnOnce(Outcome)> Drop for OnEnd<F> {
    fn drop(&mut self) {
        if let Some(ended) = self.0.take() {
            ended(Err(node_ended()));
        }
    }
}

/// The failure of a task that panicked.
pub(super) fn panicked(kind: FailureKind, panic: &(dyn Any + Send)) -> TaskError {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("something that is no text");
    TaskError::of_kind(kind, format!("the task panicked: {text}"))
}

fn node_ended() -> TaskError {
    let text = "the node ended before the task on its network thread did";
    TaskError::of_kind(FailureKind::TaskManagerLost, text)
}
