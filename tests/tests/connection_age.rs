//! Connections that have become too old, over every backend: partitions that run go on.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, which fail by panicking"
)]

use std::time::Duration;

use thalweg_tests::{
    conformance::Backend,
    harness::{DEADLINE, MemBackend, QuicBackend, TcpBackend, Worker, accepted, in_time, until},
    on_backends,
};
use thalweg_transport::{
    Connections, Node, Profile, TransportConfig,
    exchange::{BufferOrEvent, ConnectionManager, InputGate, PartitionWriter},
};

/// Connections that the node dialled, and how many of them are drained.
fn dialled(node: &Node) -> (usize, usize) {
    let dialled = node.snapshot().into_iter().filter(|c| c.dialled);
    dialled.fold((0, 0), |(all, draining), connection| {
        (all + 1, draining + usize::from(connection.draining))
    })
}

/// A partition of the producer and a gate of the consumer that has begun to read it.
async fn flow(consumer: &Worker, producer: &Worker, number: u32) -> (PartitionWriter, InputGate) {
    let mut writer = producer.publish(number, 1);
    writer.emit(0, b"first").await.unwrap();
    writer.flush();
    let mut gate = consumer.gate(vec![producer.channel(number, 0)]).await;
    in_time("buffer", gate.next()).await.unwrap().unwrap();
    (writer, gate)
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
    let consumer = Worker::start(&backend, "consumer", &config).await;
    let producer = Worker::start(&backend, "producer", &config).await;
    let running = flow(&consumer, &producer, 0).await;
    assert_eq!(dialled(&consumer.node), (1, 0));
    until("the connection is old", || {
        dialled(&consumer.node) == (1, 1)
    })
    .await;
    let manager = consumer.exchange.connection_manager();
    assert_eq!(manager.number_of_active_connections(), 0);
    let next = flow(&consumer, &producer, 1).await;
    assert_eq!(dialled(&consumer.node), (2, 1));
    assert_eq!(manager.number_of_active_connections(), 1);
    finish(running).await;
    until("nothing keeps the old one", || {
        dialled(&consumer.node) == (1, 0)
    })
    .await;
    finish(next).await;
    until("the producer has seen the end of the old one", || {
        accepted(&producer.node) == 1
    })
    .await;
    for node in [consumer.node, producer.node] {
        in_time("shutdown", node.shutdown(DEADLINE)).await.unwrap();
    }
}

on_backends! {
    [a_partition_that_runs_finishes_on_the_old_connection]:
    mem = MemBackend::new(),
    quic = QuicBackend::new(Profile::Loopback),
    tcp = TcpBackend::plaintext(),
    tls = TcpBackend::tls(),
}
