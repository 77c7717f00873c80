//! Addresses to bind and to dial.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use crate::{error::ConnectError, identity::ResourceId};

/// Where to listen: an IP address and a port, a port range, or port 0 for any free port.
///
/// Written `127.0.0.1:0`, `0.0.0.0:50100-50200`, `[::1]:6121`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindAddr {
    ip: IpAddr,
    first: u16,
    last: u16,
}

impl BindAddr {
    /// One address; port 0 stands for any free port.
    #[must_use]
    pub fn single(address: SocketAddr) -> Self {
        Self {
            ip: address.ip(),
            first: address.port(),
            last: address.port(),
        }
    }

    /// The addresses to try, in order.
    pub fn candidates(self) -> impl Iterator<Item = SocketAddr> {
        (self.first..=self.last).map(move |port| SocketAddr::new(self.ip, port))
    }

    /// Whether more than one port may be tried.
    #[must_use]
    pub fn is_range(self) -> bool {
        self.first != self.last
    }

    /// The IP address to bind; may be a wildcard.
    #[must_use]
    pub fn ip(self) -> IpAddr {
        self.ip
    }
}

impl fmt::Display for BindAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", SocketAddr::new(self.ip, self.first))?;
        if self.is_range() {
            write!(f, "-{}", self.last)
        } else {
            Ok(())
        }
    }
}

impl FromStr for BindAddr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = || {
            format!(
                "{text:?} is no address to listen on: expected IP:PORT, IP:FIRST-LAST or [IPv6]:PORT"
            )
        };
        let (host, ports) = text.rsplit_once(':').ok_or_else(expected)?;
        let host = host
            .strip_prefix('[')
            .and_then(|h| h.strip_suffix(']'))
            .unwrap_or(host);
        let ip = if host == "localhost" {
            IpAddr::from([127, 0, 0, 1])
        } else {
            host.parse().map_err(|_| expected())?
        };
        let (first, last) = match ports.split_once('-') {
            Some((first, last)) => (
                first.parse().map_err(|_| expected())?,
                last.parse().map_err(|_| expected())?,
            ),
            None => {
                let port = ports.parse().map_err(|_| expected())?;
                (port, port)
            }
        };
        if first > last || (first == 0 && last != 0) {
            return Err(format!(
                "{text:?} has an empty port range: expected FIRST-LAST with 1 <= FIRST <= LAST"
            ));
        }
        Ok(Self { ip, first, last })
    }
}

/// Which connection a stream belongs to: the peer, its address, and an index for peers with several connections.
///
/// One ConnectionId is one transport connection. The index is reduced modulo `connections_per_peer` before use, so
/// that producers may number their exchanges freely. A ConnectionId without a peer shares the connection of one that
/// names the peer at the same address, and the reverse, once it is known who listens there.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId {
    /// The node that is to be reached; `None` where only the address is known before dialling.
    pub peer: Option<ResourceId>,
    /// `host:port` that the peer advertises.
    pub address: String,
    /// Which of the connections to this peer.
    pub index: u32,
}

impl ConnectionId {
    /// The first connection to a node.
    #[must_use]
    pub fn new(peer: ResourceId, address: impl Into<String>) -> Self {
        Self {
            peer: Some(peer),
            address: address.into(),
            index: 0,
        }
    }

    /// A connection to whoever listens at an address.
    #[must_use]
    pub fn to_address(address: impl Into<String>) -> Self {
        Self {
            peer: None,
            address: address.into(),
            index: 0,
        }
    }

    /// The same peer with another index.
    #[must_use]
    pub fn with_index(mut self, index: u32) -> Self {
        self.index = index;
        self
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.peer {
            Some(peer) => write!(f, "{peer}@{}", self.address)?,
            None => write!(f, "{}", self.address)?,
        }
        if self.index > 0 {
            write!(f, "#{}", self.index)
        } else {
            Ok(())
        }
    }
}

/// Resolves `host:port`; the first address wins.
///
/// # Errors
/// [`ConnectError::Address`] if the text is malformed or the name does not resolve.
///
/// # Cancel safety
/// Cancel-safe.
pub async fn resolve(address: &str) -> Result<SocketAddr, ConnectError> {
    if let Ok(socket) = address.parse() {
        return Ok(socket);
    }
    let failed = |reason: String| ConnectError::Address {
        address: address.to_owned(),
        reason,
    };
    let mut found = tokio::net::lookup_host(address)
        .await
        .map_err(|e| failed(e.to_string()))?;
    found
        .next()
        .ok_or_else(|| failed("the name has no address".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bind_addresses_are_read_as_people_write_them() {
        let one: BindAddr = "127.0.0.1:0".parse().unwrap();
        assert_eq!(one.candidates().count(), 1);
        let range: BindAddr = "0.0.0.0:50100-50102".parse().unwrap();
        assert_eq!(
            range.candidates().map(|a| a.port()).collect::<Vec<_>>(),
            [50100, 50101, 50102]
        );
        let v6: BindAddr = "[::1]:6121".parse().unwrap();
        assert_eq!(v6.to_string(), "[::1]:6121");
        assert_eq!(range.to_string(), "0.0.0.0:50100-50102");
    }

    #[test]
    fn bad_bind_addresses_say_what_is_expected() {
        for bad in [
            "",
            "127.0.0.1",
            "127.0.0.1:x",
            "1.2.3.4:9-3",
            "1.2.3.4:0-3",
            "1.2.3.4:70000",
            "host:1",
        ] {
            let error = bad.parse::<BindAddr>().unwrap_err();
            assert!(error.contains(&format!("{bad:?}")), "{error}");
        }
    }
}
