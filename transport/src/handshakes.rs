//! The handshakes of a listener: beside each other, bounded in number and in time.

use std::{
    collections::VecDeque,
    future::Future,
    net::SocketAddr,
    time::{Duration, Instant},
};

use tokio::{
    task::{AbortHandle, JoinError, JoinSet},
    time::timeout,
};

use crate::{
    clock::{now, until},
    config::TransportConfig,
    error::{ConnectError, ErrorCode},
    warnings::{FailureClass, Warnings},
};

/// Handshakes of accepted peers, as tasks; dropping it ends them.
///
/// When all places are taken, the oldest handshake that has had a second makes way for a new peer, so that silent peers
/// delay a good one by at most that.
#[derive(Debug)]
pub(crate) struct Handshakes<C> {
    tasks: JoinSet<Result<C, ConnectError>>,
    /// Handshakes by age; finished ones are dropped when they come to the front.
    ages: VecDeque<(Instant, AbortHandle)>,
    max: usize,
    limit: Duration,
    failed: u64,
    pub(crate) warnings: Warnings,
}

impl<C: Send + 'static> Handshakes<C> {
    /// At most `max_handshakes`, each for at most `handshake_timeout`.
    pub(crate) fn new(config: &TransportConfig) -> Self {
        Self {
            tasks: JoinSet::new(),
            ages: VecDeque::new(),
            max: usize::try_from(config.max_handshakes).unwrap_or(usize::MAX),
            limit: config.handshake_timeout,
            failed: 0,
            warnings: Warnings::default(),
        }
    }

    /// Those that failed, were refused or had to make way, since the start.
    pub(crate) fn failed(&self) -> u64 {
        self.failed
    }

    /// Those in progress, or done and not taken.
    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether one more may begin.
    pub(crate) fn has_room(&self) -> bool {
        self.len() < self.max
    }

    /// Begins the handshake of a peer.
    pub(crate) fn begin<F>(&mut self, address: SocketAddr, handshake: F)
    where
        F: Future<Output = Result<C, ConnectError>> + Send + 'static,
    {
        let limit = self.limit;
        let task = self.tasks.spawn(async move {
            timeout(limit, handshake).await.unwrap_or_else(|_| {
                Err(ConnectError::TimedOut {
                    address: address.to_string(),
                    reason: format!("no handshake within {limit:?}"),
                })
            })
        });
        // Short ones behind a long one would pile up.
        if self.ages.len() >= self.max.saturating_mul(2) {
            self.ages.retain(|(_, task)| !task.is_finished());
        }
        self.ages.push_back((now(), task));
    }

    /// The next connection, or `None` when a handshake has ended without one and left its place. Waits for ever if none
    /// is in progress.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<C> {
        let makes_way_at = self.makes_way_at();
        tokio::select! {
            biased;
            Some(done) = self.tasks.join_next() => self.on_done(done),
            () = until(makes_way_at) => {
                if let Some((_, oldest)) = self.ages.pop_front() {
                    tracing::debug!("no place for a new handshake, the oldest one is ended");
                    oldest.abort();
                }
                None
            }
        }
    }

    /// When the oldest handshake may be ended for a new peer, if no place is free.
    fn makes_way_at(&mut self) -> Option<Instant> {
        while self
            .ages
            .front()
            .is_some_and(|(_, task)| task.is_finished())
        {
            self.ages.pop_front();
        }
        if self.has_room() {
            return None;
        }
        let (started, _) = self.ages.front()?;
        Some(*started + LEAST_TIME)
    }

    fn on_done(&mut self, done: Result<Result<C, ConnectError>, JoinError>) -> Option<C> {
        let error = match done {
            Ok(Ok(connection)) => return Some(connection),
            Ok(Err(error)) => error,
            Err(error) => {
                self.failed += 1;
                if error.is_panic() {
                    tracing::error!(%error, "a handshake task failed");
                }
                return None;
            }
        };
        self.failed += 1;
        // Port scans, health checks and peers that gave up are nobody's fault here.
        let is_fault = !matches!(error, ConnectError::Unreachable { .. });
        let due = || self.warnings.due(now(), FailureClass::Handshake);
        // On QUIC a dial that its caller no longer wants looks like one whose peer does not want this node.
        let gave_up =
            matches!(&error, ConnectError::Refused { code, .. } if *code == ErrorCode::UNKNOWN);
        match is_fault.then(due).flatten() {
            Some(held_back) if gave_up => {
                tracing::info!(%error, held_back, "a peer ended its handshake");
            }
            Some(held_back) => tracing::warn!(%error, held_back, "refused a connection"),
            None => tracing::debug!(%error, "refused a connection"),
        }
        None
    }
}

/// What a handshake may take before it makes way when all places are taken: far above what one takes on a busy machine.
const LEAST_TIME: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    fn handshakes(max_handshakes: u32) -> Handshakes<u32> {
        Handshakes::new(&TransportConfig {
            max_handshakes,
            ..TransportConfig::default()
        })
    }

    fn peer() -> SocketAddr {
        ([127, 0, 0, 1], 1).into()
    }

    #[tokio::test(start_paused = true)]
    async fn one_is_ended_at_the_time_limit_while_there_is_room() {
        let mut handshakes = handshakes(2);
        let begin = now();
        handshakes.begin(peer(), pending());
        assert_eq!((handshakes.next().await, handshakes.failed()), (None, 1));
        assert_eq!(now() - begin, TransportConfig::default().handshake_timeout);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_makes_way_after_a_second_when_there_is_no_room() {
        let mut handshakes = handshakes(2);
        let begin = now();
        handshakes.begin(peer(), pending());
        handshakes.begin(peer(), std::future::ready(Ok(7)));
        assert!(!handshakes.has_room());
        assert_eq!(handshakes.next().await, Some(7));
        handshakes.begin(peer(), pending());
        while !handshakes.has_room() {
            assert_eq!(handshakes.next().await, None);
        }
        assert_eq!((now() - begin, handshakes.failed()), (LEAST_TIME, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stranger_that_fails_in_a_loop_is_warned_of_once_a_minute() {
        let mut handshakes = handshakes(2);
        for _ in 0..100 {
            let failure = Err(ConnectError::Tls {
                address: peer().to_string(),
                reason: "no certificate".to_owned(),
            });
            handshakes.begin(peer(), std::future::ready(failure));
            assert_eq!(handshakes.next().await, None);
        }
        assert_eq!(handshakes.failed(), 100);
        let later = now() + Duration::from_secs(60);
        let held_back = handshakes.warnings.due(later, FailureClass::Handshake);
        assert_eq!(held_back, Some(99));
    }
}
