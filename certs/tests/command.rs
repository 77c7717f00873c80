//! Runs the `certs` command as an operator does.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;
use thalweg_certs::NodeCredentials;

/// A folder of its own for each test, with an authority of cluster `demo` in `ca`.
struct Workplace {
    dir: TempDir,
}

impl Workplace {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn with_authority() -> Self {
        let place = Self::new();
        expect(0, &place.certs(["init", "ca", "--cluster-id", "demo"]));
        place
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_certs"));
        command.current_dir(self.dir.path());
        command
    }

    fn certs<const N: usize>(&self, arguments: [&str; N]) -> Output {
        self.command().args(arguments).output().unwrap()
    }

    fn issue(&self, id: &str) -> Output {
        self.certs(["issue", "ca", "--role", "taskmanager", "--id", id])
    }

    fn path(&self, name: impl AsRef<Path>) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.path(name)).unwrap().permissions().mode() & 0o777
    }

    fn names_in(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Checks the exit code, and that results and errors go where they belong.
fn expect(code: i32, output: &Output) {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    if code == 0 {
        assert_eq!(stderr(output), "");
    } else {
        assert_eq!(stdout(output), "");
    }
}

/// Checks for a failure told in one line, and returns the line.
fn refusal(code: i32, output: &Output) -> String {
    expect(code, output);
    let text = stderr(output);
    assert!(
        text.starts_with("error: ") && text.lines().count() == 1,
        "{text}"
    );
    text.trim_end().to_owned()
}

#[test]
fn init_writes_an_authority_whose_key_is_for_its_owner_alone() {
    let place = Workplace::new();
    let output = place.certs(["init", "deep/er/ca", "--cluster-id", "demo", "--days", "30"]);
    expect(0, &output);
    assert_eq!(place.names_in("deep/er/ca"), ["ca.key", "ca.pem"]);
    assert_eq!(place.mode("deep/er/ca/ca.key"), 0o600);
    let text = stdout(&output);
    assert!(text.contains("deep/er/ca/ca.pem"), "{text}");
    assert!(
        text.contains("(30 days left)") || text.contains("(29 days left)"),
        "{text}"
    );
    assert!(
        text.contains("certs issue deep/er/ca --role jobmanager --id jm"),
        "{text}"
    );
}

#[test]
fn issue_writes_what_a_node_can_load() {
    let place = Workplace::with_authority();
    let output = place.certs([
        "issue",
        "ca",
        "--role",
        "taskmanager",
        "--id",
        "tm-1",
        "--san",
        "dns:tm-1.example",
        "--san",
        "ip:10.0.0.7",
    ]);
    expect(0, &output);
    assert_eq!(place.names_in("ca/tm-1"), ["ca.pem", "cert.pem", "key.pem"]);
    assert_eq!(place.mode("ca/tm-1/key.pem"), 0o600);
    let text = stdout(&output);
    assert!(text.contains("spiffe://demo/taskmanager/tm-1"), "{text}");
    assert!(text.contains("[tls]\ndir = \"ca/tm-1\"\n"), "{text}");

    let credentials = NodeCredentials::from_dir(place.path("ca/tm-1")).unwrap();
    assert_eq!(
        credentials.identity().to_string(),
        "spiffe://demo/taskmanager/tm-1"
    );
    assert!(credentials.warnings().is_empty());
    assert_eq!(credentials.info().dns_names, ["tm-1.example"]);
}

#[test]
fn issue_writes_to_another_folder_if_told_so() {
    let place = Workplace::with_authority();
    let issued = place.certs([
        "issue", "ca", "--role", "client", "--id", "c", "--days", "7", "--out", "my node",
    ]);
    expect(0, &issued);
    assert!(
        stdout(&issued).contains("dir = \"my node\""),
        "{}",
        stdout(&issued)
    );
    assert_eq!(place.names_in("my node"), ["ca.pem", "cert.pem", "key.pem"]);
    assert_eq!(place.names_in("ca"), ["ca.key", "ca.pem"]);
}

#[test]
fn a_leaf_that_would_outlive_its_ca_is_cut_and_that_is_said() {
    let place = Workplace::new();
    expect(
        0,
        &place.certs(["init", "ca", "--cluster-id", "demo", "--days", "3"]),
    );
    let output = place.issue("tm-1");
    expect(0, &output);
    assert!(
        stdout(&output).contains("as long as the CA"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn nothing_is_overwritten() {
    let place = Workplace::with_authority();
    let key = fs::read(place.path("ca/ca.key")).unwrap();
    let refused = place.certs(["init", "ca", "--cluster-id", "demo"]);
    assert!(
        refusal(1, &refused).contains("ca/ca.key already exists"),
        "{refused:?}"
    );
    assert_eq!(fs::read(place.path("ca/ca.key")).unwrap(), key);

    expect(0, &place.issue("tm-1"));
    fs::remove_file(place.path("ca/tm-1/key.pem")).unwrap();
    assert!(refusal(1, &place.issue("tm-1")).contains("ca/tm-1/cert.pem already exists"));
    assert_eq!(place.names_in("ca/tm-1"), ["ca.pem", "cert.pem"]);
}

#[test]
fn wrong_ids_and_numbers_are_refused_with_what_is_allowed() {
    let place = Workplace::with_authority();
    let line = refusal(
        2,
        &place.certs(["init", "x", "--cluster-id", "Demo Cluster"]),
    );
    assert!(
        line.contains("\"Demo Cluster\"") && line.contains("a-z 0-9 . _ -"),
        "{line}"
    );
    let line = refusal(2, &place.issue("../tm-1"));
    assert!(
        line.contains("\"../tm-1\"") && line.contains("A-Z a-z 0-9 . _ -"),
        "{line}"
    );
    let line = refusal(
        2,
        &place.certs(["init", "x", "--cluster-id", "demo", "--days", "0"]),
    );
    assert!(line.contains("1 to 36500 days"), "{line}");
    assert!(
        !place.path("x").exists(),
        "nothing is made before the arguments are known to be right"
    );
}

#[test]
fn wrong_usage_exits_with_2() {
    let place = Workplace::with_authority();
    for arguments in [
        &["frobnicate"][..],
        &[],
        &["init"],
        &["init", "x"],
        &["issue", "ca", "--role", "worker", "--id", "w"],
        &["issue", "ca", "--role", "client"],
        &[
            "issue",
            "ca",
            "--role",
            "client",
            "--id",
            "c",
            "--san",
            "tm-1.example",
        ],
        &[
            "issue",
            "ca",
            "--role",
            "client",
            "--id",
            "c",
            "--san",
            "ip:localhost",
        ],
        &[
            "issue", "ca", "--role", "client", "--id", "c", "--days", "-1",
        ],
        &["show"],
    ] {
        let output = place.command().args(arguments).output().unwrap();
        expect(2, &output);
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn unusable_files_exit_with_2_and_paths_with_1() {
    let place = Workplace::with_authority();
    assert!(
        refusal(1, &place.certs(["show", "nowhere.pem"])).contains("nowhere.pem: No such file")
    );
    assert!(
        refusal(
            1,
            &place.certs(["issue", "nowhere", "--role", "client", "--id", "c"])
        )
        .contains("nowhere/ca.pem")
    );
    assert!(
        refusal(
            1,
            &place.certs(["init", "ca/ca.pem", "--cluster-id", "demo"])
        )
        .contains("ca/ca.pem")
    );
    assert!(
        refusal(2, &place.certs(["show", "ca/ca.key"])).contains("ca/ca.key: holds no certificate")
    );
    fs::write(place.path("text"), "not PEM\n\x1b[31m").unwrap();
    assert!(refusal(2, &place.certs(["show", "text"])).contains("text: holds no certificate"));

    fs::set_permissions(place.path("ca/ca.key"), fs::Permissions::from_mode(0o644)).unwrap();
    assert!(refusal(2, &place.issue("tm-1")).contains("chmod 600 ca/ca.key"));
    fs::set_permissions(place.path("ca/ca.key"), fs::Permissions::from_mode(0o640)).unwrap();
    let warned = place.issue("tm-1");
    assert_eq!(warned.status.code(), Some(0));
    assert!(
        stderr(&warned)
            .starts_with("warning: private key ca/ca.key is open to its group (mode 0640)")
    );
}

#[test]
fn show_tells_the_same_as_text_and_as_json() {
    let place = Workplace::with_authority();
    expect(
        0,
        &place.certs([
            "issue",
            "ca",
            "--role",
            "jobmanager",
            "--id",
            "jm",
            "--san",
            "ip:::1",
        ]),
    );
    let (folder, file) = (
        place.certs(["show", "ca/jm"]),
        place.certs(["show", "ca/jm/cert.pem"]),
    );
    expect(0, &folder);
    assert_eq!(folder.stdout, file.stdout);
    let output = place.certs(["show", "ca/jm", "--json"]);
    expect(0, &output);
    let object: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(object["identity"], "spiffe://demo/jobmanager/jm");
    assert_eq!(object["role"], "jobmanager");
    assert_eq!(object["cluster"], "demo");
    assert_eq!(object["id"], "jm");
    assert_eq!(object["ip_addresses"], serde_json::json!(["::1"]));
    assert_eq!(object["ca"], false);
    let seconds =
        object["not_after_unix"].as_i64().unwrap() - object["not_before_unix"].as_i64().unwrap();
    assert_eq!(seconds, 90 * 86_400 + 300);

    let text = stdout(&folder);
    for key in [
        "identity",
        "issuer",
        "not_before",
        "not_after",
        "serial",
        "fingerprint_sha256",
    ] {
        let value = object[key].as_str().unwrap();
        assert!(
            text.contains(&format!(" {value}")),
            "{key} {value} is not in\n{text}"
        );
    }
    let column = "fingerprint SHA-256: ".len();
    for line in text.lines() {
        let (label, value) = line.split_at(column);
        assert!(label.contains(": ") && !value.starts_with(' '), "{text}");
    }
}

#[test]
fn show_of_an_authority_names_its_cluster() {
    let place = Workplace::with_authority();
    let output = place.certs(["show", "ca"]);
    expect(0, &output);
    assert!(
        stdout(&output).contains("none: CA of cluster demo"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn the_fingerprint_is_the_one_that_openssl_prints() {
    let place = Workplace::with_authority();
    expect(0, &place.issue("tm-1"));
    let openssl = |arguments: &[&str]| {
        Command::new("openssl")
            .current_dir(place.dir.path())
            .args(arguments)
            .output()
    };
    let printed = match openssl(&[
        "x509",
        "-in",
        "ca/tm-1/cert.pem",
        "-noout",
        "-fingerprint",
        "-sha256",
    ]) {
        Ok(output) => stdout(&output),
        Err(error) => return eprintln!("skipped: cannot run openssl: {error}"),
    };
    let fingerprint = printed.trim().rsplit_once('=').unwrap().1;
    assert!(stdout(&place.certs(["show", "ca/tm-1"])).contains(fingerprint));
    let verified = openssl(&[
        "verify",
        "-x509_strict",
        "-CAfile",
        "ca/ca.pem",
        "ca/tm-1/cert.pem",
    ])
    .unwrap();
    assert!(verified.status.success(), "{verified:?}");
}

#[test]
fn help_has_examples() {
    let place = Workplace::new();
    for arguments in [
        &["--help"][..],
        &["init", "--help"],
        &["issue", "--help"],
        &["show", "--help"],
    ] {
        let output = place.command().args(arguments).output().unwrap();
        expect(0, &output);
        assert!(stdout(&output).contains("Examples:"), "{arguments:?}");
    }
}

#[test]
fn a_closed_stdout_ends_quietly_and_a_full_one_is_an_error() {
    let place = Workplace::with_authority();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let show = [OsStr::new("show"), OsStr::new("ca")];
    let output = place
        .command()
        .args(show)
        .stdout(writer)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    expect(0, &output);
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = place
        .command()
        .args(show)
        .stdout(full)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert!(refusal(1, &output).contains("cannot write to standard output"));
}
