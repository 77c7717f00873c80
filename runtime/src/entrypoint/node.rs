//! What every process of a cluster starts first: identity, node, RPC service.

use std::{sync::Arc, time::Duration};

use thalweg_certs::{CredentialFiles, NodeCredentials, Role};
use thalweg_transport::{Connections, Credentials, Node, ResourceId};

use super::StartError;
use crate::{
    backend::BackendRegistry,
    config::{Config, TlsMode},
    gateways::ConnectionReport,
    rpc::{RpcAddress, RpcConfig, RpcService},
    security::NodeSecurity,
};

/// A started node with its RPC service: the ground that the components of a process stand on.
///
/// Clones share it. It ends with [`close`](Self::close).
#[derive(Debug, Clone)]
pub struct ClusterNode {
    node: Node,
    rpc: RpcService,
    security: Option<Arc<NodeSecurity>>,
    transport: Arc<str>,
}

/// Where a node's certificate comes from.
#[derive(Debug, Clone)]
pub enum CertificateSource {
    /// The files that `[tls]` names.
    Configured,
    /// One made in memory.
    InMemory(Box<NodeCredentials>),
}

impl ClusterNode {
    /// Starts a node of this role on the backend that the configuration names.
    ///
    /// Its resource id is the certificate's; without TLS it is `node.id`, or else generated from the role.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left behind then.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub async fn start(
        config: &Config,
        role: Role,
        certificate: CertificateSource,
        backends: &BackendRegistry,
    ) -> Result<Self, StartError> {
        let security = security(config, certificate)?;
        let id = resource_id(config, role, security.as_deref())?;
        let transport = config.transport.backend.as_str();
        let backend = backends.get(transport).ok_or_else(|| StartError::Service {
            service: "transport",
            reason: format!(
                "no backend {transport:?} is registered: {} are",
                backends.names().collect::<Vec<_>>().join(", ")
            ),
        })?;
        let settings = config.transport_config();
        let mut builder = Node::builder(id.clone(), settings.clone())
            .bind(config.transport.bind)
            .cluster_id(config.cluster.id.as_str());
        if let Some(address) = advertised(config, role) {
            builder = builder.advertise(address);
        }
        let credentials = security
            .clone()
            .map(|security| security as Arc<dyn Credentials>);
        let node = backend(builder, settings, credentials).await?;
        let rpc = RpcService::builder(id)
            .config(rpc_config(config))
            .connections(Arc::new(node.clone()))
            .build()
            .map_err(|error| StartError::Service {
                service: "rpc",
                reason: error.to_string(),
            })?;
        Ok(Self {
            node,
            rpc,
            security,
            transport: transport.into(),
        })
    }

    /// The node.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The node's RPC service.
    #[must_use]
    pub fn rpc(&self) -> &RpcService {
        &self.rpc
    }

    /// What the node presents to others.
    #[must_use]
    pub fn description(&self) -> NodeDescription {
        let certificate = self
            .security
            .as_ref()
            .map(|security| security.certificate());
        NodeDescription {
            id: self.node.id().clone(),
            address: self.node.advertised(),
            transport: Arc::clone(&self.transport),
            tls: if self.security.is_some() {
                TlsMode::Mutual
            } else {
                TlsMode::Off
            },
            identity: self
                .security
                .as_ref()
                .map(|security| security.identity().to_string()),
            certificate_expires: certificate.and_then(|info| u64::try_from(info.not_after).ok()),
            certificate_fingerprint: certificate.map(|info| info.fingerprint.clone()),
        }
    }

    /// The node's live connections.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionReport> {
        let own = self.description();
        self.node
            .snapshot()
            .into_iter()
            .map(|connection| own.report(&connection))
            .collect()
    }

    /// Ends the RPC service, then the node, each within the deadline. Errors are logged: there is nothing left to do
    /// about them.
    ///
    /// # Cancel safety
    /// What has begun to end goes on ending.
    pub async fn close(&self, deadline: Duration) {
        if let Err(error) = self.rpc.close(deadline).await {
            tracing::warn!(%error, "an endpoint did not end well");
        }
        if let Err(error) = self.node.shutdown(deadline).await {
            tracing::warn!(%error, "the node did not end well");
        }
    }
}

/// What a node is to others: for ready lines and status pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeDescription {
    /// Its resource id.
    pub id: ResourceId,
    /// `host:port` that it advertises.
    pub address: String,
    /// The backend's name.
    pub transport: Arc<str>,
    /// Whether its connections are encrypted and both sides present a certificate.
    pub tls: TlsMode,
    /// The identity in its certificate.
    pub identity: Option<String>,
    /// End of its certificate's validity, seconds since 1970.
    pub certificate_expires: Option<u64>,
    /// SHA-256 of its certificate.
    pub certificate_fingerprint: Option<String>,
}

