//! The exchange between real nodes over the in-memory backend, and inside one node.

mod acknowledgement;
mod backpressure;
mod barriers;
mod blocking;
mod blocking_faults;
mod blocks;
mod buffer_size;
mod cancel;
#[cfg(feature = "lz4")]
mod compression;
mod connections;
mod debloat;
mod delivery;
mod fairness;
mod hostile;
mod kinds;
mod lookup;
mod priority;
mod races;
mod retries;
mod served;
mod task_events;
mod threads;
mod wire;

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;

use super::*;
use crate::{
    Compression, ConnectionId, Connections, NetworkRuntime, Node, ResourceId, TransportConfig,
    mem::{MemNetwork, MemTransport},
    proto::{ExecutionAttemptId, PartitionId, SubpartitionIndex},
};

const PRODUCER: ExecutionAttemptId = ExecutionAttemptId(1);
const CONSUMER: ExecutionAttemptId = ExecutionAttemptId(2);

/// A node with everything that the exchange needs.
#[derive(Debug, Clone)]
struct Worker {
    node: Arc<Node>,
    partitions: ResultPartitionManager,
    pool: BufferPool,
    connections: Arc<NetworkConnectionManager>,
    events: Arc<TaskEventDispatcher>,
    config: TransportConfig,
}

impl Worker {
    async fn start(network: &MemNetwork, id: &str, config: TransportConfig) -> Self {
        Self::start_on(network, id, config, NetworkRuntime::Current).await
    }

    async fn start_on(
        network: &MemNetwork,
        id: &str,
        config: TransportConfig,
        runtime: NetworkRuntime,
    ) -> Self {
        let node = Node::builder(ResourceId::new(id).unwrap(), config.clone())
            .network(runtime)
            .start(MemTransport::new(network.clone(), None))
            .await
            .unwrap();
        let node = Arc::new(node);
        let partitions = ResultPartitionManager::new(config.partition_request_timeout);
        let connections = Arc::new(NetworkConnectionManager::new(node.clone(), config.clone()));
        let events = Arc::new(TaskEventDispatcher::new());
        connections
            .start(Arc::new(partitions.clone()), events.clone())
            .unwrap();
        Self {
            node,
            partitions,
            pool: BufferPool::new(&config),
            connections,
            events,
            config,
        }
    }

    fn context(&self) -> GateContext {
        let mut context = GateContext::new(
            &self.config,
            self.connections.clone(),
            Arc::new(self.partitions.clone()),
            self.pool.clone(),
            self.node.runtime().clone(),
            self.node.tasks().clone(),
        );
        context.task_events = self.events.clone();
        context
    }

    fn address(&self) -> ConnectionId {
        ConnectionId::new(self.node.id().clone(), self.node.advertised())
    }

    /// Makes and registers a partition.
    fn produce(&self, number: u32, subpartitions: usize) -> PartitionWriter {
        let partition =
            ResultPartition::pipelined_bounded(id(number), PRODUCER, subpartitions, &self.pool)
                .unwrap();
        self.partitions.register(partition.clone()).unwrap();
        partition.writer().unwrap()
    }

    /// The same with a pool of so many buffers.
    fn produce_with(&self, number: u32, subpartitions: usize, buffers: usize) -> PartitionWriter {
        let pool = self.pool.local(buffers, buffers).unwrap();
        let partition =
            ResultPartition::with_pool(id(number), PRODUCER, subpartitions, pool).unwrap();
        self.partitions.register(partition.clone()).unwrap();
        partition.writer().unwrap()
    }

    /// A gate that has requested its channels.
    async fn consume(&self, channels: Vec<ChannelSource>) -> InputGate {
        self.consume_with(self.context(), channels).await
    }

    async fn consume_with(&self, context: GateContext, channels: Vec<ChannelSource>) -> InputGate {
        let gate = InputGate::setup("gate", CONSUMER, channels, context)
            .await
            .unwrap();
        gate.request_partitions();
        gate
    }

    fn remote(&self, number: u32, subpartition: u32) -> ChannelSource {
        ChannelSource::Remote {
            connection: self.address(),
            request: request(number, subpartition),
        }
    }

    fn used(&self) -> usize {
        self.pool.stats().used
    }
}

/// Two nodes with small buffers: 1,000 bytes of payload.
async fn pair() -> (Worker, Worker) {
    pair_with(small()).await
}

async fn pair_with(config: TransportConfig) -> (Worker, Worker) {
    let network = MemNetwork::new();
    let producer = Worker::start(&network, "producer", config.clone()).await;
    let consumer = Worker::start(&network, "consumer", config).await;
    (producer, consumer)
}

fn small() -> TransportConfig {
    TransportConfig {
        buffer_size: 1024,
        buffer_pool: 1024 * 1024,
        ..TransportConfig::default()
    }
}

fn id(number: u32) -> PartitionId {
    PartitionId::new(7, number)
}

fn request(number: u32, subpartition: u32) -> SubpartitionRequest {
    SubpartitionRequest {
        partition: id(number),
        producer: PRODUCER,
        subpartition: SubpartitionIndex(subpartition),
    }
}

/// A record that says which it is, of a length that changes, now and then above a buffer's.
fn record(tag: u32, sequence: u32) -> Vec<u8> {
    let length = 8 + (sequence as usize * 37) % 300 + usize::from(sequence % 50 == 7) * 2500;
    let mut record = Vec::with_capacity(length);
    record.extend_from_slice(&tag.to_be_bytes());
    record.extend_from_slice(&sequence.to_be_bytes());
    record.resize(length, (tag ^ sequence).to_be_bytes()[3]);
    record
}

async fn write(mut writer: PartitionWriter, subpartitions: u32, tag: u32, count: u32) {
    for sequence in 0..count {
        for subpartition in 0..subpartitions {
            let record = record(tag + subpartition, sequence);
            if !writer.try_emit(subpartition as usize, &record).unwrap() {
                writer.emit(subpartition as usize, &record).await.unwrap();
            }
        }
    }
    writer.finish().unwrap();
}

/// Reads a gate to its end and checks that channel `c` gives the records of `tags[c]`, and one end.
async fn check(gate: InputGate, tags: &[u32], count: u32) {
    let mut reader = RecordReader::new(gate);
    let mut next = vec![0; tags.len()];
    let mut ends = vec![0; tags.len()];
    while let Some((channel, input)) = within("record", reader.next()).await.unwrap() {
        match input {
            Input::Record(bytes) => {
                assert_eq!(bytes, record(tags[channel], next[channel]));
                assert_eq!(ends[channel], 0);
                next[channel] += 1;
            }
            Input::Event(Event::EndOfPartition) => ends[channel] += 1,
            Input::Event(event) => panic!("{event:?}"),
        }
    }
    assert_eq!(next, vec![count; tags.len()]);
    assert_eq!(ends, vec![1; tags.len()]);
}

/// Reads until the gate fails.
async fn failure(gate: &mut InputGate) -> ExchangeError {
    loop {
        match within("failure", gate.next()).await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the gate ended without an error"),
            Err(error) => return error,
        }
    }
}

/// Lets tasks run until the condition holds; it must within ten seconds of tokio's time.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    within(what, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// Lets everything run that can run without a deadline.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future)
        .await
        .unwrap_or_else(|_| panic!("{what}: not within 60 s"))
}
