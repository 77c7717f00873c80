//! Settings of a node's transport and exchange, with their defaults and reasons.

use std::{fmt, str::FromStr, time::Duration};

use thiserror::Error;

/// Settings that belong together for one kind of network path.
///
/// Packet size, segmentation offload, windows, socket buffers and congestion control depend on each other: a wrong
/// combination is not slower but broken, so they are chosen together.
///
/// ```
/// use thalweg_transport::{Profile, TransportConfig};
///
/// let mut config = TransportConfig::default();
/// assert_eq!(config.profile, Profile::Lan);
/// config.profile = "wan".parse()?;
/// assert_eq!(config.profile, Profile::Wan);
/// assert!("sneakernet".parse::<Profile>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Profile {
    /// One machine: packets up to 65,000 bytes, no segmentation offload.
    Loopback,
    /// Networks known to carry 9,000-byte frames: packets of 8,952 bytes, offload capped so that a batch fits 64 KiB.
    Jumbo,
    /// Any data centre: packet size discovered between 1,200 and 1,452 bytes.
    #[default]
    Lan,
    /// Lossy or long paths.
    Wan,
}

impl Profile {
    /// All profiles, for messages.
    pub const ALL: [Self; 4] = [Self::Loopback, Self::Jumbo, Self::Lan, Self::Wan];

    /// The name in configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Jumbo => "jumbo",
            Self::Lan => "lan",
            Self::Wan => "wan",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|profile| profile.as_str() == text)
            .ok_or_else(|| {
                format!("{text:?} is no profile: loopback, jumbo, lan or wan are allowed")
            })
    }
}

/// How the data of blocking partitions is compressed, on disk and on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// LZ4 blocks, one for each buffer that gets smaller by it. Needs the feature `lz4` of this crate.
    Lz4,
}

/// Settings of a node's transport and exchange.
///
/// `Default` is fit for a data centre. Check changed values with [`validate`](Self::validate); constructors that take
/// the configuration do so.
///
/// ```
/// use std::time::Duration;
///
/// use thalweg_transport::TransportConfig;
///
/// let mut config = TransportConfig::default();
/// config.buffer_pool = 256 * 1024 * 1024;
/// config.connections_per_peer = 2;
/// config.keep_alive = Duration::from_secs(1);
/// config.validate()?;
///
/// config.keep_alive = config.idle_timeout;
/// let error = config.validate().unwrap_err();
/// assert!(error.to_string().starts_with("keep_alive = 6s is not allowed"));
/// # Ok::<(), thalweg_transport::ConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransportConfig {
    /// Packet sizes, windows and congestion control. Default [`Profile::Lan`].
    pub profile: Profile,
    /// Connections to the same peer that a node may use; a [`ConnectionId`](crate::ConnectionId)'s index is reduced
    /// modulo this. Default 1: more connections buy crypto on more cores at the price of handshakes and windows.
    pub connections_per_peer: u32,
    /// Budget of a whole dial: all attempts, their pauses, handshake and hello. Default 5 s.
    pub connect_timeout: Duration,
    /// Attempts after the first one. Default 3.
    pub connect_retries: u32,
    /// Pause before the second attempt; doubles up to [`connect_backoff_max`](Self::connect_backoff_max). Default 100 ms.
    pub connect_backoff: Duration,
    /// Longest pause between two attempts. Default 1 s.
    pub connect_backoff_max: Duration,
    /// How often a quiet connection says that it lives. Default 2 s, a third of the idle time-out.
    pub keep_alive: Duration,
    /// A peer that is silent for so long is dead. Default 6 s.
    pub idle_timeout: Duration,
    /// Older connections that this node dialled are drained: new work gets a new connection, what is under way goes on, for
    /// at most as long again. So the peer's certificate is looked at again, and no key is in use for more than twice
    /// this time. Up to a tenth is taken off at random, so that not all connections go at once. Default 24 h, the
    /// shortest life that certificates of nodes commonly have. An exchange may begin on a connection that is nearly
    /// so old: raise it where exchanges run for longer than this, or they fail.
    pub max_connection_age: Duration,
    /// Bytes of a full data frame on the wire, header included. Default 32 KiB: two TLS records of 16 KiB, so that no
    /// short record is left (measured: 16 % on TLS).
    pub buffer_size: u32,
    /// Bytes of network memory of the node. Default 64 MiB. Reserved as a number, touched when used.
    pub buffer_pool: u64,
    /// Buffers that each remote channel holds for itself: its initial credit. Default 2.
    pub exclusive_buffers_per_channel: u32,
    /// Buffers that up to eight channels of a gate share by their senders' backlog; a gate with more channels has an
    /// eighth of it for each. Default 64 (2 + 8 reached 0.77 of a raw stream on one channel, 40 reached 0.97).
    pub floating_buffers_per_gate: u32,
    /// Whether the size of buffers follows the throughput of a gate, so that what is under way takes about a second to
    /// consume: less to wait for at a checkpoint, at the price of more, smaller frames. Default false.
    pub buffer_debloating: bool,
    /// How long a request waits at the producer for a partition that is not there yet. Default 10 s.
    pub partition_request_timeout: Duration,
    /// Whether an idle connection is kept for the next job. Default true.
    pub reuse_connections: bool,
    /// Limit for one handshake, hello included. Default 10 s.
    pub handshake_timeout: Duration,
    /// Handshakes that a listener works on at the same time. Default 256.
    pub max_handshakes: u32,
    /// Most streams that a peer may have open on one connection; allowed in steps as they are used. Default 65,536.
    /// On TCP each of them may lie unread with 16 KiB, beside [`max_unread_bytes`](Self::max_unread_bytes). On QUIC all
    /// streams of a connection share a window.
    pub max_streams_per_connection: u32,
    /// Bytes that a peer may make this node hold unread on one TCP connection, beyond 16 KiB for each of its streams.
    /// The windows of streams whose senders wait for them grow up to 2 MiB each, and to this together. Default 64 MiB: 32
    /// streams with the largest window, or 256 with 256 KiB, which is more than the credits of a channel allow where
    /// there are that many.
    pub max_unread_bytes: u64,
    /// Connections that peers may have to this node; more are refused with
    /// [`LIMIT_EXCEEDED`](crate::ErrorCode::LIMIT_EXCEEDED). Default 10,000: several for each node of the largest clusters.
    /// One that is drained for its age counts until it ends, beside its successor: allow for twice the connections that
    /// nodes have. One peer may have at most 256, and never the last eighth, so that one that dials without end leaves others
    /// their place. Who it is says its certificate; without TLS it is what the peer says.
    pub max_connections: u32,
    /// A peer that does not read for so long, while we have something to send it, is dropped. Default 30 s.
    pub write_timeout: Duration,
    /// Wait of a task for a buffer of the node's pool before it fails with a message that says what to raise.
    /// Default 30 s (Flink's `buffers-request-timeout`).
    pub buffer_request_timeout: Duration,
    /// Compression of blocking partitions. Default none: fast disks lose by it. A peer that cannot decompress gets its
    /// data as it was written.
    pub blocking_compression: Compression,
}

