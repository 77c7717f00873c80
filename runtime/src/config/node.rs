//! Sections that every process reads: `[cluster]`, `[node]`, `[transport]` and `[tls]`.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use thalweg_transport::{BindAddr, Profile, ResourceId, TransportConfig};

use super::{
    Config,
    choices::{Compression, TlsMode},
    section::section,
    units::ByteSize,
};

section! {
    /// What all nodes of a cluster share.
    ClusterSection = "cluster" {
        /// Trust domain of the identities: `spiffe://<id>/<role>/<resource id>`. Default `demo`, the cluster of the
        /// examples. A certificate of another cluster is refused.
        id: String = "demo".to_owned(),
    }
}

section! {
    /// The process.
    NodeSection = "node" {
        /// Resource id of this node. Default: from the certificate, else generated.
        id: Option<ResourceId> = None,
        /// Longest time from SIGTERM to the exit, in which tasks and peers are told. Default 30 s, less than what
        /// process supervisors commonly wait before they kill.
        drain_timeout: Duration = Duration::from_secs(30),
        /// Threads for blocking work (files, compression). Default 0: four for each core, because they mostly wait.
        io_threads: u32 = 0,
    }
}

section! {
    /// Connections and the partition exchange.
    TransportSection = "transport" {
        /// Name of the backend. Default `quic`: streams do not block each other, and it is always encrypted.
        backend: String = "quic".to_owned(),
        /// Where to listen. Default any free port of the loopback interface: a node is not reachable by accident.
        bind: BindAddr = BindAddr::single(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
        /// `host` or `host:port` that others dial. Default: the bound address, or, bound to a wildcard, the address
        /// of the interface that reaches the JobManager.
        advertise: Option<String> = None,
        /// Packet sizes, windows and congestion control. Default `lan`: correct in any data centre.
        profile: Profile = Profile::Lan,
        /// Connections to the same peer. Default 1: more put crypto on more cores, and cost handshakes and windows.
        connections_per_peer: u32 = 1,
        /// Budget of a whole dial, retries included. Default 5 s.
        connect_timeout: Duration = Duration::from_secs(5),
        /// Attempts after the first. Default 3.
        connect_retries: u32 = 3,
        /// How often a quiet connection says that it lives. Default 2 s, a third of the idle time-out.
        keep_alive: Duration = Duration::from_secs(2),
        /// A peer that is silent for so long is dead. Default 6 s: sooner than a heartbeat notices.
        idle_timeout: Duration = Duration::from_secs(6),
        /// Older connections are drained and replaced, so that no certificate lives on in one for more than twice as long;
        /// an exchange that runs for longer than this may fail. Default 24 h.
        max_connection_age: Duration = Duration::from_secs(24 * 3600),
        /// A frame on the wire, header included. Default 32 KiB: two whole TLS records.
        buffer_size: ByteSize = ByteSize::kib(32),
        /// Network memory of the node. Default 64 MiB: 2,048 buffers.
        buffer_pool: ByteSize = ByteSize::mib(64),
        /// Buffers that each remote channel holds for itself: its initial credit. Default 2.
        exclusive_buffers_per_channel: u32 = 2,
        /// Buffers that the channels of a gate share by backlog. Default 64: fewer starve a fast path.
        floating_buffers_per_gate: u32 = 64,
        /// How long a request waits at the producer for a partition that is not there yet. Default 10 s.
        partition_request_timeout: Duration = Duration::from_secs(10),
        /// Whether an idle connection is kept for the next job. Default true.
        reuse_connections: bool = true,
        /// Limit for one handshake. Default 10 s.
        handshake_timeout: Duration = Duration::from_secs(10),
        /// Handshakes that a listener works on at once. Default 256: bounds what strangers can occupy.
        max_handshakes: u32 = 256,
        /// Streams that a peer may have open on one connection, allowed in steps as they are used. Default 65,536.
        max_streams_per_connection: u32 = 65_536,
        /// What a peer may leave unread on one TCP connection, beyond 16 KiB for each stream. Default 64 MiB: 32 streams with
        /// the largest window.
        max_unread_bytes: ByteSize = ByteSize::mib(64),
        /// Connections that peers may have to this node. Default 10,000: several for each node of the largest clusters.
        max_connections: u32 = 10_000,
        /// A peer that does not read for so long is dropped. Default 30 s.
        write_timeout: Duration = Duration::from_secs(30),
        /// Whether the size of buffers follows the throughput of a gate. Default false.
        buffer_debloating: bool = false,
        /// Compression of blocking partitions. Default none: fast disks lose by it.
        blocking_compression: Compression = Compression::None,
        /// Name of a registered shuffle service factory. Default `network`.
        shuffle_service: String = "network".to_owned(),
    }
}

section! {
    /// Certificates.
    TlsSection = "tls" {
        /// Whether connections are encrypted and both sides present a certificate. Default mutual.
        mode: TlsMode = TlsMode::Mutual,
        /// Folder with `cert.pem`, `key.pem`, `ca.pem` and perhaps `crl.pem`, relative to the working directory.
        /// Default none: `cluster run` then makes throw-away certificates, a node refuses to start.
        dir: Option<PathBuf> = None,
        /// Certificate chain, PEM; instead of the one in `dir`.
        cert: Option<PathBuf> = None,
        /// Private key, PEM; instead of the one in `dir`.
        key: Option<PathBuf> = None,
        /// Certificates of the CAs, PEM; instead of the ones in `dir`.
        ca: Option<PathBuf> = None,
        /// Revoked certificates, PEM; instead of the ones in `dir`.
        crl: Option<PathBuf> = None,
        /// How often the files are looked at. Default 5 s: a changed file is served within 10 s at most.
        reload_interval: Duration = Duration::from_secs(5),
    }
}

/// Where a node's certificates are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain.
    pub cert: PathBuf,
    /// Private key.
    pub key: PathBuf,
    /// Certificates of the CAs.
    pub ca: PathBuf,
    /// Revocation list; a file inside [`TlsSection::dir`] need not exist.
    pub crl: Option<PathBuf>,
}

