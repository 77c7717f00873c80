//! The network, its listeners, and the transport of one node.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use super::connection::{MemConnection, PeerInfo};
use crate::{
    addr::BindAddr,
    error::{ConnectError, ErrorCode},
    identity::{PeerIdentity, ResourceId, VerifiedPeer},
    transport::{Connection, Listener, Transport},
};

/// A network inside one process. Clones share it.
///
/// Addresses look like those of an IP network, but belong to this value alone: two networks never meet.
#[derive(Debug, Clone)]
pub struct MemNetwork {
    shared: Arc<Mutex<Ports>>,
    window: usize,
}

impl MemNetwork {
    /// A network whose streams buffer 256 KiB in each direction.
    #[must_use]
    pub fn new() -> Self {
        Self::with_window(DEFAULT_WINDOW)
    }

    /// A network whose streams buffer at most `window` bytes in each direction; 0 counts as 1.
    #[must_use]
    pub fn with_window(window: usize) -> Self {
        Self {
            shared: Arc::new(Mutex::new(Ports {
                listening: BTreeMap::new(),
                next: FIRST_FREE_PORT,
            })),
            window,
        }
    }

    /// Begins a handshake with the listener at `address` and says nothing more, as a port scanner does.
    ///
    /// For tests of [`Listener::accept`]. `None` if nobody listens there.
    #[must_use]
    pub fn dial_silently(&self, address: SocketAddr) -> Option<SilentDial> {
        let port = self.lock().find(address)?;
        port.lock().silent += 1;
        Some(SilentDial { port })
    }

    /// Handshakes that have begun at `address` and are not done.
    #[must_use]
    pub fn handshakes_in_progress(&self, address: SocketAddr) -> usize {
        let port = self.lock().find(address);
        port.map_or(0, |port| port.lock().silent)
    }

    fn lock(&self) -> MutexGuard<'_, Ports> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemNetwork {
    fn default() -> Self {
        Self::new()
    }
}

/// A handshake that never gets further; dropping it gives up.
#[derive(Debug)]
pub struct SilentDial {
    port: Arc<Port>,
}

impl Drop for SilentDial {
    fn drop(&mut self) {
        self.port.lock().silent -= 1;
    }
}

/// The transport of one node on a [`MemNetwork`].
///
/// The identity takes the place of a certificate. A connection is [`PeerIdentity::Verified`] on both sides if both have
/// one, and [`PeerIdentity::Unverified`] otherwise.
#[derive(Debug)]
pub struct MemTransport {
    network: MemNetwork,
    identity: Option<VerifiedPeer>,
    /// What peers see as this node's address: where it listens, or a free port.
    address: Mutex<Option<SocketAddr>>,
}

impl MemTransport {
    /// A node on this network.
    #[must_use]
    pub fn new(network: MemNetwork, identity: Option<VerifiedPeer>) -> Self {
        Self {
            network,
            identity,
            address: Mutex::new(None),
        }
    }

    fn address(&self) -> MutexGuard<'_, Option<SocketAddr>> {
        self.address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dial(
        &self,
        address: SocketAddr,
        expected: Option<&ResourceId>,
    ) -> Result<MemConnection, ConnectError> {
        let unreachable = |reason: &str| ConnectError::Unreachable {
            address: address.to_string(),
            reason: reason.to_owned(),
        };
        let mut ports = self.network.lock();
        let port = ports
            .find(address)
            .ok_or_else(|| unreachable("nobody listens there"))?;
        let own = self
            .address()
            .get_or_insert_with(|| SocketAddr::new(loopback(address.ip()), ports.take_port()))
            .to_owned();
        drop(ports);

        let (seen_by_us, seen_by_them) = match (&port.identity, &self.identity) {
            (Some(listener), Some(dialler)) => (
                PeerIdentity::Verified(listener.clone()),
                PeerIdentity::Verified(dialler.clone()),
            ),
            _ => (PeerIdentity::Unverified, PeerIdentity::Unverified),
        };
        if let (Some(expected), Some(found)) = (expected, seen_by_us.verified())
            && *expected != found.id
        {
            return Err(ConnectError::PeerRejected {
                address: address.to_string(),
                code: ErrorCode::IDENTITY_MISMATCH,
                reason: format!("expected {expected}, found {}", found.uri),
            });
        }

        let listener = PeerInfo {
            identity: seen_by_us,
            address,
        };
        let dialler = PeerInfo {
            identity: seen_by_them,
            address: SocketAddr::new(loopback(own.ip()), own.port()),
        };
        let (dialled, accepted) = MemConnection::pair(self.network.window, dialler, listener);
        let mut state = port.lock();
        if state.closed {
            return Err(unreachable("nobody listens there any more"));
        }
        if state.waiting.len() >= MAX_BACKLOG {
            return Err(unreachable("too many connections wait to be accepted"));
        }
        state.waiting.push_back(accepted);
        drop(state);
        port.arrived.notify_waiters();
        Ok(dialled)
    }
}

