//! Loading and its refusals, and keys of other tools.

mod handshake;

use std::fs;
use std::process::Command;

use rcgen::{ExtendedKeyUsagePurpose, KeyPair};

use self::handshake::handshake;
use super::*;
use crate::authority::CertificateAuthority;
use crate::clock::DAY_SECONDS;
use crate::identity::Role;
use crate::node_certificate::{IssueRequest, NodeCertificate};

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
