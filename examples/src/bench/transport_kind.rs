//! What is measured, and what it is measured against.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::cli::failure::Failure;

/// One of ours, a raw yardstick, or a peer: what others use for the same work.
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
    /// Calls of tonic without TLS; beside data, that of Arrow Flight on the same channel
    Tonic,
    /// The same with TLS
    TonicTls,
    /// Data of Arrow Flight without TLS
    Flight,
    /// The same with TLS
    FlightTls,
}

impl TransportKind {
    /// All of them, each of ours before its yardstick.
    pub(crate) const ALL: [Self; 10] = [
        Self::Quic,
        Self::RawQuic,
        Self::Tcp,
        Self::RawTls,
        Self::TcpPlain,
        Self::RawTcp,
        Self::Tonic,
        Self::TonicTls,
        Self::Flight,
        Self::FlightTls,
    ];

    /// Those of this program that move data by themselves.
    pub(crate) fn for_data() -> Vec<Self> {
        Self::built(Self::moves_data)
    }

    /// Those of this program that make calls.
    pub(crate) fn for_calls() -> Vec<Self> {
        Self::built(Self::makes_calls)
    }

    fn built(suits: fn(Self) -> bool) -> Vec<Self> {
        let fitting = Self::ALL.into_iter().filter(|kind| suits(*kind));
        fitting.filter(|kind| kind.is_built()).collect()
    }

    pub(crate) fn moves_data(self) -> bool {
        !matches!(self, Self::Tonic | Self::TonicTls)
    }

    pub(crate) fn makes_calls(self) -> bool {
        !matches!(self, Self::Flight | Self::FlightTls)
    }

    /// Whether this program was built with it.
    pub(crate) fn is_built(self) -> bool {
        !self.is_peer() || cfg!(feature = "peers")
    }

    /// What to say where it is wanted and was not built: it brings a hundred crates.
    pub(crate) fn not_built(self) -> Failure {
        Failure::usage(format!(
            "{} needs a bench with the cargo feature peers: \
             cargo build --release -p thalweg-examples --features peers",
            self.as_str()
        ))
    }

    fn is_peer(self) -> bool {
        !self.moves_data() || !self.makes_calls()
    }

    #[cfg(feature = "peers")]
    pub(crate) fn has_tls(self) -> bool {
        !matches!(
            self,
            Self::TcpPlain | Self::RawTcp | Self::Tonic | Self::Flight
        )
    }

    /// The raw transport below one of ours.
    pub(crate) fn yardstick(self) -> Option<Self> {
        match self {
            Self::Quic => Some(Self::RawQuic),
            Self::Tcp => Some(Self::RawTls),
            Self::TcpPlain => Some(Self::RawTcp),
            _ => None,
        }
    }

    /// Whether it is one of ours, and nothing to compare with.
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
            Self::Tonic => "tonic",
            Self::TonicTls => "tonic-tls",
            Self::Flight => "flight",
            Self::FlightTls => "flight-tls",
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
