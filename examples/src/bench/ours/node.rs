//! A node with what an exchange needs.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use thalweg_runtime::NodeSecurity;
use thalweg_transport::{
    BindAddr, Node, NodeError, TransportConfig, chain,
    exchange::NodeExchange,
    proto::{ExecutionAttemptId, PartitionId, SubpartitionIndex},
    quic::QuicTransport,
    tcp::TcpTransport,
};

use super::ping::{Echo, PING};
use crate::{
    bench::{
        security::NodeCertificates,
        spec::Spec,
        tasks::Tasks,
        transport_kind::{Placement, TransportKind},
    },
    cli::failure::Failure,
};

/// One node of a measurement.
#[derive(Debug)]
pub(super) struct DataNode {
    pub(super) node: Node,
    pub(super) exchange: NodeExchange,
    pub(super) config: TransportConfig,
}

impl DataNode {
    pub(super) async fn start(
        spec: &Spec,
        certificates: &NodeCertificates,
        bind: SocketAddr,
    ) -> Result<Self, Failure> {
        let config = spec
            .config()
            .map_err(|error| Failure::usage(error.to_string()))?;
        let builder = Node::builder(certificates.id.clone(), config.clone())
            .bind(BindAddr::single(bind))
            .handler(PING, Arc::new(Echo));
        let security: Arc<NodeSecurity> = certificates.security.clone();
        let started = match spec.transport {
            TransportKind::Quic => {
                let transport = QuicTransport::new(&config, security)
                    .map_err(|error| failed(&NodeError::from(error)))?;
                builder.start(transport).await
            }
            TransportKind::Tcp => {
                builder
                    .start(TcpTransport::new(&config, Some(security)))
                    .await
            }
            _ => builder.start(TcpTransport::new(&config, None)).await,
        };
        let node = started.map_err(|error| failed(&error))?;
        let exchange =
            NodeExchange::start(Arc::new(node.clone()), &config).map_err(|error| failed(&error))?;
        Ok(Self {
            node,
            exchange,
            config,
        })
    }

    /// Where the task of this end runs.
    pub(super) fn tasks(&self, placement: Placement, name: &str) -> Result<Tasks, Failure> {
        match placement {
            Placement::Network => Ok(Tasks::on_network(&self.node)),
            Placement::OwnThread => Tasks::on_thread(name),
        }
    }

    pub(super) async fn end(self) {
        if let Err(error) = self.node.shutdown(GRACE).await {
            tracing::warn!(%error, "a node of a measurement does not end");
        }
    }
}

pub(super) fn failed(error: &(dyn std::error::Error + 'static)) -> Failure {
    Failure::failed(chain(error))
}

/// The partition of a channel that has one of its own, or of all.
pub(super) fn partition_of(number: u32) -> PartitionId {
    PartitionId::new(DATASET, number)
}

pub(super) const PRODUCER: ExecutionAttemptId = ExecutionAttemptId(1);
pub(super) const CONSUMER: ExecutionAttemptId = ExecutionAttemptId(2);
pub(super) const FIRST: SubpartitionIndex = SubpartitionIndex(0);

/// Both nodes live for one measurement: a number drawn at random would name nothing more.
const DATASET: u128 = 7;

/// For the tasks of a node, and for its peer to hear of the end.
const GRACE: Duration = Duration::from_secs(2);
