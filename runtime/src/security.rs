//! Node certificates as the transport's credentials: what an identity means when nodes connect.

use std::{
    fmt,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use rustls::pki_types::CertificateDer;
use thalweg_certs::{CertificateInfo, Identity, NodeCredentials, Role};
use thalweg_transport::{
    ALPN, Admission, Credentials, ErrorCode, Refusal, ResourceId, VerifiedPeer, chain,
};

/// The certificates of a node, and the rule whom it talks to.
///
/// Admitted is a peer of the same cluster whose role takes part in the conversation:
///
/// | this node's role | dials | accepts |
/// |---|---|---|
/// | `jobmanager` | `taskmanager`, `jobmanager` | `taskmanager`, `client`, `jobmanager` |
/// | `taskmanager` | `jobmanager`, `taskmanager` | `jobmanager`, `taskmanager` |
/// | `client` | `jobmanager`, `taskmanager` | nobody |
///
/// What an admitted peer may call is decided by each gateway method.
pub struct NodeSecurity {
    credentials: NodeCredentials,
    server: Arc<rustls::ServerConfig>,
    client: Arc<rustls::ClientConfig>,
}

impl NodeSecurity {
    /// Builds both TLS configurations.
    #[must_use]
    pub fn new(credentials: NodeCredentials) -> Self {
        let (server, client) = (
            credentials.server_config(&[ALPN]),
            credentials.client_config(&[ALPN]),
        );
        Self {
            credentials,
            server,
            client,
        }
    }

    /// The node's own identity.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        self.credentials.identity()
    }

    /// The certificate that the node serves.
    #[must_use]
    pub fn certificate(&self) -> &CertificateInfo {
        self.credentials.info()
    }

    fn refuse(&self, code: ErrorCode, peer: &VerifiedPeer, why: &str) -> Refusal {
        Refusal {
            code,
            reason: format!("{} {why}; this is {}", peer.uri, self.identity()),
        }
    }
}

impl fmt::Debug for NodeSecurity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeSecurity")
            .field("identity", &self.identity().to_string())
            .finish_non_exhaustive()
    }
}

impl Credentials for NodeSecurity {
    fn server_config(&self) -> Arc<rustls::ServerConfig> {
        Arc::clone(&self.server)
    }

    fn client_config(&self) -> Arc<rustls::ClientConfig> {
        Arc::clone(&self.client)
    }

    fn identify(&self, end_entity: &CertificateDer<'_>) -> Result<VerifiedPeer, Refusal> {
        let unidentified = |reason: String| Refusal {
            code: ErrorCode::UNIDENTIFIED,
            reason,
        };
        let info =
            CertificateInfo::from_der(end_entity).map_err(|error| unidentified(chain(&error)))?;
        let identity =
            thalweg_certs::identity_of(end_entity).map_err(|error| unidentified(chain(&error)))?;
        let id = ResourceId::new(identity.id()).map_err(|error| unidentified(error.to_string()))?;
        Ok(VerifiedPeer {
            id,
            role: identity.role().as_str().into(),
            uri: identity.to_string().into(),
            expires_at: seconds(info.expires_at()),
        })
    }

