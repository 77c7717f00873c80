//! A node that produces and consumes partitions.

use std::sync::Arc;

use thalweg_transport::{
    ConnectionId, Node, TransportConfig,
    exchange::{ChannelSource, InputGate, NodeExchange, PartitionWriter, SubpartitionRequest},
    proto::{ExecutionAttemptId, PartitionId, SubpartitionIndex},
};

use super::{address_of, in_time, start_node};
use crate::conformance::Backend;

/// A node with its exchange. Partitions are known by their numbers.
#[derive(Debug)]
pub struct Worker {
    /// The node.
    pub node: Node,
    /// Its exchange.
    pub exchange: NodeExchange,
}

impl Worker {
    /// Starts a node and its exchange.
    ///
    /// # Panics
    /// As [`start_node`]; if the exchange does not start.
    pub async fn start<B: Backend>(backend: &B, id: &str, config: &TransportConfig) -> Self {
        let node = start_node(backend, id, config).await;
        let exchange = NodeExchange::start(Arc::new(node.clone()), config);
        Self {
            node,
            exchange: exchange.expect("the exchange starts"),
        }
    }

    /// The way to it.
    #[must_use]
    pub fn address(&self) -> ConnectionId {
        address_of(&self.node)
    }

    /// The name of a partition.
    #[must_use]
    pub fn partition(number: u32) -> PartitionId {
        PartitionId::new(DATASET, number)
    }

    /// A subpartition of this number's partition, wherever that is.
    #[must_use]
    pub fn request(number: u32, subpartition: u32) -> SubpartitionRequest {
        SubpartitionRequest {
            partition: Self::partition(number),
            producer: PRODUCER,
            subpartition: SubpartitionIndex(subpartition),
        }
    }

    /// The channel that reads a subpartition of this worker.
    #[must_use]
    pub fn channel(&self, number: u32, subpartition: u32) -> ChannelSource {
        ChannelSource::Remote {
            connection: self.address(),
            request: Self::request(number, subpartition),
        }
    }

    /// The writer of a new partition.
    ///
    /// # Panics
    /// If there is one of this number.
    #[must_use]
    pub fn publish(&self, number: u32, subpartitions: usize) -> PartitionWriter {
        let published = self
            .exchange
            .publish(Self::partition(number), PRODUCER, subpartitions);
        published.expect("the partition is published")
    }

    /// A gate whose channels are requested.
    ///
    /// # Panics
    /// If its buffers do not come.
    pub async fn gate(&self, channels: Vec<ChannelSource>) -> InputGate {
        let gate = self.exchange.gate("gate", CONSUMER, channels);
        in_time("gate", gate).await.expect("the gate has buffers")
    }

    /// Buffers in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.exchange.pool().stats().used
    }
}

/// The attempt that produces all partitions.
pub const PRODUCER: ExecutionAttemptId = ExecutionAttemptId(1);

/// The attempt that all gates belong to.
pub const CONSUMER: ExecutionAttemptId = ExecutionAttemptId(2);

/// Partitions of tests are of one data set: nodes of other tests are other nodes.
const DATASET: u128 = 9;