impl TlsSection {
    /// The files of the certificates; `None` if they are not all named.
    ///
    /// [`Config::validate`] refuses a configuration that names only some.
    #[must_use]
    pub fn files(&self) -> Option<TlsFiles> {
        let file = |own: &Option<PathBuf>, name: &str| {
            own.clone()
                .or_else(|| self.dir.as_ref().map(|dir| dir.join(name)))
        };
        Some(TlsFiles {
            cert: file(&self.cert, "cert.pem")?,
            key: file(&self.key, "key.pem")?,
            ca: file(&self.ca, "ca.pem")?,
            crl: file(&self.crl, "crl.pem"),
        })
    }
}

impl Config {
    /// Blocking operations of a node at the same time: `node.io_threads`, or four for each core.
    #[must_use]
    pub fn io_threads(&self) -> usize {
        match self.node.io_threads {
            0 => std::thread::available_parallelism().map_or(4, |cores| cores.get() * 4),
            threads => threads as usize,
        }
    }

    /// What the transport layer takes of this configuration.
    #[must_use]
    pub fn transport_config(&self) -> TransportConfig {
        let from = &self.transport;
        let mut to = TransportConfig::default();
        to.profile = from.profile;
        to.connections_per_peer = from.connections_per_peer;
        to.connect_timeout = from.connect_timeout;
        to.connect_retries = from.connect_retries;
        to.keep_alive = from.keep_alive;
        to.idle_timeout = from.idle_timeout;
        to.max_connection_age = from.max_connection_age;
        // A size beyond 32 bits stays out of the range that validation allows.
        to.buffer_size = u32::try_from(from.buffer_size.as_u64()).unwrap_or(u32::MAX);
        to.buffer_pool = from.buffer_pool.as_u64();
        to.exclusive_buffers_per_channel = from.exclusive_buffers_per_channel;
        to.floating_buffers_per_gate = from.floating_buffers_per_gate;
        to.buffer_debloating = from.buffer_debloating;
        to.partition_request_timeout = from.partition_request_timeout;
        to.reuse_connections = from.reuse_connections;
        to.handshake_timeout = from.handshake_timeout;
        to.max_handshakes = from.max_handshakes;
        to.max_streams_per_connection = from.max_streams_per_connection;
        to.max_unread_bytes = from.max_unread_bytes.as_u64();
        to.max_connections = from.max_connections;
        to.write_timeout = from.write_timeout;
        to.blocking_compression = match from.blocking_compression {
            Compression::None => thalweg_transport::Compression::None,
            Compression::Lz4 => thalweg_transport::Compression::Lz4,
        };
        to
    }
}
