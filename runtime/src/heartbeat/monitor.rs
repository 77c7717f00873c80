//! Which targets are alive.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use thalweg_transport::ResourceId;

use crate::config::HeartbeatSection;

/// Limits of a [`HeartbeatMonitor`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeartbeatConfig {
    /// A target that was silent for so long is dead. Default 50 s.
    pub timeout: Duration,
    /// Calls in a row that could not reach a target before it counts as unreachable; 0 switches that off. Default 2.
    pub failure_threshold: u32,
}

impl Default for HeartbeatConfig {
    fn default() -> Self {
        Self::from(&HeartbeatSection::default())
    }
}

impl From<&HeartbeatSection> for HeartbeatConfig {
    fn from(section: &HeartbeatSection) -> Self {
        Self {
            timeout: section.timeout,
            failure_threshold: section.failure_threshold,
        }
    }
}

/// The targets that an endpoint watches.
///
/// Each target is running until it times out, is unreachable or is unmonitored, whichever is first; it never comes back
/// from there, and its owner hears of the first two exactly once. [`monitor`](Self::monitor) of a target that timed out
/// or was unreachable watches it anew.
///
/// Follows Flink's `HeartbeatManagerImpl`; there, monitoring a dead target again is ignored until it was unmonitored.
#[derive(Debug)]
pub struct HeartbeatMonitor {
    config: HeartbeatConfig,
    targets: BTreeMap<ResourceId, Target>,
    last_id: u64,
}

/// One time of watching a target: results of calls belong to it, so that those of an earlier time are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MonitorId(u64);

/// A target that the owner has lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// It was silent for too long.
    TimedOut(ResourceId),
    /// Calls cannot reach it.
    Unreachable(ResourceId),
}

/// What is known about a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetState {
    /// It is watched.
    Running,
    /// It was silent for too long.
    TimedOut,
    /// Calls could not reach it.
    Unreachable,
}

#[derive(Debug)]
struct Target {
    id: MonitorId,
    state: TargetState,
    deadline: Instant,
    last_heartbeat: Option<Instant>,
    failures: u32,
}

impl HeartbeatMonitor {
    /// A monitor without targets.
    #[must_use]
    pub fn new(config: HeartbeatConfig) -> Self {
        Self {
            config,
            targets: BTreeMap::new(),
            last_id: 0,
        }
    }

    /// Watches a target from now on; `None` if it is watched already, which changes nothing.
    pub fn monitor(&mut self, now: Instant, target: ResourceId) -> Option<MonitorId> {
        if self.state(&target) == Some(TargetState::Running) {
            return None;
        }
        self.last_id += 1;
        let id = MonitorId(self.last_id);
        self.targets.insert(
            target,
            Target {
                id,
                state: TargetState::Running,
                deadline: now + self.config.timeout,
                last_heartbeat: None,
                failures: 0,
            },
        );
        Some(id)
    }

    /// Stops watching a target; whether it was known.
    pub fn unmonitor(&mut self, target: &ResourceId) -> bool {
        self.targets.remove(target).is_some()
    }

    /// Stops watching all targets.
    pub fn stop(&mut self) {
        self.targets.clear();
    }

    /// A request or an answer of a target came in. `false` if it is not watched: then it is to be ignored.
    pub fn on_heartbeat(&mut self, now: Instant, target: &ResourceId) -> bool {
        let timeout = self.config.timeout;
        let Some(target) = self.running(target) else {
            return false;
        };
        target.deadline = target.deadline.max(now + timeout);
        target.last_heartbeat = target.last_heartbeat.max(Some(now));
        true
    }

    /// A call to a target was answered, even if by an error of its own.
    pub fn on_call_answered(&mut self, target: &ResourceId, id: MonitorId) {
        if let Some(target) = self.running(target).filter(|target| target.id == id) {
            target.failures = 0;
        }
    }

    /// A call could not reach a target. Other failures of calls, time-outs among them, do not count.
    pub fn on_call_unreachable(&mut self, target: &ResourceId, id: MonitorId) -> Option<Notice> {
        let threshold = self.config.failure_threshold;
        let found = self.running(target).filter(|target| target.id == id)?;
        found.failures = found.failures.saturating_add(1);
        if threshold == 0 || found.failures < threshold {
            return None;
        }
        found.state = TargetState::Unreachable;
        Some(Notice::Unreachable(target.clone()))
    }

    /// The targets that are too late by now, in the order of their names.
    pub fn on_tick(&mut self, now: Instant) -> Vec<Notice> {
        self.targets
            .iter_mut()
            .filter(|(_, target)| target.state == TargetState::Running && target.deadline <= now)
            .map(|(id, target)| {
                target.state = TargetState::TimedOut;
                Notice::TimedOut(id.clone())
            })
            .collect()
    }

    /// When [`on_tick`](Self::on_tick) may have something to tell.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.targets
            .values()
            .filter(|target| target.state == TargetState::Running)
            .map(|target| target.deadline)
            .min()
    }

    /// When a target was last heard; `None` if never, or if it is unknown.
    #[must_use]
    pub fn last_heartbeat(&self, target: &ResourceId) -> Option<Instant> {
        self.targets.get(target)?.last_heartbeat
    }

    /// What is known about a target; `None` if it was never watched or is unmonitored.
    #[must_use]
    pub fn state(&self, target: &ResourceId) -> Option<TargetState> {
        Some(self.targets.get(target)?.state)
    }

    /// The targets that are watched: those to be asked when the [schedule](super::HeartbeatSchedule) says so.
    pub fn running_targets(&self) -> impl Iterator<Item = (&ResourceId, MonitorId)> {
        self.targets
            .iter()
            .filter(|(_, target)| target.state == TargetState::Running)
            .map(|(id, target)| (id, target.id))
    }

    fn running(&mut self, target: &ResourceId) -> Option<&mut Target> {
        self.targets
            .get_mut(target)
            .filter(|target| target.state == TargetState::Running)
    }
}

#[cfg(test)]
mod tests;
