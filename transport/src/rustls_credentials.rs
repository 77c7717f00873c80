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
