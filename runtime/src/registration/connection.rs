//! The connection to a leader that a registration made, and its renewal.

use thiserror::Error;

use super::driver::Outcome;

/// A connection to one leader: registered once, and again after it was lost.
///
/// Pure: the owner runs the registration of a [`RegistrationId`] (see [`run`](super::run)), stops running it when told
/// to, and feeds its outcome back. Outcomes of a registration that is not the current one are ignored, so a late answer
/// never disturbs a newer one; a cancelled registration has no outcome, hence a cancellation is never a failure.
///
/// ```text
///        start              outcome
/// New ──────────► Registering ─────► Registered | Rejected | Failed
///                      ▲                  │
///                      └──────────────────┘ reconnect (only if registered once)
///                 close, from everywhere ──► Closed
/// ```
#[derive(Debug)]
pub struct RegisteredConnection<G> {
    state: State<G>,
    last: u64,
    registered_once: bool,
}

/// Which registration of a connection an outcome belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegistrationId(u64);

/// What the owner of a connection is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice<S, R, E> {
    /// The leader took the registration; the gateway is there.
    Registered(S),
    /// The leader will never take it.
    Rejected(R),
    /// It could not be asked, and never will be.
    Failed(E),
}

/// Why a registration did not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StartError {
    /// A connection starts once; later it reconnects.
    #[error("the connection was started already")]
    AlreadyStarted,
    /// Nothing happens after a close.
    #[error("the connection is closed")]
    Closed,
    /// A leader that never answered is not known to exist.
    #[error("the connection was never registered, so there is nothing to reconnect to")]
    NeverRegistered,
}

#[derive(Debug)]
enum State<G> {
    New,
    Registering(RegistrationId),
    Registered(G),
    Ended,
    Closed,
}

impl<G> RegisteredConnection<G> {
    /// A connection that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: State::New,
            last: 0,
            registered_once: false,
        }
    }

    /// Begins the first registration, which the caller is to run.
    ///
    /// # Errors
    /// [`StartError::AlreadyStarted`] the second time, [`StartError::Closed`] after a close.
    pub fn start(&mut self) -> Result<RegistrationId, StartError> {
        match self.state {
            State::New => Ok(self.next()),
            State::Closed => Err(StartError::Closed),
            State::Registering(_) | State::Registered(_) | State::Ended => {
                Err(StartError::AlreadyStarted)
            }
        }
    }

    /// Begins another registration; the one before, if it still runs, is to be stopped. The gateway is gone.
    ///
    /// # Errors
    /// [`StartError::NeverRegistered`] before the first success, [`StartError::Closed`] after a close.
    pub fn reconnect(&mut self) -> Result<RegistrationId, StartError> {
        match self.state {
            State::Closed => Err(StartError::Closed),
            _ if !self.registered_once => Err(StartError::NeverRegistered),
            _ => Ok(self.next()),
        }
    }

    /// Takes the outcome of a registration; `None` if it is obsolete.
    pub fn on_outcome<S, R, E>(
        &mut self,
        id: RegistrationId,
        outcome: Outcome<G, S, R, E>,
    ) -> Option<Notice<S, R, E>> {
        match self.state {
            State::Registering(current) if current == id => {}
            _ => return None,
        }
        Some(match outcome {
            Outcome::Registered { gateway, success } => {
                self.state = State::Registered(gateway);
                self.registered_once = true;
                Notice::Registered(success)
            }
            Outcome::Rejected(rejection) => {
                self.state = State::Ended;
                Notice::Rejected(rejection)
            }
            Outcome::Failed(error) => {
                self.state = State::Ended;
                Notice::Failed(error)
            }
        })
    }

    /// Ends the connection for good; a registration that still runs is to be stopped. The gateway, if there was one,
    /// comes back so that the leader can be told.
    pub fn close(&mut self) -> Option<G> {
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Registered(gateway) => Some(gateway),
            _ => None,
        }
    }

    /// The gateway of a registered connection.
    #[must_use]
    pub fn gateway(&self) -> Option<&G> {
        match &self.state {
            State::Registered(gateway) => Some(gateway),
            _ => None,
        }
    }

    /// The registration that runs.
    #[must_use]
    pub fn registering(&self) -> Option<RegistrationId> {
        match self.state {
            State::Registering(id) => Some(id),
            _ => None,
        }
    }

    /// Whether the connection was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    fn next(&mut self) -> RegistrationId {
        self.last += 1;
        let id = RegistrationId(self.last);
        self.state = State::Registering(id);
        id
    }
}

impl<G> Default for RegisteredConnection<G> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Ended = Outcome<&'static str, u8, u8, u8>;

    const REGISTERED: Ended = Outcome::Registered {
        gateway: "gateway",
        success: 1,
    };

    fn registered() -> RegisteredConnection<&'static str> {
        let mut connection = RegisteredConnection::new();
        let id = connection.start().unwrap();
        assert_eq!(
            connection.on_outcome(id, REGISTERED),
            Some(Notice::Registered(1))
        );
        connection
    }

    #[test]
    fn success_gives_the_gateway() {
        assert_eq!(registered().gateway(), Some(&"gateway"));
    }

    #[test]
    fn rejection_and_failure_are_told_apart() {
        let mut connection = RegisteredConnection::new();
        let id = connection.start().unwrap();
        assert_eq!(
            connection.on_outcome(id, Ended::Rejected(2)),
            Some(Notice::Rejected(2))
        );
        let mut connection = RegisteredConnection::new();
        let id = connection.start().unwrap();
        assert_eq!(
            connection.on_outcome(id, Ended::Failed(3)),
            Some(Notice::Failed(3))
        );
        assert_eq!(connection.gateway(), None);
    }

    #[test]
    fn a_connection_starts_once() {
        let mut connection = registered();
        assert_eq!(connection.start(), Err(StartError::AlreadyStarted));
    }

    #[test]
    fn closing_takes_the_gateway_and_silences_late_outcomes() {
        let mut connection = registered();
        assert_eq!(connection.close(), Some("gateway"));
        assert_eq!(connection.gateway(), None);
        assert_eq!(connection.reconnect(), Err(StartError::Closed));
        assert_eq!(connection.start(), Err(StartError::Closed));

        let mut connection = RegisteredConnection::new();
        let id = connection.start().unwrap();
        assert_eq!(connection.close(), None);
        assert_eq!(connection.on_outcome(id, REGISTERED), None);
        assert_eq!(connection.on_outcome(id, Ended::Failed(3)), None);
        assert!(connection.is_closed());
    }

    #[test]
    fn reconnecting_needs_a_success_before() {
        let mut connection = RegisteredConnection::new();
        assert_eq!(connection.reconnect(), Err(StartError::NeverRegistered));
        let id = connection.start().unwrap();
        assert_eq!(connection.reconnect(), Err(StartError::NeverRegistered));
        assert_eq!(connection.registering(), Some(id));
        assert!(connection.on_outcome(id, REGISTERED).is_some());
        assert!(connection.reconnect().is_ok());
    }

    #[test]
    fn reconnecting_registers_again_and_outdates_the_attempt_before() {
        let mut connection = registered();
        let first = connection.reconnect().unwrap();
        assert_eq!(connection.gateway(), None);
        let second = connection.reconnect().unwrap();
        assert_eq!(connection.on_outcome(first, REGISTERED), None);
        assert_eq!(connection.on_outcome(first, Ended::Rejected(2)), None);
        assert_eq!(
            connection.on_outcome(second, REGISTERED),
            Some(Notice::Registered(1))
        );
        assert_eq!(connection.on_outcome(second, REGISTERED), None);
    }
}
