//! Whether the peer is alive, and how far away it is.

use std::time::{Duration, Instant};

/// Decides when to ping and when a silent peer is dead; measures the round trip.
///
/// A ping goes out each `keep_alive`, on busy connections too: it is what measures the round trip there.
#[derive(Debug)]
pub struct Liveness {
    keep_alive: Duration,
    idle_timeout: Duration,
    heard: Instant,
    next_ping: Instant,
    token: u64,
    outstanding: Option<(u64, Instant)>,
    rtt: Option<Duration>,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing until the next deadline.
    Alive,
    /// Send a ping with this token.
    Ping(u64),
    /// Nothing was heard for the idle time-out.
    Dead,
}

impl Liveness {
    /// A peer that was heard `now`. The first ping is due at once.
    #[must_use]
    pub fn new(now: Instant, keep_alive: Duration, idle_timeout: Duration) -> Self {
        Self {
            keep_alive,
            idle_timeout,
            heard: now,
            next_ping: now,
            token: 0,
            outstanding: None,
            rtt: None,
        }
    }

    /// Any byte came from the peer.
    pub fn on_received(&mut self, now: Instant) {
        self.heard = self.heard.max(now);
    }

    /// A ping was answered. Answers to pings that were not sent or were answered before are ignored.
    pub fn on_pong(&mut self, now: Instant, token: u64) {
        let Some((expected, sent)) = self.outstanding else {
            return;
        };
        if token != expected {
            return;
        }
        self.outstanding = None;
        let sample = now.saturating_duration_since(sent);
        self.rtt = Some(match self.rtt {
            // The smoothing of RFC 6298 section 2.3.
            Some(rtt) => (rtt * 7 + sample) / 8,
            None => sample,
        });
    }

    /// What is to be done at this time.
    pub fn poll(&mut self, now: Instant) -> Verdict {
        if now >= self.heard + self.idle_timeout {
            return Verdict::Dead;
        }
        if now < self.next_ping {
            return Verdict::Alive;
        }
        self.next_ping = now + self.keep_alive;
        self.token += 1;
        // An older ping whose answer is still under way keeps its place: a slow peer would never be measured otherwise.
        if self.outstanding.is_none() {
            self.outstanding = Some((self.token, now));
        }
        Verdict::Ping(self.outstanding.map_or(self.token, |(token, _)| token))
    }

    /// When [`poll`](Self::poll) has something to say again.
    #[must_use]
    pub fn next_deadline(&self) -> Instant {
        self.next_ping.min(self.heard + self.idle_timeout)
    }

    /// Smoothed round-trip time.
    #[must_use]
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP: Duration = Duration::from_secs(2);
    const IDLE: Duration = Duration::from_secs(6);

    #[test]
    fn a_silent_peer_is_pinged_and_then_dead() {
        let start = crate::now();
        let mut live = Liveness::new(start, KEEP, IDLE);
        assert_eq!(live.poll(start), Verdict::Ping(1));
        assert_eq!(live.poll(start), Verdict::Alive);
        assert!(matches!(live.poll(start + KEEP), Verdict::Ping(_)));
        assert!(matches!(live.poll(start + KEEP * 2), Verdict::Ping(_)));
        assert_eq!(live.next_deadline(), start + IDLE);
        assert_eq!(live.poll(start + IDLE), Verdict::Dead);
    }

    #[test]
    fn any_byte_moves_the_deadline() {
        let start = crate::now();
        let mut live = Liveness::new(start, KEEP, IDLE);
        live.on_received(start + KEEP);
        assert_ne!(live.poll(start + IDLE), Verdict::Dead);
        assert_eq!(live.poll(start + KEEP + IDLE), Verdict::Dead);
    }

    #[test]
    fn only_the_answer_to_the_outstanding_ping_is_measured() {
        let start = crate::now();
        let mut live = Liveness::new(start, KEEP, IDLE);
        assert_eq!(live.poll(start), Verdict::Ping(1));
        live.on_pong(start + KEEP, 99);
        assert_eq!(live.rtt(), None);
        live.on_pong(start + Duration::from_millis(8), 1);
        assert_eq!(live.rtt(), Some(Duration::from_millis(8)));
        live.on_pong(start + KEEP, 1);
        assert_eq!(live.rtt(), Some(Duration::from_millis(8)));
    }
}
