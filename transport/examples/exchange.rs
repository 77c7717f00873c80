//! The exchange in an engine of one's own: two nodes, a partition of blocks that the engine has serialized itself, and
//! a consumer that is slower than the producer.
//!
//! ```sh
//! cargo run --release --example exchange            # QUIC with mutual TLS
//! cargo run --release --example exchange -- tcp     # TCP with mutual TLS
//! ```

use std::{env, error::Error, sync::Arc, time::Duration};

use bytes::Bytes;
use thalweg_certs::{CertificateAuthority, Identity, IssueRequest, Role};
use thalweg_transport::{
    ConnectionId, Connections, ErrorCode, Node, Profile, Refusal, ResourceId, RustlsCredentials,
    TransportConfig, VerifiedPeer,
    exchange::{BufferOrEvent, ChannelSource, NodeExchange, SubpartitionRequest},
    proto::{ExecutionAttemptId, PartitionId, SubpartitionIndex},
    quic::QuicTransport,
    tcp::TcpTransport,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const PARTITION: PartitionId = PartitionId::new(7, 0);
const PRODUCER: ExecutionAttemptId = ExecutionAttemptId(1);
const CONSUMER: ExecutionAttemptId = ExecutionAttemptId(2);
const SUBPARTITIONS: u32 = 2;
const BLOCKS: u64 = 20_000;
const BLOCK_BYTES: usize = 32_000;

#[tokio::main]
async fn main() -> Result<()> {
    let transport = env::args().nth(1).unwrap_or_else(|| "quic".to_owned());
    let ca = CertificateAuthority::generate("example", 1)?;
    let mut config = TransportConfig::default();
    config.profile = Profile::Loopback;
    let east = start("east", &transport, &config, &ca).await?;
    let west = start("west", &transport, &config, &ca).await?;
    let producing = NodeExchange::start(Arc::new(east.clone()), &config)?;
    let consuming = NodeExchange::start(Arc::new(west.clone()), &config)?;

    // The producing task. `emit_bytes` waits while the consumer has no room: memory never exceeds the node's pool.
    let mut writer = producing.publish(PARTITION, PRODUCER, SUBPARTITIONS as usize)?;
    let writing = tokio::spawn(async move {
        for number in 0..BLOCKS {
            let mut block = vec![0; BLOCK_BYTES];
            block[..8].copy_from_slice(&number.to_be_bytes());
            let target = usize::try_from(number % u64::from(SUBPARTITIONS))?;
            writer.emit_bytes(target, &mut Bytes::from(block)).await?;
        }
        writer.finish()?;
        Result::Ok(())
    });

    // The consuming task: one gate with a channel per subpartition; each channel is a stream of one shared connection.
    let channels = (0..SUBPARTITIONS).map(|index| ChannelSource::Remote {
        connection: ConnectionId::new(east.id().clone(), east.advertised()),
        request: SubpartitionRequest {
            partition: PARTITION,
            producer: PRODUCER,
            subpartition: SubpartitionIndex(index),
        },
    });
    let mut gate = consuming.gate("sink", CONSUMER, channels.collect()).await?;
    let mut received = 0;
    while let Some((channel, item)) = gate.next().await? {
        let BufferOrEvent::Buffer(block) = item else {
            continue;
        };
        let number = u64::from_be_bytes(block[..8].try_into()?);
        assert_eq!(number % u64::from(SUBPARTITIONS), channel as u64);
        received += 1;
        if received % 1_000 == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    writing.await??;
    let peak = producing.pool().stats().peak + consuming.pool().stats().peak;
    eprintln!(
        "{transport}: {received} blocks of {BLOCK_BYTES} bytes came in order over {} connection; at most {peak} buffers \
         were in use in both nodes",
        west.active(),
    );
    drop(gate);
    for (exchange, node) in [(consuming, west), (producing, east)] {
        exchange.shutdown();
        node.shutdown(Duration::from_secs(2)).await?;
    }
    Ok(())
}

/// Starts a node with a certificate of its own. Its network runs on a thread of its own.
async fn start(
    name: &str,
    transport: &str,
    config: &TransportConfig,
    ca: &CertificateAuthority,
) -> Result<Node> {
    let identity = Identity::new(ca.cluster(), Role::TaskManager, name)?;
    let own = ca.issue(&IssueRequest::new(identity))?.credentials()?;
    let credentials = Arc::new(RustlsCredentials::new(
        Arc::unwrap_or_clone(own.server_config(&[])),
        Arc::unwrap_or_clone(own.client_config(&[])),
        |certificate| {
            let identity =
                thalweg_certs::identity_of(certificate).map_err(|error| refuse(&error))?;
            Ok(VerifiedPeer {
                id: ResourceId::new(identity.id()).map_err(|error| refuse(&error))?,
                role: identity.role().as_str().into(),
                uri: identity.to_string().into(),
                expires_at: u64::MAX,
            })
        },
    ));
    let node = Node::builder(ResourceId::new(name)?, config.clone());
    match transport {
        "quic" => Ok(node.start(QuicTransport::new(config, credentials)?).await?),
        "tcp" => Ok(node
            .start(TcpTransport::new(config, Some(credentials)))
            .await?),
        other => Err(format!("{other:?} is no transport: quic and tcp are").into()),
    }
}

fn refuse(error: &dyn Error) -> Refusal {
    Refusal {
        code: ErrorCode::UNIDENTIFIED,
        reason: error.to_string(),
    }
}
