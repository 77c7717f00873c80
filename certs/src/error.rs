//! What can go wrong with certificates, keys and their files.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::clock;

/// A failure to make, read, check or write certificates.
///
/// The text names the file (or what was given in memory), the value and what is allowed; causes are in the source
/// chain and not repeated in the text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertError {
    /// A file that would have to be overwritten exists.
    #[error("{} already exists and is not overwritten", path.display())]
    AlreadyExists {
        /// The existing file.
        path: PathBuf,
    },
    /// A certificate is past its end.
    #[error("{origin} has expired: it was valid until {}, and it is {} now", clock::text(*not_after), clock::text(*now))]
    Expired {
        /// The certificate.
        origin: Origin,
        /// Its end, in seconds since 1970.
        not_after: i64,
        /// The local time of the check, in seconds since 1970.
        now: i64,
    },
    /// A private key can be read by users that are neither its owner nor in its group.
    #[error("private key {} is open to other users (mode {mode:04o}): chmod 600 {}", path.display(), path.display())]
    InsecureKey {
        /// The key file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A cluster id, role, resource id or identity URI is not of the allowed form.
    #[error("{what} {value:?} is not valid: {allowed}")]
    InvalidIdentity {
        /// Which part.
        what: &'static str,
        /// The value, shortened if it is long.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// A subject alternative name is not of the allowed form.
    #[error("name {value:?} is not valid: {allowed}")]
    InvalidName {
        /// The value, shortened if it is long.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// A number of days is not allowed.
    #[error("a validity of {days} days is not valid: 1 to {max} days are allowed")]
    InvalidValidity {
        /// The number asked for.
        days: u32,
        /// The largest number allowed.
        max: u32,
    },
    /// A file or folder could not be read or written.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried, such as `read`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A private key does not belong to a certificate.
    #[error("{key} does not belong to {certificate}")]
    KeyMismatch {
        /// The private key.
        key: Origin,
        /// The certificate.
        certificate: Origin,
    },
    /// A certificate carries no identity, or more than one.
    #[error(
        "{origin} carries {found} identities (URI names spiffe://<cluster-id>/<role>/<resource-id>), exactly one is required"
    )]
    NoIdentity {
        /// The certificate.
        origin: Origin,
        /// How many it carries.
        found: usize,
    },
    /// A certificate is not valid yet.
    #[error("{origin} is not valid yet: it is valid from {}, and it is {} now", clock::text(*not_before), clock::text(*now))]
    NotYetValid {
        /// The certificate.
        origin: Origin,
        /// Its start, in seconds since 1970.
        not_before: i64,
        /// The local time of the check, in seconds since 1970.
        now: i64,
    },
    /// A file or text does not hold what it should.
    #[error("{origin}: {reason}")]
    Parse {
        /// Where the text came from.
        origin: Origin,
        /// What is wrong with it.
        reason: String,
        /// The cause, where a parser gave one.
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// A key could not be made or a certificate could not be signed.
    #[error("cannot {action}")]
    Sign {
        /// What was tried.
        action: &'static str,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A certificate chain is not acceptable for a reason other than its issuer, its dates or its usage.
    #[error("{certificate} is not accepted by the certificates in {roots}")]
    Untrusted {
        /// The certificate.
        certificate: Origin,
        /// The CA certificates that it was checked against.
        roots: Origin,
        /// The cause.
        source: rustls::Error,
    },
    /// A certificate was not issued by any of the CA certificates at hand.
    #[error("{certificate} was not issued by a certificate in {roots}")]
    UnknownIssuer {
        /// The certificate.
        certificate: Origin,
        /// The CA certificates that it was checked against.
        roots: Origin,
    },
    /// A certificate may not be used for what it is needed for.
    #[error("{origin} cannot be used: {reason}")]
    Usage {
        /// The certificate.
        origin: Origin,
        /// What it lacks.
        reason: &'static str,
    },
    /// A request names another cluster than the one that the authority serves.
    #[error("identity {identity} does not belong to cluster {cluster:?}, which this CA serves")]
    WrongCluster {
        /// The identity asked for.
        identity: String,
        /// The cluster of the authority.
        cluster: String,
    },
}

impl CertError {
    /// Whether what the user gave (flags, names, certificate and key files) is wrong, as opposed to an operation that
    /// failed although the input was right (a path that is missing or exists already, a full disk).
    ///
    /// Commands exit with 2 in the first case and with 1 in the second.
    pub fn is_input_error(&self) -> bool {
        match self {
            Self::AlreadyExists { .. } | Self::Io { .. } | Self::Sign { .. } => false,
            Self::Expired { .. }
            | Self::InsecureKey { .. }
            | Self::InvalidIdentity { .. }
            | Self::InvalidName { .. }
            | Self::InvalidValidity { .. }
            | Self::KeyMismatch { .. }
            | Self::NoIdentity { .. }
            | Self::NotYetValid { .. }
            | Self::Parse { .. }
            | Self::UnknownIssuer { .. }
            | Self::Untrusted { .. }
            | Self::Usage { .. }
            | Self::WrongCluster { .. } => true,
        }
    }

    /// Whether the same call may succeed later without a change of its arguments: files can be half written or half
    /// replaced when they are read, and clocks get corrected. Wrong names and numbers stay wrong.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Expired { .. }
                | Self::InsecureKey { .. }
                | Self::Io { .. }
                | Self::KeyMismatch { .. }
                | Self::NotYetValid { .. }
                | Self::Parse { .. }
                | Self::UnknownIssuer { .. }
        )
    }
}

/// Where a certificate or key came from, for error texts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// A file.
    File(PathBuf),
    /// Given as text or bytes; the value says which one, such as `the node's certificate`.
    Memory(&'static str),
}

/// Something an operator should change although it works; for the caller to log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A private key can be read (or changed) by the group of its file, as mounted secrets often can.
    GroupReadableKey {
        /// The key file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
}

/// A value from outside in an error text: at most this many characters of it.
pub(crate) fn shortened(value: &str) -> String {
    const MAX_CHARS: usize = 80;
    match value.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value.to_owned(),
    }
}

// === impl CertError ===

impl CertError {
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn parse(origin: &Origin, reason: impl Into<String>) -> Self {
        Self::Parse {
            origin: origin.clone(),
            reason: reason.into(),
            source: None,
        }
    }

    pub(crate) fn parse_with(
        origin: &Origin,
        reason: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Parse {
            origin: origin.clone(),
            reason: reason.into(),
            source: Some(source.into()),
        }
    }

    pub(crate) fn sign(
        action: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Sign {
            action,
            source: source.into(),
        }
    }
}

// === impl Origin, Warning ===

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Memory(what) => f.write_str(what),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GroupReadableKey { path, mode } => {
                write!(
                    f,
                    "private key {} is open to its group (mode {mode:04o})",
                    path.display()
                )
            }
        }
    }
}
