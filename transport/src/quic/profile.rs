//! The settings that depend on the network path, and quinn's configurations made from them.

use std::{sync::Arc, time::Duration};

use quinn::{EndpointConfig, IdleTimeout, MtuDiscoveryConfig, VarInt};

use super::congestion::CappedCubic;
use crate::config::{ConfigError, Profile, TransportConfig};

/// The values of one profile. They depend on each other: see the constants for each one's reason.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PathSettings {
    /// UDP payload that a connection starts with.
    pub(super) initial_mtu: u16,
    /// Upper bound of packet size discovery; `None` switches discovery off.
    pub(super) discover_up_to: Option<u16>,
    /// Whether the kernel may cut one send into packets.
    pub(super) segmentation_offload: bool,
    /// Congestion window at the start, in bytes; `None` leaves quinn's (12,000).
    pub(super) initial_window: Option<u64>,
    /// Most bytes in flight on a connection.
    pub(super) in_flight: u64,
    /// Bytes that the peer may send ahead on one stream.
    pub(super) stream_window: u32,
    /// Bytes that the peer may send ahead on a connection.
    pub(super) receive_window: u32,
    /// Unacknowledged bytes that quinn keeps for a connection.
    pub(super) send_window: u64,
    /// Round-trip time assumed before the first sample; the first lost packet of a handshake costs three of it.
    pub(super) initial_rtt: Duration,
    /// Packets by which one may be late before it counts as lost.
    pub(super) packet_threshold: u32,
    /// The same as a factor of the round-trip time.
    pub(super) time_threshold: f32,
}

impl PathSettings {
    pub(super) fn of(profile: Profile) -> Self {
        match profile {
            Profile::Loopback => LOOPBACK,
            Profile::Jumbo => JUMBO,
            Profile::Lan => LAN,
            Profile::Wan => WAN,
        }
    }

    /// Largest UDP payload that this side receives.
    pub(super) fn max_payload(&self) -> u16 {
        self.discover_up_to.unwrap_or(self.initial_mtu)
    }

    /// Packets in one send, so that the whole stays a legal UDP payload; 1 without offload.
    pub(super) fn max_segments(&self) -> usize {
        if self.segmentation_offload {
            (MAX_UDP_PAYLOAD / usize::from(self.max_payload())).max(1)
        } else {
            1
        }
    }

    pub(super) fn endpoint_config(&self) -> EndpointConfig {
        let mut config = EndpointConfig::default();
        config
            .max_udp_payload_size(self.max_payload())
            .expect("every profile's payload lies between 1,200 and 65,527");
        config
    }

    /// # Errors
    /// An idle time-out that does not fit QUIC's transport parameter.
    pub(super) fn transport_config(
        &self,
        config: &TransportConfig,
    ) -> Result<Arc<quinn::TransportConfig>, ConfigError> {
        let idle = IdleTimeout::try_from(config.idle_timeout).map_err(|_| ConfigError {
            key: "idle_timeout",
            value: format!("{:?}", config.idle_timeout),
            allowed: "1ms to 30 days",
        })?;
        let discovery = self.discover_up_to.map(|upper| {
            let mut discovery = MtuDiscoveryConfig::default();
            discovery.upper_bound(upper);
            discovery
        });
        let mut quic = quinn::TransportConfig::default();
        quic.max_idle_timeout(Some(idle))
            .keep_alive_interval(Some(config.keep_alive))
            .max_concurrent_bidi_streams(quinn_stream_limit(INITIAL_STREAMS))
            .max_concurrent_uni_streams(VarInt::from_u32(0))
            .datagram_receive_buffer_size(None)
            .stream_receive_window(VarInt::from_u32(self.stream_window))
            .receive_window(VarInt::from_u32(self.receive_window))
            .send_window(self.send_window)
            .initial_rtt(self.initial_rtt)
            .packet_threshold(self.packet_threshold)
            .time_threshold(self.time_threshold)
            .initial_mtu(self.initial_mtu)
            .min_mtu(MIN_MTU)
            .mtu_discovery_config(discovery)
            .enable_segmentation_offload(self.segmentation_offload)
            .congestion_controller_factory(Arc::new(CappedCubic::new(
                self.initial_window,
                self.in_flight,
            )));
        Ok(Arc::new(quic))
    }
}

/// One machine. 65,000 bytes a packet: 6.6 GB/s against 1.5 at 1,452. Offload off, since no second packet fits a send.
const LOOPBACK: PathSettings = PathSettings {
    initial_mtu: 65_000,
    discover_up_to: None,
    segmentation_offload: false,
    initial_window: Some(BIG_PACKET_WINDOW),
    in_flight: IN_FLIGHT,
    stream_window: STREAM_WINDOW,
    receive_window: RECEIVE_WINDOW,
    send_window: SEND_WINDOW,
    // Measured set-up on one machine: half a millisecond, with signatures.
    initial_rtt: Duration::from_millis(5),
    packet_threshold: REORDER_PACKETS,
    time_threshold: REORDER_TIME,
};

/// Networks that carry 9,000-byte frames: 8,952 is left after IPv6 and UDP headers. 5.0 GB/s with offload, 1.6 without.
const JUMBO: PathSettings = PathSettings {
    initial_mtu: 8_952,
    segmentation_offload: true,
    ..LOOPBACK
};

