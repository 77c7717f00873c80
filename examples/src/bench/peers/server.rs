//! The end that answers and produces.

use std::{error::Error, io, net::SocketAddr, sync::Arc};

use arrow_flight::flight_service_server::FlightServiceServer;
use futures_util::{StreamExt, stream};
use rustls::ServerConfig;
use thalweg_transport::Credentials;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;
use tonic::transport::{Server, server::Connected};

use super::{HTTP_2, echo::Echo, flight::Batches};
use crate::{
    bench::{fault::Fault, security::NodeCertificates, spec::Spec, tasks::Tasks},
    cli::failure::Failure,
};

/// Serves both services to the one connection of a measurement.
#[derive(Debug)]
pub(crate) struct PeerServer {
    tasks: Tasks,
    port: u16,
}

impl PeerServer {
    pub(crate) async fn start(
        spec: &Spec,
        certificates: &NodeCertificates,
        bind: SocketAddr,
        fault: &Fault,
    ) -> Result<Self, Failure> {
        spec.config()
            .map_err(|error| Failure::usage(error.to_string()))?;
        let tasks = Tasks::on_thread("bench-peer")?;
        let failed = |reason: String| Failure::failed(format!("cannot listen on {bind}: {reason}"));
        let listener = tasks
            .run(TcpListener::bind(bind))
            .await
            .ok_or_else(|| failed("the thread ended".to_owned()))?
            .map_err(|error| failed(error.to_string()))?;
        let bound = listener.local_addr();
        let port = bound.map_err(|error| failed(error.to_string()))?.port();
        let acceptor = spec.transport.has_tls().then(|| {
            let mut config: ServerConfig = (*certificates.security.server_config()).clone();
            config.alpn_protocols = vec![HTTP_2.to_vec()];
            TlsAcceptor::from(Arc::new(config))
        });
        let fault = fault.clone();
        tasks.spawn(async move {
            if let Err(error) = accept(&listener, acceptor).await {
                fault.report("answering failed", error);
            }
        });
        Ok(Self { tasks, port })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) async fn end(self) {
        self.tasks.end().await;
    }
}

type Ended = Result<(), Box<dyn Error + Send + Sync>>;

async fn accept(listener: &TcpListener, acceptor: Option<TlsAcceptor>) -> Ended {
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    match acceptor {
        Some(tls) => serve(tls.accept(stream).await?).await,
        None => serve::<TcpStream>(stream).await,
    }
}

async fn serve<IO>(stream: IO) -> Ended
where
    IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    // The server ends with its list of connections: this one has no end.
    let connections = stream::iter([Ok::<_, io::Error>(stream)]).chain(stream::pending());
    Server::builder()
        .add_service(Echo)
        .add_service(FlightServiceServer::new(Batches::new()))
        .serve_with_incoming(connections)
        .await?;
    Ok(())
}
