//! The producing end of a raw TCP or TLS connection.

use std::{io, net::SocketAddr};

use bytes::Bytes;
use thalweg_transport::Credentials;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, split},
    net::TcpListener,
    sync::mpsc,
};
use tokio_rustls::TlsAcceptor;

use super::{
    header::{CALLS, Header},
    vectored::write_all,
};
use crate::{
    bench::{
        bulk::block,
        fault::Fault,
        security::NodeCertificates,
        spec::Spec,
        tasks::{Spawner, Tasks},
        transport_kind::TransportKind,
    },
    cli::failure::Failure,
};

/// Writes frames of all channels in turn, as fast as the socket takes them.
#[derive(Debug)]
pub(crate) struct FramedProducer {
    tasks: Tasks,
    port: u16,
}

impl FramedProducer {
    pub(crate) async fn start(
        spec: &Spec,
        certificates: &NodeCertificates,
        bind: SocketAddr,
        fault: &Fault,
    ) -> Result<Self, Failure> {
        let config = spec
            .config()
            .map_err(|error| Failure::usage(error.to_string()))?;
        let tls = (spec.transport == TransportKind::RawTls)
            .then(|| TlsAcceptor::from(certificates.security.server_config()));
        let tasks = Tasks::on_thread("bench-raw")?;
        let failed = |reason: String| Failure::failed(format!("cannot listen on {bind}: {reason}"));
        let listener = tasks
            .run(TcpListener::bind(bind))
            .await
            .ok_or_else(|| failed("the thread ended".to_owned()))?
            .map_err(|error| failed(error.to_string()))?;
        let address = listener.local_addr();
        let port = address.map_err(|error| failed(error.to_string()))?.port();
        let frames = Frames {
            payload: block(config.payload_size()),
            channels: spec.channels,
            answers: spec.payload() > 0,
        };
        let (fault, spawner) = (fault.clone(), tasks.spawner());
        tasks.spawn(async move {
            if let Err(error) = serve(listener, tls, frames, spawner).await {
                fault.report("producing failed", error);
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

#[derive(Debug)]
struct Frames {
    payload: Bytes,
    channels: u32,
    answers: bool,
}

async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    frames: Frames,
    spawner: Spawner,
) -> io::Result<()> {
    let (tcp, _) = listener.accept().await?;
    tcp.set_nodelay(true)?;
    match tls {
        None => {
            let (read, write) = tcp.into_split();
            produce(read, write, frames, PLAIN_FRAMES, spawner).await
        }
        Some(tls) => {
            let (read, write) = split(tls.accept(tcp).await?);
            produce(read, write, frames, TLS_FRAMES, spawner).await
        }
    }
}

async fn produce<R, W>(
    read: R,
    write: W,
    frames: Frames,
    batch: usize,
    spawner: Spawner,
) -> io::Result<()>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Unpin,
{
    let (answers, queue) = mpsc::channel(QUEUED_ANSWERS);
    // Without calls nothing is read, and the half is only kept.
    let mut read = Some(read);
    if frames.answers
        && let Some(read) = read.take()
    {
        spawner.spawn(async move {
            // At the end of the connection the writer says what happened.
            let _ = answer(read, answers).await;
        });
    }
    write_frames(write, &frames, batch, queue).await
}

/// Small frames go first, each by itself, so that bulk stays in whole TLS records.
async fn write_frames<W: AsyncWrite + Unpin>(
    mut socket: W,
    frames: &Frames,
    batch: usize,
    mut answers: mpsc::Receiver<Bytes>,
) -> io::Result<()> {
    let length = u32::try_from(frames.payload.len()).unwrap_or(u32::MAX);
    let headers: Vec<Bytes> = (0..frames.channels)
        .map(|channel| Header { channel, length }.encode())
        .collect();
    let mut pieces = Vec::with_capacity(2 * batch);
    let mut next = 0;
    loop {
        while let Ok(payload) = answers.try_recv() {
            let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
            let channel = CALLS;
            let header = Header { channel, length }.encode();
            write_all(&mut socket, &mut [header, payload]).await?;
        }
        pieces.clear();
        for _ in 0..batch {
            pieces.push(headers[next].clone());
            pieces.push(frames.payload.clone());
            next = (next + 1) % headers.len();
        }
        write_all(&mut socket, &mut pieces).await?;
        tokio::task::yield_now().await;
    }
}

/// Sends back what is called with.
async fn answer<R: AsyncRead + Unpin>(
    mut socket: R,
    answers: mpsc::Sender<Bytes>,
) -> io::Result<()> {
    loop {
        let length = socket.read_u32().await?;
        if length == 0 || length > crate::bench::spec::MAX_PAYLOAD {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut call = vec![0; length as usize];
        socket.read_exact(&mut call).await?;
        if answers.send(call.into()).await.is_err() {
            return Ok(());
        }
    }
}

/// Four full TLS records: one frame a write reached 0.85 of what two reach, more gained nothing.
const TLS_FRAMES: usize = 2;

/// 256 KiB a write.
const PLAIN_FRAMES: usize = 8;

/// One call is outstanding.
const QUEUED_ANSWERS: usize = 4;
