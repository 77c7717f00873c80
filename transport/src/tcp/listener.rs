//! The accepting side: handshakes of many peers at the same time.

use std::{
    fmt, io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    net::{TcpListener as Socket, TcpStream},
    time::sleep_until,
};

use super::{
    connection::TcpConnection,
    handshake,
    transport::{Setup, prepare},
};
use crate::{
    addr::BindAddr, clock::now, error::ConnectError, handshakes::Handshakes, transport::Listener,
    warnings::FailureClass,
};

/// The node's listening port.
///
/// Handshakes run as tasks that it owns; dropping it ends them and frees the port. Their number is bounded by
/// `max_handshakes`: when all places are taken, the oldest handshake that has had a second makes way for a new peer, so
/// that silent peers delay a good one by at most that.
pub struct TcpListener {
    socket: Socket,
    address: SocketAddr,
    setup: Arc<Setup>,
    handshakes: Handshakes<TcpConnection>,
    /// The system refused a socket: accepting pauses until then.
    paused_until: Option<Instant>,
}

impl TcpListener {
    /// Binds the first free address.
    pub(super) async fn bind(bind: &BindAddr, setup: Arc<Setup>) -> Result<Self, ConnectError> {
        let mut last = None;
        for candidate in bind.candidates() {
            match Socket::bind(candidate).await.and_then(|socket| {
                let address = socket.local_addr()?;
                Ok((socket, address))
            }) {
                Ok((socket, address)) => {
                    return Ok(Self {
                        socket,
                        address,
                        handshakes: Handshakes::new(&setup.config),
                        setup,
                        paused_until: None,
                    });
                }
                Err(error) => last = Some(error),
            }
        }
        let address = bind.to_string();
        Err(match last {
            Some(error) if error.kind() == io::ErrorKind::AddrInUse && !bind.is_range() => {
                ConnectError::AddressInUse { address }
            }
            Some(error) if bind.is_range() => ConnectError::Bind {
                address,
                reason: format!("no port of the range is free, the last one said: {error}"),
            },
            Some(error) => ConnectError::Bind {
                address,
                reason: error.to_string(),
            },
            None => ConnectError::Bind {
                address,
                reason: "the range is empty".to_owned(),
            },
        })
    }

    /// Handshakes that failed, were refused or had to make way since the start.
    #[must_use]
    pub fn failed_handshakes(&self) -> u64 {
        self.handshakes.failed()
    }

    fn start_handshake(&mut self, tcp: TcpStream, address: SocketAddr) {
        let setup = self.setup.clone();
        self.handshakes.begin(address, async move {
            let tcp = prepare(tcp).map_err(|error| ConnectError::Unreachable {
                address: address.to_string(),
                reason: error.to_string(),
            })?;
            let credentials = setup.credentials.as_ref();
            let established =
                handshake::accept(tcp, address, credentials, setup.settings()).await?;
            Ok(TcpConnection::start(
                established,
                &setup.config,
                &setup.tasks,
            ))
        });
    }

    /// Out of descriptors or memory: the kernel would report the same again at once.
    fn pause(&mut self, error: &io::Error) {
        self.paused_until = Some(now() + ACCEPT_PAUSE);
        let warnings = &self.handshakes.warnings;
        if let Some(held_back) = warnings.due(now(), FailureClass::Accept) {
            tracing::warn!(%error, held_back, "cannot accept, trying again");
        }
    }
}

impl Listener for TcpListener {
    type Connection = TcpConnection;

    fn local_addr(&self) -> SocketAddr {
        self.address
    }

    async fn accept(&mut self) -> Result<TcpConnection, ConnectError> {
        loop {
            let room = self.handshakes.has_room();
            tokio::select! {
                biased;
                done = self.handshakes.next() => if let Some(connection) = done {
                    return Ok(connection);
                },
                () = until(self.paused_until), if self.paused_until.is_some() => {
                    self.paused_until = None;
                }
                accepted = self.socket.accept(), if room && self.paused_until.is_none() => {
                    match accepted {
                        Ok((tcp, address)) => self.start_handshake(tcp, address),
                        Err(error) if is_of_peer(&error) => {}
                        Err(error) => self.pause(&error),
                    }
                }
            }
        }
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpListener")
            .field("address", &self.address)
            .field("handshakes", &self.handshakes.len())
            .finish_non_exhaustive()
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

/// The peer went away between its connect and our accept.
fn is_of_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

/// How long accepting rests when the system gives no socket.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
