//! Verification of peers: chain, validity and usage against the cluster's CA certificates, never names.
//!
//! Which node a verified certificate belongs to is decided after the handshake from its identity. rustls has a
//! verifier for servers that insists on a DNS name or address, and both of its verifiers accept a certificate without
//! any extended key usage; the two types here close these gaps and leave the rest to them.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, ExtendedKeyPurpose,
    RootCertStore, SignatureScheme,
};

use crate::error::{CertError, Origin};
use crate::info::extended_usages;

/// The cryptography of every connection: aws-lc-rs with the TLS 1.3 suites.
///
/// AES-128-GCM comes first because QUIC's initial packets need it and it is the fastest with AES instructions.
/// ChaCha20 is last, for machines without them.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    use aws_lc_rs::cipher_suite::{
        TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
    };
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            TLS13_AES_128_GCM_SHA256,
            TLS13_AES_256_GCM_SHA384,
            TLS13_CHACHA20_POLY1305_SHA256,
        ],
        ..aws_lc_rs::default_provider()
    })
}

/// The verifiers for both directions, made from the same CA certificates.
#[derive(Clone, Debug)]
pub(crate) struct PeerVerifiers {
    pub(crate) server: Arc<ServerVerifier>,
    pub(crate) client: Arc<ClientVerifier>,
}

impl PeerVerifiers {
    /// `origin` says where the CA certificates are from.
    pub(crate) fn new(
        roots: &[CertificateDer<'static>],
        origin: &Origin,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, CertError> {
        let mut store = RootCertStore::empty();
        for root in roots {
            let added = store.add(root.clone());
            added.map_err(|error| {
                CertError::parse_with(origin, "holds an unusable CA certificate", error)
            })?;
        }
        let store = Arc::new(store);
        let unusable =
            |error| CertError::parse_with(origin, "holds no usable CA certificate", error);
        let server =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&store), Arc::clone(provider));
        let client = WebPkiClientVerifier::builder_with_provider(store, Arc::clone(provider));
        Ok(Self {
            server: Arc::new(ServerVerifier {
                inner: server.build().map_err(unusable)?,
            }),
            // The names of the CAs would help a client choose between certificates; a node has one.
            client: Arc::new(ClientVerifier {
                inner: client
                    .clear_root_hint_subjects()
                    .build()
                    .map_err(unusable)?,
            }),
        })
    }

    /// Whether a peer with the same CA certificates will accept this chain in both directions at `now` (seconds since
    /// 1970).
    pub(crate) fn check(&self, chain: &[CertificateDer<'_>], now: i64) -> Result<(), Error> {
        let [end_entity, intermediates @ ..] = chain else {
            return Err(Error::NoCertificatesPresented);
        };
        let now = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now).unwrap_or(0)));
        self.server
            .verify_server_cert(end_entity, intermediates, &any_name(), &[], now)?;
        self.client
            .verify_client_cert(end_entity, intermediates, now)?;
        Ok(())
    }
}

/// What a dialling node checks about the one that it dialled.
#[derive(Debug)]
pub(crate) struct ServerVerifier {
    inner: Arc<WebPkiServerVerifier>,
}

/// What an accepting node checks about the one that dialled.
#[derive(Debug)]
pub(crate) struct ClientVerifier {
    inner: Arc<dyn ClientCertVerifier>,
}

/// The methods about signatures, which are the same in the traits of both directions: rustls does the work.
macro_rules! signatures_by_rustls {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.inner
                .verify_tls12_signature(message, certificate, signature)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.inner
                .verify_tls13_signature(message, certificate, signature)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.inner.supported_verify_schemes()
        }
    };
}

// === impl ServerVerifier ===

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.inner.verify_server_cert(
            end_entity,
            intermediates,
            &any_name(),
            ocsp_response,
            now,
        ) {
            // The name is the last thing that rustls looks at, when everything else has passed.
            Ok(_)
            | Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => {}
            Err(error) => return Err(error),
        }
        require(end_entity, ExtendedKeyPurpose::ServerAuth)?;
        Ok(ServerCertVerified::assertion())
    }

    signatures_by_rustls!();
}

// === impl ClientVerifier ===

impl ClientCertVerifier for ClientVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self
            .inner
            .verify_client_cert(end_entity, intermediates, now)?;
        require(end_entity, ExtendedKeyPurpose::ClientAuth)?;
        Ok(verified)
    }

    signatures_by_rustls!();
}

/// Refuses a certificate that does not say that it is for `required`. Saying nothing is not enough.
///
/// Called when the chain has been verified, so that what is decoded here was signed by the cluster's CA.
fn require(end_entity: &CertificateDer<'_>, required: ExtendedKeyPurpose) -> Result<(), Error> {
    let (server, client) =
        extended_usages(end_entity).map_err(|_| CertificateError::BadEncoding)?;
    let has_it = match required {
        ExtendedKeyPurpose::ServerAuth => server,
        ExtendedKeyPurpose::ClientAuth => client,
        _ => false,
    };
    if has_it {
        return Ok(());
    }
    let mut presented = Vec::new();
    if server {
        presented.push(ExtendedKeyPurpose::ServerAuth);
    }
    if client {
        presented.push(ExtendedKeyPurpose::ClientAuth);
    }
    Err(CertificateError::InvalidPurposeContext {
        required,
        presented,
    }
    .into())
}

/// A name to satisfy the interface of the verifier below; its verdict on names is not used.
fn any_name() -> ServerName<'static> {
    std::net::Ipv4Addr::UNSPECIFIED.into()
}
