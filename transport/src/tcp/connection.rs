//! The handle of a connection.

use std::{fmt, net::SocketAddr, sync::Arc};

use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use super::{
    halves::{PlainRead, split_tls},
    reader,
    shared::Shared,
    stream::{TcpRecvStream, TcpSendStream, halves},
    transport::{Setup, growth},
    writer::{self, Batching, PLAIN_BATCH_BYTES, TLS_BATCH_BYTES},
};
use crate::{
    clock::now,
    error::{ConnectionError, ErrorCode},
    identity::PeerIdentity,
    proto::mux::{Liveness, Mux, MuxConfig, OpenError, Settings, Side},
    transport::{Connection, ConnectionStats},
};

/// A TCP connection with its streams.
///
/// A task that reads and one that writes serve it on the runtime on which it was made; they end with it. When the last
/// handle of the connection and of its streams is dropped, the connection is closed with [`ErrorCode::NO_ERROR`]; what
/// was finished and not yet delivered is lost then, so wait for [`stopped`](crate::SendStream::stopped) first.
#[derive(Clone)]
pub struct TcpConnection {
    handle: Arc<Handle>,
}

/// Counts the handles of a connection and its streams; the tasks have none.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared
            .close(ErrorCode::NO_ERROR, "all handles were dropped");
    }
}

/// What carries a connection.
#[derive(Debug)]
pub(super) enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A connection whose prefaces were exchanged.
#[derive(Debug)]
pub(super) struct Established {
    pub(super) socket: Socket,
    pub(super) side: Side,
    pub(super) local: Settings,
    pub(super) remote: Settings,
    pub(super) address: SocketAddr,
    pub(super) peer: PeerIdentity,
}

impl TcpConnection {
    /// Starts the tasks, on the current runtime.
    pub(super) fn start(established: Established, setup: &Setup) -> Self {
        let (config, tasks) = (&setup.config, &setup.tasks);
        let batch_bytes = match established.socket {
            Socket::Plain(_) => PLAIN_BATCH_BYTES,
            Socket::Tls(_) => TLS_BATCH_BYTES,
        };
        let mux = Mux::new(
            established.side,
            MuxConfig {
                local: established.local,
                peer: established.remote,
                frame_bytes: LEAST_FRAME_LIMIT.max(config.buffer_size as usize),
                queue_bytes: QUEUE_BYTES,
                growth: growth(config),
            },
        );
        let liveness = Liveness::new(now(), config.keep_alive, config.idle_timeout);
        let shared = Arc::new(Shared::new(
            mux,
            liveness,
            established.address,
            established.peer,
            Arc::clone(&setup.open),
        ));
        let batching = Batching {
            bytes: batch_bytes,
            timeout: config.write_timeout,
        };
        let idle = config.idle_timeout;
        match established.socket {
            Socket::Plain(socket) => {
                let (read, write) = socket.into_split();
                tasks.spawn(reader::run(shared.clone(), PlainRead::new(read), idle));
                tasks.spawn(writer::run(shared.clone(), write, batching));
            }
            Socket::Tls(socket) => {
                let (read, write) = split_tls(*socket);
                tasks.spawn(reader::run(shared.clone(), read, idle));
                tasks.spawn(writer::run(shared.clone(), write, batching));
            }
        }
        Self {
            handle: Arc::new(Handle { shared }),
        }
    }

    fn shared(&self) -> &Shared {
        &self.handle.shared
    }
}

impl Connection for TcpConnection {
    type Send = TcpSendStream;
    type Recv = TcpRecvStream;

    async fn open(&self) -> Result<(TcpSendStream, TcpRecvStream), ConnectionError> {
        let mut waited = false;
        loop {
            let may_open = self.shared().may_open.notified();
            tokio::pin!(may_open);
            may_open.as_mut().enable();
            let opened = self.shared().with(|state| {
                if let Some(error) = &state.end {
                    return Err(error.clone());
                }
                let opened = state.mux.open();
                if opened == Err(OpenError::Limit) && !std::mem::replace(&mut waited, true) {
                    state.open_waits += 1;
                }
                Ok(opened)
            })?;
            match opened {
                Ok(key) => return Ok(halves(&self.handle, key)),
                Err(OpenError::Limit) => may_open.await,
                Err(error @ OpenError::Exhausted) => {
                    self.close(ErrorCode::LIMIT_EXCEEDED, &error.to_string());
                }
            }
        }
    }

    async fn accept(&self) -> Result<(TcpSendStream, TcpRecvStream), ConnectionError> {
        loop {
            let incoming = self.shared().incoming.notified();
            tokio::pin!(incoming);
            incoming.as_mut().enable();
            let accepted = self.shared().with(|state| match &state.end {
                Some(error) => Err(error.clone()),
                None => Ok(state.mux.accept()),
            })?;
            match accepted {
                Some(key) => return Ok(halves(&self.handle, key)),
                None => incoming.await,
            }
        }
    }

    fn peer(&self) -> &PeerIdentity {
        &self.shared().peer
    }

    fn remote_addr(&self) -> SocketAddr {
        self.shared().remote
    }

    fn close(&self, code: ErrorCode, reason: &str) {
        self.shared().close(code, reason);
    }

    async fn closed(&self) -> ConnectionError {
        loop {
            self.shared().ended.cancelled().await;
            if let Some(error) = self.shared().end_reason() {
                return error;
            }
        }
    }

    fn allow_streams(&self, count: u32) {
        self.shared().with(|state| state.mux.allow_streams(count));
    }

    fn stats(&self) -> ConnectionStats {
        self.shared().stats()
    }
}

impl fmt::Debug for TcpConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpConnection")
            .field("remote", &self.shared().remote)
            .field("peer", &self.shared().peer)
            .finish_non_exhaustive()
    }
}

/// Longest data frame that is sent, header included, unless `buffer_size` is larger: two full TLS records.
const LEAST_FRAME_LIMIT: usize = 32 * 1024;

/// Bytes of one stream that wait for the writer: a batch to take while the next one is being written.
const QUEUE_BYTES: usize = 256 * 1024;
