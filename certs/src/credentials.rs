//! What a node needs to speak TLS: its certificate chain, private key and CA certificates, checked together.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, Error, InconsistentKeys, ServerConfig};

use crate::error::{CertError, Origin, Warning};
use crate::files::{CA_CERTIFICATE_FILE, CERTIFICATE_FILE, KEY_FILE};
use crate::identity::Identity;
use crate::info::{CertificateInfo, identity_in};
use crate::verify::{PeerVerifiers, provider};
use crate::{clock, pem, store};

/// A node's own certificate chain and key with the CA certificates that it trusts, ready for TLS.
///
/// A value of this type has been checked: the key belongs to the certificate, the certificate is valid now, carries an
/// identity and both usages, and peers with the same CA certificates accept it. Cloning is cheap.
#[derive(Clone)]
pub struct NodeCredentials {
    identity: Identity,
    info: CertificateInfo,
    end_entity: CertificateDer<'static>,
    key: Arc<SingleCertAndKey>,
    verifiers: PeerVerifiers,
    provider: Arc<CryptoProvider>,
    warnings: Vec<Warning>,
}

impl NodeCredentials {
    /// Reads `cert.pem`, `key.pem` and `ca.pem` of a folder.
    ///
    /// # Errors
    ///
    /// As [`from_files`](Self::from_files).
    pub fn from_dir(dir: impl AsRef<Path>) -> Result<Self, CertError> {
        Self::from_files(&CredentialFiles::in_dir(dir))
    }

    /// Reads PEM files.
    ///
    /// # Errors
    ///
    /// Each names the file: [`CertError::Io`]; [`CertError::Parse`] for text without what is needed, damaged or
    /// encrypted; [`CertError::InsecureKey`]; [`CertError::KeyMismatch`]; [`CertError::Expired`] or
    /// [`CertError::NotYetValid`]; [`CertError::Usage`] for a certificate without server and client usage;
    /// [`CertError::NoIdentity`] or [`CertError::InvalidIdentity`]; [`CertError::UnknownIssuer`] or
    /// [`CertError::Untrusted`] if the CA certificates do not accept the node's own.
    pub fn from_files(files: &CredentialFiles) -> Result<Self, CertError> {
        let mut warnings = Vec::new();
        let sources = Sources {
            certificate: (
                &store::read(&files.certificate)?,
                Origin::File(files.certificate.clone()),
            ),
            key: (
                &store::read_secret(&files.key, &mut warnings)?,
                Origin::File(files.key.clone()),
            ),
            ca: (&store::read(&files.ca)?, Origin::File(files.ca.clone())),
        };
        let mut credentials = Self::check(&sources, clock::now())?;
        credentials.warnings = warnings;
        Ok(credentials)
    }

    /// Takes PEM texts: the chain with the node's own certificate first, its private key, the CA certificates.
    ///
    /// # Errors
    ///
    /// As [`from_files`](Self::from_files), without those of files.
    pub fn from_pem(certificate: &[u8], key: &[u8], ca: &[u8]) -> Result<Self, CertError> {
        Self::from_pem_at(certificate, key, ca, clock::now())
    }

    /// The accepting side: TLS 1.3 only, a client certificate of the same CA required, no session resumption, no early
    /// data.
    ///
    /// `alpn` lists the application protocols, the preferred one first. A peer that offers none at all is not refused
    /// by TLS over TCP: check the negotiated protocol after the handshake.
    pub fn server_config(&self, alpn: &[&[u8]]) -> Arc<ServerConfig> {
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&TLS13])
            .expect("every suite of the provider is a TLS 1.3 suite")
            .with_client_cert_verifier(Arc::clone(&self.verifiers.client) as _)
            .with_cert_resolver(Arc::clone(&self.key) as _);
        // A resumed session would skip the verification of the peer's certificate, which may have been revoked since.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        config.alpn_protocols = protocols(alpn);
        Arc::new(config)
    }

    /// The dialling side: TLS 1.3 only, presents the node's certificate, verifies the peer's chain, dates and usage but
    /// no name (any server name may be given), no session resumption, no early data.
    ///
    /// Who answered is known from [`identity_of`](crate::identity_of) after the handshake.
    pub fn client_config(&self, alpn: &[&[u8]]) -> Arc<ClientConfig> {
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&TLS13])
            .expect("every suite of the provider is a TLS 1.3 suite")
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&self.verifiers.server) as _)
            .with_client_cert_resolver(Arc::clone(&self.key) as _);
        config.resumption = Resumption::disabled();
        config.enable_early_data = false;
        config.enable_sni = false;
        config.alpn_protocols = protocols(alpn);
        Arc::new(config)
    }

    /// Who the node is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// What the node's own certificate says.
    pub fn info(&self) -> &CertificateInfo {
        &self.info
    }

    /// When the node's own certificate stops being valid.
    pub fn expires_at(&self) -> SystemTime {
        self.info.expires_at()
    }

    /// The node's own certificate in DER form.
    pub fn end_entity(&self) -> &CertificateDer<'static> {
        &self.end_entity
    }

    /// What an operator should change about the files that these were read from.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }
}

