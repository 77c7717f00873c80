//! Credentials for tests, and the wrong ones that a transport has to refuse.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    client::{Resumption, WebPkiServerVerifier},
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer},
    server::WebPkiClientVerifier,
    version::TLS13,
};
use thalweg_transport::{
    ALPN, Admission, Credentials, ErrorCode, Refusal, ResourceId, SERVER_NAME, VerifiedPeer,
};
use x509_parser::{extensions::GeneralName, prelude::FromDer};

/// A certificate authority of one cluster, in memory.
pub struct TestAuthority {
    cluster: String,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl TestAuthority {
    /// A new authority for this cluster.
    ///
    /// # Panics
    /// If the name is no ASCII, or the system has no random numbers.
    #[must_use]
    pub fn new(cluster: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        // Without a name of its own, an unknown authority looks like a known one with a bad signature.
        let name = format!("{cluster} {:x}", fastrand::u64(..));
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        Self {
            cluster: cluster.to_owned(),
            issuer: CertifiedIssuer::self_signed(params, key).expect("a CA certificate"),
        }
    }

    /// Credentials of a TaskManager with this name, which trust this authority.
    ///
    /// # Panics
    /// If the name is no resource id.
    #[must_use]
    pub fn node(&self, name: &str) -> TestCredentials {
        self.credentials(&self.issue(name, Validity::Now), self)
    }

    /// The same with a certificate that has expired.
    ///
    /// # Panics
    /// If the name is no resource id.
    #[must_use]
    pub fn expired_node(&self, name: &str) -> TestCredentials {
        self.credentials(&self.issue(name, Validity::Past), self)
    }

    /// Credentials signed by this authority, of a node that trusts another one.
    ///
    /// # Panics
    /// If the name is no resource id.
    #[must_use]
    pub fn node_that_trusts(&self, name: &str, trusted: &Self) -> TestCredentials {
        self.credentials(&self.issue(name, Validity::Now), trusted)
    }

    /// Credentials of a node that sends no certificate when it dials.
    ///
    /// # Panics
    /// If the name is no resource id.
    #[must_use]
    pub fn node_without_client_certificate(&self, name: &str) -> TestCredentials {
        let node = self.node(name);
        let mut client = client_builder(self).with_no_client_auth();
        client.alpn_protocols = vec![ALPN.to_vec()];
        node.change(|current| current.client = Arc::new(client));
        node
    }

    fn issue(&self, name: &str, validity: Validity) -> Issued {
        ResourceId::new(name).expect("a resource id");
        let uri = format!("spiffe://{}/taskmanager/{name}", self.cluster);
        let mut params = CertificateParams::default();
        // The DNS name lets rustls's own verifier do the work: nodes are not known by it.
        params.subject_alt_names = vec![
            SanType::URI(uri.try_into().expect("an ASCII URI")),
            SanType::DnsName(SERVER_NAME.try_into().expect("an ASCII name")),
        ];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::ServerAuth,
        ];
        if validity == Validity::Past {
            params.not_before = date_time_ymd(2001, 1, 1);
            params.not_after = date_time_ymd(2002, 1, 1);
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Issued {
            chain: vec![certificate.der().clone()],
            key: PrivateKeyDer::try_from(key.serialize_der()).expect("a PKCS#8 key"),
        }
    }

    fn credentials(&self, own: &Issued, trusted: &Self) -> TestCredentials {
        let clients = WebPkiClientVerifier::builder_with_provider(trusted.roots(), provider())
            .build()
            .expect("a client verifier");
        let mut server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .expect("TLS 1.3")
            .with_client_cert_verifier(clients)
            .with_single_cert(own.chain.clone(), own.key.clone_key())
            .expect("a matching key");
        server.alpn_protocols = vec![ALPN.to_vec()];
        server.send_tls13_tickets = 0;
        let mut client = client_builder(trusted)
            .with_client_auth_cert(own.chain.clone(), own.key.clone_key())
            .expect("a matching key");
        client.alpn_protocols = vec![ALPN.to_vec()];
        client.resumption = Resumption::disabled();
        TestCredentials {
            cluster: self.cluster.clone(),
            current: RwLock::new(Configs {
                server: Arc::new(server),
                client: Arc::new(client),
            }),
        }
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots
            .add(self.issuer.der().clone())
            .expect("a CA certificate");
        Arc::new(roots)
    }
}

impl fmt::Debug for TestAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TestAuthority({})", self.cluster)
    }
}

/// Credentials of one node, which can be exchanged while they are in use.
pub struct TestCredentials {
    cluster: String,
    current: RwLock<Configs>,
}

#[derive(Clone)]
struct Configs {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl TestCredentials {
    /// Takes over the certificate and the trust of other credentials, as a reload does.
    pub fn replace_by(&self, other: &Self) {
        let new = other.configs();
        self.change(|current| *current = new);
    }

    fn change(&self, change: impl FnOnce(&mut Configs)) {
        change(&mut self.current.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn configs(&self) -> Configs {
        self.current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl fmt::Debug for TestCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TestCredentials({})", self.cluster)
    }
}

impl Credentials for TestCredentials {
    fn server_config(&self) -> Arc<ServerConfig> {
        self.configs().server
    }

    fn client_config(&self) -> Arc<ClientConfig> {
        self.configs().client
    }

    fn identify(&self, end_entity: &CertificateDer<'_>) -> Result<VerifiedPeer, Refusal> {
        read_identity(end_entity).ok_or_else(|| Refusal {
            code: ErrorCode::UNIDENTIFIED,
            reason: "the certificate has no identity URI".to_owned(),
        })
    }

    fn admit(&self, peer: &VerifiedPeer, admission: Admission<'_>) -> Result<(), Refusal> {
        if !peer.uri.starts_with(&format!("spiffe://{}/", self.cluster)) {
            return Err(Refusal {
                code: ErrorCode::WRONG_CLUSTER,
                reason: format!("{} is not of cluster {}", peer.uri, self.cluster),
            });
        }
        match admission {
            Admission::Dialled(Some(expected)) if *expected != peer.id => Err(Refusal {
                code: ErrorCode::IDENTITY_MISMATCH,
                reason: format!("expected {expected}, found {}", peer.uri),
            }),
            Admission::Dialled(_) | Admission::Accepted => Ok(()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Validity {
    Now,
    Past,
}

struct Issued {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

fn client_builder(
    trusted: &TestAuthority,
) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
    let servers = WebPkiServerVerifier::builder_with_provider(trusted.roots(), provider())
        .build()
        .expect("a server verifier");
    ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .expect("TLS 1.3")
        .with_webpki_verifier(servers)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn read_identity(certificate: &CertificateDer<'_>) -> Option<VerifiedPeer> {
    let (_, parsed) = x509_parser::certificate::X509Certificate::from_der(certificate).ok()?;
    let names = parsed.subject_alternative_name().ok()??;
    let uri = names
        .value
        .general_names
        .iter()
        .find_map(|name| match name {
            GeneralName::URI(uri) => Some(*uri),
            _ => None,
        })?;
    let mut parts = uri.strip_prefix("spiffe://")?.split('/').skip(1);
    let role = parts.next()?;
    let id = ResourceId::new(parts.next()?).ok()?;
    Some(VerifiedPeer {
        id,
        role: role.into(),
        uri: uri.into(),
        expires_at: u64::try_from(parsed.validity().not_after.timestamp()).ok()?,
    })
}
