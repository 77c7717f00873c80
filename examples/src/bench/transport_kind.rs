//! What is measured, and what it is measured against.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// One of ours, or a raw yardstick.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TransportKind {
    /// Ours over QUIC
    Quic,
    /// quinn with the same settings and as many streams
    RawQuic,
    /// Ours over TCP with TLS
    Tcp,
    /// One tokio-rustls connection, frames tagged with their channel
    RawTls,
    /// Ours over TCP without TLS
    TcpPlain,
    /// One TCP connection, frames tagged with their channel
    RawTcp,
}

impl TransportKind {
    /// All of them, each of ours before its yardstick.
    pub(crate) const ALL: [Self; 6] = [
        Self::Quic,
        Self::RawQuic,
        Self::Tcp,
        Self::RawTls,
        Self::TcpPlain,
        Self::RawTcp,
    ];

    /// The raw transport below one of ours.
    pub(crate) fn yardstick(self) -> Option<Self> {
        match self {
            Self::Quic => Some(Self::RawQuic),
            Self::Tcp => Some(Self::RawTls),
            Self::TcpPlain => Some(Self::RawTcp),
            Self::RawQuic | Self::RawTls | Self::RawTcp => None,
        }
    }

    /// Whether it is one of ours, and not a yardstick.
    pub(crate) fn is_ours(self) -> bool {
        self.yardstick().is_some()
    }

    /// Whether the profile changes anything: it sets what is below QUIC.
    pub(crate) fn has_profile(self) -> bool {
        matches!(self, Self::Quic | Self::RawQuic)
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Quic => "quic",
            Self::RawQuic => "raw-quic",
            Self::Tcp => "tcp",
            Self::RawTls => "raw-tls",
            Self::TcpPlain => "tcp-plain",
            Self::RawTcp => "raw-tcp",
        }
    }
}

/// Where the tasks of producer and consumer run.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Placement {
    /// On the network thread of their node
    Network,
    /// On one thread of their own in each process
    OwnThread,
}

impl Placement {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::OwnThread => "own-thread",
        }
    }
}
