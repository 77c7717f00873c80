//! What the registry is told, and what it says.

use std::time::Duration;

use thiserror::Error;

use crate::addr::ConnectionId;

/// One dial and the connection that it becomes. Numbers are never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub(super) u64);

/// One caller of acquire; the caller of the registry numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaiterId(pub u64);

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<E> {
    /// Somebody wants a connection. Before this, the caller checks [`Registry::cached`](super::Registry::cached) and reports it
    /// [`Died`](Event::Died) if it did.
    Acquire {
        /// A number that no pending waiter has.
        waiter: WaiterId,
        /// The connection, its index already reduced.
        connection: ConnectionId,
    },
    /// The waiter no longer waits. Harmless if it was answered already.
    CallerGone {
        /// Who.
        waiter: WaiterId,
    },
    /// The connection is not needed now.
    CloseUnused {
        /// The connection, its index already reduced.
        connection: ConnectionId,
    },
    /// A dial failed for good, or was cancelled.
    DialFailed {
        /// Which dial.
        link: LinkId,
        /// Why.
        error: E,
    },
    /// A dial has a connection.
    DialSucceeded {
        /// Which dial.
        link: LinkId,
        /// A random number, by which the connection is drained earlier than others of its age: none at 0, a tenth of
        /// the age at [`u16::MAX`].
        jitter: u16,
    },
    /// A connection ended, on whatever side.
    Died {
        /// Which connection.
        link: LinkId,
    },
    /// A reference was dropped.
    Released {
        /// Which connection.
        link: LinkId,
    },
    /// The node stops: later acquires are refused.
    ShutDown,
    /// The time of a connection's [`StartTimer`](Action::StartTimer) has passed.
    TimerFired {
        /// Which connection.
        link: LinkId,
    },
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action<E> {
    /// Give the waiter its one answer. With a link it holds a reference, which it has to release.
    Answer {
        /// Who.
        waiter: WaiterId,
        /// The connection or the reason.
        outcome: Result<LinkId, Refused<E>>,
    },
    /// Stop this dial; its report may still come.
    CancelDial {
        /// Which dial.
        link: LinkId,
    },
    /// Close this connection.
    Close {
        /// Which connection.
        link: LinkId,
        /// Why.
        why: CloseCause,
    },
    /// Tell those who hold this connection that it is drained: what is under way goes on, what is new belongs on a new
    /// connection.
    Drain {
        /// Which connection.
        link: LinkId,
    },
    /// Dial; exactly one report must follow.
    StartDial {
        /// The number for the report.
        link: LinkId,
        /// Whom to dial.
        connection: ConnectionId,
    },
    /// Report [`TimerFired`](Event::TimerFired) after this time, unless the connection has ended by then. A connection
    /// has one timer.
    StartTimer {
        /// Which connection.
        link: LinkId,
        /// How long.
        after: Duration,
    },
}

/// Why a waiter gets no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused<E> {
    /// The dial failed.
    Dial(E),
    /// The node stops.
    ShutDown,
}

/// Why a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseCause {
    /// It was too old, and nobody holds a reference any more.
    Drained,
    /// It was drained, and is still in use when the time for that is over.
    Overdue,
    /// The node stops.
    ShutDown,
    /// Nobody holds a reference, and it is not kept.
    Unused,
    /// It came after its last waiter had gone.
    Unwanted,
}

/// An event that contradicts the state: a mistake of the caller, which changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RegistryMisuse {
    /// A connection cannot die while it is dialled.
    #[error("{0:?} died while it was dialled")]
    DiedBeforeItLived(LinkId),
    /// The link's number was never given out.
    #[error("{0:?} was never given out")]
    NeverGivenOut(LinkId),
    /// More releases than references.
    #[error("{0:?} was released more often than acquired")]
    ReleasedTooOften(LinkId),
    /// A dial reports once.
    #[error("the dial of {0:?} was reported twice")]
    ReportedTwice(LinkId),
    /// Only a connection that was made has a timer.
    #[error("a timer fired for {0:?}, which is still dialled")]
    TimerWithoutConnection(LinkId),
    /// The count of references is full.
    #[error("{0:?} has too many references")]
    TooManyReferences(LinkId),
    /// The waiter's number is that of another one.
    #[error("{0:?} waits already")]
    WaiterTaken(WaiterId),
}
