//! The accepting side: handshakes beside each other, bounded in number and time.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use quinn::{Endpoint, Incoming, ServerConfig, crypto::rustls::QuicServerConfig};
use tokio::runtime::Handle;

use super::{
    connection::QuicConnection,
    error::connect_error,
    handshake::admit,
    profile::PathSettings,
    socket::open_endpoint,
    transport::{Endpoints, lock},
};
use crate::{
    addr::BindAddr,
    awaited::Awaited,
    error::ConnectError,
    handshakes::Handshakes,
    identity::{Admission, Credentials},
    shutdown::Shutdown,
    system::BindFailures,
    transport::Listener,
};

/// The listener of a [`QuicTransport`](super::QuicTransport).
///
/// New peers are looked at only while [`accept`](Listener::accept) is waited for; up to 1,024 wait in front of it, each
/// with at most 64 KiB of early packets. A handshake goes on by itself once it has begun. From 64 handshakes in
/// progress on, a peer has to prove first that it receives at the address that it claims (RFC 9000 section 8.1.2). When
/// all `max_handshakes` places are taken, the oldest handshake that has had a second makes way for a new peer.
#[derive(Debug)]
pub struct QuicListener {
    endpoint: Endpoint,
    local_addr: SocketAddr,
    server: ServerConfig,
    /// The configuration that `server` was made from.
    tls: Arc<rustls::ServerConfig>,
    settings: ListenerSettings,
    handshakes: Handshakes<QuicConnection>,
    /// Where the endpoint runs.
    runtime: Handle,
    /// Where dials look for this endpoint.
    shared: Arc<Mutex<Endpoints>>,
}

impl QuicListener {
    pub(super) fn bind(
        bind: &BindAddr,
        path: &PathSettings,
        settings: ListenerSettings,
        handshakes: Handshakes<QuicConnection>,
        shared: Arc<Mutex<Endpoints>>,
    ) -> Result<Self, ConnectError> {
        let failed = |reason: String| ConnectError::Bind {
            address: bind.to_string(),
            reason,
        };
        let tls = settings.credentials.server_config();
        let server = server_config(Arc::clone(&tls), &settings.quic).map_err(failed)?;
        let endpoint = bind_first(bind, path, &server, &settings.awaited)?;
        let local_addr = endpoint.local_addr().map_err(|e| failed(e.to_string()))?;
        Ok(Self {
            endpoint,
            local_addr,
            server,
            tls,
            settings,
            handshakes,
            runtime: Handle::current(),
            shared,
        })
    }

    /// Handshakes that failed, were refused or had to make way since the start.
    #[must_use]
    pub fn failed_handshakes(&self) -> u64 {
        self.handshakes.failed()
    }

    pub(super) fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// Begins a handshake with the configuration of this moment.
    fn begin(&mut self, incoming: Incoming) {
        if self.handshakes.len() >= UNVALIDATED_HANDSHAKES && !incoming.remote_address_validated() {
            // An error means that the peer answers a retry already; it may try again later.
            if let Err(error) = incoming.retry() {
                error.into_incoming().refuse();
            }
            return;
        }
        self.refresh();
        let address = incoming.remote_address();
        let accepted = incoming.accept_with(Arc::new(self.server.clone()));
        let credentials = Arc::clone(&self.settings.credentials);
        self.handshakes.begin(address, async move {
            let connecting = accepted.map_err(|error| connect_error(&error, address))?;
            let connection = connecting
                .await
                .map_err(|error| connect_error(&error, address))?;
            let peer =
                admit(&*credentials, &connection, Admission::Accepted).map_err(|refusal| {
                    ConnectError::PeerRejected {
                        address: address.to_string(),
                        code: refusal.code,
                        reason: refusal.reason,
                    }
                })?;
            Ok(QuicConnection::new(connection, peer))
        });
    }

