//! Loading and its refusals, and TLS handshakes in memory.

use std::fs;
use std::process::Command;

use rcgen::{ExtendedKeyUsagePurpose, KeyPair};
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConnection, ServerConnection};

use super::*;
use crate::authority::{CertificateAuthority, IssueRequest, NodeCertificate};
use crate::clock::DAY_SECONDS;
use crate::identity::Role;
use crate::info::identity_of;

const ALPN: &[&[u8]] = &[b"thalweg/1"];

fn ca() -> CertificateAuthority {
    CertificateAuthority::generate("demo", 30).unwrap()
}

fn request(role: Role, id: &str) -> IssueRequest {
    IssueRequest::new(Identity::new("demo", role, id).unwrap())
}

fn node(ca: &CertificateAuthority, role: Role, id: &str) -> NodeCredentials {
    ca.issue(&request(role, id)).unwrap().credentials().unwrap()
}

/// A certificate that is right but for its usages.
fn with_usages(ca: &CertificateAuthority, usages: &[ExtendedKeyUsagePurpose]) -> NodeCertificate {
    let key = KeyPair::generate().unwrap();
    let pem = ca
        .sign_leaf(
            &request(Role::TaskManager, "tm-x"),
            &key,
            usages,
            clock::now(),
        )
        .unwrap();
    ca.node_certificate(pem, key.serialize_pem()).unwrap()
}

/// TLS configurations without the checks of loading, as a node of another make could have them.
fn unchecked(node: &NodeCertificate) -> NodeCredentials {
    let good = self::node(&ca(), Role::Client, "placeholder");
    let origin = Origin::Memory("a certificate that loading refuses");
    let chain = pem::certificates(node.certificate_pem().as_bytes(), &origin).unwrap();
    let key = pem::private_key(node.key_pem().as_bytes(), &origin).unwrap();
    let roots = pem::certificates(node.ca_pem().as_bytes(), &origin).unwrap();
    let key = good.provider.key_provider.load_private_key(key).unwrap();
    NodeCredentials {
        verifiers: PeerVerifiers::new(&roots, &origin, &good.provider).unwrap(),
        end_entity: chain[0].clone(),
        key: Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key))),
        ..good
    }
}

/// Both ends after everything was said, with the error that each of them reported.
struct Ends {
    client: (ClientConnection, Option<Error>),
    server: (ServerConnection, Option<Error>),
}

fn handshake(client: Arc<ClientConfig>, server: Arc<ServerConfig>) -> Ends {
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

// === Handshakes ===

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
        Some(rustls::ProtocolVersion::TLSv1_3)
    );
    let suite = ends.client.0.negotiated_cipher_suite().unwrap().suite();
    assert_eq!(suite, rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
    assert_eq!(ends.server.0.server_name(), None, "no server name is sent");
}

#[test]
fn the_session_is_never_resumed() {
    let ca = ca();
    let (client, server) = (
        node(&ca, Role::Client, "c").client_config(ALPN),
        node(&ca, Role::JobManager, "jm").server_config(ALPN),
    );
    for _ in 0..2 {
        let ends = handshake(Arc::clone(&client), Arc::clone(&server));
        assert_eq!(
            ends.client.0.handshake_kind(),
            Some(rustls::HandshakeKind::Full)
        );
        assert_eq!(ends.client.0.tls13_tickets_received(), 0);
    }
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
    let now = rustls::pki_types::UnixTime::now();
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

// === Loading ===

/// A folder with the files of a node, and a way to spoil them.
fn folder() -> (tempfile::TempDir, CertificateAuthority) {
    let (dir, ca) = (tempfile::tempdir().unwrap(), ca());
    ca.issue(&request(Role::TaskManager, "tm-1"))
        .unwrap()
        .save(dir.path())
        .unwrap();
    (dir, ca)
}

#[test]
fn a_folder_loads_with_its_identity() {
    let (dir, _ca) = folder();
    let credentials = NodeCredentials::from_dir(dir.path()).unwrap();
    assert_eq!(
        credentials.identity().to_string(),
        "spiffe://demo/taskmanager/tm-1"
    );
    assert!(credentials.warnings().is_empty());
    let left = credentials
        .expires_at()
        .duration_since(SystemTime::now())
        .unwrap();
    assert!(
        (28..=30).contains(&(left.as_secs() / 86_400)),
        "cut to the CA's 30 days, not {left:?}"
    );
}

#[test]
fn a_group_readable_key_loads_with_a_warning() {
    use std::os::unix::fs::PermissionsExt;
    let (dir, _ca) = folder();
    let key = dir.path().join(KEY_FILE);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    let credentials = NodeCredentials::from_dir(dir.path()).unwrap();
    assert_eq!(
        credentials.warnings(),
        [Warning::GroupReadableKey {
            path: key.clone(),
            mode: 0o640
        }]
    );
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(
        NodeCredentials::from_dir(dir.path()),
        Err(CertError::InsecureKey { mode: 0o644, .. })
    ));
}

#[test]
fn a_key_of_another_certificate_is_refused_by_name() {
    let (dir, ca) = folder();
    let other = ca.issue(&request(Role::TaskManager, "tm-2")).unwrap();
    fs::write(dir.path().join(KEY_FILE), other.key_pem()).unwrap();
    let error = NodeCredentials::from_dir(dir.path()).unwrap_err();
    let (key, certificate) = (dir.path().join(KEY_FILE), dir.path().join(CERTIFICATE_FILE));
    assert_eq!(
        error.to_string(),
        format!(
            "{} does not belong to {}",
            key.display(),
            certificate.display()
        )
    );
    assert!(error.is_input_error());
}

