//! The shared connections: feeds the registry, and does what it says.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{runtime::Handle, sync::oneshot};
use tokio_util::sync::CancellationToken;

use super::{Local, dial::Dial, lease::Claim, live::LiveConnection};
use crate::{
    addr::ConnectionId,
    clock::now,
    connections::{ConnectionSnapshot, Lease},
    error::{ConnectError, ErrorCode},
    handler::TransportError,
    proto::registry::{Action, CloseCause, Event, LinkId, Refused, Registry, WaiterId},
    shutdown::Shutdown,
    warnings::FailureClass,
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
        let state = State {
            registry: Registry::new(local.config.reuse_connections),
            dialler: Some(dialler),
            dials: BTreeMap::new(),
            live: BTreeMap::new(),
            waiters: BTreeMap::new(),
            next_waiter: 0,
        };
        Self {
            local,
            runtime,
            tasks,
            state: Mutex::new(state),
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
        let connection = self.lock().registry.shared(connection).clone();
        self.event(Event::CloseUnused { connection });
    }

    pub(crate) fn active(&self) -> usize {
        self.lock().registry.active()
    }

    pub(crate) fn snapshot(&self) -> Vec<ConnectionSnapshot> {
        let live: Vec<_> = self.lock().live.values().cloned().collect();
        live.iter()
            .map(|connection| ConnectionSnapshot {
                peer: connection.peer().clone(),
                dialled: true,
                stats: connection.stats(),
            })
            .collect()
    }

    /// Answers every waiter, cancels dials, closes connections, and lets the backend go.
    pub(crate) fn shut_down(self: &Arc<Self>) {
        self.event(Event::ShutDown);
        let dialler = self.lock().dialler.take();
        drop(dialler);
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
        let waiter = WaiterId(state.next_waiter);
        state.next_waiter += 1;
        state.waiters.insert(waiter, answer);
        if let Some((link, _)) = ended {
            effects.extend(state.on_event(Event::Died { link }));
        }
        let key = state.key(scope, connection).clone();
        let found = if key == *connection {
            Found::Own
        } else {
            Found::Shared
        };
        let connection = key;
        effects.extend(state.on_event(Event::Acquire { waiter, connection }));
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
                    let outcome =
                        outcome.map(|(link, live)| Claim::new(Arc::clone(self), link, live));
                    // A waiter that has just left drops the claim, which releases it.
                    drop(sender.send(outcome));
                }
                Effect::Cancel(dial) => dial.cancel(),
                Effect::Close(live, why) => self.close(&*live, why),
                Effect::Drop(_) => {}
                Effect::Dial {
                    link,
                    to,
                    dialler,
                    cancelled,
                } => {
                    let report = Report {
                        pool: Arc::clone(self),
                        link,
                        to,
                        due: true,
                    };
                    let task = report.dial(dialler, cancelled);
                    self.tasks.spawn_on(task, &self.runtime);
                }
            }
        }
    }

    fn close(&self, live: &dyn LiveConnection, why: CloseCause) {
        tracing::debug!(peer = %live.peer(), ?why, "closing a dialled connection");
        match why {
            CloseCause::ShutDown => live.close(ErrorCode::SHUTTING_DOWN, &self.local.farewell()),
            CloseCause::Unused => live.close(ErrorCode::NO_ERROR, "nobody uses the connection"),
            CloseCause::Unwanted => live.close(
                ErrorCode::CANCELLED,
                "the caller left before the connection was there",
            ),
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

/// Which connections an acquire may get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Its own, or one of the same address; see [`Registry::shared`].
    Address,
    /// Its own alone.
    Exact,
}

/// Under which ConnectionId an acquire waits: under its own, where the dial itself makes sure who is there, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Own,
    Shared,
}

type PoolEvent = Event<TransportError>;
type AnswerSender = oneshot::Sender<Result<Claim, Refused<TransportError>>>;

struct State {
    registry: Registry,
    /// Gone after the shutdown.
    dialler: Option<Arc<dyn Dial>>,
    dials: BTreeMap<LinkId, CancellationToken>,
    live: BTreeMap<LinkId, Arc<dyn LiveConnection>>,
    waiters: BTreeMap<WaiterId, AnswerSender>,
    next_waiter: u64,
}

impl State {
    fn cached(
        &self,
        scope: Scope,
        connection: &ConnectionId,
    ) -> Option<(LinkId, Arc<dyn LiveConnection>)> {
        let link = self.registry.cached(self.key(scope, connection))?;
        Some((link, Arc::clone(self.live.get(&link)?)))
    }

