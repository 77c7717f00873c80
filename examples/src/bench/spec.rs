//! What both ends of one measurement have to know.

use serde::{Deserialize, Serialize};
use thalweg_transport::{ConfigError, Profile, TransportConfig};

use super::{
    case::Calls,
    transport_kind::{Placement, TransportKind},
};

/// One measurement, as the command describes it to the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spec {
    pub(crate) transport: TransportKind,
    /// Channels that carry data; 0 for calls alone.
    pub(crate) channels: u32,
    /// Bytes of a frame, header included.
    pub(crate) buffer: u32,
    #[serde(with = "profile_name")]
    pub(crate) profile: Profile,
    pub(crate) placement: Placement,
    /// One partition and gate per channel instead of one for all.
    pub(crate) separate: bool,
    pub(crate) calls: Option<Calls>,
    /// Cores that the process is kept on.
    pub(crate) cores: Option<u32>,
}

impl Spec {
    /// The settings of a node for this measurement, and of the raw transport.
    ///
    /// # Errors
    /// A value that is not allowed: the other end may have sent anything.
    pub(crate) fn config(&self) -> Result<TransportConfig, ConfigError> {
        let refuse = |key, value: String, allowed| {
            Err(ConfigError {
                key,
                value,
                allowed,
            })
        };
        // Calls through a gateway need no data beside them.
        let least = u32::from(self.calls.is_none_or(|calls| !calls.gateway));
        if !(least..=MAX_CHANNELS).contains(&self.channels) {
            return refuse("channels", self.channels.to_string(), "1 to 1024");
        }
        let outstanding = self.calls.map_or(1, |calls| calls.outstanding);
        if !(1..=MAX_OUTSTANDING).contains(&outstanding) {
            return refuse("outstanding", outstanding.to_string(), "1 to 1024");
        }
        let payload = self.payload();
        if payload > MAX_PAYLOAD {
            return refuse("payload", format!("{payload} bytes"), "at most 16KiB");
        }
        let mut config = TransportConfig::default();
        config.profile = self.profile;
        config.buffer_size = self.buffer;
        let needed = u64::from(self.buffer) * u64::from(self.buffers_needed(&config));
        config.buffer_pool = config.buffer_pool.max(needed);
        config.validate()?;
        // A raw call comes back in one frame.
        if payload as usize > config.payload_size() {
            return refuse(
                "payload",
                format!("{payload} bytes"),
                "less than the buffer",
            );
        }
        Ok(config)
    }

    /// Bytes of a call and of its answer; 0 without calls.
    pub(crate) fn payload(&self) -> u32 {
        self.calls.map_or(0, |calls| calls.payload)
    }

    /// Buffers that a raw receiver has: as many as our gate.
    pub(crate) fn receive_buffers(&self, config: &TransportConfig) -> usize {
        let exclusive = config.exclusive_buffers_per_channel * self.channels;
        (exclusive + config.floating_buffers_per_gate) as usize
    }

    /// With many channels or large buffers the default pool could not give each its guarantee.
    fn buffers_needed(&self, config: &TransportConfig) -> u32 {
        let per_channel = config.exclusive_buffers_per_channel + 2;
        self.channels * per_channel + 2 * config.floating_buffers_per_gate
    }
}

/// Most channels of a measurement.
pub(crate) const MAX_CHANNELS: u32 = 1024;

/// Most bytes of a call: a small one is what is measured.
pub(crate) const MAX_PAYLOAD: u32 = 16 * 1024;

/// Most calls that wait for their answer: far below what a gateway takes of one peer.
pub(crate) const MAX_OUTSTANDING: u32 = 1024;

/// More cores than the set of a process can name on Linux.
pub(crate) const MAX_CORES: u32 = 1024;

mod profile_name {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use thalweg_transport::Profile;

    pub(super) fn serialize<S: Serializer>(
        profile: &Profile,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(profile.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Profile, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> Spec {
        Spec {
            transport: TransportKind::RawTls,
            channels: 64,
            buffer: 32 * 1024,
            profile: Profile::Jumbo,
            placement: Placement::OwnThread,
            separate: false,
            calls: Some(CALLS),
            cores: Some(1),
        }
    }

    const CALLS: Calls = Calls {
        payload: 64,
        outstanding: 1,
        gateway: false,
    };

    #[test]
    fn a_spec_survives_the_control_connection() {
        let text = serde_json::to_string(&spec()).unwrap();
        assert!(text.contains(r#""transport":"raw-tls""#), "{text}");
        assert!(text.contains(r#""profile":"jumbo""#), "{text}");
        assert_eq!(serde_json::from_str::<Spec>(&text).unwrap(), spec());
    }

    #[test]
    fn the_pool_is_the_default_one_unless_that_is_too_small() {
        assert_eq!(spec().config().unwrap().buffer_pool, 64 << 20);
        let large = Spec {
            buffer: 1 << 20,
            ..spec()
        };
        assert_eq!(large.config().unwrap().buffer_pool, (64 * 4 + 128) << 20);
    }

    #[test]
    fn calls_through_a_gateway_need_no_data() {
        let calls = |gateway| Spec {
            channels: 0,
            calls: Some(Calls { gateway, ..CALLS }),
            ..spec()
        };
        calls(true).config().unwrap();
        calls(false).config().unwrap_err();
    }

    #[test]
    fn whatever_a_peer_asks_for_is_checked() {
        for bad in [
            Spec {
                channels: 0,
                ..spec()
            },
            Spec {
                channels: u32::MAX,
                ..spec()
            },
            Spec {
                buffer: 7,
                ..spec()
            },
            Spec {
                calls: Some(Calls {
                    payload: 1 << 30,
                    ..CALLS
                }),
                ..spec()
            },
            Spec {
                calls: Some(Calls {
                    outstanding: 0,
                    ..CALLS
                }),
                ..spec()
            },
        ] {
            bad.config().unwrap_err();
        }
    }
}
