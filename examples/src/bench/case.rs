//! What is measured in one go.

use std::fmt;

use serde::{Deserialize, Serialize};
use thalweg_transport::Profile;

use super::transport_kind::{Placement, TransportKind};
use crate::cli::human;

/// What one line of the result says, apart from the figures. What does not apply is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) transport: TransportKind,
    /// Channels that carry data; `None` for calls alone.
    pub(crate) channels: Option<u32>,
    pub(crate) profile: Option<Profile>,
    pub(crate) placement: Option<Placement>,
    pub(crate) calls: Option<Calls>,
    /// Consumers that stop; with it each channel has a partition and a gate.
    pub(crate) stopped: Option<u32>,
    /// Cores that both processes are kept on; `None` if they run where the system puts them.
    pub(crate) cores: Option<u32>,
}

/// The calls of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Calls {
    /// Bytes of a call and of its answer.
    pub(crate) payload: u32,
    /// Calls that wait for their answer at any time.
    pub(crate) outstanding: u32,
    /// Through a gateway instead of on a stream of the bench's own; raw transports have no gateways.
    pub(crate) gateway: bool,
}

impl Case {
    /// The cases of the same round that this one is compared with, if they are measured: what lies below it first, then
    /// what others use for the same work.
    pub(crate) fn references(&self) -> Vec<Self> {
        if let Some(stopped) = self.stopped {
            let running = Self {
                stopped: Some(0),
                ..self.clone()
            };
            return (stopped > 0).then_some(running).into_iter().collect();
        }
        let Some(yardstick) = self.transport.yardstick() else {
            return Vec::new();
        };
        let below = Self {
            transport: yardstick,
            placement: None,
            ..self.clone()
        };
        let peers = if self.calls.is_some_and(|calls| calls.gateway) {
            [TransportKind::Tonic, TransportKind::TonicTls]
        } else {
            [TransportKind::Flight, TransportKind::FlightTls]
        };
        let beside = peers.map(|transport| Self {
            transport,
            profile: None,
            ..below.clone()
        });
        std::iter::once(below.clone()).chain(beside).collect()
    }

    pub(crate) fn suite(&self) -> &'static str {
        match (self.channels, self.calls) {
            (None, _) => "rpc",
            (Some(_), Some(_)) => "rpc-under-load",
            (Some(_), None) => "exchange",
        }
    }

    /// Channels whose bytes count: those that never stop, also where nobody stops for comparison.
    pub(crate) fn counted(&self, slow: u32) -> u32 {
        let channels = self.channels.unwrap_or(0);
        match self.stopped {
            Some(_) => channels.saturating_sub(slow),
            None => channels,
        }
    }
}

impl fmt::Display for Case {
    /// `tcp, 8 channels, own-thread, 1 call outstanding, 1 core`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.transport.as_str())?;
        if let Some(channels) = self.channels {
            write!(f, ", {}", human::plural(channels.into(), "channel"))?;
        }
        if let Some(profile) = self.profile {
            write!(f, ", {profile}")?;
        }
        if let Some(placement) = self.placement {
            write!(f, ", {}", placement.as_str())?;
        }
        match self.calls {
            Some(calls) if calls.gateway => {
                let calls = human::plural(calls.outstanding.into(), "call");
                write!(f, ", {calls} outstanding")?;
            }
            Some(_) => f.write_str(", ping")?,
            None => {}
        }
        if let Some(stopped) = self.stopped {
            write!(f, ", {stopped} stopped")?;
        }
        if let Some(cores) = self.cores {
            write!(f, ", {}", human::plural(cores.into(), "core"))?;
        }
        Ok(())
    }
}
