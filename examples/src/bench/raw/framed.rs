//! The consuming end of a raw TCP or TLS connection.

use std::{io, sync::Arc};

use bytes::{BufMut, Bytes};
use rustls::pki_types::ServerName;
use thalweg_transport::{Credentials, SERVER_NAME, now};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, split},
    net::TcpStream,
    sync::mpsc,
};
use tokio_rustls::TlsConnector;

use super::{
    buffers::Buffers,
    header::{HEADER_BYTES, Header},
    landing::Landing,
    vectored::write_all,
};
use crate::{
    bench::{
        bulk::YIELD_BYTES, counters::Counters, fault::Fault, peer::Peer,
        security::NodeCertificates, spec::Spec, tasks::Tasks, transport_kind::TransportKind,
    },
    cli::failure::Failure,
};

/// Reads frames into buffers, and drops them.
#[derive(Debug)]
pub(crate) struct FramedConsumer {
    tasks: Tasks,
}

impl FramedConsumer {
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
        let address = peer.address;
        let tls = (spec.transport == TransportKind::RawTls)
            .then(|| TlsConnector::from(certificates.security.client_config()));
        let (answered, answers) = mpsc::channel(ANSWERS);
        let landing = Landing::new(Buffers::new(spec, &config), counters.clone(), answered);
        let failed =
            |reason: String| Failure::failed(format!("cannot connect to {address}: {reason}"));
        let connect = async move {
            let tcp = TcpStream::connect(address).await?;
            tcp.set_nodelay(true)?;
            Ok::<_, io::Error>(tcp)
        };
        let connected = tasks.run(connect).await;
        let tcp = connected
            .ok_or_else(|| failed("the thread ended".to_owned()))?
            .map_err(|error| failed(error.to_string()))?;
        match tls {
            None => {
                let (read, write) = tcp.into_split();
                reading(&tasks, fault, read_plain(read, landing));
                calling(&tasks, fault, write, spec, counters, answers);
            }
            Some(tls) => {
                let name = ServerName::try_from(SERVER_NAME).expect("the constant is a DNS name");
                let handshake = async move { tls.connect(name, tcp).await };
                let (read, write) = split(
                    tasks
                        .run(handshake)
                        .await
                        .ok_or_else(|| failed("the thread ended".to_owned()))?
                        .map_err(|error| failed(error.to_string()))?,
                );
                reading(&tasks, fault, read_tls(read, landing));
                calling(&tasks, fault, write, spec, counters, answers);
            }
        }
        Ok(Self { tasks })
    }

    pub(crate) async fn end(self) {
        self.tasks.end().await;
    }
}

fn reading(
    tasks: &Tasks,
    fault: &Fault,
    read: impl Future<Output = io::Result<()>> + Send + 'static,
) {
    let fault = fault.clone();
    tasks.spawn(async move {
        if let Err(error) = read.await {
            fault.report("consuming failed", error);
        }
    });
}

/// Calls, or keeps the writing half open.
fn calling<W: AsyncWrite + Send + Unpin + 'static>(
    tasks: &Tasks,
    fault: &Fault,
    socket: W,
    spec: &Spec,
    counters: &Arc<Counters>,
    answers: mpsc::Receiver<()>,
) {
    let (fault, counters, payload) = (fault.clone(), counters.clone(), spec.payload());
    tasks.spawn(async move {
        if payload == 0 {
            let _open = socket;
            std::future::pending::<()>().await;
        } else if let Err(error) = call(socket, payload, &counters, answers).await {
            fault.report("calling failed", error);
        }
    });
}

async fn call<W: AsyncWrite + Unpin>(
    mut socket: W,
    payload: u32,
    counters: &Counters,
    mut answers: mpsc::Receiver<()>,
) -> io::Result<()> {
    let header = Bytes::copy_from_slice(&payload.to_be_bytes());
    let message = Bytes::from(vec![0; payload as usize]);
    loop {
        let sent = now();
        write_all(&mut socket, &mut [header.clone(), message.clone()]).await?;
        if answers.recv().await.is_none() {
            return Ok(());
        }
        counters.add_call(now().saturating_duration_since(sent));
    }
}

/// Reads straight into the buffers: rustls hands over at most a record, from memory of its own.
async fn read_tls<R: AsyncRead + Unpin>(mut socket: R, landing: Landing) -> io::Result<()> {
    let mut header = [0; HEADER_BYTES];
    let mut since_yield = 0;
    loop {
        socket.read_exact(&mut header).await?;
        let header = Header::decode(&header);
        let mut buffer = landing.buffer_for(header).map_err(io::Error::other)?;
        let length = header.length as usize;
        while buffer.len() < length {
            let missing = length - buffer.len();
            if socket.read_buf(&mut (&mut buffer).limit(missing)).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        landing.finish(header.channel, buffer);
        since_yield += HEADER_BYTES + length;
        if since_yield >= YIELD_BYTES {
            since_yield = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// Reads 64 KiB at once, which stay in the processor's cache: larger reads halve the rate.
async fn read_plain<R: AsyncRead + Unpin>(mut socket: R, mut landing: Landing) -> io::Result<()> {
    let mut block = vec![0; READ_BYTES];
    let mut since_yield = 0;
    loop {
        let read = socket.read(&mut block).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        landing.push(&block[..read]).map_err(io::Error::other)?;
        since_yield += read;
        if since_yield >= YIELD_BYTES {
            since_yield = 0;
            tokio::task::yield_now().await;
        }
    }
}

const READ_BYTES: usize = 64 * 1024;

/// One call is outstanding.
const ANSWERS: usize = 4;
