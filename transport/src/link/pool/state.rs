//! What the pool keeps under its lock.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{
    addr::ConnectionId,
    clock::now,
    handler::TransportError,
    link::{dial::Dial, lease::Claim, live::LiveConnection},
    proto::registry::{Action, CloseCause, Event, LinkId, Refused, Registry, Rules, WaiterId},
};

/// Which connections an acquire may get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Its own, or one of the same address; see [`Registry::shared`].
    Address,
    /// Its own alone.
    Exact,
}

/// Under which ConnectionId an acquire waits: under its own, where the dial itself makes sure who is there, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Own,
    Shared,
}

pub(super) type PoolEvent = Event<TransportError>;
pub(super) type AnswerSender = oneshot::Sender<Result<Claim, Refused<TransportError>>>;

/// The registry, and what its numbers stand for.
pub(super) struct State {
    registry: Registry,
    /// Gone after the shutdown.
    dialler: Option<Arc<dyn Dial>>,
    dials: BTreeMap<LinkId, CancellationToken>,
    live: BTreeMap<LinkId, Known>,
    /// When timers fire. The task of the connection takes its own.
    alarms: BTreeMap<LinkId, Instant>,
    waiters: BTreeMap<WaiterId, AnswerSender>,
    next_waiter: u64,
}

/// A connection that lives.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) live: Arc<dyn LiveConnection>,
    /// Cancelled when the connection is too old for new work.
    pub(super) draining: CancellationToken,
    /// Cancelled when nobody needs it any more: its task closes it after a while.
    pub(super) released: CancellationToken,
}

impl Known {
    pub(super) fn new(live: Arc<dyn LiveConnection>) -> Self {
        Self {
            live,
            draining: CancellationToken::new(),
            released: CancellationToken::new(),
        }
    }
}

impl State {
    pub(super) fn new(rules: Rules, dialler: Arc<dyn Dial>) -> Self {
        Self {
            registry: Registry::new(rules),
            dialler: Some(dialler),
            dials: BTreeMap::new(),
            live: BTreeMap::new(),
            alarms: BTreeMap::new(),
            waiters: BTreeMap::new(),
            next_waiter: 0,
        }
    }

    pub(super) fn active(&self) -> usize {
        self.registry.active()
    }

    pub(super) fn shared<'a>(&'a self, connection: &'a ConnectionId) -> &'a ConnectionId {
        self.registry.shared(connection)
    }

    pub(super) fn known(&self) -> impl Iterator<Item = Known> {
        self.live.values().cloned()
    }

    pub(super) fn take_dialler(&mut self) -> Option<Arc<dyn Dial>> {
        self.dialler.take()
    }

    pub(super) fn take_alarm(&mut self, link: LinkId) -> Option<Instant> {
        self.alarms.remove(&link)
    }

    /// A dial has a connection: knows it before the registry hears of it.
    pub(super) fn on_connected(&mut self, link: LinkId, known: Known) -> Vec<Effect> {
        self.live.insert(link, known);
        let jitter = fastrand::u16(..);
        self.on_event(Event::DialSucceeded { link, jitter })
    }

    /// Lets an acquire in.
    pub(super) fn enter(
        &mut self,
        scope: Scope,
        connection: &ConnectionId,
        answer: AnswerSender,
        effects: &mut Vec<Effect>,
    ) -> (WaiterId, Found) {
        let waiter = WaiterId(self.next_waiter);
        self.next_waiter += 1;
        self.waiters.insert(waiter, answer);
        let key = self.key(scope, connection).clone();
        let found = if key == *connection {
            Found::Own
        } else {
            Found::Shared
        };
        let connection = key;
        effects.extend(self.on_event(Event::Acquire { waiter, connection }));
        (waiter, found)
    }

    pub(super) fn cached(
        &self,
        scope: Scope,
        connection: &ConnectionId,
    ) -> Option<(LinkId, Arc<dyn LiveConnection>)> {
        let link = self.registry.cached(self.key(scope, connection))?;
        Some((link, Arc::clone(&self.live.get(&link)?.live)))
    }

    fn key<'a>(&'a self, scope: Scope, connection: &'a ConnectionId) -> &'a ConnectionId {
        match scope {
            Scope::Address => self.registry.shared(connection),
            Scope::Exact => connection,
        }
    }

    /// Feeds the registry and collects what is to be done without the lock.
    pub(super) fn on_event(&mut self, event: PoolEvent) -> Vec<Effect> {
        let mut effects = vec![];
        match &event {
            Event::CallerGone { waiter } => {
                effects.extend(
                    self.waiters
                        .remove(waiter)
                        .map(|sender| Effect::Drop(Dropped::Waiter(sender))),
                );
            }
            Event::DialFailed { link, .. } | Event::DialSucceeded { link, .. } => {
                self.dials.remove(link);
            }
            Event::Died { link } => {
                self.alarms.remove(link);
                effects.extend(
                    self.live
                        .remove(link)
                        .map(|known| Effect::Drop(Dropped::Live(known))),
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
                    Ok(link) => Ok((link, self.live.get(&link)?.clone())),
                    Err(refused) => Err(refused),
                };
                Some(Effect::Answer(sender, outcome))
            }
            Action::CancelDial { link } => self.dials.remove(&link).map(Effect::Cancel),
            Action::Close { link, why } => {
                self.alarms.remove(&link);
                let known = self.live.remove(&link)?;
                Some(Effect::Close(known, why))
            }
            Action::Drain { link } => {
                let draining = &self.live.get(&link)?.draining;
                Some(Effect::Cancel(draining.clone()))
            }
            Action::StartTimer { link, after } => {
                self.alarms.insert(link, now() + after);
                None
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
pub(super) enum Effect {
    Answer(
        AnswerSender,
        Result<(LinkId, Known), Refused<TransportError>>,
    ),
    Cancel(CancellationToken),
    Close(Known, CloseCause),
    Dial {
        link: LinkId,
        to: ConnectionId,
        dialler: Arc<dyn Dial>,
        cancelled: CancellationToken,
    },
    Drop(#[expect(dead_code, reason = "held until the lock is free")] Dropped),
}

#[expect(dead_code, reason = "held until the lock is free")]
pub(super) enum Dropped {
    Live(Known),
    Waiter(AnswerSender),
}
