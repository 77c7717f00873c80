//! Cubic with a cap on the window.

use std::{any::Any, sync::Arc, time::Instant};

use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics, Cubic, CubicConfig};
use quinn_proto::RttEstimator;

/// Makes controllers with quinn's cubic inside and a window of at most `cap` bytes.
#[derive(Debug, Clone)]
pub(super) struct CappedCubic {
    cubic: Arc<CubicConfig>,
    cap: u64,
}

impl CappedCubic {
    /// `initial_window` in bytes; `None` leaves quinn's.
    pub(super) fn new(initial_window: Option<u64>, cap: u64) -> Self {
        let mut cubic = CubicConfig::default();
        if let Some(window) = initial_window {
            cubic.initial_window(window.min(cap));
        }
        Self {
            cubic: Arc::new(cubic),
            cap,
        }
    }
}

impl ControllerFactory for CappedCubic {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(CappedController {
            inner: Cubic::new(Arc::clone(&self.cubic), now, current_mtu),
            cap: self.cap,
        })
    }
}

/// Cubic below the cap, constant at it.
///
/// The inner window does not grow beyond the cap either: otherwise a long quiet time would leave it so large that
/// losses no longer reach what is really sent.
#[derive(Debug, Clone)]
struct CappedController {
    inner: Cubic,
    cap: u64,
}

impl Controller for CappedController {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        let limited = app_limited || self.inner.window() >= self.cap;
        self.inner.on_ack(now, sent, bytes, limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.inner
            .on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.inner
            .on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.inner.window().min(self.cap)
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = self.inner.metrics();
        metrics.congestion_window = self.window();
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window().min(self.cap)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;

    #[test]
    fn the_window_stays_below_the_cap_and_shrinks_from_there() {
        let start = now();
        let factory = Arc::new(CappedCubic::new(Some(8 << 20), 1 << 20));
        let mut controller = factory.build(start, 1_452);
        assert_eq!(controller.window(), 1 << 20);
        assert_eq!(controller.metrics().congestion_window, 1 << 20);
        controller.on_congestion_event(start, start, false, 1_452);
        assert_eq!(controller.window(), (1 << 20) * 7 / 10);
    }

    #[test]
    fn quinns_initial_window_is_kept_where_none_is_given() {
        let controller = Arc::new(CappedCubic::new(None, 1 << 20)).build(now(), 1_200);
        assert_eq!(controller.window(), 12_000);
    }
}
