//! Who a node is and how that is proved.

use std::{fmt, sync::Arc};

use rustls::pki_types::CertificateDer;
use thiserror::Error;

use crate::error::ErrorCode;

/// The name of a node: 1 to 128 characters out of `A-Z a-z 0-9 . _ -`.
///
/// It stands in the path of the node's identity URI, in log lines and in wildcard addresses, hence the narrow alphabet.
/// Cloning is cheap.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceId(Arc<str>);

impl ResourceId {
    /// Checks and takes a name.
    ///
    /// # Errors
    /// [`InvalidResourceId`] if it is empty, too long or has another character.
    pub fn new(name: &str) -> Result<Self, InvalidResourceId> {
        let valid = !name.is_empty()
            && name.len() <= MAX_RESOURCE_ID_BYTES
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        if valid {
            Ok(Self(name.into()))
        } else {
            Err(InvalidResourceId {
                name: name.chars().take(160).collect(),
            })
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResourceId({})", self.0)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for ResourceId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for ResourceId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::new(&name).map_err(serde::de::Error::custom)
    }
}

/// A resource id with a character that is not allowed, or of a wrong length.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "invalid resource id {name:?}: 1 to {MAX_RESOURCE_ID_BYTES} characters of A-Z a-z 0-9 . _ - are allowed"
)]
pub struct InvalidResourceId {
    name: String,
}

/// What is known about the peer of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerIdentity {
    /// Without TLS nothing is proved; the peer's hello says a name, which anybody could say.
    Unverified,
    /// The certificate was verified and [`Credentials::identify`] read this from it.
    Verified(VerifiedPeer),
}

impl PeerIdentity {
    /// The proved identity, if there is one.
    #[must_use]
    pub fn verified(&self) -> Option<&VerifiedPeer> {
        match self {
            Self::Unverified => None,
            Self::Verified(peer) => Some(peer),
        }
    }
}

/// An identity that a certificate proved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedPeer {
    /// The node's name.
    pub id: ResourceId,
    /// The role, a word whose meaning the embedding engine defines (`jobmanager`, `taskmanager`, `client`).
    pub role: Arc<str>,
    /// The whole identity as it stands in the certificate, for logs: `spiffe://<cluster>/<role>/<id>`.
    pub uri: Arc<str>,
    /// End of the certificate's validity, seconds since 1970.
    pub expires_at: u64,
}

/// Which side of a connection asks whether the peer may be admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission<'a> {
    /// We dialled and wanted this node, or any node at that address.
    Dialled(Option<&'a ResourceId>),
    /// The peer dialled us.
    Accepted,
}

/// Why a peer whose certificate chain is valid is refused nevertheless.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct Refusal {
    /// The code for the peer.
    pub code: ErrorCode,
    /// One line for the log and for the peer: both identities, and what was expected.
    pub reason: String,
}

/// TLS configurations, and the meaning of the certificates in them.
///
/// Asked anew for each connection, so that an implementation can change certificates at run time. The rustls
/// configurations must be TLS 1.3 only, present a certificate on both sides, require one from clients, and carry
/// [`ALPN`].
pub trait Credentials: fmt::Debug + Send + Sync + 'static {
    /// For accepted connections.
    fn server_config(&self) -> Arc<rustls::ServerConfig>;

    /// For dialled connections. Its verifier must not expect a DNS name: nodes are known by identity, and the name
    /// given to rustls is [`SERVER_NAME`].
    fn client_config(&self) -> Arc<rustls::ClientConfig>;

    /// Reads the identity from a certificate that rustls has verified.
    ///
    /// # Errors
    /// [`ErrorCode::UNIDENTIFIED`] if there is none.
    fn identify(&self, end_entity: &CertificateDer<'_>) -> Result<VerifiedPeer, Refusal>;

    /// Decides whether this peer may talk to us at all: right cluster, acceptable role, the node that was dialled.
    ///
    /// # Errors
    /// [`ErrorCode::WRONG_CLUSTER`], [`ErrorCode::WRONG_ROLE`] or [`ErrorCode::IDENTITY_MISMATCH`].
    fn admit(&self, peer: &VerifiedPeer, admission: Admission<'_>) -> Result<(), Refusal>;
}

/// The protocol name in the TLS handshake; the digit is the major version.
pub const ALPN: &[u8] = b"thalweg/1";

/// The name given to rustls for every peer. Nodes are known by their identity URI, so it is never matched.
pub const SERVER_NAME: &str = "node.thalweg.internal";

/// Longest resource id in bytes.
pub const MAX_RESOURCE_ID_BYTES: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_ids_have_a_narrow_alphabet() {
        for good in ["tm-1", "a", "A.b_c-9"] {
            assert_eq!(ResourceId::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "a/b", "a b", "ä", "a\n", &"x".repeat(129)] {
            assert!(ResourceId::new(bad).is_err(), "{bad:?}");
        }
    }
}