impl NodeDescription {
    /// A connection of this node, as it is reported.
    #[must_use]
    pub fn report(&self, connection: &thalweg_transport::ConnectionSnapshot) -> ConnectionReport {
        let (own, peer) = (self.id.clone(), connection.peer.id.clone());
        let (from, to) = if connection.dialled {
            (own, peer)
        } else {
            (peer, own)
        };
        ConnectionReport {
            from,
            to,
            transport: self.transport.to_string(),
            tls: self.tls.to_string(),
            streams: connection.stats.streams_open,
            bytes_sent: connection.stats.bytes_sent,
            bytes_received: connection.stats.bytes_received,
            rtt_us: connection
                .stats
                .rtt
                .map(|rtt| u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX)),
        }
    }
}

/// The address of an endpoint of the JobManager, as configured.
pub(super) fn job_manager_endpoint(config: &Config, name: &str) -> Result<RpcAddress, StartError> {
    Ok(RpcAddress::remote(None, &config.jobmanager.address, name)?)
}

/// What the RPC layer takes of the configuration.
pub(super) fn rpc_config(config: &Config) -> RpcConfig {
    let from = &config.rpc;
    RpcConfig {
        ask_timeout: from.ask_timeout,
        // A size beyond 32 bits stays out of the range that validation allows.
        max_frame_size: u32::try_from(from.max_frame_size.as_u64()).unwrap_or(u32::MAX),
        max_pending_calls: from.max_pending_calls,
        max_pending_bytes: from.max_pending_bytes.as_u64(),
        capture_caller: from.capture_caller,
        ..RpcConfig::default()
    }
}

fn security(
    config: &Config,
    certificate: CertificateSource,
) -> Result<Option<Arc<NodeSecurity>>, StartError> {
    if config.tls.mode == TlsMode::Off {
        // The backend warns of it.
        return Ok(None);
    }
    let credentials = match certificate {
        CertificateSource::InMemory(credentials) => *credentials,
        CertificateSource::Configured => {
            let files = config.tls.files().ok_or(StartError::NoCertificate)?;
            if let Some(path) = files.crl.filter(|path| path.exists()) {
                return Err(StartError::RevocationList { path });
            }
            let mut paths = CredentialFiles::in_dir("");
            (paths.certificate, paths.key, paths.ca) = (files.cert, files.key, files.ca);
            NodeCredentials::from_files(&paths).map_err(StartError::Certificate)?
        }
    };
    for warning in credentials.warnings() {
        tracing::warn!("{warning}");
    }
    Ok(Some(Arc::new(NodeSecurity::new(credentials))))
}

/// The certificate's id; a configured one must be the same.
fn resource_id(
    config: &Config,
    role: Role,
    security: Option<&NodeSecurity>,
) -> Result<ResourceId, StartError> {
    let Some(security) = security else {
        return match &config.node.id {
            Some(id) => Ok(id.clone()),
            None => Ok(ResourceId::new(&format!(
                "{role}-{:06x}",
                fastrand::u32(..1 << 24)
            ))?),
        };
    };
    let identity = security.identity();
    let refuse = |problem: String| {
        Err(StartError::Identity {
            identity: identity.to_string(),
            problem,
        })
    };
    if identity.cluster() != config.cluster.id {
        return refuse(format!("cluster.id is {:?}", config.cluster.id));
    }
    // A JobManager with another role would start and be refused by everybody. Others hear a refusal from the JobManager,
    // whose log then has it, too.
    if role == Role::JobManager && identity.role() != role {
        return refuse(format!("this is a {role}"));
    }
    match &config.node.id {
        Some(id) if id.as_str() != identity.id() => refuse(format!("node.id is {:?}", id.as_str())),
        _ => Ok(ResourceId::new(identity.id())?),
    }
}

/// What others dial, if it is not the bound address.
fn advertised(config: &Config, role: Role) -> Option<String> {
    if let Some(address) = &config.transport.advertise {
        return Some(address.clone());
    }
    if !config.transport.bind.ip().is_unspecified() {
        return None;
    }
    if role == Role::JobManager {
        return Some(config.jobmanager.address.clone());
    }
    local_address_towards(&config.jobmanager.address)
}

/// The address of the interface that reaches a peer. A UDP socket that is connected but sends nothing asks the routing
/// table only.
fn local_address_towards(address: &str) -> Option<String> {
    let socket = std::net::UdpSocket::bind(("0.0.0.0", 0))
        .or_else(|_| std::net::UdpSocket::bind(("::", 0)))
        .ok()?;
    socket.connect(address).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    Some(if ip.is_ipv6() {
        format!("[{ip}]")
    } else {
        ip.to_string()
    })
}