    fn admit(&self, peer: &VerifiedPeer, admission: Admission<'_>) -> Result<(), Refusal> {
        let own = self.identity();
        let theirs: Identity = peer.uri.parse().map_err(|error| Refusal {
            code: ErrorCode::UNIDENTIFIED,
            reason: chain(&error),
        })?;
        if theirs.cluster() != own.cluster() {
            let why = format!(
                "belongs to cluster {:?}, not {:?}",
                theirs.cluster(),
                own.cluster()
            );
            return Err(self.refuse(ErrorCode::WRONG_CLUSTER, peer, &why));
        }
        let (allowed, verb): (&[Role], _) = match (admission, own.role()) {
            (Admission::Dialled(_), Role::JobManager) => {
                (&[Role::TaskManager, Role::JobManager], "be dialled by")
            }
            (Admission::Dialled(_), _) => (&[Role::JobManager, Role::TaskManager], "be dialled by"),
            (Admission::Accepted, Role::JobManager) => (
                &[Role::TaskManager, Role::Client, Role::JobManager],
                "connect to",
            ),
            (Admission::Accepted, Role::TaskManager) => {
                (&[Role::JobManager, Role::TaskManager], "connect to")
            }
            (Admission::Accepted, Role::Client) => (&[], "connect to"),
        };
        if !allowed.contains(&theirs.role()) {
            let why = format!(
                "has role {} and must not {verb} a {}",
                theirs.role(),
                own.role()
            );
            return Err(self.refuse(ErrorCode::WRONG_ROLE, peer, &why));
        }
        if let Admission::Dialled(Some(expected)) = admission
            && *expected != peer.id
        {
            let why = format!("is not {expected}, which was dialled");
            return Err(self.refuse(ErrorCode::IDENTITY_MISMATCH, peer, &why));
        }
        Ok(())
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use thalweg_certs::{CertificateAuthority, IssueRequest};

    use super::*;

    fn node(cluster: &str, role: Role, id: &str) -> NodeSecurity {
        let ca = CertificateAuthority::generate(cluster, 10).unwrap();
        let identity = Identity::new(cluster, role, id).unwrap();
        NodeSecurity::new(
            ca.issue(&IssueRequest::new(identity))
                .unwrap()
                .credentials()
                .unwrap(),
        )
    }

    fn peer(cluster: &str, role: Role, id: &str) -> VerifiedPeer {
        let other = node(cluster, role, id);
        other.identify(other.credentials.end_entity()).unwrap()
    }

    fn code(
        node: &NodeSecurity,
        peer: &VerifiedPeer,
        admission: Admission<'_>,
    ) -> Option<ErrorCode> {
        node.admit(peer, admission)
            .err()
            .map(|refusal| refusal.code)
    }

    #[test]
    fn the_identity_is_read_from_the_certificate() {
        let peer = peer("demo", Role::TaskManager, "tm-1");
        assert_eq!(
            (peer.id.as_str(), &*peer.role, &*peer.uri),
            ("tm-1", "taskmanager", "spiffe://demo/taskmanager/tm-1")
        );
    }

    #[test]
    fn another_cluster_is_refused_whatever_the_role() {
        let node = node("demo", Role::JobManager, "jm");
        let stranger = peer("other", Role::TaskManager, "tm-1");
        let refusal = node.admit(&stranger, Admission::Accepted).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::WRONG_CLUSTER);
        assert!(
            refusal.reason.contains("spiffe://other/taskmanager/tm-1"),
            "{}",
            refusal.reason
        );
        assert!(
            refusal.reason.contains("spiffe://demo/jobmanager/jm"),
            "{}",
            refusal.reason
        );
    }

    #[test]
    fn roles_decide_who_may_connect_to_whom() {
        use Role::{Client, JobManager, TaskManager};
        let accepts = |own, theirs| {
            code(
                &node("d", own, "a"),
                &peer("d", theirs, "b"),
                Admission::Accepted,
            )
            .is_none()
        };
        for (own, theirs, expected) in [
            (JobManager, TaskManager, true),
            (JobManager, Client, true),
            (TaskManager, JobManager, true),
            (TaskManager, TaskManager, true),
            (TaskManager, Client, false),
            (Client, JobManager, false),
        ] {
            assert_eq!(accepts(own, theirs), expected, "{own} accepts {theirs}");
        }
        let dials_client = code(
            &node("d", TaskManager, "a"),
            &peer("d", Client, "b"),
            Admission::Dialled(None),
        );
        assert_eq!(dials_client, Some(ErrorCode::WRONG_ROLE));
    }

    #[test]
    fn the_node_that_was_dialled_must_answer() {
        let (node, peer) = (
            node("d", Role::TaskManager, "tm-1"),
            peer("d", Role::TaskManager, "tm-2"),
        );
        let other = ResourceId::new("tm-3").unwrap();
        assert_eq!(
            code(&node, &peer, Admission::Dialled(Some(&other))),
            Some(ErrorCode::IDENTITY_MISMATCH)
        );
        assert_eq!(
            code(&node, &peer, Admission::Dialled(Some(&peer.id.clone()))),
            None
        );
    }
}
