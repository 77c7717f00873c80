//! The producing end of a raw QUIC connection.

use std::{error::Error, net::SocketAddr, time::Duration};

use bytes::Bytes;
use quinn::{Endpoint, RecvStream, SendStream, VarInt};
use thalweg_transport::quic::QuicTransport;

use super::quic::PRIORITY;
use crate::{
    bench::{
        bulk::block,
        fault::Fault,
        security::NodeCertificates,
        spec::{MAX_PAYLOAD, Spec},
        tasks::{Spawner, Tasks},
    },
    cli::failure::Failure,
};

/// Serves each stream that is opened by a task, as fast as quinn takes it.
#[derive(Debug)]
pub(crate) struct QuicProducer {
    tasks: Tasks,
    endpoint: Endpoint,
    port: u16,
}

impl QuicProducer {
    pub(crate) async fn start(
        spec: &Spec,
        certificates: &NodeCertificates,
        bind: SocketAddr,
        fault: &Fault,
    ) -> Result<Self, Failure> {
        let tasks = Tasks::on_thread("bench-raw")?;
        let endpoint = open(spec, certificates, bind, &tasks).await?;
        let port = endpoint
            .local_addr()
            .map_err(|error| Failure::failed(format!("cannot listen on {bind}: {error}")))?
            .port();
        let frame = spec.config().map_or(0, |config| config.payload_size());
        let payload = block(frame);
        // One more for calls; never less than what our own connections begin with.
        let streams = VarInt::from_u32((spec.channels + 1).max(BEGIN_STREAMS));
        let (accepting, fault, spawner) = (endpoint.clone(), fault.clone(), tasks.spawner());
        tasks.spawn(async move {
            if let Err(error) = serve(&accepting, streams, payload, &spawner, &fault).await {
                fault.report("producing failed", error);
            }
        });
        Ok(Self {
            tasks,
            endpoint,
            port,
        })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) async fn end(self) {
        close(&self.endpoint).await;
        self.tasks.end().await;
    }
}

/// An endpoint with the settings of our transport.
pub(super) async fn open(
    spec: &Spec,
    certificates: &NodeCertificates,
    bind: SocketAddr,
    tasks: &Tasks,
) -> Result<Endpoint, Failure> {
    let config = spec
        .config()
        .map_err(|error| Failure::usage(error.to_string()))?;
    let transport = QuicTransport::new(&config, certificates.security.clone())
        .map_err(|error| Failure::usage(error.to_string()))?;
    let opened = tasks
        .run(async move { transport.raw_endpoint(bind) })
        .await
        .ok_or_else(|| Failure::failed(format!("cannot listen on {bind}: the thread ended")))?;
    opened.map_err(|error| Failure::failed(error.to_string()))
}

/// Tells the peer, within reason.
pub(super) async fn close(endpoint: &Endpoint) {
    endpoint.close(VarInt::from_u32(0), b"done");
    let _ = tokio::time::timeout(CLOSING, endpoint.wait_idle()).await;
}

async fn serve(
    endpoint: &Endpoint,
    streams: VarInt,
    payload: Bytes,
    spawner: &Spawner,
    fault: &Fault,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let incoming = endpoint.accept().await.ok_or("the endpoint is closed")?;
    let connection = incoming.await?;
    connection.set_max_concurrent_bi_streams(streams);
    loop {
        let (send, mut recv) = connection.accept_bi().await?;
        let (payload, fault) = (payload.clone(), fault.clone());
        spawner.spawn(async move {
            let mut kind = [0];
            let served = match recv.read_exact(&mut kind).await {
                Ok(()) if kind == [DATA] => produce(send, &payload).await,
                Ok(()) => answer(send, recv).await,
                Err(error) => Err(error.into()),
            };
            if let Err(error) = served {
                fault.report("producing failed", error);
            }
        });
    }
}

async fn produce(
    mut send: SendStream,
    payload: &Bytes,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    loop {
        let mut frames: [Bytes; FRAMES] = std::array::from_fn(|_| payload.clone());
        send.write_all_chunks(&mut frames).await?;
        tokio::task::yield_now().await;
    }
}

/// Sends back what is called with.
async fn answer(
    mut send: SendStream,
    mut recv: RecvStream,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    send.set_priority(PRIORITY)?;
    while let Some(chunk) = recv.read_chunk(MAX_PAYLOAD as usize, true).await? {
        send.write_chunk(chunk.bytes).await?;
    }
    Ok(())
}

/// First byte of a stream that wants data; any other is a stream for calls.
pub(super) const DATA: u8 = b'd';

/// Frames of one call, as ours.
const FRAMES: usize = 8;

/// What `QuicTransport` begins with.
const BEGIN_STREAMS: u32 = 100;

/// The closing period of a connection lasts some 100 ms.
const CLOSING: Duration = Duration::from_secs(1);
