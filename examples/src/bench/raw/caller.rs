//! The calling end of a raw connection that carries calls alone.

use std::{error::Error, net::SocketAddr, sync::Arc};

use quinn::Endpoint;
use rustls::pki_types::ServerName;
use thalweg_transport::{Credentials, SERVER_NAME};
use tokio::{io::join, net::TcpStream};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{
    frames::call,
    quic::connect,
    quic_server::{close, open},
};
use crate::{
    bench::{
        case::Calls,
        counters::Counters,
        fault::Fault,
        peer::{Peer, any_of},
        security::NodeCertificates,
        spec::Spec,
        tasks::Tasks,
        transport_kind::TransportKind,
    },
    cli::failure::Failure,
};

/// One stream and one task for all calls.
#[derive(Debug)]
pub(crate) struct Caller {
    tasks: Tasks,
    endpoint: Option<Endpoint>,
}

impl Caller {
    pub(crate) async fn start(
        spec: &Spec,
        certificates: &NodeCertificates,
        peer: &Peer,
        counters: &Arc<Counters>,
        fault: &Fault,
    ) -> Result<Self, Failure> {
        let calls = spec
            .calls
            .ok_or_else(|| Failure::failed("there are no calls to make"))?;
        let tasks = Tasks::on_thread("bench-raw")?;
        let endpoint = match spec.transport {
            TransportKind::RawQuic => {
                let any = SocketAddr::new(any_of(peer.address.ip()), 0);
                Some(open(spec, certificates, any, &tasks).await?)
            }
            _ => None,
        };
        let connector = (spec.transport == TransportKind::RawTls)
            .then(|| TlsConnector::from(certificates.security.client_config()));
        let (dialling, address) = (endpoint.clone(), peer.address);
        let (counters, fault) = (counters.clone(), fault.clone());
        tasks.spawn(async move {
            let run = match (dialling, connector) {
                (Some(endpoint), _) => over_quic(&endpoint, address, calls, &counters).await,
                (None, Some(tls)) => over_tls(&tls, address, calls, &counters).await,
                (None, None) => over_tcp(address, calls, &counters).await,
            };
            if let Err(error) = run {
                fault.report(&format!("calls to {address} failed"), error);
            }
        });
        Ok(Self { tasks, endpoint })
    }

    pub(crate) async fn end(self) {
        if let Some(endpoint) = &self.endpoint {
            close(endpoint).await;
        }
        self.tasks.end().await;
    }
}

type Ended = Result<(), Box<dyn Error + Send + Sync>>;

async fn over_quic(
    endpoint: &Endpoint,
    address: SocketAddr,
    calls: Calls,
    counters: &Counters,
) -> Ended {
    let connection = connect(endpoint, address).await?;
    let (send, recv) = connection.open_bi().await?;
    Ok(call(join(recv, send), calls, counters).await?)
}

async fn over_tls(
    tls: &TlsConnector,
    address: SocketAddr,
    calls: Calls,
    counters: &Counters,
) -> Ended {
    let name = ServerName::try_from(SERVER_NAME)?;
    let stream: TlsStream<TcpStream> = tls.connect(name, dial(address).await?).await?;
    Ok(call(stream, calls, counters).await?)
}

async fn over_tcp(address: SocketAddr, calls: Calls, counters: &Counters) -> Ended {
    Ok(call(dial(address).await?, calls, counters).await?)
}

async fn dial(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
