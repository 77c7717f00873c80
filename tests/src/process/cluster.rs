//! The files and processes of a cluster on this machine.

use std::{
    fmt, fs,
    net::{Ipv4Addr, TcpListener, UdpSocket},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

pub use thalweg_certs::Role;
use thalweg_certs::{CertificateAuthority, Identity, IssueRequest};

use super::{Finished, Spawned, binary};

/// A folder with a CA, certificates and configuration files, and the commands that use them.
///
/// Every process gets a free port but the JobManager, whose port is chosen when the files are made.
#[derive(Debug)]
pub struct ClusterFiles {
    folder: tempfile::TempDir,
    authority: CertificateAuthority,
    transport: String,
    tls: bool,
    settings: String,
    transport_settings: String,
    job_manager: String,
}

impl ClusterFiles {
    /// Files for a cluster `demo` on this transport: `quic`, `tcp`, or `tcp-plain`. `settings` is TOML that is added to
    /// every configuration file: first keys of `[jobmanager]`, then sections that the files do not have themselves
    /// (`[heartbeat]`, `[rpc]`, …).
    ///
    /// # Panics
    /// If files cannot be written.
    #[must_use]
    pub fn new(transport: &str, settings: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let authority = CertificateAuthority::generate("demo", 30).expect("a CA");
        Self {
            folder,
            authority,
            transport: transport.trim_end_matches("-plain").to_owned(),
            tls: !transport.ends_with("-plain"),
            settings: settings.to_owned(),
            transport_settings: String::new(),
            job_manager: format!("127.0.0.1:{}", free_port()),
        }
    }

    /// Adds TOML to the `[transport]` section of every configuration file that is written from now on.
    #[must_use]
    pub fn with_transport(mut self, settings: &str) -> Self {
        self.transport_settings = settings.to_owned();
        self
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The CA of the cluster.
    #[must_use]
    pub fn authority(&self) -> &CertificateAuthority {
        &self.authority
    }

    /// `host:port` of the JobManager.
    #[must_use]
    pub fn job_manager_address(&self) -> &str {
        &self.job_manager
    }

    /// Writes certificate and configuration of a node, and gives the configuration's path. `extra` is TOML for the
    /// `[transport]` section.
    ///
    /// # Panics
    /// If files cannot be written.
    pub fn node(&self, role: Role, id: &str, extra: impl fmt::Display) -> PathBuf {
        self.node_of(&self.authority, role, id, extra)
    }

    /// As [`node`](Self::node), with a certificate of another CA.
    ///
    /// # Panics
    /// As [`node`](Self::node).
    pub fn node_of(
        &self,
        authority: &CertificateAuthority,
        role: Role,
        id: &str,
        extra: impl fmt::Display,
    ) -> PathBuf {
        let certificates = self.folder().join("certs").join(id);
        if self.tls && !certificates.exists() {
            let identity = Identity::new(authority.cluster(), role, id).expect("a valid identity");
            let issued = authority
                .issue(&IssueRequest::new(identity))
                .expect("a certificate");
            issued
                .save(&certificates)
                .expect("certificates are written");
        }
        let tls = if self.tls {
            format!("[tls]\ndir = {:?}\n", certificates.display().to_string())
        } else {
            "[tls]\nmode = \"off\"\n".to_owned()
        };
        let text = format!(
            "[cluster]\nid = {:?}\n[node]\nid = {id:?}\n[transport]\nbackend = {:?}\nprofile = \"loopback\"\n{}\n\
             {extra}\n{tls}[jobmanager]\naddress = {:?}\n{}\n",
            authority.cluster(),
            self.transport,
            self.transport_settings,
            self.job_manager,
            self.settings
        );
        let path = self.folder().join(format!("{id}.toml"));
        fs::write(&path, text).expect("a configuration is written");
        path
    }

    /// Starts `cluster jobmanager` and waits until it is ready.
    ///
    /// # Panics
    /// If it does not get ready.
    #[must_use]
    pub fn job_manager(&self) -> Spawned {
        let config = self.node(Role::JobManager, "jm-1", "");
        let process = self.start("jobmanager", &config);
        process.wait_stdout(READY, |line| line.starts_with("ready role=jobmanager"));
        process
    }

    /// Starts `cluster taskmanager` with this id and waits until it is ready.
    ///
    /// # Panics
    /// If it does not get ready.
    #[must_use]
    pub fn task_manager(&self, id: &str) -> Spawned {
        self.task_manager_with(id, "")
    }

    /// As [`task_manager`](Self::task_manager), with TOML for its `[transport]` section.
    ///
    /// # Panics
    /// As [`task_manager`](Self::task_manager).
    #[must_use]
    pub fn task_manager_with(&self, id: &str, extra: impl fmt::Display) -> Spawned {
        let config = self.node(Role::TaskManager, id, extra);
        let process = self.start("taskmanager", &config);
        process.wait_stdout(READY, |line| line.starts_with("ready role=taskmanager"));
        process
    }

    /// Starts `cluster COMMAND --config CONFIG` and does not wait.
    #[must_use]
    pub fn start(&self, command: &str, config: &Path) -> Spawned {
        self.start_with(command, config, &[], &[])
    }

    /// As [`start`](Self::start), with more arguments and variables.
    #[must_use]
    pub fn start_with(
        &self,
        command: &str,
        config: &Path,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Spawned {
        let config = config.display().to_string();
        let all = [command, "--config", &config]
            .into_iter()
            .chain(arguments.iter().copied());
        Spawned::start(&binary("cluster"), all, self.folder(), environment)
    }

    /// Starts `cluster COMMAND --config CLIENT ARGUMENTS…` as client `cli` and does not wait.
    #[must_use]
    pub fn client(&self, command: &str, arguments: &[&str]) -> Spawned {
        self.start_with(command, &self.client_config(), arguments, &[])
    }

    /// The configuration of client `cli`.
    ///
    /// # Panics
    /// If it cannot be written.
    #[must_use]
    pub fn client_config(&self) -> PathBuf {
        let config = self.folder().join("cli.toml");
        if !config.exists() {
            self.node(Role::Client, "cli", "");
        }
        config
    }

    /// As [`client`](Self::client), and waits for the end.
    #[must_use]
    pub fn run_client(&self, command: &str, arguments: &[&str]) -> Finished {
        self.client(command, arguments).finish(COMMAND)
    }
}

/// A port that is free for TCP and for UDP. It lies below those that systems give out by themselves (Linux: from 32,768 on),
/// so that no other socket of a test takes it before its process binds it.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(97);
    let ports = FIRST_PORT..32_768;
    let count = u32::from(ports.end - ports.start);
    for _ in 0..count {
        let number = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % count;
        let port = FIRST_PORT + u16::try_from(number).expect("less than the number of ports");
        let address = (Ipv4Addr::LOCALHOST, port);
        if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
            return port;
        }
    }
    panic!("no port of {ports:?} is free");
}

/// Above those of well-known services.
const FIRST_PORT: u16 = 20_000;

/// Start of a process on a machine that is busy with other tests.
const READY: Duration = Duration::from_secs(60);
/// A whole command, job included, on such a machine.
const COMMAND: Duration = Duration::from_secs(180);