    /// Takes over new certificates; a configuration that QUIC cannot use leaves the old one in place.
    fn refresh(&mut self) {
        let tls = self.settings.credentials.server_config();
        if Arc::ptr_eq(&tls, &self.tls) {
            return;
        }
        match QuicServerConfig::try_from(Arc::clone(&tls)) {
            Ok(crypto) => self.server.crypto = Arc::new(crypto),
            Err(error) => {
                tracing::error!(%error, "the new TLS configuration is not fit for QUIC, the old one stays");
            }
        }
        // Remembered in either case, so that a bad one is reported once.
        self.tls = tls;
        // Some packets are answered by the endpoint itself, before a handshake begins.
        self.endpoint.set_server_config(Some(self.server.clone()));
    }
}

impl Listener for QuicListener {
    type Connection = QuicConnection;

    fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    async fn accept(&mut self) -> Result<QuicConnection, ConnectError> {
        loop {
            let room = self.handshakes.has_room();
            tokio::select! {
                done = self.handshakes.next() => if let Some(connection) = done {
                    return Ok(connection);
                },
                incoming = self.endpoint.accept(), if room => match incoming {
                    Some(incoming) => self.begin(incoming),
                    None => return Err(ConnectError::Cancelled {
                        address: self.local_addr.to_string(),
                    }),
                },
            }
        }
    }
}

impl Drop for QuicListener {
    fn drop(&mut self) {
        // Connections keep the socket; without a configuration it takes no new ones.
        self.endpoint.set_server_config(None);
        let mut endpoints = lock(&self.shared);
        let ours = |(address, _): &mut (SocketAddr, Endpoint)| *address == self.local_addr;
        endpoints.listening.take_if(ours);
        drop(endpoints);
        // Who waits until peers have heard of the end has to know of these connections, too.
        let endpoint = self.endpoint.clone();
        let idle = async move { endpoint.wait_idle().await };
        self.settings.tasks.spawn_on(idle, &self.runtime);
    }
}

/// What the listener takes from its transport.
#[derive(Debug)]
pub(super) struct ListenerSettings {
    pub(super) credentials: Arc<dyn Credentials>,
    pub(super) quic: Arc<quinn::TransportConfig>,
    /// Owns what outlives the listener: the wait for its connections' end.
    pub(super) tasks: Shutdown,
    /// The dials of the transport, which leave from the listener's socket.
    pub(super) awaited: Arc<Awaited>,
}

/// What a listener of ours accepts with; the error says why these certificates cannot be used.
pub(super) fn server_config(
    tls: Arc<rustls::ServerConfig>,
    quic: &Arc<quinn::TransportConfig>,
) -> Result<ServerConfig, String> {
    let crypto = QuicServerConfig::try_from(tls)
        .map_err(|error| format!("the server configuration is not fit for QUIC: {error}"))?;
    let mut server = ServerConfig::with_crypto(Arc::new(crypto));
    server
        .transport_config(Arc::clone(quic))
        .migration(false)
        .max_incoming(MAX_INCOMING)
        .incoming_buffer_size(INCOMING_BUFFER)
        .incoming_buffer_size_total(INCOMING_BUFFER_TOTAL);
    Ok(server)
}

/// Binds the first port of the range that is free.
fn bind_first(
    bind: &BindAddr,
    path: &PathSettings,
    server: &ServerConfig,
    awaited: &Arc<Awaited>,
) -> Result<Endpoint, ConnectError> {
    let mut failures = BindFailures::new(bind);
    for address in bind.candidates() {
        match open_endpoint(address, path, Some(server.clone()), awaited) {
            Ok(endpoint) => return Ok(endpoint),
            Err(error) => failures.add(error)?,
        }
    }
    Err(failures.exhausted())
}

/// Peers that wait in front of `accept`. quinn's default is 65,536.
const MAX_INCOMING: usize = 1024;

/// Bytes of early packets kept for each of them. quinn's default is 10 MiB.
const INCOMING_BUFFER: u64 = 64 * 1024;

/// The same for all of them together.
const INCOMING_BUFFER_TOTAL: u64 = 8 * 1024 * 1024;

/// Handshakes in progress from which on peers have to prove their address; costs them a round trip.
const UNVALIDATED_HANDSHAKES: usize = 64;
