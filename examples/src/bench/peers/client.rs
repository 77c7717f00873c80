//! The end that calls and consumes.

use std::{io, net::SocketAddr, sync::Arc};

use arrow_flight::{
    FlightClient, Ticket, error::FlightError, flight_service_client::FlightServiceClient,
};
use bytes::Bytes;
use futures_util::StreamExt;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use thalweg_transport::{Credentials, SERVER_NAME, chain, now};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::{
    Status,
    transport::{Channel, Endpoint, Error},
};
use tower::service_fn;

use super::{HTTP_2, echo::EchoClient};
use crate::{
    bench::{
        counters::Counters, fault::Fault, peer::Peer, security::NodeCertificates, spec::Spec,
        tasks::Tasks,
    },
    cli::failure::Failure,
};

/// One channel: a `do_get` and a task for each channel of the data, and a task for each outstanding call.
#[derive(Debug)]
pub(crate) struct PeerClient {
    tasks: Tasks,
}

impl PeerClient {
    pub(crate) async fn start(
        spec: &Spec,
        certificates: &NodeCertificates,
        peer: &Peer,
        counters: &Arc<Counters>,
        fault: &Fault,
    ) -> Result<Self, Failure> {
        let tasks = Tasks::on_thread("bench-peer")?;
        let connector = spec.transport.has_tls().then(|| {
            let mut config: ClientConfig = (*certificates.security.client_config()).clone();
            config.alpn_protocols = vec![HTTP_2.to_vec()];
            TlsConnector::from(Arc::new(config))
        });
        let address = peer.address;
        let failed =
            |reason: &str| Failure::failed(format!("cannot connect to {address}: {reason}"));
        let channel = tasks
            .run(connect(address, connector))
            .await
            .ok_or_else(|| failed("the thread ended"))?
            .map_err(|error| failed(&chain(&error)))?;
        for number in 0..spec.channels as usize {
            let (channel, counters, fault) = (channel.clone(), counters.clone(), fault.clone());
            tasks.spawn(async move {
                match consume(channel, number, &counters).await {
                    Ok(()) => fault.report("consuming failed", "the stream ended"),
                    Err(error) => fault.report("consuming failed", error),
                }
            });
        }
        for _ in 0..spec.calls.map_or(0, |calls| calls.outstanding) {
            let (client, payload) = (EchoClient::new(channel.clone()), spec.payload() as usize);
            let (counters, fault) = (counters.clone(), fault.clone());
            tasks.spawn(async move {
                if let Err(error) = call(client, payload, &counters).await {
                    fault.report("a call failed", error);
                }
            });
        }
        Ok(Self { tasks })
    }

    pub(crate) async fn end(self) {
        self.tasks.end().await;
    }
}

async fn connect(address: SocketAddr, tls: Option<TlsConnector>) -> Result<Channel, Error> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
    let dial = move || async move {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok::<_, io::Error>(stream)
    };
    match tls {
        None => {
            let connector =
                service_fn(move |_| async move { Ok::<_, io::Error>(TokioIo::new(dial().await?)) });
            endpoint.connect_with_connector(connector).await
        }
        Some(tls) => {
            let connector = service_fn(move |_| {
                let tls = tls.clone();
                async move {
                    let name = ServerName::try_from(SERVER_NAME).map_err(io::Error::other)?;
                    Ok::<_, io::Error>(TokioIo::new(tls.connect(name, dial().await?).await?))
                }
            });
            endpoint.connect_with_connector(connector).await
        }
    }
}

async fn call(mut client: EchoClient, payload: usize, counters: &Counters) -> Result<(), Status> {
    let message = Bytes::from(vec![0; payload]);
    loop {
        let sent = now();
        client.echo(message.clone()).await?;
        counters.add_call(now().saturating_duration_since(sent));
    }
}

/// Reads batches and drops them.
async fn consume(channel: Channel, number: usize, counters: &Counters) -> Result<(), FlightError> {
    let mut client = FlightClient::new_from_inner(FlightServiceClient::new(channel));
    let mut batches = client.do_get(Ticket::new("")).await?;
    while let Some(batch) = batches.next().await {
        // One column, a byte for each row.
        counters.add(number, batch?.num_rows());
    }
    Ok(())
}