    fn key<'a>(&'a self, scope: Scope, connection: &'a ConnectionId) -> &'a ConnectionId {
        match scope {
            Scope::Address => self.registry.shared(connection),
            Scope::Exact => connection,
        }
    }

    /// Feeds the registry and collects what is to be done without the lock.
    fn on_event(&mut self, event: PoolEvent) -> Vec<Effect> {
        let mut effects = vec![];
        match &event {
            Event::CallerGone { waiter } => {
                effects.extend(
                    self.waiters
                        .remove(waiter)
                        .map(|sender| Effect::Drop(Dropped::Waiter(sender))),
                );
            }
            Event::DialFailed { link, .. } | Event::DialSucceeded { link } => {
                self.dials.remove(link);
            }
            Event::Died { link } => {
                effects.extend(
                    self.live
                        .remove(link)
                        .map(|live| Effect::Drop(Dropped::Live(live))),
                );
            }
            _ => {}
        }
        match self.registry.on_event(event) {
            Ok(actions) => effects.extend(actions.into_iter().filter_map(|a| self.effect(a))),
            Err(misuse) => tracing::error!(error = %misuse, "the connection registry was misused"),
        }
        effects
    }

    fn effect(&mut self, action: Action<TransportError>) -> Option<Effect> {
        match action {
            Action::Answer { waiter, outcome } => {
                let sender = self.waiters.remove(&waiter)?;
                let outcome = match outcome {
                    Ok(link) => Ok((link, Arc::clone(self.live.get(&link)?))),
                    Err(refused) => Err(refused),
                };
                Some(Effect::Answer(sender, outcome))
            }
            Action::CancelDial { link } => self.dials.remove(&link).map(Effect::Cancel),
            Action::Close { link, why } => {
                let live = self.live.remove(&link)?;
                Some(Effect::Close(live, why))
            }
            Action::StartDial { link, connection } => {
                let cancelled = CancellationToken::new();
                self.dials.insert(link, cancelled.clone());
                Some(Effect::Dial {
                    link,
                    to: connection,
                    dialler: Arc::clone(self.dialler.as_ref()?),
                    cancelled,
                })
            }
        }
    }
}

/// What is done after the lock: each may wake or drop code of others, which may come back here.
enum Effect {
    Answer(
        AnswerSender,
        Result<(LinkId, Arc<dyn LiveConnection>), Refused<TransportError>>,
    ),
    Cancel(CancellationToken),
    Close(Arc<dyn LiveConnection>, CloseCause),
    Dial {
        link: LinkId,
        to: ConnectionId,
        dialler: Arc<dyn Dial>,
        cancelled: CancellationToken,
    },
    Drop(#[expect(dead_code, reason = "held until the lock is free")] Dropped),
}

#[expect(dead_code, reason = "held until the lock is free")]
enum Dropped {
    Live(Arc<dyn LiveConnection>),
    Waiter(AnswerSender),
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

/// The one report that a dial owes, also if its task is dropped or panics.
struct Report {
    pool: Arc<Pool>,
    link: LinkId,
    to: ConnectionId,
    due: bool,
}

impl Report {
    /// The task of a dialled connection: dials, reports, and watches for the connection's end.
    async fn dial(mut self, dialler: Arc<dyn Dial>, cancelled: CancellationToken) {
        let dial = dialler.dial(self.to.clone());
        drop(dialler);
        let outcome = cancelled.run_until_cancelled(dial).await;
        let link = self.link;
        match outcome {
            None => self.failed(&ConnectError::Cancelled {
                address: self.to.address.clone(),
            }),
            Some(Err(error)) => {
                if let Some(held_back) = self.pool.local.warnings.due(now(), FailureClass::Dial) {
                    let error = crate::handler::chain(&error);
                    tracing::warn!(peer = %self.to, error, held_back, "could not connect");
                }
                self.failed(&error);
            }
            Some(Ok(live)) => {
                tracing::debug!(peer = %live.peer(), agreement = ?live.agreement(), "connected");
                self.due = false;
                self.pool.lock().live.insert(link, Arc::clone(&live));
                self.pool.event(Event::DialSucceeded { link });
                let ended = live.watch().await;
                tracing::debug!(peer = %live.peer(), reason = %ended, "dialled connection ended");
                self.pool.event(Event::Died { link });
            }
        }
    }

    fn failed(&mut self, error: &ConnectError) {
        self.due = false;
        let error = TransportError::from_connect(&self.to, error);
        let link = self.link;
        self.pool.event(Event::DialFailed { link, error });
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if self.due {
            self.failed(&ConnectError::Cancelled {
                address: self.to.address.clone(),
            });
        }
    }
}
