//! Heartbeats: who is alive, and when to ask.
//!
//! Pure: time is an argument. The owner of a [`HeartbeatMonitor`] is an endpoint whose main thread feeds it, so that a
//! blocked endpoint does not look alive.

mod monitor;
mod schedule;

pub use monitor::{HeartbeatConfig, HeartbeatMonitor, MonitorId, Notice, TargetState};
pub use schedule::HeartbeatSchedule;
