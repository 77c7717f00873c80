//! What a cluster of real processes refuses, and that both sides say why.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, which fail by panicking"
)]

use std::{fs, path::Path, time::Duration};

use rcgen::{
    CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose, SanType,
    date_time_ymd,
};
use thalweg_certs::CertificateAuthority;
use thalweg_tests::{
    on_both_transports,
    process::{ClusterFiles, Role, Spawned},
};

fn a_certificate_of_another_authority_is_refused(transport: &str) {
    let cluster = Cluster::start(transport);
    let other = CertificateAuthority::generate("demo", 30).unwrap();
    let config = cluster.files.node_of(&other, Role::TaskManager, "tm-x", "");
    let stranger = cluster.files.start("taskmanager", &config);
    stranger.wait_stderr(READY, |line| {
        line.contains("WARN") && line.contains(UNKNOWN_ISSUER)
    });
    cluster.says("the peer refused our certificate: it does not trust the authority");
    // It goes on trying: certificates may be renewed.
    assert!(stranger.is_running());

    let config = cluster.files.node_of(&other, Role::Client, "cli-x", "");
    let asked = cluster
        .files
        .start_with("status", &config, &["--json"], &[])
        .finish(END);
    assert_eq!(asked.code(), Some(1), "{asked:?}");
    assert_eq!(asked.stdout, "");
    assert_eq!(asked.stderr.lines().count(), 1, "{asked:?}");
    assert!(asked.stderr.contains(UNKNOWN_ISSUER), "{asked:?}");
    cluster.goes_on();
}

fn a_certificate_of_another_cluster_is_refused(transport: &str) {
    let files = ClusterFiles::new(transport, "");
    let other = CertificateAuthority::generate("other", 30).unwrap();
    let job_manager = files.node(Role::JobManager, "jm-1", "");
    let config = files.node_of(&other, Role::TaskManager, "tm-x", "");
    // Both trust both authorities: only the cluster's name is wrong.
    for (id, more) in [("jm-1", &other), ("tm-x", files.authority())] {
        let path = files.folder().join("certs").join(id).join("ca.pem");
        let trusted = fs::read_to_string(&path).unwrap() + more.certificates_pem();
        fs::write(path, trusted).unwrap();
    }
    let job_manager = files.start("jobmanager", &job_manager);
    job_manager.wait_stdout(READY, |line| line.starts_with("ready "));
    let cluster = Cluster::with(files, job_manager);
    let stranger = cluster.files.start("taskmanager", &config);
    stranger.wait_stderr(READY, |line| {
        line.contains("WARN")
            && line.contains("spiffe://demo/jobmanager/jm-1 belongs to cluster")
            && line.contains("this is spiffe://other/taskmanager/tm-x")
    });
    cluster.says("spiffe://other/taskmanager/tm-x belongs to cluster \"other\", not \"demo\"");
    cluster.goes_on();
}

fn a_client_certificate_makes_no_task_manager(transport: &str) {
    let cluster = Cluster::start(transport);
    let config = cluster.files.node(Role::Client, "tm-9", "");
    let stranger = cluster.files.start("taskmanager", &config).finish(END);
    assert_eq!(stranger.code(), Some(1), "{stranger:?}");
    let told = "role \"client\" may not call ResourceManager.register_task_executor";
    let said = stranger
        .stderr
        .lines()
        .filter(|line| line.starts_with("error: "));
    assert!(
        said.clone().count() == 1 && said.clone().all(|line| line.contains(told)),
        "{stranger:?}"
    );
    cluster.says("spiffe://demo/client/tm-9");
    cluster.goes_on();
    let log = cluster.job_manager.stderr();
    let lines = log.lines().filter(|line| line.contains("tm-9"));
    assert_eq!(lines.count(), 1, "{log}");
}