/// Where a node's PEM files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialFiles {
    /// The certificate chain, the node's own certificate first.
    pub certificate: PathBuf,
    /// The private key; must not be open to users other than its owner and group.
    pub key: PathBuf,
    /// The CA certificates to trust.
    pub ca: PathBuf,
}

impl CredentialFiles {
    /// `cert.pem`, `key.pem` and `ca.pem` in a folder.
    pub fn in_dir(dir: impl AsRef<Path>) -> Self {
        let dir = dir.as_ref();
        Self {
            certificate: dir.join(CERTIFICATE_FILE),
            key: dir.join(KEY_FILE),
            ca: dir.join(CA_CERTIFICATE_FILE),
        }
    }
}

/// PEM texts, each with the name that errors give it.
struct Sources<'a> {
    certificate: (&'a [u8], Origin),
    key: (&'a [u8], Origin),
    ca: (&'a [u8], Origin),
}

// === impl NodeCredentials ===

impl NodeCredentials {
    pub(crate) fn from_pem_at(
        certificate: &[u8],
        key: &[u8],
        ca: &[u8],
        now: i64,
    ) -> Result<Self, CertError> {
        let sources = Sources {
            certificate: (certificate, Origin::Memory("the node's certificate")),
            key: (key, Origin::Memory("the node's private key")),
            ca: (ca, Origin::Memory("the CA certificates")),
        };
        Self::check(&sources, now)
    }

    /// The order of the checks decides what an operator hears about first: text, pairing, dates, usage, identity, and
    /// the CA at last.
    fn check(sources: &Sources<'_>, now: i64) -> Result<Self, CertError> {
        let Sources {
            certificate: (certificate_text, origin),
            key: (key_text, key_origin),
            ca: (ca_text, ca_origin),
        } = sources;
        let provider = provider();
        let chain = pem::certificates(certificate_text, origin)?;
        let key = pem::private_key(key_text, key_origin)?;
        let roots = pem::certificates(ca_text, ca_origin)?;
        let [end_entity, ..] = chain.as_slice() else {
            return Err(CertError::parse(origin, "holds no certificate"));
        };
        let end_entity = end_entity.clone();

        let info = CertificateInfo::read(&end_entity, origin)?;
        let signing_key = provider
            .key_provider
            .load_private_key(key)
            .map_err(|error| {
                CertError::parse_with(
                    key_origin,
                    "holds a private key of an unsupported or damaged kind",
                    error,
                )
            })?;
        let certified = CertifiedKey::new(chain, signing_key);
        certified.keys_match().map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => CertError::KeyMismatch {
                key: key_origin.clone(),
                certificate: origin.clone(),
            },
            error => {
                CertError::parse_with(origin, "holds a certificate that cannot be used", error)
            }
        })?;
        info.check_dates(origin, now)?;
        if !(info.server_usage && info.client_usage) {
            let reason = "a node both dials and is dialled, so its extended key usage must name servers and clients \
                          (serverAuth, clientAuth)";
            return Err(CertError::Usage {
                origin: origin.clone(),
                reason,
            });
        }
        let identity = identity_in(&end_entity, origin)?;
        for root in &roots {
            if !CertificateInfo::read(root, ca_origin)?.is_ca {
                let reason = "it holds a certificate that is not a CA's";
                return Err(CertError::Usage {
                    origin: ca_origin.clone(),
                    reason,
                });
            }
        }
        let verifiers = PeerVerifiers::new(&roots, ca_origin, &provider)?;
        verifiers
            .check(&certified.cert, now)
            .map_err(|error| untrusted(error, origin, ca_origin))?;
        let key = Arc::new(SingleCertAndKey::from(certified));
        Ok(Self {
            identity,
            info,
            end_entity,
            key,
            verifiers,
            provider,
            warnings: Vec::new(),
        })
    }
}

impl fmt::Debug for NodeCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeCredentials")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

/// A CA with the right name but another key is as unknown as one with another name.
fn untrusted(error: Error, certificate: &Origin, roots: &Origin) -> CertError {
    let (certificate, roots) = (certificate.clone(), roots.clone());
    match error {
        Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => CertError::UnknownIssuer { certificate, roots },
        source => CertError::Untrusted {
            certificate,
            roots,
            source,
        },
    }
}

fn protocols(alpn: &[&[u8]]) -> Vec<Vec<u8>> {
    alpn.iter().map(|protocol| protocol.to_vec()).collect()
}

#[cfg(test)]
mod tests;
