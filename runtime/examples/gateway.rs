//! Calls in an engine of one's own: a gateway that one node serves and another one calls, over QUIC with mutual TLS.
//!
//! ```sh
//! cargo run --release -p thalweg-runtime --example gateway
//! ```

use std::{collections::HashMap, error::Error, sync::Arc, time::Duration};

use thalweg_certs::{CertificateAuthority, Identity, IssueRequest, Role};
use thalweg_runtime::{
    NodeSecurity,
    rpc::{Answer, Context, Endpoint, HandlerError, RpcAddress, RpcError, RpcService, gateway},
};
use thalweg_transport::{Connections, Node, ResourceId, TransportConfig, quic::QuicTransport};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Counts events by key. TaskManagers may call it, whoever else has a certificate of the cluster may not.
#[gateway(name = "Tally", callers = ["taskmanager"])]
pub trait TallyGateway {
    /// Adds; nobody waits for an answer.
    fn add(&self, key: String, count: u64);
    /// The count of a key.
    async fn count(&self, key: String) -> u64;
    /// Forgets everything: only a JobManager may.
    #[rpc(callers = ["jobmanager"])]
    async fn clear(&self);
}

/// The state is touched by one task, which handles one message at a time: it needs no lock.
#[derive(Default)]
struct Tally {
    counts: HashMap<String, u64>,
}

impl Endpoint for Tally {}

impl TallyGateway for Tally {
    fn add(&mut self, _cx: &mut Context<Self>, key: String, count: u64) {
        *self.counts.entry(key).or_default() += count;
    }

    fn count(&mut self, _cx: &mut Context<Self>, key: String) -> Answer<u64> {
        match self.counts.get(&key) {
            Some(count) => Answer::ok(*count),
            None => Answer::err(HandlerError::new("tally.unknown_key", key)),
        }
    }

    fn clear(&mut self, _cx: &mut Context<Self>) -> Answer<()> {
        self.counts.clear();
        Answer::ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let ca = CertificateAuthority::generate("example", 1)?;
    let (east, east_rpc) = start("east", &ca).await?;
    let (west, west_rpc) = start("west", &ca).await?;

    let endpoint = east_rpc
        .endpoint("tally", Tally::default())
        .serve::<TallyClient>()
        .spawn()?;
    endpoint.start();

    // The address names the node: another one that answers there is refused.
    let address = RpcAddress::remote(Some(east.id().clone()), &east.advertised(), "tally")?;
    let tally: TallyClient = west_rpc.connect(&address, None).await?;
    for _ in 0..1_000 {
        tally.add("leaf".to_owned(), 2)?;
    }
    // One client's messages arrive in order: all of them were added before this one is answered.
    let count = tally.count("leaf".to_owned()).await?;
    assert_eq!(count, 2_000);

    // An error of the endpoint is told apart from one of the way there.
    let unknown = tally.count("root".to_owned()).await;
    assert!(matches!(&unknown, Err(RpcError::Handler(error)) if error.kind == "tally.unknown_key"));
    let refused = tally.clear().await.expect_err("west is no JobManager");
    eprintln!("{address} has counted {count}, and west may not clear it: {refused}");

    endpoint.terminate().await?;
    for (rpc, node) in [(west_rpc, west), (east_rpc, east)] {
        rpc.close(GRACE).await?;
        node.shutdown(GRACE).await?;
    }
    Ok(())
}

/// Starts a node with a certificate of its own and an RPC service on it. Endpoints run on the current runtime, the node's
/// network on a thread of its own.
async fn start(name: &str, ca: &CertificateAuthority) -> Result<(Node, RpcService)> {
    let identity = Identity::new("example", Role::TaskManager, name)?;
    let credentials = ca.issue(&IssueRequest::new(identity))?.credentials()?;
    let security = Arc::new(NodeSecurity::new(credentials));
    let (id, config) = (ResourceId::new(name)?, TransportConfig::default());
    let node = Node::builder(id.clone(), config.clone())
        .start(QuicTransport::new(&config, security)?)
        .await?;
    let rpc = RpcService::builder(id)
        .connections(Arc::new(node.clone()))
        .build()?;
    Ok((node, rpc))
}

const GRACE: Duration = Duration::from_secs(2);
