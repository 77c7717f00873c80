//! The task of a dialled connection.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{Pool, state::Known};
use crate::{
    addr::ConnectionId,
    clock::{now, until},
    error::{ConnectError, ConnectionError, ErrorCode},
    handler::TransportError,
    link::{Local, dial::Dial, live::LiveConnection},
    proto::registry::{CloseCause, Event, LinkId},
    stream::BoxFuture,
    warnings::FailureClass,
};

/// The one report that a dial owes, also if its task is dropped or panics.
pub(super) struct Report {
    pool: Arc<Pool>,
    link: LinkId,
    to: ConnectionId,
    due: bool,
}

impl Report {
    pub(super) fn new(pool: Arc<Pool>, link: LinkId, to: ConnectionId) -> Self {
        Self {
            pool,
            link,
            to,
            due: true,
        }
    }

    /// The task of a dialled connection: dials, reports, and watches for the connection's age and end.
    pub(super) async fn dial(mut self, dialler: Arc<dyn Dial>, cancelled: CancellationToken) {
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
                let known = Known::new(live);
                let effects = self.pool.lock().on_connected(link, known.clone());
                self.pool.run(effects);
                self.watch(known).await;
                self.pool.event(Event::Died { link });
            }
        }
    }

    /// Waits for the end of the connection, which its timers, and the last of its users, bring about.
    async fn watch(&self, known: Known) {
        let Known { live, released, .. } = known;
        let link = self.link;
        let mut ended = live.watch();
        let reason = loop {
            let alarm = self.pool.lock().take_alarm(link);
            tokio::select! {
                biased;
                reason = &mut ended => break reason,
                () = released.cancelled() => break self.let_go(&*live, &mut ended).await,
                () = until(alarm) => {
                    tracing::debug!(peer = %live.peer(), "dialled connection is too old");
                    self.pool.event(Event::TimerFired { link });
                }
            }
        };
        tracing::debug!(peer = %live.peer(), %reason, "dialled connection ended");
    }

    /// Closes a connection that nobody needs, when what was sent last had time to arrive.
    async fn let_go(
        &self,
        live: &dyn LiveConnection,
        ended: &mut BoxFuture<'_, ConnectionError>,
    ) -> ConnectionError {
        tokio::select! {
            biased;
            reason = &mut *ended => return reason,
            () = self.pool.tasks.cancelled() => {
                live.close(ErrorCode::SHUTTING_DOWN, &self.pool.local.farewell());
            }
            () = sleep(LINGER) => live.close(ErrorCode::NO_ERROR, "nobody uses the connection"),
        }
        ended.await
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

/// Closes a connection that the registry has forgotten, or has its task do so.
pub(super) fn close(local: &Local, known: &Known, why: CloseCause) {
    let Known { live, released, .. } = known;
    tracing::debug!(peer = %live.peer(), ?why, "closing a dialled connection");
    match why {
        CloseCause::Drained | CloseCause::Unused => released.cancel(),
        CloseCause::Overdue => live.close(
            ErrorCode::REPLACED,
            "the connection is too old, and was still in use when its time to drain was over",
        ),
        CloseCause::ShutDown => live.close(ErrorCode::SHUTTING_DOWN, &local.farewell()),
        CloseCause::Unwanted => live.close(
            ErrorCode::CANCELLED,
            "the caller left before the connection was there",
        ),
    }
}

/// How long a connection without users is kept, so that what they sent last is acknowledged: a close discards the rest.
/// The longest that a few round trips take on a path that anybody would shuffle over.
const LINGER: Duration = Duration::from_secs(1);