impl Transport for MemTransport {
    type Connection = MemConnection;
    type Listener = MemListener;

    fn name(&self) -> &'static str {
        "mem"
    }

    async fn listen(&self, bind: &BindAddr) -> Result<MemListener, ConnectError> {
        let mut ports = self.network.lock();
        let mut candidates = bind.candidates();
        let free = candidates.find_map(|candidate| match candidate.port() {
            0 => ports.free_address(candidate.ip()),
            _ => (!ports.listening.contains_key(&candidate)).then_some(candidate),
        });
        let Some(address) = free else {
            return Err(if bind.is_range() {
                ConnectError::Bind {
                    address: bind.to_string(),
                    reason: "every port of the range is in use".to_owned(),
                }
            } else {
                ConnectError::AddressInUse {
                    address: bind.to_string(),
                }
            });
        };
        let port = Arc::new(Port {
            identity: self.identity.clone(),
            state: Mutex::default(),
            arrived: Notify::new(),
        });
        ports.listening.insert(address, Arc::clone(&port));
        drop(ports);
        *self.address() = Some(address);
        Ok(MemListener {
            network: self.network.clone(),
            address,
            port,
        })
    }

    async fn connect(
        &self,
        address: SocketAddr,
        expected: Option<&ResourceId>,
    ) -> Result<MemConnection, ConnectError> {
        self.dial(address, expected)
    }
}

/// The listener of a node on a [`MemNetwork`]. Dropping it frees the address and closes what was not accepted.
#[derive(Debug)]
pub struct MemListener {
    network: MemNetwork,
    address: SocketAddr,
    port: Arc<Port>,
}

impl Listener for MemListener {
    type Connection = MemConnection;

    fn local_addr(&self) -> SocketAddr {
        self.address
    }

    async fn accept(&mut self) -> Result<MemConnection, ConnectError> {
        loop {
            let mut arrived = pin!(self.port.arrived.notified());
            arrived.as_mut().enable();
            let first = self.port.lock().waiting.pop_front();
            if let Some(connection) = first {
                return Ok(connection);
            }
            arrived.await;
        }
    }
}

impl Drop for MemListener {
    fn drop(&mut self) {
        self.network.lock().listening.remove(&self.address);
        let mut state = self.port.lock();
        state.closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for connection in waiting {
            connection.close(ErrorCode::SHUTTING_DOWN, "the listener is gone");
        }
    }
}

/// Who listens where.
#[derive(Debug)]
struct Ports {
    listening: BTreeMap<SocketAddr, Arc<Port>>,
    next: u16,
}

impl Ports {
    /// The listener at an address, or on the wildcard address with the same port.
    fn find(&self, address: SocketAddr) -> Option<Arc<Port>> {
        let any: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let listening = &self.listening;
        listening
            .get(&address)
            .or_else(|| listening.get(&SocketAddr::new(any, address.port())))
            .cloned()
    }

    /// An address on which nobody listens, if there is one.
    fn free_address(&mut self, ip: IpAddr) -> Option<SocketAddr> {
        (FIRST_FREE_PORT..=u16::MAX).find_map(|_| {
            let address = SocketAddr::new(ip, self.take_port());
            (!self.listening.contains_key(&address)).then_some(address)
        })
    }

    /// The next port number; numbers come again only after all others.
    fn take_port(&mut self) -> u16 {
        let port = self.next;
        self.next = port.checked_add(1).unwrap_or(FIRST_FREE_PORT);
        port
    }
}

/// One listening address.
#[derive(Debug)]
struct Port {
    identity: Option<VerifiedPeer>,
    state: Mutex<PortState>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct PortState {
    waiting: VecDeque<MemConnection>,
    silent: usize,
    closed: bool,
}

impl Port {
    fn lock(&self) -> MutexGuard<'_, PortState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The address by which a node that listens on a wildcard address is reached.
fn loopback(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(v4) if v4.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(v6) if v6.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    }
}

/// Bytes that a stream buffers in each direction: the stream window of the QUIC backend's smallest useful setting.
const DEFAULT_WINDOW: usize = 256 * 1024;

/// Connections that may wait to be accepted: the bound of the QUIC backend.
const MAX_BACKLOG: usize = 1024;

/// First port of the dynamic range (RFC 6335 section 6).
const FIRST_FREE_PORT: u16 = 49_152;
