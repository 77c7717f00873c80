//! The certificates of a Thalweg cluster: a private certificate authority, node certificates that carry an
//! identity, and the rustls configurations that are made from them.
//!
//! A node is known by its [`Identity`], a URI in its certificate
//! (`spiffe://<cluster-id>/<role>/<resource-id>`), never by a DNS name or an address. One certificate serves both
//! directions, because every node dials and is dialled: it must carry the server and the client usage.
//!
//! | module | what it holds |
//! |---|---|
//! | `authority` | [`CertificateAuthority`] |
//! | `node_certificate` | [`NodeCertificate`], which an authority issues for an [`IssueRequest`] |
//! | `credentials` | [`NodeCredentials`]: a checked certificate, key and CA, and the TLS configurations made from them |
//! | `info` | [`CertificateInfo`], [`identity_of`]: what a certificate says |
//! | `identity`, `names` | [`Identity`], [`Role`], [`SubjectAltName`] |
//! | `verify` | peer verification: chain, validity and usage, no names |
//! | `store`, `pem` | files: permissions, atomic writing, PEM text |
//! | `clock` | the one place that reads the wall clock |
//! | `error` | [`CertError`], [`Warning`] |
//!
//! The crate knows nothing of transports, and logs nothing: what deserves a warning is returned as [`Warning`].
//!
//! # Examples
//!
//! A throw-away cluster in memory, without any file:
//!
//! ```
//! use thalweg_certs::{CertificateAuthority, Identity, IssueRequest, Role, identity_of};
//!
//! # fn main() -> Result<(), thalweg_certs::CertError> {
//! let ca = CertificateAuthority::generate("demo", thalweg_certs::DEFAULT_CA_DAYS)?;
//! let node = ca.issue(&IssueRequest::new(Identity::new("demo", Role::TaskManager, "tm-1")?))?;
//! let credentials = node.credentials()?;
//! let server = credentials.server_config(&[b"thalweg/1"]);
//! let client = credentials.client_config(&[b"thalweg/1"]);
//! assert_eq!(server.alpn_protocols, client.alpn_protocols);
//!
//! // After a handshake: the identity in the peer's end-entity certificate.
//! let peer = identity_of(credentials.end_entity())?;
//! assert_eq!(peer.to_string(), "spiffe://demo/taskmanager/tm-1");
//! # Ok(())
//! # }
//! ```

mod authority;
mod clock;
mod credentials;
mod error;
mod files;
mod identity;
mod info;
mod names;
mod node_certificate;
mod pem;
mod store;
mod verify;

pub use authority::{CertificateAuthority, DEFAULT_CA_DAYS, MAX_DAYS};
pub use credentials::{CredentialFiles, NodeCredentials};
pub use error::{CertError, Origin, Warning};
pub use files::{CA_CERTIFICATE_FILE, CA_KEY_FILE, CERTIFICATE_FILE, KEY_FILE};
pub use identity::{Identity, Role};
pub use info::{CertificateInfo, identity_of};
pub use names::SubjectAltName;
pub use node_certificate::{DEFAULT_NODE_DAYS, IssueRequest, NodeCertificate};
