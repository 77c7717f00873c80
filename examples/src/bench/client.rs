//! The command's end of a measurement, whatever it is.

use std::sync::Arc;

#[cfg(feature = "peers")]
use super::peers::PeerClient;

use super::{
    counters::Counters,
    fault::Fault,
    ours::Consumer,
    peer::Peer,
    raw::{Caller, FramedConsumer, QuicConsumer},
    security::NodeCertificates,
    spec::Spec,
    transport_kind::TransportKind,
};
use crate::cli::failure::Failure;

/// What consumes and calls now.
#[derive(Debug)]
pub(super) enum Client {
    Ours(Box<Consumer>),
    Quic(QuicConsumer),
    Framed(FramedConsumer),
    Calls(Caller),
    #[cfg(feature = "peers")]
    Peer(PeerClient),
}

impl Client {
    pub(super) async fn start(
        spec: &Spec,
        certificates: &NodeCertificates,
        peer: &Peer,
        stopped: u32,
        counters: &Arc<Counters>,
        fault: &Fault,
    ) -> Result<Self, Failure> {
        let calls_alone = spec.channels == 0;
        Ok(match spec.transport {
            TransportKind::RawQuic | TransportKind::RawTls | TransportKind::RawTcp
                if calls_alone =>
            {
                Self::Calls(Caller::start(spec, certificates, peer, counters, fault).await?)
            }
            TransportKind::RawQuic => {
                Self::Quic(QuicConsumer::start(spec, certificates, peer, counters, fault).await?)
            }
            TransportKind::RawTls | TransportKind::RawTcp => Self::Framed(
                FramedConsumer::start(spec, certificates, peer, counters, fault).await?,
            ),
            #[cfg(feature = "peers")]
            TransportKind::Tonic
            | TransportKind::TonicTls
            | TransportKind::Flight
            | TransportKind::FlightTls => {
                Self::Peer(PeerClient::start(spec, certificates, peer, counters, fault).await?)
            }
            #[cfg(not(feature = "peers"))]
            TransportKind::Tonic
            | TransportKind::TonicTls
            | TransportKind::Flight
            | TransportKind::FlightTls => return Err(spec.transport.not_built()),
            TransportKind::Quic | TransportKind::Tcp | TransportKind::TcpPlain => {
                Self::Ours(Box::new(
                    Consumer::start(spec, certificates, peer, stopped, counters, fault).await?,
                ))
            }
        })
    }

    pub(super) async fn end(self) {
        match self {
            Self::Ours(consumer) => consumer.end().await,
            Self::Quic(consumer) => consumer.end().await,
            Self::Framed(consumer) => consumer.end().await,
            Self::Calls(caller) => caller.end().await,
            #[cfg(feature = "peers")]
            Self::Peer(client) => client.end().await,
        }
    }
}
