//! Which connection serves whom: one dial and one connection per ConnectionId, shared and counted.
//!
//! What Flink's `PartitionRequestClientFactory` does, without its gaps: a failure, like a caller that went away, is never
//! remembered for others (FLINK-19688, FLINK-20615), every waiter gets an answer of its own (FLINK-18821), and a
//! connection that nobody wants any more when it comes is closed.
//!
//! ```text
//!            acquire                 dial succeeded
//!  (absent) ─────────► Dialling ──────────────────► Open ◄─┐ acquire, released
//!      ▲                  │                        │ │ └───┘
//!      │  dial failed,    │        too old, in use │ │ died, shut down
//!      ├──────────────────┘               ┌────────┘ ▼
//!      │  last waiter gone                ▼        Ended
//!      ├────────────────────────────── Draining ──►  │ (only while somebody holds a reference)
//!      │  last one released                  overdue │
//!      ├─────────────────────────────────────────────┘
//!      │  close_unused, released without reuse, too old without use
//!      └──────────────────────────────────────────  Open
//! ```
//!
//! A connection that is older than its time is *drained*: nobody gets it any more, so that the next caller dials, and
//! those who hold it go on. It is closed when the last of them lets go, and at the latest when it has become twice as
//! old as a connection may: a holder that never ends must not keep one certificate in use for ever.

use std::{collections::BTreeMap, time::Duration};

pub use event::{Action, CloseCause, Event, LinkId, Refused, RegistryMisuse, WaiterId};

use crate::addr::ConnectionId;

mod event;

/// What a registry goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Whether connections stay when their last reference is dropped.
    pub reuse: bool,
    /// A connection is drained when it has become so old, less up to a tenth by its jitter, and is closed after as
    /// long again.
    pub max_age: Duration,
}

impl Rules {
    /// The age at which a connection with this jitter is drained.
    #[must_use]
    pub fn age(&self, jitter: u16) -> Duration {
        let earlier = self.max_age.as_secs_f64() / 10.0 * f64::from(jitter) / f64::from(u16::MAX);
        let earlier = Duration::try_from_secs_f64(earlier).unwrap_or_default();
        self.max_age.saturating_sub(earlier)
    }
}

/// The registry. Its size follows the local callers: an entry exists for a ConnectionId that is dialled, or whose
/// connection lives or is held.
#[derive(Debug)]
pub struct Registry {
    rules: Rules,
    shut_down: bool,
    next_link: u64,
    /// Dialling or open; at most one link per ConnectionId.
    current: BTreeMap<ConnectionId, LinkId>,
    links: BTreeMap<LinkId, Link>,
    waiters: BTreeMap<WaiterId, LinkId>,
}

