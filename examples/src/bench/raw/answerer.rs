//! The answering end of a raw connection that carries calls alone.

use std::{error::Error, net::SocketAddr};

use quinn::Endpoint;
use thalweg_transport::Credentials;
use tokio::{
    io::join,
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

use super::{
    frames::answer,
    quic_server::{close, open},
};
use crate::{
    bench::{
        fault::Fault, security::NodeCertificates, spec::Spec, tasks::Tasks,
        transport_kind::TransportKind,
    },
    cli::failure::Failure,
};

/// Answers the calls of one stream by one task.
#[derive(Debug)]
pub(crate) struct Answerer {
    tasks: Tasks,
    endpoint: Option<Endpoint>,
    port: u16,
}

impl Answerer {
    pub(crate) async fn start(
        spec: &Spec,
        certificates: &NodeCertificates,
        bind: SocketAddr,
        fault: &Fault,
    ) -> Result<Self, Failure> {
        spec.config()
            .map_err(|error| Failure::usage(error.to_string()))?;
        let tasks = Tasks::on_thread("bench-raw")?;
        let failed = |reason: String| Failure::failed(format!("cannot listen on {bind}: {reason}"));
        let fault = fault.clone();
        let ended = move |ended: Ended| {
            if let Err(error) = ended {
                fault.report("answering failed", error);
            }
        };
        if spec.transport == TransportKind::RawQuic {
            let endpoint = open(spec, certificates, bind, &tasks).await?;
            let bound = endpoint.local_addr();
            let port = bound.map_err(|error| failed(error.to_string()))?.port();
            let accepting = endpoint.clone();
            tasks.spawn(async move { ended(over_quic(&accepting).await) });
            return Ok(Self {
                tasks,
                endpoint: Some(endpoint),
                port,
            });
        }
        let acceptor = (spec.transport == TransportKind::RawTls)
            .then(|| TlsAcceptor::from(certificates.security.server_config()));
        let listener = tasks
            .run(TcpListener::bind(bind))
            .await
            .ok_or_else(|| failed("the thread ended".to_owned()))?
            .map_err(|error| failed(error.to_string()))?;
        let bound = listener.local_addr();
        let port = bound.map_err(|error| failed(error.to_string()))?.port();
        tasks.spawn(async move {
            ended(match acceptor {
                Some(tls) => over_tls(&tls, &listener).await,
                None => over_tcp(&listener).await,
            });
        });
        Ok(Self {
            tasks,
            endpoint: None,
            port,
        })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) async fn end(self) {
        if let Some(endpoint) = &self.endpoint {
            close(endpoint).await;
        }
        self.tasks.end().await;
    }
}

type Ended = Result<(), Box<dyn Error + Send + Sync>>;

async fn over_quic(endpoint: &Endpoint) -> Ended {
    let incoming = endpoint.accept().await.ok_or("the endpoint is closed")?;
    let connection = incoming.await?;
    let (send, recv) = connection.accept_bi().await?;
    Ok(answer(join(recv, send)).await?)
}

async fn over_tls(tls: &TlsAcceptor, listener: &TcpListener) -> Ended {
    let stream = tls.accept(accept(listener).await?).await?;
    Ok(answer(stream).await?)
}

async fn over_tcp(listener: &TcpListener) -> Ended {
    Ok(answer(accept(listener).await?).await?)
}

async fn accept(listener: &TcpListener) -> std::io::Result<TcpStream> {
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
