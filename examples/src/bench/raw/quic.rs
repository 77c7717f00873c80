//! The consuming end of a raw QUIC connection.

use std::{error::Error, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use quinn::{Connection, Endpoint, RecvStream, SendStream};
use thalweg_transport::{SERVER_NAME, now};

use super::{
    buffers::Buffers,
    quic_server::{DATA, close, open},
};
use crate::{
    bench::{
        bulk::YIELD_BYTES,
        counters::Counters,
        fault::Fault,
        peer::{Peer, any_of},
        security::NodeCertificates,
        spec::Spec,
        tasks::Tasks,
    },
    cli::failure::Failure,
};

/// One stream and one task for each channel.
#[derive(Debug)]
pub(crate) struct QuicConsumer {
    tasks: Tasks,
    endpoint: Endpoint,
}

impl QuicConsumer {
    pub(crate) async fn start(
        spec: &Spec,
        certificates: &NodeCertificates,
        peer: &Peer,
        counters: &Arc<Counters>,
        fault: &Fault,
    ) -> Result<Self, Failure> {
        let config = spec
            .config()
            .map_err(|error| Failure::usage(error.to_string()))?;
        let tasks = Tasks::on_thread("bench-raw")?;
        let any = SocketAddr::new(any_of(peer.address.ip()), 0);
        let endpoint = open(spec, certificates, any, &tasks).await?;
        let buffers = Buffers::new(spec, &config);
        let (fault, spawner) = (fault.clone(), tasks.spawner());
        let (dialling, address) = (endpoint.clone(), peer.address);
        let (channels, ping) = (spec.channels as usize, spec.payload() as usize);
        let counters = counters.clone();
        tasks.spawn(async move {
            let connection = match connect(&dialling, address).await {
                Ok(connection) => connection,
                Err(error) => return fault.report(&format!("cannot connect to {address}"), error),
            };
            let streams = (0..channels).map(Some).chain((ping > 0).then_some(None));
            for channel in streams {
                let (connection, buffers) = (connection.clone(), buffers.clone());
                let (counters, fault) = (counters.clone(), fault.clone());
                spawner.spawn(async move {
                    let run = match channel {
                        Some(channel) => consume(&connection, channel, &buffers, &counters).await,
                        None => call(&connection, ping, &counters).await,
                    };
                    if let Err(error) = run {
                        fault.report("consuming failed", error);
                    }
                });
            }
        });
        Ok(Self { tasks, endpoint })
    }

    pub(crate) async fn end(self) {
        close(&self.endpoint).await;
        self.tasks.end().await;
    }
}

pub(super) type AnyError = Box<dyn Error + Send + Sync>;

pub(super) async fn connect(
    endpoint: &Endpoint,
    address: SocketAddr,
) -> Result<Connection, AnyError> {
    Ok(endpoint.connect(address, SERVER_NAME)?.await?)
}

async fn begin(connection: &Connection, kind: u8) -> Result<(SendStream, RecvStream), AnyError> {
    let (mut send, recv) = connection.open_bi().await?;
    send.write_all(&[kind]).await?;
    Ok((send, recv))
}

/// Copies what comes into buffers, as many packets at once as are there.
async fn consume(
    connection: &Connection,
    channel: usize,
    buffers: &Buffers,
    counters: &Counters,
) -> Result<(), AnyError> {
    let (_send, mut recv) = begin(connection, DATA).await?;
    let mut chunks = [const { Bytes::new() }; CHUNKS];
    let mut open = None;
    let mut since_yield = 0;
    while let Some(count) = recv.read_chunks(&mut chunks).await? {
        for chunk in &mut chunks[..count] {
            let chunk = std::mem::take(chunk);
            since_yield += chunk.len();
            let mut rest = &chunk[..];
            while !rest.is_empty() {
                let mut buffer: Vec<u8> = open.take().unwrap_or_else(|| buffers.take());
                let take = rest.len().min(buffers.size() - buffer.len());
                buffer.extend_from_slice(&rest[..take]);
                rest = &rest[take..];
                if buffer.len() == buffers.size() {
                    counters.add(channel, buffer.len());
                    buffers.give_back(buffer);
                } else {
                    open = Some(buffer);
                }
            }
        }
        if since_yield >= YIELD_BYTES {
            since_yield = 0;
            tokio::task::yield_now().await;
        }
    }
    Err("the stream ended".into())
}

async fn call(
    connection: &Connection,
    payload: usize,
    counters: &Counters,
) -> Result<(), AnyError> {
    let (mut send, mut recv) = begin(connection, CALL).await?;
    send.set_priority(PRIORITY)?;
    let message = Bytes::from(vec![0; payload]);
    loop {
        let sent = now();
        send.write_chunk(message.clone()).await?;
        let mut missing = payload;
        while missing > 0 {
            let chunk = recv.read_chunk(missing, true).await?;
            missing -= chunk.ok_or("the stream ended")?.bytes.len();
        }
        counters.add_call(now().saturating_duration_since(sent));
    }
}

/// First byte of a stream for calls.
const CALL: u8 = b'c';

/// Chunks per read, as ours.
const CHUNKS: usize = 32;

/// Of calls; data has 0.
pub(super) const PRIORITY: i32 = 10;
