//! The accepting side: handshakes of many peers at the same time.

use std::{
    collections::VecDeque,
    fmt, io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    net::{TcpListener as Socket, TcpStream},
    task::{AbortHandle, JoinSet},
    time::{sleep_until, timeout},
};

use super::{
    connection::TcpConnection,
    handshake,
    transport::{Setup, prepare},
};
use crate::{addr::BindAddr, clock::now, error::ConnectError, transport::Listener};

/// The node's listening port.
///
/// Handshakes run as tasks that it owns; dropping it ends them and frees the port. Their number is bounded by
/// `max_handshakes`: when all places are taken, the oldest handshake that has had a second makes way for a new peer, so
/// that silent peers delay a good one by at most that.
pub struct TcpListener {
    socket: Socket,
    address: SocketAddr,
    setup: Arc<Setup>,
    handshakes: JoinSet<Result<TcpConnection, ConnectError>>,
    /// Handshakes by age; finished ones are dropped when they come to the front.
    ages: VecDeque<(Instant, AbortHandle)>,
    /// The system refused a socket: accepting pauses until then.
    paused_until: Option<Instant>,
    failed: u64,
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
                        setup,
                        handshakes: JoinSet::new(),
                        ages: VecDeque::new(),
                        paused_until: None,
                        failed: 0,
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

    /// Handshakes that failed or were refused since the start.
    #[must_use]
    pub fn failed_handshakes(&self) -> u64 {
        self.failed
    }

    fn start_handshake(&mut self, tcp: TcpStream, address: SocketAddr) {
        let setup = self.setup.clone();
        let task = self.handshakes.spawn(async move {
            let tcp = prepare(tcp).map_err(|error| ConnectError::Unreachable {
                address: address.to_string(),
                reason: error.to_string(),
            })?;
            let credentials = setup.credentials.as_ref();
            let accept = handshake::accept(tcp, address, credentials, setup.settings());
            let established = timeout(setup.config.handshake_timeout, accept)
                .await
                .map_err(|_| ConnectError::TimedOut {
                    address: address.to_string(),
                    reason: format!(
                        "handshake not finished within {:?}",
                        setup.config.handshake_timeout
                    ),
                })??;
            Ok(TcpConnection::start(
                established,
                &setup.config,
                &setup.tasks,
            ))
        });
        // Short ones behind a long one would pile up.
        if self.ages.len() >= 2 * self.setup.config.max_handshakes as usize {
            self.ages.retain(|(_, task)| !task.is_finished());
        }
        self.ages.push_back((now(), task));
    }

    /// When the oldest handshake may be ended for a new peer, if no place is free.
    fn makes_way_at(&mut self) -> Option<Instant> {
        while self
            .ages
            .front()
            .is_some_and(|(_, task)| task.is_finished())
        {
            self.ages.pop_front();
        }
        if self.handshakes.len() < self.setup.config.max_handshakes as usize {
            return None;
        }
        self.ages
            .front()
            .map(|(started, _)| *started + LEAST_HANDSHAKE_TIME)
    }

    fn count_failure(&mut self, error: &ConnectError) {
        self.failed += 1;
        match error {
            // Port scans, health checks and peers that gave up.
            ConnectError::Unreachable { .. } => tracing::debug!(%error, "handshake failed"),
            _ => tracing::warn!(%error, "handshake failed"),
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
            let makes_way_at = self.makes_way_at();
            let full = self.handshakes.len() >= self.setup.config.max_handshakes as usize;
            let wait = self.paused_until.or(makes_way_at);
            tokio::select! {
                biased;
                Some(done) = self.handshakes.join_next() => match done {
                    Ok(Ok(connection)) => return Ok(connection),
                    Ok(Err(error)) => self.count_failure(&error),
                    Err(error) => {
                        self.failed += 1;
                        if error.is_panic() {
                            tracing::error!(%error, "handshake task failed");
                        }
                    }
                },
                () = until(wait), if wait.is_some() => {
                    if self.paused_until.take().is_none()
                        && let Some((_, oldest)) = self.ages.pop_front()
                    {
                        tracing::debug!("no place for a new handshake, the oldest one is ended");
                        oldest.abort();
                    }
                }
                accepted = self.socket.accept(), if !full && self.paused_until.is_none() => {
                    match accepted {
                        Ok((tcp, address)) => self.start_handshake(tcp, address),
                        Err(error) if is_of_peer(&error) => {}
                        Err(error) => {
                            tracing::warn!(%error, "cannot accept, trying again");
                            self.paused_until = Some(now() + ACCEPT_PAUSE);
                        }
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

/// What a handshake may take before it makes way when all places are taken: far above what one takes on a busy machine.
const LEAST_HANDSHAKE_TIME: Duration = Duration::from_secs(1);

/// Out of descriptors or memory: the kernel would report the same again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
