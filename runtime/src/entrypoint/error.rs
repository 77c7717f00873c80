//! Why a part of a cluster does not start.

use std::{path::PathBuf, time::Duration};

use thalweg_certs::CertError;
use thalweg_transport::{InvalidResourceId, NodeError, chain};
use thiserror::Error;

use crate::{
    config::ConfigError,
    rpc::{InvalidAddress, RpcError, SpawnError},
};

/// Why a part of a cluster does not start, or cannot go on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration is not usable.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Mutual TLS is configured, and there is no certificate.
    #[error(
        "tls.mode = \"mutual\" needs certificates: set tls.dir to a folder with cert.pem, key.pem and ca.pem \
         (`certs issue` makes one)"
    )]
    NoCertificate,
    /// There is a revocation list, and this version would not obey it.
    #[error("{} is there, but this version does not have revocation lists", .path.display())]
    RevocationList {
        /// The list.
        path: PathBuf,
    },
    /// The certificate files are not usable.
    #[error("cannot use the node's certificate: {}", chain(.0))]
    Certificate(#[source] CertError),
    /// The certificate belongs to something else than what is to be started.
    #[error("the certificate is of {identity}: {problem}")]
    Identity {
        /// The identity in it.
        identity: String,
        /// What does not fit.
        problem: String,
    },
    /// The name of the node has a character that is not allowed.
    #[error("node.id: {0}")]
    Id(#[from] InvalidResourceId),
    /// The node cannot listen, or its settings are not allowed.
    #[error("{}", chain(.0))]
    Node(#[from] NodeError),
    /// An address is malformed.
    #[error("{0}")]
    Address(#[from] InvalidAddress),
    /// An endpoint cannot be started.
    #[error("{}", chain(.0))]
    Endpoint(#[from] SpawnError),
    /// A call that belongs to the start failed.
    #[error("{}", chain(.0))]
    Rpc(#[from] RpcError),
    /// The JobManager does not answer.
    #[error("no JobManager answers at {address}: {reason}")]
    NoJobManager {
        /// Where it was sought.
        address: String,
        /// What happened there.
        reason: String,
    },
    /// A TaskManager did not register in time.
    #[error("{registered} of {expected} TaskManagers registered within {after:?}")]
    NotRegistered {
        /// How many did.
        registered: usize,
        /// How many were started.
        expected: usize,
        /// The limit.
        after: Duration,
    },
    /// A service of the TaskManager cannot be started.
    #[error("cannot start {service}: {reason}")]
    Service {
        /// Which one.
        service: &'static str,
        /// Why.
        reason: String,
    },
}

impl StartError {
    /// Whether flags, configuration or certificate files are wrong, as opposed to a failure of the surroundings.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Config(error) => error.is_usage(),
            Self::NoCertificate
            | Self::RevocationList { .. }
            | Self::Certificate(_)
            | Self::Identity { .. }
            | Self::Id(_)
            | Self::Address(_) => true,
            Self::Node(error) => matches!(error, NodeError::Config(_)),
            _ => false,
        }
    }
}
