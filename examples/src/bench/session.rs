//! The server's side of one command.

use std::net::SocketAddr;

use thalweg_transport::PeerStream;

#[cfg(feature = "peers")]
use super::peers::PeerServer;

use super::{
    control::{ControlStream, Request, Response, VERSION},
    cores,
    fault::Fault,
    machine::Machine,
    ours::Producer,
    raw::{Answerer, FramedProducer, QuicProducer},
    security::NodeCertificates,
    spec::Spec,
    transport_kind::TransportKind,
    usage::{self, Usage},
};
use crate::cli::failure::Failure;

/// Answers requests until the command goes away. Dropped, it ends what it produces.
pub(super) async fn serve(
    stream: PeerStream,
    certificates: &NodeCertificates,
    bind: SocketAddr,
) -> Result<(), Failure> {
    let mut control = ControlStream::new(stream);
    let mut producing = None;
    while let Some(request) = control.receive::<Request>().await? {
        let answered = answer(request, &mut producing, certificates, bind).await;
        let response = match answered {
            Ok(response) => response,
            Err(failure) => {
                end(&mut producing).await;
                Response::Failed {
                    reason: failure.to_string(),
                }
            }
        };
        control.send(&response).await?;
    }
    end(&mut producing).await;
    control.finish();
    Ok(())
}

async fn answer(
    request: Request,
    producing: &mut Option<Producing>,
    certificates: &NodeCertificates,
    bind: SocketAddr,
) -> Result<Response, Failure> {
    match request {
        Request::Hello { version } if version != VERSION => Err(Failure::failed(format!(
            "this server is of version {VERSION}, the command of version {version}"
        ))),
        Request::Hello { .. } => Ok(Response::Hello {
            machine: Machine::here(bind.ip()),
        }),
        Request::Prepare { spec } => {
            end(producing).await;
            let started = Producing::start(&spec, certificates, bind).await?;
            let port = started.port();
            *producing = Some(started);
            Ok(Response::Ready { port })
        }
        Request::Usage { reset_peak } => {
            let fault = producing.as_ref().and_then(|one| one.fault.get());
            if let Some(reason) = fault {
                return Err(Failure::failed(reason));
            }
            if reset_peak {
                usage::reset_peak();
            }
            Ok(Response::Usage {
                usage: Usage::now(),
            })
        }
        Request::Finish => {
            end(producing).await;
            Ok(Response::Finished)
        }
    }
}

async fn end(producing: &mut Option<Producing>) {
    if let Some(producing) = producing.take() {
        producing.end().await;
    }
}

/// What produces and answers now.
struct Producing {
    what: What,
    fault: Fault,
}

enum What {
    Ours(Box<Producer>),
    Quic(QuicProducer),
    Framed(FramedProducer),
    Calls(Answerer),
    #[cfg(feature = "peers")]
    Peer(PeerServer),
}

impl Producing {
    async fn start(
        spec: &Spec,
        certificates: &NodeCertificates,
        bind: SocketAddr,
    ) -> Result<Self, Failure> {
        let fault = Fault::default();
        cores::keep_to(spec.cores)?;
        let calls_alone = spec.channels == 0;
        let what = match spec.transport {
            TransportKind::RawQuic | TransportKind::RawTls | TransportKind::RawTcp
                if calls_alone =>
            {
                What::Calls(Answerer::start(spec, certificates, bind, &fault).await?)
            }
            TransportKind::RawQuic => {
                What::Quic(QuicProducer::start(spec, certificates, bind, &fault).await?)
            }
            TransportKind::RawTls | TransportKind::RawTcp => {
                What::Framed(FramedProducer::start(spec, certificates, bind, &fault).await?)
            }
            #[cfg(feature = "peers")]
            TransportKind::Tonic
            | TransportKind::TonicTls
            | TransportKind::Flight
            | TransportKind::FlightTls => {
                What::Peer(PeerServer::start(spec, certificates, bind, &fault).await?)
            }
            #[cfg(not(feature = "peers"))]
            TransportKind::Tonic
            | TransportKind::TonicTls
            | TransportKind::Flight
            | TransportKind::FlightTls => return Err(spec.transport.not_built()),
            TransportKind::Quic | TransportKind::Tcp | TransportKind::TcpPlain => What::Ours(
                Box::new(Producer::start(spec, certificates, bind, &fault).await?),
            ),
        };
        Ok(Self { what, fault })
    }

    fn port(&self) -> u16 {
        match &self.what {
            What::Ours(producer) => producer.port(),
            What::Quic(producer) => producer.port(),
            What::Framed(producer) => producer.port(),
            What::Calls(answerer) => answerer.port(),
            #[cfg(feature = "peers")]
            What::Peer(server) => server.port(),
        }
    }

    async fn end(self) {
        match self.what {
            What::Ours(producer) => producer.end().await,
            What::Quic(producer) => producer.end().await,
            What::Framed(producer) => producer.end().await,
            What::Calls(answerer) => answerer.end().await,
            #[cfg(feature = "peers")]
            What::Peer(server) => server.end().await,
        }
    }
}