impl Default for TransportConfig {
    fn default() -> Self {
        Self {
            profile: Profile::Lan,
            connections_per_peer: 1,
            connect_timeout: Duration::from_secs(5),
            connect_retries: 3,
            connect_backoff: Duration::from_millis(100),
            connect_backoff_max: Duration::from_secs(1),
            keep_alive: Duration::from_secs(2),
            idle_timeout: Duration::from_secs(6),
            max_connection_age: Duration::from_secs(24 * 3600),
            buffer_size: 32 * 1024,
            buffer_pool: 64 * 1024 * 1024,
            exclusive_buffers_per_channel: 2,
            floating_buffers_per_gate: 64,
            buffer_debloating: false,
            partition_request_timeout: Duration::from_secs(10),
            reuse_connections: true,
            handshake_timeout: Duration::from_secs(10),
            max_handshakes: 256,
            max_streams_per_connection: 65_536,
            max_unread_bytes: 64 * 1024 * 1024,
            max_connections: 10_000,
            write_timeout: Duration::from_secs(30),
            buffer_request_timeout: Duration::from_secs(30),
            blocking_compression: Compression::None,
        }
    }
}

impl TransportConfig {
    /// Payload bytes of a full buffer: the frame without its headers.
    #[must_use]
    pub fn payload_size(&self) -> usize {
        self.buffer_size as usize - FRAME_OVERHEAD
    }

