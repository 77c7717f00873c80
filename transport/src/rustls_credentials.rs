//! Credentials for engines that have TLS configurations of their own.

use std::{fmt, sync::Arc};

use rustls::{ClientConfig, ServerConfig, pki_types::CertificateDer};

use crate::{
    error::ErrorCode,
    identity::{ALPN, Admission, Credentials, Refusal, VerifiedPeer},
};

type ReadIdentity = dyn Fn(&CertificateDer<'_>) -> Result<VerifiedPeer, Refusal> + Send + Sync;

/// Ready rustls configurations as a node's [`Credentials`].
///
/// Every peer whose certificate rustls has verified, and from which an identity can be read, may connect; a node that is
/// dialled by its name has to be that node. Who wants more rules implements [`Credentials`].
///
/// [`ALPN`] is put into both configurations, and session resumption is the caller's to switch off.
///
/// ```
/// use std::{error::Error, sync::Arc};
///
/// use thalweg_certs::{CertificateAuthority, Identity, IssueRequest, Role};
/// use thalweg_transport::{
///     Connections, ErrorCode, Node, Refusal, ResourceId, RustlsCredentials, TcpTransport, TransportConfig,
///     VerifiedPeer,
/// };
///
/// fn refuse(error: &dyn Error) -> Refusal {
///     Refusal { code: ErrorCode::UNIDENTIFIED, reason: error.to_string() }
/// }
///
/// # async fn run() -> Result<(), Box<dyn Error>> {
/// // Any other source of rustls configurations with mutual TLS 1.3 does as well.
/// let ca = CertificateAuthority::generate("staging", 1)?;
/// let identity = Identity::new(ca.cluster(), Role::TaskManager, "tm-1")?;
/// let own = ca.issue(&IssueRequest::new(identity))?.credentials()?;
/// let credentials = RustlsCredentials::new(
///     Arc::unwrap_or_clone(own.server_config(&[])),
///     Arc::unwrap_or_clone(own.client_config(&[])),
///     |certificate| {
///         let identity = thalweg_certs::identity_of(certificate).map_err(|error| refuse(&error))?;
///         Ok(VerifiedPeer {
///             id: ResourceId::new(identity.id()).map_err(|error| refuse(&error))?,
///             role: identity.role().as_str().into(),
///             uri: identity.to_string().into(),
///             expires_at: u64::MAX,
///         })
///     },
/// );
/// let config = TransportConfig::default();
/// let transport = TcpTransport::new(&config, Some(Arc::new(credentials)));
/// let node = Node::builder(ResourceId::new("tm-1")?, config).start(transport).await?;
/// assert!(node.local_addr().ip().is_loopback());
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(run()).unwrap();
/// ```
pub struct RustlsCredentials {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    read_identity: Box<ReadIdentity>,
}

impl RustlsCredentials {
    /// `read_identity` makes of a verified certificate who it is.
    pub fn new(
        mut server: ServerConfig,
        mut client: ClientConfig,
        read_identity: impl Fn(&CertificateDer<'_>) -> Result<VerifiedPeer, Refusal>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        server.alpn_protocols = vec![ALPN.to_vec()];
        client.alpn_protocols = vec![ALPN.to_vec()];
        Self {
            server: Arc::new(server),
            client: Arc::new(client),
            read_identity: Box::new(read_identity),
        }
    }
}

impl fmt::Debug for RustlsCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RustlsCredentials").finish_non_exhaustive()
    }
}

impl Credentials for RustlsCredentials {
    fn server_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    fn client_config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client)
    }

    fn identify(&self, end_entity: &CertificateDer<'_>) -> Result<VerifiedPeer, Refusal> {
        (self.read_identity)(end_entity)
    }

    fn admit(&self, peer: &VerifiedPeer, admission: Admission<'_>) -> Result<(), Refusal> {
        match admission {
            Admission::Dialled(Some(expected)) if *expected != peer.id => Err(Refusal {
                code: ErrorCode::IDENTITY_MISMATCH,
                reason: format!("{} is not {expected}, which was dialled", peer.uri),
            }),
            Admission::Dialled(_) | Admission::Accepted => Ok(()),
        }
    }
}