#[test]
fn a_missing_file_is_named_and_is_no_input_error() {
    for name in [CERTIFICATE_FILE, KEY_FILE, CA_CERTIFICATE_FILE] {
        let (dir, _ca) = folder();
        fs::remove_file(dir.path().join(name)).unwrap();
        let error = NodeCredentials::from_dir(dir.path()).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("cannot read {}", dir.path().join(name).display())
        );
        assert!(!error.is_input_error());
    }
}

#[test]
fn another_ca_file_is_refused() {
    let (dir, _ca) = folder();
    fs::write(
        dir.path().join(CA_CERTIFICATE_FILE),
        ca().certificates_pem(),
    )
    .unwrap();
    assert!(matches!(
        NodeCredentials::from_dir(dir.path()),
        Err(CertError::UnknownIssuer { .. })
    ));
}

#[test]
fn certificates_outside_their_dates_are_refused_with_both_times() {
    let ca = ca();
    let issued = ca
        .issue(&request(Role::TaskManager, "tm-1").with_days(1))
        .unwrap();
    let late = clock::now() + 2 * DAY_SECONDS;
    let text = issued.credentials_at(late).unwrap_err().to_string();
    assert!(
        text.contains(&clock::text(late)) && text.contains(&issued.info().not_after_text()),
        "{text}"
    );
    let early = clock::now() - DAY_SECONDS;
    assert!(matches!(
        issued.credentials_at(early),
        Err(CertError::NotYetValid { .. })
    ));
}

#[test]
fn a_node_refuses_its_own_certificate_unless_it_has_both_usages() {
    let ca = ca();
    for usages in [
        &[ExtendedKeyUsagePurpose::ServerAuth][..],
        &[ExtendedKeyUsagePurpose::ClientAuth],
        &[],
    ] {
        let error = with_usages(&ca, usages).credentials().unwrap_err();
        assert!(matches!(error, CertError::Usage { .. }), "{error}");
    }
}

#[test]
fn a_certificate_without_identity_is_refused() {
    let key = KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["tm-1.example".to_owned()]).unwrap();
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let certificate = params.self_signed(&key).unwrap().pem();
    let error = NodeCredentials::from_pem(
        certificate.as_bytes(),
        key.serialize_pem().as_bytes(),
        ca().certificates_pem().as_bytes(),
    );
    assert!(matches!(error, Err(CertError::NoIdentity { found: 0, .. })));
}

// === Keys of other tools ===

#[test]
fn keys_made_by_openssl_load_in_every_form() {
    let dir = tempfile::tempdir().unwrap();
    let forms: [(&str, &[&str]); 4] = [
        ("PKCS#1 RSA", &["genrsa", "-traditional", "-out"]),
        (
            "SEC1 EC",
            &["ecparam", "-genkey", "-name", "prime256v1", "-out"],
        ),
        (
            "PKCS#8 EC",
            &[
                "genpkey",
                "-algorithm",
                "EC",
                "-pkeyopt",
                "ec_paramgen_curve:P-384",
                "-out",
            ],
        ),
        (
            "PKCS#8 Ed25519",
            &["genpkey", "-algorithm", "ED25519", "-out"],
        ),
    ];
    let ca = ca();
    for (form, arguments) in forms {
        let path = dir.path().join("key.pem");
        match Command::new("openssl").args(arguments).arg(&path).output() {
            Ok(output) => assert!(
                output.status.success(),
                "{form}: {}",
                String::from_utf8_lossy(&output.stderr)
            ),
            Err(error) => return eprintln!("skipped: cannot run openssl: {error}"),
        }
        let text = fs::read(&path).unwrap();
        let der = pem::private_key(&text, &Origin::File(path)).unwrap();
        let public = KeyPair::try_from(&der).unwrap();
        let usages = [
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let certificate = ca
            .sign_leaf(
                &request(Role::TaskManager, "tm-1"),
                &public,
                &usages,
                clock::now(),
            )
            .unwrap();
        let loaded = NodeCredentials::from_pem(
            certificate.as_bytes(),
            &text,
            ca.certificates_pem().as_bytes(),
        );
        let ours = loaded.unwrap_or_else(|error| panic!("{form}: {error}"));
        let ends = handshake(ours.client_config(ALPN), ours.server_config(ALPN));
        assert_eq!((ends.client.1, ends.server.1), (None, None), "{form}");
    }
}

#[test]
fn keys_encrypted_by_openssl_are_refused_as_encrypted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key.pem");
    for arguments in [
        &[
            "genpkey",
            "-algorithm",
            "EC",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-aes-256-cbc",
            "-pass",
            "pass:secret",
            "-out",
        ][..],
        &[
            "genrsa",
            "-traditional",
            "-aes256",
            "-passout",
            "pass:secret",
            "-out",
        ],
    ] {
        match Command::new("openssl").args(arguments).arg(&path).output() {
            Ok(output) => assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            ),
            Err(error) => return eprintln!("skipped: cannot run openssl: {error}"),
        }
        let error =
            pem::private_key(&fs::read(&path).unwrap(), &Origin::File(path.clone())).unwrap_err();
        assert!(error.to_string().contains("is encrypted"), "{error}");
    }
}