fn a_task_manager_certificate_submits_no_job(transport: &str) {
    let cluster = Cluster::start(transport);
    let config = cluster.files.node(Role::TaskManager, "cli-x", "");
    for (command, arguments) in [
        ("submit", &["shuffle", "--bytes", "1MiB"][..]),
        (
            "submit",
            &["--parallelism", "2", "shuffle", "--bytes", "1MiB"],
        ),
        ("status", &[]),
        ("cancel", &["00000000000000000000000000000001"]),
    ] {
        let asked = cluster
            .files
            .start_with(command, &config, arguments, &[])
            .finish(END);
        assert_eq!(asked.code(), Some(1), "{asked:?}");
        assert_eq!(
            (asked.stdout.as_str(), asked.stderr.lines().count()),
            ("", 1),
            "{asked:?}"
        );
        assert!(
            asked
                .stderr
                .contains("role \"taskmanager\" may not call Dispatcher."),
            "{asked:?}"
        );
    }
    cluster.says("spiffe://demo/taskmanager/cli-x");
    assert!(
        cluster.files.status().0["jobs"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    cluster.goes_on();
}

fn a_certificate_for_another_node_is_refused_at_the_start(transport: &str) {
    let files = ClusterFiles::new(transport, "");
    let config = files.node(Role::TaskManager, "tm-1", "");
    let text = fs::read_to_string(&config).unwrap();
    for (from, to, told) in [
        ("id = \"tm-1\"", "id = \"tm-2\"", "node.id is \"tm-2\""),
        ("id = \"demo\"", "id = \"prod\"", "cluster.id is \"prod\""),
    ] {
        fs::write(&config, text.replacen(from, to, 1)).unwrap();
        let ended = files.start("taskmanager", &config).finish(END);
        assert_eq!(
            (ended.code(), ended.stdout.as_str()),
            (Some(2), ""),
            "{ended:?}"
        );
        assert!(
            ended.stderr.contains("spiffe://demo/taskmanager/tm-1"),
            "{ended:?}"
        );
        assert!(ended.stderr.contains(told), "{ended:?}");
    }
}

#[test]
fn an_expired_certificate_is_refused_at_the_start_with_its_dates() {
    let files = ClusterFiles::new("quic", "");
    let certificates = files.folder().join("certs").join("tm-1");
    write_expired(&certificates, "spiffe://demo/taskmanager/tm-1");
    let config = files.node(Role::TaskManager, "tm-1", "");
    let ended = files.start("taskmanager", &config).finish(END);
    assert_eq!(
        (ended.code(), ended.stdout.as_str()),
        (Some(2), ""),
        "{ended:?}"
    );
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    assert!(ended.stderr.contains("2002-01-01"), "{ended:?}");
}

#[test]
fn a_plaintext_node_is_refused_by_a_tls_cluster() {
    let cluster = Cluster::start("tcp");
    let config = cluster.files.node(Role::TaskManager, "tm-9", "");
    let off = [("THALWEG__TLS__MODE", "off")];
    let stranger = cluster.files.start_with("taskmanager", &config, &[], &off);
    stranger.wait_stderr(READY, |line| {
        line.contains("WARN") && line.contains("this port speaks TLS, the dialler plaintext")
    });
    cluster.says("the peer speaks plaintext");
    let config = cluster.files.client_config();
    let asked = cluster
        .files
        .start_with("status", &config, &[], &off)
        .finish(END);
    assert_eq!(asked.code(), Some(1), "{asked:?}");
    assert!(asked.stderr.contains("this port speaks TLS"), "{asked:?}");
    cluster.goes_on();
}

#[test]
fn a_tls_node_is_refused_by_a_plaintext_cluster() {
    let cluster = Cluster::start("tcp-plain");
    let secure = ClusterFiles::new("tcp", "");
    let there = [(
        "THALWEG__JOBMANAGER__ADDRESS",
        cluster.files.job_manager_address(),
    )];
    let config = secure.node(Role::TaskManager, "tm-9", "");
    let stranger = secure.start_with("taskmanager", &config, &[], &there);
    stranger.wait_stderr(READY, |line| {
        line.contains("WARN") && line.contains("the peer speaks no TLS")
    });
    cluster.says("the peer speaks TLS, this side does not");
    let asked = secure
        .start_with("status", &secure.client_config(), &[], &there)
        .finish(END);
    assert_eq!(asked.code(), Some(1), "{asked:?}");
    assert!(asked.stderr.contains("the peer speaks no TLS"), "{asked:?}");
    cluster.goes_on();
}

on_both_transports!(
    a_certificate_of_another_authority_is_refused,
    a_certificate_of_another_cluster_is_refused,
    a_client_certificate_makes_no_task_manager,
    a_task_manager_certificate_submits_no_job,
    a_certificate_for_another_node_is_refused_at_the_start,
);

/// A JobManager with one good TaskManager.
struct Cluster {
    files: ClusterFiles,
    job_manager: Spawned,
    _task_manager: Spawned,
}

impl Cluster {
    fn start(transport: &str) -> Self {
        let files = ClusterFiles::new(transport, "");
        let job_manager = files.job_manager();
        Self::with(files, job_manager)
    }

    fn with(files: ClusterFiles, job_manager: Spawned) -> Self {
        let task_manager = files.task_manager("tm-1");
        Self {
            files,
            job_manager,
            _task_manager: task_manager,
        }
    }

    /// Waits until the JobManager warns with these words.
    fn says(&self, words: &str) {
        let warns = |line: &str| line.contains("WARN") && line.contains(words);
        self.job_manager.wait_stderr(READY, warns);
    }

    /// A good job runs, on the good TaskManager alone.
    fn goes_on(&self) {
        let job = self
            .files
            .run_client("submit", &["shuffle", "--bytes", "2MiB"]);
        assert_eq!(job.code(), Some(0), "{job:?}");
        assert_eq!(self.files.status().task_managers(), ["tm-1"]);
    }
}

/// A node's files with a certificate that was valid in 2001.
fn write_expired(folder: &Path, identity: &str) {
    let authority = CertificateAuthority::generate("demo", 30).unwrap();
    let saved = folder.join("authority");
    authority.save(&saved).unwrap();
    let key = fs::read_to_string(saved.join(thalweg_certs::CA_KEY_FILE)).unwrap();
    let key = KeyPair::from_pem(&key).unwrap();
    let issuer = Issuer::from_ca_cert_pem(authority.certificates_pem(), key).unwrap();
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::URI(identity.try_into().unwrap())];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ClientAuth,
        ExtendedKeyUsagePurpose::ServerAuth,
    ];
    params.not_before = date_time_ymd(2001, 1, 1);
    params.not_after = date_time_ymd(2002, 1, 1);
    let own = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&own, &issuer).unwrap();
    fs::write(folder.join("cert.pem"), certificate.pem()).unwrap();
    fs::write(folder.join("key.pem"), own.serialize_pem()).unwrap();
    fs::write(folder.join("ca.pem"), authority.certificates_pem()).unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(folder.join("key.pem"), private).unwrap();
}

const UNKNOWN_ISSUER: &str = "invalid peer certificate: UnknownIssuer";
/// Generous: other builds may run on this machine.
const READY: Duration = Duration::from_secs(60);
const END: Duration = Duration::from_secs(60);
