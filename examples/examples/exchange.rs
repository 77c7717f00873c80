//! The exchange alone, without the runtime: two nodes, one partition with two subpartitions, records with backpressure.
//!
//! ```sh
//! cargo run --release --example exchange            # QUIC with mutual TLS
//! cargo run --release --example exchange -- tcp     # TCP with mutual TLS
//! cargo run --release --example exchange -- tcp-plain
//! ```

use std::{env, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use thalweg_certs::{CertificateAuthority, Identity, IssueRequest, Role};
use thalweg_runtime::NodeSecurity;
use thalweg_transport::{
    ConnectionId, Connections, Credentials, Node, Profile, ResourceId, TransportConfig,
    exchange::{
        BufferPool, ChannelSource, ConnectionManager, GateContext, Input, InputGate,
        NetworkConnectionManager, RecordReader, ResultPartition, ResultPartitionManager,
        SubpartitionRequest, TaskEventDispatcher,
    },
    proto::{ExecutionAttemptId, PartitionId, SubpartitionIndex},
    quic::QuicTransport,
    tcp::TcpTransport,
};
use tokio::task::JoinSet;

const PARTITION: PartitionId = PartitionId::new(7, 0);
const PRODUCER: ExecutionAttemptId = ExecutionAttemptId(1);
const SUBPARTITIONS: usize = 2;
const RECORD_BYTES: usize = 1024;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let transport = env::args().nth(1).unwrap_or_else(|| "quic".to_owned());
    let records: u64 = env::args()
        .nth(2)
        .map_or(Ok(1_000_000), |count| count.parse())?;
    let ca = CertificateAuthority::generate("example", 1)?;
    let mut config = TransportConfig::default();
    config.profile = Profile::Loopback;
    let producer = Side::start("producer", &transport, &config, &ca).await?;
    let consumer = Side::start("consumer", &transport, &config, &ca).await?;

    // The producing task: registers its partition, then writes until the consumers have all.
    let partition = ResultPartition::pipelined(PARTITION, PRODUCER, SUBPARTITIONS, &producer.pool)?;
    producer.partitions.register(partition.clone())?;
    let mut writer = partition.writer()?;
    let started = thalweg_transport::now();
    let mut writing = JoinSet::new();
    writing.spawn(async move {
        let mut record = vec![0_u8; RECORD_BYTES];
        for sequence in 0..records {
            record[..8].copy_from_slice(&sequence.to_be_bytes());
            let target = usize::try_from(sequence % SUBPARTITIONS as u64)?;
            if !writer.try_emit(target, &record)? {
                writer.emit(target, &record).await?;
            }
        }
        anyhow::Ok(writer.finish()?)
    });

    // The consuming task: one gate with a channel per subpartition.
    let connection = ConnectionId::new(producer.node.id().clone(), producer.node.advertised());
    let channels = (0..SUBPARTITIONS).map(|index| ChannelSource::Remote {
        connection: connection.clone(),
        request: SubpartitionRequest {
            partition: PARTITION,
            producer: PRODUCER,
            subpartition: SubpartitionIndex(u32::try_from(index).unwrap_or(u32::MAX)),
        },
    });
    let gate = InputGate::setup(
        "example",
        ExecutionAttemptId(2),
        channels.collect(),
        consumer.gates(&config),
    )
    .await?;
    gate.request_partitions();
    let mut reader = RecordReader::new(gate);
    let mut next = [0_u64, 1];
    while let Some((channel, input)) = reader.next().await? {
        let Input::Record(record) = input else {
            continue;
        };
        let sequence = u64::from_be_bytes(record[..8].try_into()?);
        if sequence != next[channel] {
            bail!("record {sequence} came where {} was due", next[channel]);
        }
        next[channel] += SUBPARTITIONS as u64;
    }
    writing
        .join_next()
        .await
        .context("there is one writer")???;

    let seconds = thalweg_transport::now()
        .duration_since(started)
        .as_secs_f64();
    let megabytes = (records * RECORD_BYTES as u64) as f64 / 1e6;
    eprintln!(
        "{transport}: {records} records in order, {:.0} MB/s",
        megabytes / seconds
    );
    drop(reader);
    consumer.node.shutdown(Duration::from_secs(2)).await?;
    producer.node.shutdown(Duration::from_secs(2)).await?;
    Ok(())
}

/// One node with what an exchange needs.
struct Side {
    node: Node,
    pool: BufferPool,
    partitions: Arc<ResultPartitionManager>,
    connections: Arc<NetworkConnectionManager>,
}

impl Side {
    async fn start(
        name: &str,
        transport: &str,
        config: &TransportConfig,
        ca: &CertificateAuthority,
    ) -> anyhow::Result<Self> {
        let identity = Identity::new(ca.cluster(), Role::TaskManager, name)?;
        let security: Arc<dyn Credentials> = Arc::new(NodeSecurity::new(
            ca.issue(&IssueRequest::new(identity))?.credentials()?,
        ));
        let builder = Node::builder(ResourceId::new(name)?, config.clone());
        let node = match transport {
            "quic" => builder.start(QuicTransport::new(config, security)?).await?,
            "tcp" => {
                builder
                    .start(TcpTransport::new(config, Some(security)))
                    .await?
            }
            "tcp-plain" => builder.start(TcpTransport::new(config, None)).await?,
            other => bail!("{other:?} is no transport: quic, tcp or tcp-plain"),
        };
        let connections = Arc::new(NetworkConnectionManager::new(
            Arc::new(node.clone()),
            config.clone(),
        ));
        let partitions = Arc::new(ResultPartitionManager::new(
            config.partition_request_timeout,
        ));
        connections.start(partitions.clone(), Arc::new(TaskEventDispatcher::new()))?;
        Ok(Self {
            node,
            pool: BufferPool::new(config),
            partitions,
            connections,
        })
    }

    fn gates(&self, config: &TransportConfig) -> GateContext {
        GateContext::new(
            config,
            self.connections.clone(),
            self.partitions.clone(),
            self.pool.clone(),
            self.node.runtime().clone(),
            self.node.tasks().clone(),
        )
    }
}
