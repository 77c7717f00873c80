//! Watching TaskManagers by heartbeats: what ResourceManager and JobMaster have in common. Pure.

use std::time::{Duration, Instant};

use thalweg_transport::ResourceId;

use super::JobManagerConfig;
use crate::{
    heartbeat::{HeartbeatMonitor, HeartbeatSchedule, MonitorId, Notice},
    rpc::RpcError,
};

/// The TaskManagers that an endpoint watches.
#[derive(Debug)]
pub(crate) struct Watch {
    monitor: HeartbeatMonitor,
    schedule: HeartbeatSchedule,
    interval: Duration,
    timeout: Duration,
}

/// What is due.
#[derive(Debug)]
pub(crate) struct Tick {
    /// TaskManagers that are lost, each with the reason.
    pub(crate) lost: Vec<(ResourceId, String)>,
    /// TaskManagers to ask now.
    pub(crate) ask: Vec<(ResourceId, MonitorId)>,
    /// When the next tick is due.
    pub(crate) next: Duration,
}

impl Watch {
    pub(crate) fn new(now: Instant, config: &JobManagerConfig) -> Self {
        Self {
            monitor: HeartbeatMonitor::new(config.heartbeat),
            schedule: HeartbeatSchedule::new(now, config.heartbeat_interval),
            interval: config.heartbeat_interval,
            timeout: config.heartbeat.timeout,
        }
    }

    /// Watches a TaskManager from now on, afresh if it was watched before.
    pub(crate) fn begin(&mut self, now: Instant, id: &ResourceId) {
        self.monitor.unmonitor(id);
        self.monitor.monitor(now, id.clone());
    }

    pub(crate) fn end(&mut self, id: &ResourceId) {
        self.monitor.unmonitor(id);
    }

    pub(crate) fn on_tick(&mut self, now: Instant) -> Tick {
        let timeout = self.timeout;
        let lost = self
            .monitor
            .on_tick(now)
            .into_iter()
            .map(|notice| match notice {
                Notice::TimedOut(id) => (id, format!("no heartbeat for {timeout:?}")),
                Notice::Unreachable(id) => (id, "it cannot be reached".to_owned()),
            })
            .collect();
        let ask = if self.schedule.on_tick(now) {
            self.monitor
                .running_targets()
                .map(|(id, monitor)| (id.clone(), monitor))
                .collect()
        } else {
            Vec::new()
        };
        let regular = self.schedule.next_deadline();
        let due = self.monitor.next_deadline().unwrap_or(regular).min(regular);
        // A deadline that another tick has set to now or before is met by the next regular tick at the latest.
        let next = due.saturating_duration_since(now);
        Tick {
            lost,
            ask,
            next: next.min(self.interval),
        }
    }

    /// Takes the result of a heartbeat call. Gives the reason if the TaskManager is lost by it.
    pub(crate) fn on_answer<T>(
        &mut self,
        now: Instant,
        id: &ResourceId,
        monitor: MonitorId,
        result: &Result<T, RpcError>,
    ) -> Option<String> {
        match result {
            Ok(_) => {
                self.monitor.on_call_answered(id, monitor);
                self.monitor.on_heartbeat(now, id);
                None
            }
            Err(error @ (RpcError::RecipientUnreachable { .. } | RpcError::Connection { .. })) => {
                let notice = self.monitor.on_call_unreachable(id, monitor)?;
                tracing::debug!(?notice, %error, "a heartbeat does not arrive");
                Some(error.to_string())
            }
            Err(RpcError::TimedOut { .. } | RpcError::Overloaded { .. }) => None,
            Err(error) => {
                tracing::debug!(task_manager = %id, %error, "a heartbeat was answered with an error");
                self.monitor.on_call_answered(id, monitor);
                None
            }
        }
    }

    /// When a TaskManager was last heard.
    pub(crate) fn last_heard(&self, id: &ResourceId) -> Option<Instant> {
        self.monitor.last_heartbeat(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreachable() -> Result<(), RpcError> {
        Err(RpcError::RecipientUnreachable {
            address: "thalweg:///x".to_owned(),
            reason: "gone".to_owned(),
        })
    }

    #[test]
    fn a_task_manager_is_asked_at_each_interval_and_lost_when_silent() {
        let start = thalweg_transport::now();
        let config = JobManagerConfig::default();
        let mut watch = Watch::new(start, &config);
        let id = ResourceId::new("tm-1").unwrap();
        watch.begin(start, &id);
        let tick = watch.on_tick(start);
        assert_eq!((tick.ask.len(), tick.lost.len()), (1, 0));
        assert_eq!(tick.next, config.heartbeat_interval);
        watch.on_answer(start, &id, tick.ask[0].1, &Ok(()));
        let late = start + config.heartbeat.timeout;
        let tick = watch.on_tick(late);
        assert_eq!(tick.lost, [(id.clone(), "no heartbeat for 50s".to_owned())]);
        assert!(tick.ask.is_empty());
        assert_eq!(watch.last_heard(&id), Some(start));
    }

    #[test]
    fn calls_that_do_not_arrive_lose_a_task_manager_with_their_error() {
        let now = thalweg_transport::now();
        let mut watch = Watch::new(now, &JobManagerConfig::default());
        let id = ResourceId::new("tm-1").unwrap();
        watch.begin(now, &id);
        let monitor = watch.on_tick(now).ask[0].1;
        assert_eq!(watch.on_answer(now, &id, monitor, &unreachable()), None);
        watch.on_answer(now, &id, monitor, &Ok(()));
        assert_eq!(watch.on_answer(now, &id, monitor, &unreachable()), None);
        let reason = watch.on_answer(now, &id, monitor, &unreachable()).unwrap();
        assert!(reason.contains("gone"), "{reason}");
    }

    #[test]
    fn a_heartbeat_of_an_earlier_registration_does_not_count() {
        let now = thalweg_transport::now();
        let mut watch = Watch::new(now, &JobManagerConfig::default());
        let id = ResourceId::new("tm-1").unwrap();
        watch.begin(now, &id);
        let old = watch.on_tick(now).ask[0].1;
        watch.begin(now, &id);
        for _ in 0..3 {
            assert_eq!(watch.on_answer(now, &id, old, &unreachable()), None);
        }
    }
}
