use super::*;
use crate::files::{CERTIFICATE_FILE, KEY_FILE};
use crate::identity::{Identity, Role};

const NOW: i64 = 1_800_000_000;

fn ca() -> CertificateAuthority {
    CertificateAuthority::generate_at("demo", 10, NOW).unwrap()
}

fn request(id: &str) -> IssueRequest {
    IssueRequest::new(Identity::new("demo", Role::TaskManager, id).unwrap())
}

#[test]
fn a_leaf_says_who_it_is_for_and_what_it_may_do() {
    let names = [
        "dns:tm-1.example".parse().unwrap(),
        "ip:10.0.0.7".parse().unwrap(),
    ];
    let node = ca()
        .issue_at(&request("tm-1").with_names(names).with_days(3), NOW)
        .unwrap();
    let info = node.info();
    assert_eq!(
        info.identity.as_ref().unwrap().to_string(),
        "spiffe://demo/taskmanager/tm-1"
    );
    assert_eq!(info.dns_names, ["tm-1.example"]);
    assert_eq!(
        info.ip_addresses,
        ["10.0.0.7".parse::<std::net::IpAddr>().unwrap()]
    );
    assert!(info.server_usage && info.client_usage && !info.is_ca);
    assert_eq!(
        (info.not_before, info.not_after),
        (NOW - 300, NOW + 3 * DAY_SECONDS)
    );
    assert_eq!(info.subject, "O=demo, CN=taskmanager tm-1");
    assert!(
        info.issuer.starts_with("O=demo, CN=demo CA "),
        "{}",
        info.issuer
    );
}

#[test]
fn the_ca_may_issue_leafs_but_no_further_authority() {
    let ca = ca();
    let der = pem::certificates(ca.certificates_pem().as_bytes(), &Origin::Memory("ca")).unwrap();
    let (_, parsed) = x509_parser::parse_x509_certificate(&der[0]).unwrap();
    let constraints = parsed.basic_constraints().unwrap().unwrap();
    assert!(constraints.critical && constraints.value.ca);
    assert_eq!(constraints.value.path_len_constraint, Some(0));
    let usage = parsed.key_usage().unwrap().unwrap().value;
    assert!(usage.key_cert_sign() && usage.crl_sign() && !usage.digital_signature());
    assert_eq!(ca.info().cluster.as_deref(), Some("demo"));
    assert!(ca.info().identity.is_none());
}

#[test]
fn serial_numbers_and_keys_differ() {
    let ca = ca();
    let (a, b) = (
        ca.issue_at(&request("a"), NOW).unwrap(),
        ca.issue_at(&request("a"), NOW).unwrap(),
    );
    assert_ne!(a.info().serial, b.info().serial);
    assert_ne!(a.key_pem(), b.key_pem());
    assert_eq!(a.info().serial.len(), 16 * 3 - 1);
}

#[test]
fn a_leaf_never_outlives_its_ca() {
    let ca = ca();
    let node = ca.issue_at(&request("tm-1").with_days(90), NOW).unwrap();
    assert_eq!(node.info().not_after, ca.info().not_after);
}

#[test]
fn an_expired_ca_refuses_to_issue_and_says_both_times() {
    let error = ca()
        .issue_at(&request("tm-1"), NOW + 11 * DAY_SECONDS)
        .unwrap_err();
    assert!(matches!(error, CertError::Expired { .. }));
    let text = error.to_string();
    assert!(
        text.contains("2027-01-25T08:00:00Z") && text.contains("2027-01-26T08:00:00Z"),
        "{text}"
    );
}

#[test]
fn a_validity_outside_the_limits_is_refused() {
    for days in [0, MAX_DAYS + 1, u32::MAX] {
        assert!(matches!(
            CertificateAuthority::generate_at("demo", days, NOW),
            Err(CertError::InvalidValidity { .. })
        ));
        assert!(matches!(
            ca().issue_at(&request("tm-1").with_days(days), NOW),
            Err(CertError::InvalidValidity { .. })
        ));
    }
    assert!(CertificateAuthority::generate_at("demo", MAX_DAYS, NOW).is_ok());
}

#[test]
fn identities_of_another_cluster_are_refused() {
    let other = IssueRequest::new(Identity::new("prod", Role::Client, "c").unwrap());
    let error = ca().issue_at(&other, NOW).unwrap_err();
    assert!(error.is_input_error());
    assert!(
        error.to_string().contains("spiffe://prod/client/c"),
        "{error}"
    );
}

