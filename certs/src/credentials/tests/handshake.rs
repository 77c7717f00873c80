//! TLS handshakes in memory, between two rustls connections.

use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::ServerSessionMemoryCache;
use rustls::{
    AlertDescription, CipherSuite, ClientConnection, HandshakeKind, ProtocolVersion,
    ServerConnection,
};

use super::*;
use crate::info::identity_of;

/// Both ends after everything was said, with the error that each of them reported.
pub(super) struct Ends {
    pub(super) client: (ClientConnection, Option<Error>),
    pub(super) server: (ServerConnection, Option<Error>),
}

pub(super) fn handshake(client: Arc<ClientConfig>, server: Arc<ServerConfig>) -> Ends {
    let name = ServerName::try_from("not-in-any-certificate").unwrap();
    let mut client = (ClientConnection::new(client, name).unwrap(), None);
    let mut server = (ServerConnection::new(server).unwrap(), None);
    let mut wire = Vec::new();
    // Three flights make a handshake; the rest is for alerts.
    for _ in 0..6 {
        wire.clear();
        while client.0.wants_write() {
            client.0.write_tls(&mut wire).unwrap();
        }
        feed(&wire, |bytes| server.0.read_tls(bytes), &mut server.1);
        if server.1.is_none() {
            server.1 = server.0.process_new_packets().err();
        }
        wire.clear();
        while server.0.wants_write() {
            server.0.write_tls(&mut wire).unwrap();
        }
        feed(&wire, |bytes| client.0.read_tls(bytes), &mut client.1);
        if client.1.is_none() {
            client.1 = client.0.process_new_packets().err();
        }
    }
    Ends { client, server }
}

fn feed(
    mut wire: &[u8],
    mut read: impl FnMut(&mut &[u8]) -> std::io::Result<usize>,
    failed: &mut Option<Error>,
) {
    while failed.is_none() && !wire.is_empty() {
        read(&mut wire).unwrap();
    }
}

