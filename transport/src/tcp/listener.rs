//! The accepting side: handshakes of many peers at the same time.

use std::{
    fmt, io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::net::{TcpListener as Socket, TcpStream};

use super::{
    connection::TcpConnection,
    handshake,
    transport::{Setup, prepare},
};
use crate::{
    addr::BindAddr,
    clock::{now, until},
    error::ConnectError,
    handshakes::Handshakes,
    proto::backoff::Backoff,
    system::{self, BindFailures},
    transport::Listener,
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
    /// Times in a row that the system gave no socket.
    refusals: u32,
    /// Accepting pauses until then.
    paused_until: Option<Instant>,
}

impl TcpListener {
    /// Binds the first free address.
    pub(super) async fn bind(bind: &BindAddr, setup: Arc<Setup>) -> Result<Self, ConnectError> {
        let mut failures = BindFailures::new(bind);
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
                        refusals: 0,
                        paused_until: None,
                    });
                }
                Err(error) => failures.add(error)?,
            }
        }
        Err(failures.exhausted())
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
            Ok(TcpConnection::start(established, &setup))
        });
    }

    /// Out of descriptors or memory: the kernel would report the same again at once.
    fn pause(&mut self, error: &io::Error) {
        self.refusals = self.refusals.saturating_add(1);
        let pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        self.paused_until = Some(now() + pauses.pause(self.refusals, 1.0));
        let warnings = &self.handshakes.warnings;
        if let Some(held_back) = warnings.due(now(), FailureClass::Accept) {
            let error = system::explain(error, Some(self.setup.connections()));
            tracing::warn!(error, held_back, "cannot accept connections, trying again");
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
                        Ok((tcp, address)) => {
                            self.refusals = 0;
                            self.start_handshake(tcp, address);
                        }
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

/// The peer went away between its connect and our accept.
fn is_of_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

/// How long accepting rests when the system gives no socket; doubles up to the longest pause. Peers wait in the kernel
/// meanwhile, and a dial lasts for seconds.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// A new peer waits no longer than this when there is room again.
const LONGEST_PAUSE: Duration = Duration::from_millis(800);
