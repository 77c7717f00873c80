//! Where an endpoint is.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thalweg_transport::{ConnectionId, ResourceId};

/// The address of an endpoint: node and name.
///
/// Written `thalweg://<resource-id>@<host>:<port>/<endpoint>`, `thalweg://<host>:<port>/<endpoint>` where the node's
/// name is not known, and `thalweg:///<endpoint>` inside one service. The name may end in `*` when connecting: any
/// live endpoint whose name begins so.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RpcAddress {
    node: Option<(Option<ResourceId>, String)>,
    endpoint: String,
}

impl RpcAddress {
    /// An endpoint of a node that listens at `host:port`.
    ///
    /// # Errors
    /// [`InvalidAddress`] if `host_port` or `endpoint` is malformed.
    pub fn remote(
        peer: Option<ResourceId>,
        host_port: &str,
        endpoint: &str,
    ) -> Result<Self, InvalidAddress> {
        let address = Self {
            node: Some((peer, host_port.to_owned())),
            endpoint: endpoint.to_owned(),
        };
        address.checked()
    }

    /// An endpoint of the same service.
    ///
    /// # Errors
    /// [`InvalidAddress`] if `endpoint` is malformed.
    pub fn local(endpoint: &str) -> Result<Self, InvalidAddress> {
        let address = Self {
            node: None,
            endpoint: endpoint.to_owned(),
        };
        address.checked()
    }

    /// The endpoint's name, or a prefix and `*`.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The node's name, if the address has it.
    #[must_use]
    pub fn peer(&self) -> Option<&ResourceId> {
        self.node.as_ref().and_then(|(peer, _)| peer.as_ref())
    }

    /// The node's `host:port`, or `None` for a local address.
    #[must_use]
    pub fn host_port(&self) -> Option<&str> {
        self.node.as_ref().map(|(_, host_port)| host_port.as_str())
    }

    /// The same node with another endpoint.
    ///
    /// # Errors
    /// [`InvalidAddress`] if `endpoint` is malformed.
    pub fn with_endpoint(&self, endpoint: &str) -> Result<Self, InvalidAddress> {
        let address = Self {
            node: self.node.clone(),
            endpoint: endpoint.to_owned(),
        };
        address.checked()
    }

    /// The connection that leads there, or `None` for a local address.
    #[must_use]
    pub fn connection(&self) -> Option<ConnectionId> {
        let (peer, host_port) = self.node.as_ref()?;
        Some(match peer {
            Some(peer) => ConnectionId::new(peer.clone(), host_port),
            None => ConnectionId::to_address(host_port),
        })
    }

    fn checked(self) -> Result<Self, InvalidAddress> {
        let host_is_valid = self.node.as_ref().is_none_or(|(_, host_port)| {
            host_port.len() <= MAX_HOST_BYTES
                && host_port.rsplit_once(':').is_some_and(|(host, port)| {
                    !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
                })
                && !host_port
                    .contains(|c: char| c.is_whitespace() || c.is_control() || "/@".contains(c))
        });
        let prefix = self.endpoint.strip_suffix('*').unwrap_or(&self.endpoint);
        if host_is_valid && (is_endpoint_name(prefix)) {
            Ok(self)
        } else {
            Err(InvalidAddress {
                text: self.to_string().chars().take(MAX_HOST_BYTES).collect(),
            })
        }
    }
}

/// Whether a text may name an endpoint: 1 to 128 characters out of `A-Z a-z 0-9 . _ -`, as for nodes.
pub(super) fn is_endpoint_name(name: &str) -> bool {
    ResourceId::new(name).is_ok()
}

impl fmt::Display for RpcAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        if let Some((peer, host_port)) = &self.node {
            if let Some(peer) = peer {
                write!(f, "{peer}@")?;
            }
            f.write_str(host_port)?;
        }
        write!(f, "/{}", self.endpoint)
    }
}

impl fmt::Debug for RpcAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RpcAddress({self})")
    }
}

impl FromStr for RpcAddress {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidAddress {
            text: text.chars().take(MAX_HOST_BYTES).collect(),
        };
        let (node, endpoint) = text
            .strip_prefix(SCHEME)
            .and_then(|rest| rest.split_once('/'))
            .ok_or_else(invalid)?;
        if node.is_empty() {
            return Self::local(endpoint).map_err(|_| invalid());
        }
        let (peer, host_port) = match node.split_once('@') {
            Some((peer, host_port)) => {
                let peer = ResourceId::new(peer).map_err(|_| invalid())?;
                (Some(peer), host_port)
            }
            None => (None, node),
        };
        Self::remote(peer, host_port, endpoint).map_err(|_| invalid())
    }
}

impl Serialize for RpcAddress {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RpcAddress {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A text that is no address of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no address: expected thalweg://[RESOURCE-ID@]HOST:PORT/ENDPOINT or thalweg:///ENDPOINT"
)]
pub struct InvalidAddress {
    text: String,
}

const SCHEME: &str = "thalweg://";

/// A DNS name has at most 253 characters.
const MAX_HOST_BYTES: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back_what_they_display() {
        for text in [
            "thalweg://tm-1@10.0.0.1:6122/taskmanager_0",
            "thalweg://tm-1@[::1]:6122/taskmanager_0",
            "thalweg://jobmanager.example:6123/dispatcher",
            "thalweg://host:1/jobmaster_*",
            "thalweg:///dispatcher",
        ] {
            let address: RpcAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            let bytes = postcard::to_allocvec(&address).unwrap();
            assert_eq!(postcard::from_bytes::<RpcAddress>(&bytes).unwrap(), address);
        }
    }

    #[test]
    fn malformed_addresses_are_refused_with_the_expected_form() {
        for bad in [
            "",
            "http://host:1/x",
            "thalweg://host:1",
            "thalweg://host/x",
            "thalweg://host:0/x",
            "thalweg://host:1/",
            "thalweg://host:1/*",
            "thalweg://host:1/a/b",
            "thalweg://host:1/a*b",
            "thalweg://a@b@host:1/x",
            "thalweg://bad id@host:1/x",
            "thalweg://:1/x",
        ] {
            let error = bad.parse::<RpcAddress>().unwrap_err();
            assert!(error.to_string().contains("expected"), "{bad}: {error}");
        }
    }
}
