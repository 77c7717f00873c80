//! The certificates of both ends.

use std::{path::Path, sync::Arc};

use tempfile::TempDir;
use thalweg_certs::{CertificateAuthority, Identity, IssueRequest, NodeCredentials, Role};
use thalweg_runtime::NodeSecurity;
use thalweg_transport::{ResourceId, chain};

use crate::cli::failure::Failure;

/// A node's certificates and its name in them.
#[derive(Debug, Clone)]
pub(crate) struct NodeCertificates {
    pub(crate) id: ResourceId,
    pub(crate) security: Arc<NodeSecurity>,
}

impl NodeCertificates {
    /// Those of a folder.
    pub(crate) fn from_dir(dir: &Path) -> Result<Self, Failure> {
        let credentials =
            NodeCredentials::from_dir(dir).map_err(|error| Failure::usage(chain(&error)))?;
        Self::of(credentials)
    }

    /// Throw-away ones for both ends: ours, and the folder of the other end's, readable by this user alone.
    pub(crate) fn throw_away() -> Result<(Self, TempDir), Failure> {
        let failed = |error: thalweg_certs::CertError| Failure::failed(chain(&error));
        let ca = CertificateAuthority::generate(CLUSTER, 1).map_err(failed)?;
        let issue = |id: &str| {
            let identity = Identity::new(CLUSTER, Role::TaskManager, id).map_err(failed)?;
            ca.issue(&IssueRequest::new(identity).with_days(1))
                .map_err(failed)
        };
        let dir = tempfile::Builder::new()
            .prefix("thalweg-bench-")
            .tempdir()
            .map_err(|error| {
                Failure::failed(format!("cannot make a folder for certificates: {error}"))
            })?;
        issue(SERVER)?.save(dir.path()).map_err(failed)?;
        let own = issue(COMMAND)?.credentials().map_err(failed)?;
        Ok((Self::of(own)?, dir))
    }

    fn of(credentials: NodeCredentials) -> Result<Self, Failure> {
        let security = NodeSecurity::new(credentials);
        let id = ResourceId::new(security.identity().id())
            .map_err(|error| Failure::usage(error.to_string()))?;
        Ok(Self {
            id,
            security: Arc::new(security),
        })
    }
}

const CLUSTER: &str = "bench";
const COMMAND: &str = "bench";
const SERVER: &str = "bench-server";