    /// Checks each value and the rules between them.
    ///
    /// # Errors
    /// [`ConfigError`] naming the first bad key, its value, and what is allowed.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let bad = |key: &'static str, value: String, allowed: &'static str| {
            Err(ConfigError {
                key,
                value,
                allowed,
            })
        };
        if !(1..=64).contains(&self.connections_per_peer) {
            return bad(
                "connections_per_peer",
                self.connections_per_peer.to_string(),
                "1 to 64",
            );
        }
        if !(1024..=1024 * 1024).contains(&self.buffer_size) {
            return bad(
                "buffer_size",
                format!("{} bytes", self.buffer_size),
                "1KiB to 1MiB",
            );
        }
        if self.buffer_pool < u64::from(self.buffer_size) * 16 {
            return bad(
                "buffer_pool",
                format!("{} bytes", self.buffer_pool),
                "at least 16 buffers of buffer_size",
            );
        }
        if self.exclusive_buffers_per_channel > 1024 {
            return bad(
                "exclusive_buffers_per_channel",
                self.exclusive_buffers_per_channel.to_string(),
                "0 to 1024",
            );
        }
        if !(1..=16_384).contains(&self.floating_buffers_per_gate) {
            return bad(
                "floating_buffers_per_gate",
                self.floating_buffers_per_gate.to_string(),
                "1 to 16384",
            );
        }
        if self.connect_retries > 100 {
            return bad(
                "connect_retries",
                self.connect_retries.to_string(),
                "0 to 100",
            );
        }
        for (key, value) in [
            ("connect_timeout", self.connect_timeout),
            ("keep_alive", self.keep_alive),
            ("idle_timeout", self.idle_timeout),
            ("partition_request_timeout", self.partition_request_timeout),
            ("handshake_timeout", self.handshake_timeout),
            ("write_timeout", self.write_timeout),
        ] {
            if value < Duration::from_millis(1) || value > MAX_DURATION {
                return bad(key, format!("{value:?}"), "1ms to 30 days");
            }
        }
        if !(MIN_CONNECTION_AGE..=MAX_CONNECTION_AGE).contains(&self.max_connection_age) {
            return bad(
                "max_connection_age",
                format!("{:?}", self.max_connection_age),
                "100ms to 10 years",
            );
        }
        if self.keep_alive >= self.idle_timeout {
            return bad(
                "keep_alive",
                format!("{:?}", self.keep_alive),
                "less than idle_timeout",
            );
        }
        if !(1..=65_536).contains(&self.max_handshakes) {
            return bad(
                "max_handshakes",
                self.max_handshakes.to_string(),
                "1 to 65536",
            );
        }
        if !(1..=1_000_000).contains(&self.max_connections) {
            return bad(
                "max_connections",
                self.max_connections.to_string(),
                "1 to 1000000",
            );
        }
        if self.max_connections - self.max_connections / 8 < self.connections_per_peer {
            return bad(
                "max_connections",
                self.max_connections.to_string(),
                "more than 8/7 of connections_per_peer, as one peer never has the last eighth",
            );
        }
        if !(1 << 20..=1 << 40).contains(&self.max_unread_bytes) {
            return bad(
                "max_unread_bytes",
                format!("{} bytes", self.max_unread_bytes),
                "1MiB to 1TiB",
            );
        }
        if !(16..=1_000_000).contains(&self.max_streams_per_connection) {
            return bad(
                "max_streams_per_connection",
                self.max_streams_per_connection.to_string(),
                "16 to 1000000",
            );
        }
        if self.blocking_compression == Compression::Lz4 && !cfg!(feature = "lz4") {
            return bad(
                "blocking_compression",
                "lz4".to_owned(),
                "none: this program was built without LZ4",
            );
        }
        Ok(())
    }
}

/// A configuration value that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{key} = {value} is not allowed: {allowed}")]
pub struct ConfigError {
    /// The key.
    pub key: &'static str,
    /// What was given.
    pub value: String,
    /// What is allowed.
    pub allowed: &'static str,
}

/// Header bytes of a data frame: 16 of the partition protocol and 8 of the TCP multiplex.
///
/// Counted on QUIC too, where the multiplex header does not exist, so that a partition's buffers fit either backend.
pub const FRAME_OVERHEAD: usize = 24;

/// A longer time-out is a typing mistake, and some timers overflow on it.
const MAX_DURATION: Duration = Duration::from_secs(30 * 24 * 3600);

/// Shorter than a handshake over a long path takes, a connection would be old before it is used.
const MIN_CONNECTION_AGE: Duration = Duration::from_millis(100);

/// As good as for ever.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid() {
        TransportConfig::default().validate().unwrap();
        assert_eq!(TransportConfig::default().payload_size(), 32_744);
    }

    #[test]
    fn a_bad_value_names_key_value_and_what_is_allowed() {
        let config = TransportConfig {
            buffer_size: 10,
            ..TransportConfig::default()
        };
        assert_eq!(
            config.validate().unwrap_err().to_string(),
            "buffer_size = 10 bytes is not allowed: 1KiB to 1MiB"
        );
    }
}
