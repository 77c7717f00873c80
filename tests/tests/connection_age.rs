//! Connections that have become too old, over every backend: partitions that run go on.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, which fail by panicking"
)]

use std::{sync::Arc, time::Duration};

use thalweg_tests::{
    conformance::Backend,
    harness::{DEADLINE, MemBackend, QuicBackend, TcpBackend, in_time, until},
};
use thalweg_transport::{
    ConnectionId, Connections, Node, Profile, ResourceId, TransportConfig,
    exchange::{
        BufferOrEvent, ChannelSource, ConnectionManager, InputGate, NodeExchange, PartitionWriter,
        SubpartitionRequest,
    },
    proto::{ExecutionAttemptId, PartitionId, SubpartitionIndex},
};

const PRODUCER: ExecutionAttemptId = ExecutionAttemptId(1);
const CONSUMER: ExecutionAttemptId = ExecutionAttemptId(2);

async fn start<B: Backend>(backend: &B, id: &str, config: &TransportConfig) -> Node {
    let id = ResourceId::new(id).unwrap();
    let transport = backend.transport(id.as_str());
    let node = Node::builder(id, config.clone());
    in_time("start", node.start(transport)).await.unwrap()
}

fn to(node: &Node) -> ConnectionId {
    ConnectionId::new(node.id().clone(), node.advertised())
}

/// Connections that the node dialled, and how many of them are drained.
fn dialled(node: &Node) -> (usize, usize) {
    let dialled = node.snapshot().into_iter().filter(|c| c.dialled);
    dialled.fold((0, 0), |(all, draining), connection| {
        (all + 1, draining + usize::from(connection.draining))
    })
}

fn accepted(node: &Node) -> usize {
    node.snapshot().iter().filter(|c| !c.dialled).count()
}

/// Two nodes whose partitions the first one consumes.
struct Pair {
    consumer: Node,
    producer: Node,
    consuming: NodeExchange,
    producing: NodeExchange,
}

impl Pair {
    async fn start<B: Backend>(backend: &B, config: &TransportConfig) -> Self {
        let consumer = start(backend, "consumer", config).await;
        let producer = start(backend, "producer", config).await;
        let exchange = |node: &Node| NodeExchange::start(Arc::new(node.clone()), config).unwrap();
        Self {
            consuming: exchange(&consumer),
            producing: exchange(&producer),
            consumer,
            producer,
        }
    }

    /// A partition and a gate that has begun to read it.
    async fn flow(&self, number: u32) -> (PartitionWriter, InputGate) {
        let partition = PartitionId::new(9, number);
        let mut writer = self.producing.publish(partition, PRODUCER, 1).unwrap();
        writer.emit(0, b"first").await.unwrap();
        writer.flush();
        let channel = ChannelSource::Remote {
            connection: to(&self.producer),
            request: SubpartitionRequest {
                partition,
                producer: PRODUCER,
                subpartition: SubpartitionIndex(0),
            },
        };
        let gate = self.consuming.gate("gate", CONSUMER, vec![channel]);
        let mut gate = gate.await.unwrap();
        in_time("buffer", gate.next()).await.unwrap().unwrap();
        (writer, gate)
    }

    async fn stop(self) {
        for node in [self.consumer, self.producer] {
            in_time("shutdown", node.shutdown(DEADLINE)).await.unwrap();
        }
    }
}

/// Writes to the end and reads to the end.
async fn finish((mut writer, mut gate): (PartitionWriter, InputGate)) {
    let count = 500_usize;
    let write = async {
        for _ in 0..count {
            writer.emit(0, &[7; 1000]).await.unwrap();
        }
        writer.finish().unwrap();
    };
    let read = async {
        let mut bytes = 0;
        while let Some((_, item)) = gate.next().await.unwrap() {
            if let BufferOrEvent::Buffer(buffer) = item {
                bytes += buffer.len();
            }
        }
        bytes
    };
    let ((), bytes) = in_time("the rest", async { tokio::join!(write, read) }).await;
    // Each record has a length before it.
    assert_eq!(bytes, count * 1004);
}

async fn a_partition_that_runs_finishes_on_the_old_connection<B: Backend>(backend: B) {
    let mut config = TransportConfig::default();
    // Old at 1.8 to 2 s, and given up 2 s later, which a busy machine does not need.
    config.max_connection_age = Duration::from_secs(2);
    let pair = Pair::start(&backend, &config).await;
    let running = pair.flow(0).await;
    assert_eq!(dialled(&pair.consumer), (1, 0));
    until("the connection is old", || {
        dialled(&pair.consumer) == (1, 1)
    })
    .await;
    let manager = pair.consuming.connection_manager();
    assert_eq!(manager.number_of_active_connections(), 0);
    let next = pair.flow(1).await;
    assert_eq!(dialled(&pair.consumer), (2, 1));
    assert_eq!(manager.number_of_active_connections(), 1);
    finish(running).await;
    until("nothing keeps the old one", || {
        dialled(&pair.consumer) == (1, 0)
    })
    .await;
    finish(next).await;
    until("the producer has seen the end of the old one", || {
        accepted(&pair.producer) == 1
    })
    .await;
    pair.stop().await;
}

macro_rules! age_tests {
    ($backend:ident, $make:expr) => {
        mod $backend {
            #[tokio::test]
            async fn a_partition_that_runs_finishes_on_the_old_connection() {
                super::a_partition_that_runs_finishes_on_the_old_connection($make).await;
            }
        }
    };
}

age_tests!(mem, super::MemBackend::new());
age_tests!(quic, super::QuicBackend::new(super::Profile::Loopback));
age_tests!(tcp, super::TcpBackend::plaintext());
age_tests!(tls, super::TcpBackend::tls());
