//! The task of an endpoint: its main thread.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering},
};

use thalweg_transport::BoxFuture;
use tokio::sync::watch;

use super::{
    context::Context,
    core::{Core, Message, Work},
    endpoint::Endpoint,
    error::HandlerError,
    lifecycle::{Action, Admission, Control, Lifecycle, State},
    main_thread::Entered,
    responder::{contain, panic_message},
    termination::TerminationError,
};

/// Owns an endpoint's state and handles its messages, one at a time.
pub(super) struct Runner<E: Endpoint> {
    state: E,
    cx: Context<E>,
    core: Arc<Core<E>>,
    lifecycle: Lifecycle,
    /// The answer of `on_stop`, while it is awaited.
    stopping: Option<BoxFuture<'static, Result<(), HandlerError>>>,
}

type Ended = Result<(), TerminationError>;

impl<E: Endpoint> Runner<E> {
    pub(super) fn new(state: E, core: Arc<Core<E>>) -> Self {
        Self {
            state,
            cx: Context::new(Arc::clone(&core)),
            core,
            lifecycle: Lifecycle::new(),
            stopping: None,
        }
    }

    /// Runs to the endpoint's end, then announces the result, when nothing of the endpoint is left and its name is
    /// free again.
    pub(super) async fn run(mut self, announce: watch::Sender<Option<Ended>>) {
        let ended = self.serve().await;
        let core = Arc::clone(&self.core);
        // User code runs in drops, too; a panic there must not keep the result back.
        let dropped = catch_unwind(AssertUnwindSafe(move || drop(self)));
        let ended = match dropped {
            Err(panic) if ended.is_ok() => Err(crashed(&core.name, &*panic)),
            _ => ended,
        };
        if let Err(TerminationError::Crashed { endpoint, cause }) = &ended {
            tracing::error!(endpoint, cause, "endpoint crashed: its service fails");
            core.service.fail(endpoint, cause);
        }
        announce.send_replace(Some(ended));
    }

    async fn serve(&mut self) -> Ended {
        loop {
            // The mailbox is not part of tokio's budget: without this a busy endpoint never gives way.
            tokio::task::coop::consume_budget().await;
            let message = tokio::select! {
                biased;
                () = self.core.killed.cancelled() => {
                    self.lifecycle.on_crash();
                    return Err(self.core.kill_cause.get().cloned().unwrap_or_else(|| {
                        TerminationError::NotStopped { endpoint: self.core.name.to_string() }
                    }));
                }
                result = stopped(&mut self.stopping) => {
                    self.lifecycle.on_stopped();
                    return result.map_err(|cause| TerminationError::StopFailed {
                        endpoint: self.core.name.to_string(),
                        cause,
                    });
                }
                message = self.core.mailbox.recv() => message,
            };
            let step = match message {
                Message::Control(control) => self.control(control),
                Message::Work(work) => self.work(work),
            };
            if let Some(ended) = step {
                return ended;
            }
        }
    }

    fn control(&mut self, control: Control) -> Option<Ended> {
        match self.lifecycle.on_control(control) {
            Action::Nothing => {
                let started = self.lifecycle.state() == State::Started;
                self.core.running.store(started, Ordering::Release);
                None
            }
            Action::RunOnStart => self.start(),
            Action::RunOnStop => self.stop(),
            Action::Finish => Some(Ok(())),
            Action::Invalid => {
                tracing::warn!(endpoint = %self.core.name, ?control, "endpoint is ending: message ignored");
                None
            }
        }
    }

    fn start(&mut self) -> Option<Ended> {
        let result = match self.enter(Endpoint::on_start) {
            Ok(result) => result,
            Err(ended) => return Some(ended),
        };
        self.lifecycle.on_started(result.is_ok());
        match result {
            Ok(()) => {
                self.core.running.store(true, Ordering::Release);
                None
            }
            Err(cause) => Some(Err(TerminationError::StartFailed {
                endpoint: self.core.name.to_string(),
                cause,
            })),
        }
    }

    fn stop(&mut self) -> Option<Ended> {
        self.core.timers.cancel();
        self.core.running.store(false, Ordering::Release);
        match self.enter(Endpoint::on_stop) {
            Ok(answer) => {
                self.stopping = Some(Box::pin(contain(answer.into_future())));
                None
            }
            Err(ended) => Some(ended),
        }
    }

    fn work(&mut self, work: Box<dyn Work<E>>) -> Option<Ended> {
        let refusal = match self.lifecycle.admission() {
            Admission::Process => {
                return self.enter(|state, cx| work.run(state, cx)).err();
            }
            Admission::NotStarted => self.core.not_started(),
            Admission::Unreachable => self.core.unreachable(),
        };
        work.refuse(refusal);
        None
    }

    /// Runs the endpoint's code; a panic is the endpoint's end.
    fn enter<R>(&mut self, code: impl FnOnce(&mut E, &mut Context<E>) -> R) -> Result<R, Ended> {
        let (state, cx) = (&mut self.state, &mut self.cx);
        let entered = Entered::new(self.core.id);
        let result = catch_unwind(AssertUnwindSafe(|| code(state, cx)));
        drop(entered);
        result.map_err(|panic| Err(crashed(&self.core.name, &*panic)))
    }
}

/// Also when the task is dropped with its runtime, even before it began.
impl<E: Endpoint> Drop for Runner<E> {
    fn drop(&mut self) {
        let core = &self.core;
        core.running.store(false, Ordering::Release);
        core.timers.cancel();
        core.tasks.cancel();
        for message in core.mailbox.close() {
            if let Message::Work(work) = message {
                work.refuse(core.unreachable());
            }
        }
        core.service.on_ended(core.id, &core.name);
    }
}

async fn stopped(
    stopping: &mut Option<BoxFuture<'static, Result<(), HandlerError>>>,
) -> Result<(), HandlerError> {
    match stopping {
        Some(answer) => answer.await,
        None => std::future::pending().await,
    }
}

fn crashed(endpoint: &str, panic: &(dyn std::any::Any + Send)) -> TerminationError {
    TerminationError::Crashed {
        endpoint: endpoint.to_owned(),
        cause: panic_message(panic),
    }
}