#[test]
fn an_unchecked_dns_name_is_refused() {
    let bad = request("tm-1").with_names([SubjectAltName::Dns("not a name".to_owned())]);
    assert!(matches!(
        ca().issue_at(&bad, NOW),
        Err(CertError::InvalidName { .. })
    ));
}

#[test]
fn long_names_fit_the_limits_of_the_subject() {
    let cluster = "c".repeat(253);
    let ca = CertificateAuthority::generate_at(&cluster, 1, NOW).unwrap();
    let identity = Identity::new(&cluster, Role::JobManager, "j".repeat(128)).unwrap();
    let node = ca
        .issue_at(&IssueRequest::new(identity.clone()), NOW)
        .unwrap();
    assert_eq!(node.info().identity.as_ref(), Some(&identity));
}

#[test]
fn a_saved_ca_issues_the_same_way_after_loading() {
    let dir = tempfile::tempdir().unwrap();
    let made = CertificateAuthority::generate("demo", 10).unwrap();
    made.save(dir.path()).unwrap();
    let loaded = CertificateAuthority::load(dir.path()).unwrap();
    assert_eq!(loaded.info(), made.info());
    assert_eq!(loaded.cluster(), "demo");
    assert!(loaded.warnings().is_empty());
    let node = loaded.issue(&request("tm-1")).unwrap();
    assert_eq!(node.ca_pem(), made.certificates_pem());
    assert!(matches!(
        made.save(dir.path()),
        Err(CertError::AlreadyExists { .. })
    ));
}

#[test]
fn with_several_ca_certificates_the_one_of_the_key_issues() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (
        CertificateAuthority::generate("demo", 10).unwrap(),
        CertificateAuthority::generate("demo", 10).unwrap(),
    );
    new.save(dir.path()).unwrap();
    let bundle = format!("{}{}", old.certificates_pem(), new.certificates_pem());
    std::fs::write(dir.path().join(CA_CERTIFICATE_FILE), &bundle).unwrap();
    let loaded = CertificateAuthority::load(dir.path()).unwrap();
    assert_eq!(loaded.info(), new.info());
    assert_eq!(loaded.issue(&request("tm-1")).unwrap().ca_pem(), bundle);
}

#[test]
fn a_ca_key_of_another_certificate_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    CertificateAuthority::generate("demo", 10)
        .unwrap()
        .save(dir.path())
        .unwrap();
    let other = CertificateAuthority::generate("demo", 10).unwrap();
    std::fs::write(
        dir.path().join(CA_CERTIFICATE_FILE),
        other.certificates_pem(),
    )
    .unwrap();
    let error = CertificateAuthority::load(dir.path()).unwrap_err();
    let (key, certificate) = (
        dir.path().join(CA_KEY_FILE),
        dir.path().join(CA_CERTIFICATE_FILE),
    );
    assert_eq!(
        error.to_string(),
        format!(
            "{} does not belong to {}",
            key.display(),
            certificate.display()
        )
    );
}

#[test]
fn a_ca_file_that_holds_a_private_key_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let ca = CertificateAuthority::generate("demo", 10).unwrap();
    ca.save(dir.path()).unwrap();
    std::fs::write(
        dir.path().join(CA_CERTIFICATE_FILE),
        format!("{}{}", ca.certificates_pem(), ca.key_pem()),
    )
    .unwrap();
    let error = CertificateAuthority::load(dir.path()).unwrap_err();
    assert!(error.to_string().contains("holds a private key"), "{error}");
}

#[test]
fn a_leaf_is_no_authority() {
    let dir = tempfile::tempdir().unwrap();
    let node = CertificateAuthority::generate("demo", 10)
        .unwrap()
        .issue(&request("tm-1"))
        .unwrap();
    node.save(dir.path()).unwrap();
    std::fs::rename(dir.path().join(KEY_FILE), dir.path().join(CA_KEY_FILE)).unwrap();
    std::fs::rename(
        dir.path().join(CERTIFICATE_FILE),
        dir.path().join(CA_CERTIFICATE_FILE),
    )
    .unwrap();
    assert!(matches!(
        CertificateAuthority::load(dir.path()),
        Err(CertError::Usage { .. })
    ));
}

#[test]
fn debug_output_holds_no_key() {
    let ca = ca();
    let node = ca.issue_at(&request("tm-1"), NOW).unwrap();
    let text = format!("{ca:?} {node:?} {:?}", node.credentials_at(NOW).unwrap());
    assert!(!text.contains("PRIVATE"), "{text}");
}
