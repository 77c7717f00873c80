//! The certificate that an authority issues to a node, and the request for it.

use std::fmt;
use std::path::Path;

use crate::credentials::NodeCredentials;
use crate::error::{CertError, Origin};
use crate::files::{CA_CERTIFICATE_FILE, CERTIFICATE_FILE, KEY_FILE};
use crate::identity::Identity;
use crate::info::CertificateInfo;
use crate::names::SubjectAltName;
use crate::store::{self, Access, NewFile};
use crate::{clock, pem};

/// What to issue a certificate for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct IssueRequest {
    /// Who the certificate is for.
    pub identity: Identity,
    /// DNS names and addresses beside the identity, for other tools. Default: none.
    pub names: Vec<SubjectAltName>,
    /// Validity in days, 1 to [`MAX_DAYS`](crate::MAX_DAYS). Default: [`DEFAULT_NODE_DAYS`].
    pub days: u32,
}

impl IssueRequest {
    /// A request with the defaults.
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            names: Vec::new(),
            days: DEFAULT_NODE_DAYS,
        }
    }

    /// Adds DNS names and addresses.
    #[must_use]
    pub fn with_names(mut self, names: impl IntoIterator<Item = SubjectAltName>) -> Self {
        self.names.extend(names);
        self
    }

    /// Sets the validity.
    #[must_use]
    pub fn with_days(mut self, days: u32) -> Self {
        self.days = days;
        self
    }
}

/// A node's certificate with its private key and the CA certificates that the node trusts.
///
/// The key is in memory in the clear; the `Debug` form leaves it out.
#[derive(Clone)]
pub struct NodeCertificate {
    certificate_pem: String,
    key_pem: String,
    ca_pem: String,
    info: CertificateInfo,
}

impl NodeCertificate {
    /// Writes `cert.pem`, `key.pem` (mode 0600) and `ca.pem` into a folder, which is made if it does not exist.
    ///
    /// # Errors
    ///
    /// [`CertError::AlreadyExists`] if one of the files exists (nothing is written then), [`CertError::Io`].
    pub fn save(&self, dir: impl AsRef<Path>) -> Result<(), CertError> {
        let dir = dir.as_ref();
        store::write_new(&[
            NewFile {
                path: dir.join(KEY_FILE),
                text: &self.key_pem,
                access: Access::Secret,
            },
            NewFile {
                path: dir.join(CERTIFICATE_FILE),
                text: &self.certificate_pem,
                access: Access::Public,
            },
            NewFile {
                path: dir.join(CA_CERTIFICATE_FILE),
                text: &self.ca_pem,
                access: Access::Public,
            },
        ])
    }

    /// The same as a node uses it, without a detour over files.
    ///
    /// # Errors
    ///
    /// As [`NodeCredentials::from_pem`]; for a certificate that was just issued only if it has expired since.
    pub fn credentials(&self) -> Result<NodeCredentials, CertError> {
        self.credentials_at(clock::now())
    }

    /// The certificate chain, the node's own certificate first, as PEM text.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The private key in PKCS#8 form, as PEM text. Secret.
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// The CA certificates to trust, as PEM text.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// What the node's own certificate says.
    pub fn info(&self) -> &CertificateInfo {
        &self.info
    }

    pub(crate) fn credentials_at(&self, now: i64) -> Result<NodeCredentials, CertError> {
        let (certificate, key, ca) = (
            self.certificate_pem.as_bytes(),
            self.key_pem.as_bytes(),
            self.ca_pem.as_bytes(),
        );
        NodeCredentials::from_pem_at(certificate, key, ca, now)
    }
}

// === impl NodeCertificate ===

impl NodeCertificate {
    /// Puts PEM texts together; the first certificate of the chain is the node's own.
    pub(crate) fn new(
        certificate_pem: String,
        key_pem: String,
        ca_pem: String,
    ) -> Result<Self, CertError> {
        let origin = Origin::Memory("the node's certificate");
        let chain = pem::certificates(certificate_pem.as_bytes(), &origin)?;
        let [end_entity, ..] = chain.as_slice() else {
            return Err(CertError::parse(&origin, "holds no certificate"));
        };
        let info = CertificateInfo::read(end_entity, &origin)?;
        Ok(Self {
            certificate_pem,
            key_pem,
            ca_pem,
            info,
        })
    }
}

impl fmt::Debug for NodeCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeCertificate")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

/// 90 days: short enough that renewal is a habit, long enough for renewal by hand.
pub const DEFAULT_NODE_DAYS: u32 = 90;
