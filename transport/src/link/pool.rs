//! The shared connections: feeds the registry, and does what it says.

mod report;
mod state;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Waker},
};

use report::Report;
use state::{AnswerSender, Effect, Found, Known, PoolEvent, Scope, State};
use tokio::{runtime::Handle, sync::oneshot, time::timeout};

use super::{Local, dial::Dial, lease::Claim};
use crate::{
    addr::ConnectionId,
    connections::{ConnectionSnapshot, Lease},
    error::ErrorCode,
    handler::TransportError,
    proto::registry::{Event, LinkId, Refused, Rules, WaiterId},
    shutdown::Shutdown,
    stream::BoxFuture,
};

/// The connections that a node dialled.
///
/// Decisions are made under one lock that is held for no longer than a few map operations; wakers, drops and calls of
/// the backend come after it. So any thread may use it, on any runtime or none.
pub(crate) struct Pool {
    local: Arc<Local>,
    runtime: Handle,
    tasks: Shutdown,
    state: Mutex<State>,
}

impl Pool {
    /// Dials run on `runtime`, owned by `tasks`.
    pub(crate) fn new(
        local: Arc<Local>,
        dialler: Arc<dyn Dial>,
        runtime: Handle,
        tasks: Shutdown,
    ) -> Self {
        let rules = Rules {
            reuse: local.config.reuse_connections,
            max_age: local.config.max_connection_age,
        };
        Self {
            local,
            runtime,
            tasks,
            state: Mutex::new(State::new(rules, dialler)),
        }
    }

    /// Gets a reference to the connection; dropping the future gives the claim up.
    pub(crate) async fn acquire(
        self: Arc<Self>,
        connection: ConnectionId,
    ) -> Result<Lease, TransportError> {
        let (found, outcome) = self.acquire_from(Scope::Address, &connection).await;
        let is_meant = match &outcome {
            _ if found == Found::Own => true,
            Ok(lease) => {
                let peer = connection.peer.as_ref();
                peer.is_none_or(|peer| *peer == lease.peer().id)
            }
            Err(error) => error.code() != ErrorCode::IDENTITY_MISMATCH,
        };
        if is_meant {
            return outcome;
        }
        // A shared connection led, or was to lead, to a node that is not meant here.
        drop(outcome);
        self.acquire_from(Scope::Exact, &connection).await.1
    }

    async fn acquire_from(
        self: &Arc<Self>,
        scope: Scope,
        connection: &ConnectionId,
    ) -> (Found, Result<Lease, TransportError>) {
        let (sender, answer) = oneshot::channel();
        let (waiter, found) = self.enter(scope, connection, sender);
        let waiting = Waiting {
            waiter,
            pool: Arc::clone(self),
        };
        let outcome = answer.await;
        drop(waiting);
        let local = |message, code| TransportError::Local {
            peer: connection.to_string(),
            message,
            retryable: false,
            code,
        };
        let outcome = match outcome {
            Ok(Ok(claim)) => Ok(Lease::new(Box::new(claim))),
            Ok(Err(Refused::Dial(error))) => Err(error),
            Ok(Err(Refused::ShutDown)) => {
                Err(local(self.local.farewell(), ErrorCode::SHUTTING_DOWN))
            }
            Err(_) => Err(local(
                "the registry gave no answer".to_owned(),
                ErrorCode::INTERNAL,
            )),
        };
        (found, outcome)
    }

    pub(crate) fn close_unused(self: &Arc<Self>, connection: &ConnectionId) {
        let connection = self.lock().shared(connection).clone();
        self.event(Event::CloseUnused { connection });
    }

    pub(crate) fn active(&self) -> usize {
        self.lock().active()
    }

    pub(crate) fn snapshot(&self) -> Vec<ConnectionSnapshot> {
        let known: Vec<_> = self.lock().known().collect();
        known
            .iter()
            .map(|Known { live, draining, .. }| ConnectionSnapshot {
                peer: live.peer().clone(),
                dialled: true,
                draining: draining.is_cancelled(),
                stats: live.stats(),
            })
            .collect()
    }

    /// Answers every waiter, cancels dials, closes connections, and lets the backend go.
    pub(crate) fn shut_down(self: &Arc<Self>) {
        self.event(Event::ShutDown);
        let dialler = self.lock().take_dialler();
        drop(dialler);
    }

    /// Keeps a reference until a stream is delivered, for no longer than a peer may take to read.
    pub(super) fn linger<R: Send + 'static>(
        &self,
        mut delivered: BoxFuture<'static, ()>,
        reference: R,
    ) {
        let mut cx = Context::from_waker(Waker::noop());
        if delivered.as_mut().poll(&mut cx).is_ready() {
            return;
        }
        let (limit, tasks) = (self.local.config.write_timeout, self.tasks.clone());
        let lingering = async move {
            let delivered = timeout(limit, delivered);
            // An error means that the peer does not read: it loses the rest.
            let _ = tasks.token().run_until_cancelled(delivered).await;
            // What the reference keeps is closed when it is gone.
            drop(reference);
        };
        self.tasks.spawn_on(lingering, &self.runtime);
    }

    pub(super) fn release(self: &Arc<Self>, link: LinkId) {
        self.event(Event::Released { link });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(
        self: &Arc<Self>,
        scope: Scope,
        connection: &ConnectionId,
        answer: AnswerSender,
    ) -> (WaiterId, Found) {
        let cached = self.lock().cached(scope, connection);
        let ended = cached.filter(|(_, live)| live.close_reason().is_some());
        let mut effects = vec![];
        let mut state = self.lock();
        if let Some((link, _)) = ended {
            effects.extend(state.on_event(Event::Died { link }));
        }
        let (waiter, found) = state.enter(scope, connection, answer, &mut effects);
        drop(state);
        self.run(effects);
        (waiter, found)
    }

    fn event(self: &Arc<Self>, event: PoolEvent) {
        let effects = self.lock().on_event(event);
        self.run(effects);
    }

    fn run(self: &Arc<Self>, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Answer(sender, outcome) => {
                    let outcome = outcome.map(|(link, Known { live, draining, .. })| {
                        Claim::new(Arc::clone(self), link, live, draining)
                    });
                    // A waiter that has just left drops the claim, which releases it.
                    drop(sender.send(outcome));
                }
                Effect::Cancel(token) => token.cancel(),
                Effect::Close(known, why) => report::close(&self.local, &known, why),
                Effect::Drop(_) => {}
                Effect::Dial {
                    link,
                    to,
                    dialler,
                    cancelled,
                } => {
                    let task = Report::new(Arc::clone(self), link, to).dial(dialler, cancelled);
                    self.tasks.spawn_on(task, &self.runtime);
                }
            }
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("active", &self.active())
            .finish_non_exhaustive()
    }
}

/// A pending acquire; says that the caller is gone if it is dropped first.
struct Waiting {
    pool: Arc<Pool>,
    waiter: WaiterId,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let waiter = self.waiter;
        self.pool.event(Event::CallerGone { waiter });
    }
}