impl Registry {
    /// An empty registry.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            shut_down: false,
            next_link: 0,
            current: BTreeMap::new(),
            links: BTreeMap::new(),
            waiters: BTreeMap::new(),
        }
    }

    /// The connection that an acquire would get at once, if there is one.
    #[must_use]
    pub fn cached(&self, connection: &ConnectionId) -> Option<LinkId> {
        let link = *self.current.get(connection)?;
        matches!(self.links.get(&link), Some(Link::Open { .. })).then_some(link)
    }

    /// Under which ConnectionId this one may find its connection: its own, or, if that has none, one of the same address
    /// of which only one of the two names the peer.
    ///
    /// Whoever gets a connection under another id than its own has to look who is there: the id without a peer may have
    /// led to a node that the other one does not mean.
    #[must_use]
    pub fn shared<'a>(&'a self, connection: &'a ConnectionId) -> &'a ConnectionId {
        let shares = |other: &&ConnectionId| {
            other.address == connection.address
                && other.index == connection.index
                && other.peer.is_none() != connection.peer.is_none()
        };
        if self.current.contains_key(connection) {
            return connection;
        }
        self.current.keys().find(shares).unwrap_or(connection)
    }

    /// Connections that are open or dialled. One that is drained is no longer counted: it has left its place.
    #[must_use]
    pub fn active(&self) -> usize {
        self.current.len()
    }

    /// References that are held to a connection, ended or not.
    #[must_use]
    pub fn references(&self, link: LinkId) -> u64 {
        match self.links.get(&link) {
            Some(
                Link::Open { references, .. }
                | Link::Draining { references }
                | Link::Ended { references },
            ) => *references,
            Some(Link::Dialling { .. }) | None => 0,
        }
    }

    /// Takes an event and says what is to be done, in this order.
    ///
    /// # Errors
    /// [`RegistryMisuse`] for an event that cannot happen; nothing changes then.
    pub fn on_event<E: Clone>(
        &mut self,
        event: Event<E>,
    ) -> Result<Vec<Action<E>>, RegistryMisuse> {
        match event {
            Event::Acquire { waiter, connection } => self.on_acquire(waiter, connection),
            Event::CallerGone { waiter } => Ok(self.on_caller_gone(waiter)),
            Event::CloseUnused { connection } => Ok(self.on_close_unused(&connection)),
            Event::DialFailed { link, error } => self.on_dial_failed(link, &error),
            Event::DialSucceeded { link, jitter } => self.on_dial_succeeded(link, jitter),
            Event::Died { link } => self.on_died(link),
            Event::Released { link } => self.on_released(link),
            Event::ShutDown => Ok(self.on_shut_down()),
            Event::TimerFired { link } => self.on_timer(link),
        }
    }

    fn on_acquire<E>(
        &mut self,
        waiter: WaiterId,
        connection: ConnectionId,
    ) -> Result<Vec<Action<E>>, RegistryMisuse> {
        if self.waiters.contains_key(&waiter) {
            return Err(RegistryMisuse::WaiterTaken(waiter));
        }
        if self.shut_down {
            let outcome = Err(Refused::ShutDown);
            return Ok(vec![Action::Answer { waiter, outcome }]);
        }
        let link = self.current.get(&connection).copied();
        match link.and_then(|link| Some((link, self.links.get_mut(&link)?))) {
            Some((link, Link::Open { references, .. })) => {
                *references = references
                    .checked_add(1)
                    .ok_or(RegistryMisuse::TooManyReferences(link))?;
                let outcome = Ok(link);
                Ok(vec![Action::Answer { waiter, outcome }])
            }
            Some((link, Link::Dialling { waiters, .. })) => {
                waiters.push(waiter);
                self.waiters.insert(waiter, link);
                Ok(vec![])
            }
            Some((_, Link::Draining { .. } | Link::Ended { .. })) | None => {
                let link = LinkId(self.next_link);
                self.next_link += 1;
                self.current.insert(connection.clone(), link);
                let dialling = Link::Dialling {
                    connection: connection.clone(),
                    waiters: vec![waiter],
                };
                self.links.insert(link, dialling);
                self.waiters.insert(waiter, link);
                Ok(vec![Action::StartDial { link, connection }])
            }
        }
    }

    fn on_caller_gone<E>(&mut self, waiter: WaiterId) -> Vec<Action<E>> {
        let Some(link) = self.waiters.remove(&waiter) else {
            return vec![];
        };
        let Some(Link::Dialling { waiters, .. }) = self.links.get_mut(&link) else {
            return vec![];
        };
        waiters.retain(|other| *other != waiter);
        if !waiters.is_empty() {
            return vec![];
        }
        self.forget(link);
        vec![Action::CancelDial { link }]
    }

    fn on_close_unused<E>(&mut self, connection: &ConnectionId) -> Vec<Action<E>> {
        // A dial always has a waiter: it is cancelled with the last one.
        self.cached(connection)
            .and_then(|link| self.close_if_free(link))
            .into_iter()
            .collect()
    }

    fn on_dial_failed<E: Clone>(
        &mut self,
        link: LinkId,
        error: &E,
    ) -> Result<Vec<Action<E>>, RegistryMisuse> {
        self.check_known(link)?;
        match self.links.get_mut(&link) {
            Some(Link::Dialling { waiters, .. }) => {
                let waiters = std::mem::take(waiters);
                self.forget(link);
                Ok(self.answer(waiters, &Err(Refused::Dial(error.clone()))))
            }
            Some(Link::Open { .. } | Link::Draining { .. } | Link::Ended { .. }) => {
                Err(RegistryMisuse::ReportedTwice(link))
            }
            None => Ok(vec![]),
        }
    }

    fn on_dial_succeeded<E: Clone>(
        &mut self,
        link: LinkId,
        jitter: u16,
    ) -> Result<Vec<Action<E>>, RegistryMisuse> {
        self.check_known(link)?;
        match self.links.remove(&link) {
            Some(Link::Dialling {
                connection,
                waiters,
            }) => {
                let open = Link::Open {
                    connection,
                    references: waiters.len() as u64,
                };
                self.links.insert(link, open);
                let mut actions = self.answer(waiters, &Ok(link));
                let after = self.rules.age(jitter);
                actions.push(Action::StartTimer { link, after });
                Ok(actions)
            }
            Some(other) => {
                self.links.insert(link, other);
                Err(RegistryMisuse::ReportedTwice(link))
            }
            None => {
                let why = if self.shut_down {
                    CloseCause::ShutDown
                } else {
                    CloseCause::Unwanted
                };
                Ok(vec![Action::Close { link, why }])
            }
        }
    }

    fn on_died<E>(&mut self, link: LinkId) -> Result<Vec<Action<E>>, RegistryMisuse> {
        self.check_known(link)?;
        match self.links.get(&link) {
            Some(Link::Dialling { .. }) => Err(RegistryMisuse::DiedBeforeItLived(link)),
            Some(Link::Open { references, .. }) => {
                let references = *references;
                self.forget(link);
                if references > 0 {
                    self.links.insert(link, Link::Ended { references });
                }
                Ok(vec![])
            }
            Some(Link::Draining { references }) => {
                let references = *references;
                self.links.insert(link, Link::Ended { references });
                Ok(vec![])
            }
            Some(Link::Ended { .. }) | None => Ok(vec![]),
        }
    }

    fn on_timer<E>(&mut self, link: LinkId) -> Result<Vec<Action<E>>, RegistryMisuse> {
        self.check_known(link)?;
        match self.links.get(&link) {
            Some(Link::Dialling { .. }) => Err(RegistryMisuse::TimerWithoutConnection(link)),
            Some(Link::Open { references, .. }) => {
                let references = *references;
                self.forget(link);
                if references == 0 {
                    let why = CloseCause::Drained;
                    return Ok(vec![Action::Close { link, why }]);
                }
                self.links.insert(link, Link::Draining { references });
                let after = self.rules.max_age;
                Ok(vec![
                    Action::Drain { link },
                    Action::StartTimer { link, after },
                ])
            }
            Some(Link::Draining { references }) => {
                let references = *references;
                self.links.insert(link, Link::Ended { references });
                let why = CloseCause::Overdue;
                Ok(vec![Action::Close { link, why }])
            }
            Some(Link::Ended { .. }) | None => Ok(vec![]),
        }
    }

    fn on_released<E>(&mut self, link: LinkId) -> Result<Vec<Action<E>>, RegistryMisuse> {
        let too_many = RegistryMisuse::ReleasedTooOften(link);
        match self.links.get_mut(&link) {
            Some(Link::Open { references, .. }) => {
                *references = references.checked_sub(1).ok_or(too_many)?;
                if self.rules.reuse {
                    return Ok(vec![]);
                }
                Ok(self.close_if_free(link).into_iter().collect())
            }
            Some(Link::Draining { references }) => {
                *references = references.checked_sub(1).ok_or(too_many)?;
                if *references > 0 {
                    return Ok(vec![]);
                }
                self.links.remove(&link);
                let why = CloseCause::Drained;
                Ok(vec![Action::Close { link, why }])
            }
            Some(Link::Ended { references }) => {
                *references = references.checked_sub(1).ok_or(too_many)?;
                if *references == 0 {
                    self.links.remove(&link);
                }
                Ok(vec![])
            }
            Some(Link::Dialling { .. }) | None => Err(too_many),
        }
    }

    fn on_shut_down<E>(&mut self) -> Vec<Action<E>> {
        self.shut_down = true;
        self.current.clear();
        self.waiters.clear();
        let mut actions = vec![];
        for (link, state) in std::mem::take(&mut self.links) {
            match state {
                Link::Dialling { waiters, .. } => {
                    actions.push(Action::CancelDial { link });
                    actions.extend(waiters.into_iter().map(|waiter| Action::Answer {
                        waiter,
                        outcome: Err(Refused::ShutDown),
                    }));
                }
                Link::Open { references, .. } | Link::Draining { references } => {
                    let why = CloseCause::ShutDown;
                    actions.push(Action::Close { link, why });
                    if references > 0 {
                        self.links.insert(link, Link::Ended { references });
                    }
                }
                ended @ Link::Ended { .. } => {
                    self.links.insert(link, ended);
                }
            }
        }
        actions
    }

    fn answer<E: Clone>(
        &mut self,
        waiters: Vec<WaiterId>,
        outcome: &Result<LinkId, Refused<E>>,
    ) -> Vec<Action<E>> {
        let answer = |waiter| {
            self.waiters.remove(&waiter);
            let outcome = outcome.clone();
            Action::Answer { waiter, outcome }
        };
        waiters.into_iter().map(answer).collect()
    }

    fn close_if_free<E>(&mut self, link: LinkId) -> Option<Action<E>> {
        if self.references(link) > 0 {
            return None;
        }
        self.forget(link);
        let why = CloseCause::Unused;
        Some(Action::Close { link, why })
    }

    /// Removes a link, and its ConnectionId if that is still this link's.
    fn forget(&mut self, link: LinkId) {
        if let Some(Link::Dialling { connection, .. } | Link::Open { connection, .. }) =
            self.links.remove(&link)
            && self.current.get(&connection) == Some(&link)
        {
            self.current.remove(&connection);
        }
    }

    /// A link that was given out once may be reported at any time; one that never was may not.
    fn check_known(&self, link: LinkId) -> Result<(), RegistryMisuse> {
        if link.0 < self.next_link {
            Ok(())
        } else {
            Err(RegistryMisuse::NeverGivenOut(link))
        }
    }
}

#[derive(Debug)]
enum Link {
    Dialling {
        connection: ConnectionId,
        /// Never empty.
        waiters: Vec<WaiterId>,
    },
    Open {
        connection: ConnectionId,
        references: u64,
    },
    /// Too old to be given out, but somebody still uses it: never without references.
    Draining { references: u64 },
    /// Dead, but somebody still holds it.
    Ended { references: u64 },
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod model_tests;