/// Any data centre. 1,200 passes everywhere; 1,452 fits Ethernet with IPv6 and is found by probing.
const LAN: PathSettings = PathSettings {
    initial_mtu: 1_200,
    discover_up_to: Some(1_452),
    segmentation_offload: true,
    initial_window: None,
    ..LOOPBACK
};

/// Lossy or long paths.
const WAN: PathSettings = PathSettings {
    in_flight: 8 * IN_FLIGHT,
    receive_window: 2 * RECEIVE_WINDOW,
    send_window: 4 * SEND_WINDOW,
    initial_rtt: Duration::from_millis(100),
    // 1 % of packets 3 ms late took quinn from 190 to 13 Mbit/s with the defaults (3 packets, 9/8 of the round trip):
    // 3 ms are some fifty packets at 200 Mbit/s and a sixth of a 20 ms round trip.
    packet_threshold: 128,
    time_threshold: 1.5,
    ..LAN
};

/// Floor of the packet size when larger ones turn out not to pass. Above 16,383 quinn panics, below 1,200 is no QUIC.
const MIN_MTU: u16 = 1_200;

/// Largest UDP payload over IPv4. A longer send fails, and quinn takes that for a lost probe: 6 MB/s.
const MAX_UDP_PAYLOAD: usize = 65_507;

/// quinn's 12,000 bytes are less than one packet of 12,000 and more, which then never leaves.
const BIG_PACKET_WINDOW: u64 = 1024 * 1024;

/// Cap of the congestion window, 2 MiB: what keeps calls fast beside bulk is that the queue in the network is short.
///
/// Bulk with a fixed window, as a share of an unbounded cubic: 2 MiB 1.02 at 1,452 bytes, 1 MiB 0.90 and 256 KiB 0.84 at
/// 8,952. Two such windows still fit the receiver's socket buffer of 4 MiB, beyond which packets are lost on an
/// idle network. It is also twice the product of 10 Gbit/s and 0.5 ms.
const IN_FLIGHT: u64 = 2 * 1024 * 1024;

/// 2 MiB. Above some 2.8 MB a lossy connection can die of "too many gaps in stream buffer"; below it the credits
/// of a partition channel (64 buffers of 32 KiB) would not be what limits it.
const STREAM_WINDOW: u32 = 2 * 1024 * 1024;

/// 16 MiB, the memory that a peer can fill while nobody reads: eight streams with a full window. Never what limits
/// bytes in flight: where it was, calls beside bulk waited tens of milliseconds.
const RECEIVE_WINDOW: u32 = 16 * 1024 * 1024;

/// Four times what may be in flight, so that a writer always has room and the congestion window decides.
const SEND_WINDOW: u64 = 4 * IN_FLIGHT;

/// RFC 9002 section 6.1.1: an ordinary network reorders less.
const REORDER_PACKETS: u32 = 3;

/// RFC 9002 section 6.1.2.
const REORDER_TIME: f32 = 9.0 / 8.0;

/// The limit to give quinn so that the peer may have `count` streams open at any time.
///
/// quinn tells the peer of new room only once it exceeds an eighth of the limit. With a limit of just `count`, a peer
/// with `count` long-lived streams that ends one of them would wait for more to end. 7/8 of this are more than `count`.
pub(super) fn quinn_stream_limit(count: u32) -> VarInt {
    VarInt::from_u32(count.saturating_add(count / 7).saturating_add(1))
}

/// Streams that the peer may open at first, which makes a limit of 100: quinn allocates for each stream of the limit
/// ahead, and 20,000 cost 2 MB and quadruple the set-up time.
pub(super) const INITIAL_STREAMS: u32 = 87;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_send_exceeds_a_udp_payload() {
        for profile in Profile::ALL {
            let path = PathSettings::of(profile);
            let sent = path.max_segments() * usize::from(path.max_payload());
            assert!(sent <= MAX_UDP_PAYLOAD, "{profile}: {sent}");
        }
        assert_eq!(PathSettings::of(Profile::Jumbo).max_segments(), 7);
        assert_eq!(PathSettings::of(Profile::Loopback).max_segments(), 1);
    }

    #[test]
    fn the_first_packet_fits_the_initial_window() {
        for profile in Profile::ALL {
            let path = PathSettings::of(profile);
            let window = path.initial_window.unwrap_or(12_000);
            assert!(u64::from(path.initial_mtu) < window, "{profile}");
        }
    }

    #[test]
    fn only_the_congestion_window_bounds_bytes_in_flight() {
        for profile in Profile::ALL {
            let path = PathSettings::of(profile);
            assert!(path.in_flight < path.send_window, "{profile}");
            assert!(
                path.in_flight <= u64::from(path.receive_window) / 2,
                "{profile}"
            );
            assert!(path.stream_window <= STREAM_WINDOW, "{profile}");
        }
    }

    #[test]
    fn the_peer_has_its_streams_whatever_quinn_holds_back() {
        for count in (0..2_000).chain([65_536, 1_000_000]) {
            let limit = quinn_stream_limit(count).into_inner();
            assert!(limit - limit / 8 >= u64::from(count), "{count}");
        }
        assert_eq!(quinn_stream_limit(INITIAL_STREAMS), VarInt::from_u32(100));
    }

    #[test]
    fn every_profile_makes_a_configuration() {
        for profile in Profile::ALL {
            let path = PathSettings::of(profile);
            path.endpoint_config();
            path.transport_config(&TransportConfig::default()).unwrap();
        }
    }
}