fn peer_identity(certificates: Option<&[CertificateDer<'static>]>) -> String {
    identity_of(&certificates.unwrap()[0]).unwrap().to_string()
}

fn certificate_error(error: Option<Error>) -> CertificateError {
    match error {
        Some(Error::InvalidCertificate(error)) => error,
        other => panic!("expected a refused certificate, not {other:?}"),
    }
}

#[test]
fn nodes_of_one_ca_connect_and_know_each_other() {
    let ca = ca();
    let (tm, jm) = (
        node(&ca, Role::TaskManager, "tm-1"),
        node(&ca, Role::JobManager, "jm"),
    );
    let ends = handshake(tm.client_config(ALPN), jm.server_config(ALPN));
    assert_eq!((&ends.client.1, &ends.server.1), (&None, &None));
    assert!(!ends.client.0.is_handshaking() && !ends.server.0.is_handshaking());
    assert_eq!(
        peer_identity(ends.client.0.peer_certificates()),
        "spiffe://demo/jobmanager/jm"
    );
    assert_eq!(
        peer_identity(ends.server.0.peer_certificates()),
        "spiffe://demo/taskmanager/tm-1"
    );
    assert_eq!(ends.client.0.alpn_protocol(), Some(ALPN[0]));
    assert_eq!(
        ends.client.0.protocol_version(),
        Some(ProtocolVersion::TLSv1_3)
    );
    let suite = ends.client.0.negotiated_cipher_suite().unwrap().suite();
    assert_eq!(suite, CipherSuite::TLS13_AES_128_GCM_SHA256);
    assert_eq!(ends.server.0.server_name(), None, "no server name is sent");
}

#[test]
fn a_session_is_never_resumed_even_if_the_peer_would() {
    let ca = ca();
    let client = node(&ca, Role::Client, "c").client_config(ALPN);
    let server = node(&ca, Role::JobManager, "jm").server_config(ALPN);
    let mut willing_client = (*client).clone();
    willing_client.resumption = Resumption::default();
    let mut willing_server = (*server).clone();
    willing_server.session_storage = ServerSessionMemoryCache::new(8);
    willing_server.send_tls13_tickets = 2;
    let (willing_client, willing_server) = (Arc::new(willing_client), Arc::new(willing_server));

    let kinds = |client: &Arc<ClientConfig>, server: &Arc<ServerConfig>| {
        [(); 2].map(|()| {
            handshake(Arc::clone(client), Arc::clone(server))
                .client
                .0
                .handshake_kind()
                .unwrap()
        })
    };
    let full = HandshakeKind::Full;
    assert_eq!(
        kinds(&willing_client, &willing_server),
        [full, HandshakeKind::Resumed],
        "else this shows nothing"
    );
    assert_eq!(kinds(&client, &willing_server), [full, full]);
    assert_eq!(kinds(&willing_client, &server), [full, full]);
    let ends = handshake(willing_client, server);
    assert_eq!(ends.client.0.tls13_tickets_received(), 0);
}

#[test]
fn a_node_of_another_ca_is_refused_by_both_sides() {
    let (ours, theirs) = (
        node(&ca(), Role::TaskManager, "tm-1"),
        node(&ca(), Role::JobManager, "jm"),
    );
    let ends = handshake(ours.client_config(ALPN), theirs.server_config(ALPN));
    assert_eq!(
        certificate_error(ends.client.1),
        CertificateError::UnknownIssuer
    );
    assert_eq!(
        ends.server.1,
        Some(Error::AlertReceived(AlertDescription::UnknownCA))
    );

    // The server's own verdict: the client trusts both, the server only its own CA.
    let (mine, foreign) = (ca(), ca());
    let mut issued = foreign.issue(&request(Role::TaskManager, "tm-1")).unwrap();
    issued = foreign
        .node_certificate(
            issued.certificate_pem().to_owned(),
            issued.key_pem().to_owned(),
        )
        .unwrap();
    let both = format!("{}{}", foreign.certificates_pem(), mine.certificates_pem());
    let client = NodeCredentials::from_pem(
        issued.certificate_pem().as_bytes(),
        issued.key_pem().as_bytes(),
        both.as_bytes(),
    )
    .unwrap();
    let ends = handshake(
        client.client_config(ALPN),
        node(&mine, Role::JobManager, "jm").server_config(ALPN),
    );
    assert_eq!(
        certificate_error(ends.server.1),
        CertificateError::UnknownIssuer
    );
    assert_eq!(
        ends.client.1,
        Some(Error::AlertReceived(AlertDescription::UnknownCA))
    );
}

#[test]
fn an_expired_certificate_is_refused_by_both_sides() {
    let past = clock::now() - 20 * DAY_SECONDS;
    let ca = CertificateAuthority::generate_at("demo", 365, past).unwrap();
    let expired = ca
        .issue_at(&request(Role::TaskManager, "tm-1").with_days(10), past)
        .unwrap()
        .credentials_at(past)
        .unwrap();
    let valid = node(&ca, Role::JobManager, "jm");

    let ends = handshake(valid.client_config(ALPN), expired.server_config(ALPN));
    assert!(matches!(
        certificate_error(ends.client.1),
        CertificateError::ExpiredContext { .. }
    ));
    let ends = handshake(expired.client_config(ALPN), valid.server_config(ALPN));
    assert!(matches!(
        certificate_error(ends.server.1),
        CertificateError::ExpiredContext { .. }
    ));
    assert_eq!(
        ends.client.1,
        Some(Error::AlertReceived(AlertDescription::CertificateExpired))
    );
}

#[test]
fn a_client_without_a_certificate_is_refused() {
    let ca = ca();
    let (server, other) = (
        node(&ca, Role::JobManager, "jm"),
        node(&ca, Role::Client, "c"),
    );
    let mut client = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&other.verifiers.server) as _)
        .with_no_client_auth();
    client.alpn_protocols = protocols(ALPN);
    let ends = handshake(Arc::new(client), server.server_config(ALPN));
    assert_eq!(ends.server.1, Some(Error::NoCertificatesPresented));
    assert_eq!(
        ends.client.1,
        Some(Error::AlertReceived(AlertDescription::CertificateRequired))
    );
}

#[test]
fn a_certificate_for_the_other_direction_or_for_none_is_refused() {
    let ca = ca();
    let good = node(&ca, Role::JobManager, "jm");
    for usages in [&[ExtendedKeyUsagePurpose::ServerAuth][..], &[]] {
        let ends = handshake(
            unchecked(&with_usages(&ca, usages)).client_config(ALPN),
            good.server_config(ALPN),
        );
        assert!(matches!(
            certificate_error(ends.server.1),
            CertificateError::InvalidPurposeContext { .. }
        ));
    }
    for usages in [&[ExtendedKeyUsagePurpose::ClientAuth][..], &[]] {
        let ends = handshake(
            good.client_config(ALPN),
            unchecked(&with_usages(&ca, usages)).server_config(ALPN),
        );
        assert!(matches!(
            certificate_error(ends.client.1),
            CertificateError::InvalidPurposeContext { .. }
        ));
    }
}

#[test]
fn a_different_application_protocol_is_refused() {
    let ca = ca();
    let (tm, jm) = (
        node(&ca, Role::TaskManager, "tm-1"),
        node(&ca, Role::JobManager, "jm"),
    );
    let ends = handshake(tm.client_config(&[b"other/1"]), jm.server_config(ALPN));
    assert_eq!(ends.server.1, Some(Error::NoApplicationProtocol));
}

#[test]
fn bytes_that_are_no_certificate_are_refused_without_a_panic() {
    let node = node(&ca(), Role::TaskManager, "tm-1");
    let now = UnixTime::now();
    let der = node.end_entity().to_vec();
    for length in 0..der.len() {
        let cut = CertificateDer::from(&der[..length]);
        let name = ServerName::try_from("x").unwrap();
        assert!(
            node.verifiers
                .server
                .verify_server_cert(&cut, &[], &name, &[], now)
                .is_err()
        );
        assert!(identity_of(&cut).is_err());
    }
}
