//! Behaviour of endpoints and gateways. Names follow Flink's tests where there is one.

mod ending;
mod golden;
mod hostile;
mod hostile_bodies;
mod hostile_callee;
mod lifecycle;
mod local;
mod measured;
pub(crate) mod networks;
mod remote;
mod rotation;
mod scheduled;
mod states;
mod supervision;
#[cfg(feature = "opentelemetry")]
mod traces;
mod versions;

use std::{sync::Arc, time::Duration};

use thalweg_transport::{
    Connections, NetworkRuntime, Node, ResourceId, TransportConfig, VerifiedPeer,
    mem::{MemNetwork, MemTransport},
};

use super::*;

/// The gateway of most tests.
#[gateway(name = "Counter", callers = ["taskmanager", "client"])]
pub(crate) trait CounterGateway {
    /// Adds and gives the new value.
    async fn add(&self, amount: u64) -> u64;
    /// The very value that came in.
    async fn echo(&self, value: Arc<Vec<u8>>) -> Arc<Vec<u8>>;
    /// Nothing.
    async fn nothing(&self) -> Option<u32>;
    /// Fails.
    async fn fail(&self, later: bool) -> u64;
    /// Never answers.
    #[rpc(timeout = "2s")]
    async fn hang(&self);
    /// Panics.
    async fn crash(&self);
    /// So many bytes, now or later.
    async fn bytes(&self, size: u32, later: bool) -> Vec<u8>;
    /// How many futures of `wait` are alive.
    async fn waiting(&self) -> u64;
    /// Never answers, from a future.
    async fn wait(&self);
    /// What the caller's certificate says, or `local`.
    async fn caller(&self) -> String;
    /// For the client only.
    #[rpc(callers = ["client"])]
    async fn reset(&self);
    /// Adds without an answer.
    fn bump(&self, amount: u64);
}

/// Serves [`CounterGateway`].
#[derive(Debug, Default)]
pub(crate) struct Counter {
    value: u64,
    held: Vec<Reply<()>>,
    waiting: Arc<()>,
}

impl Endpoint for Counter {}

impl CounterGateway for Counter {
    fn add(&mut self, _cx: &mut Context<Self>, amount: u64) -> Answer<u64> {
        self.value += amount;
        Answer::ok(self.value)
    }

    fn echo(&mut self, _cx: &mut Context<Self>, value: Arc<Vec<u8>>) -> Answer<Arc<Vec<u8>>> {
        Answer::ok(value)
    }

    fn nothing(&mut self, _cx: &mut Context<Self>) -> Answer<Option<u32>> {
        Answer::ok(None)
    }

    fn fail(&mut self, _cx: &mut Context<Self>, later: bool) -> Answer<u64> {
        let error = HandlerError::new("counter.broken", "no more").retryable();
        if later {
            Answer::future(async move {
                tokio::task::yield_now().await;
                Err(error)
            })
        } else {
            Answer::err(error)
        }
    }

    fn hang(&mut self, _cx: &mut Context<Self>) -> Answer<()> {
        let (reply, answer) = Answer::deferred();
        self.held.push(reply);
        answer
    }

    fn crash(&mut self, _cx: &mut Context<Self>) -> Answer<()> {
        panic!("counter exploded")
    }

    fn bytes(&mut self, _cx: &mut Context<Self>, size: u32, later: bool) -> Answer<Vec<u8>> {
        let bytes = vec![7; size as usize];
        if later {
            Answer::future(async move {
                tokio::task::yield_now().await;
                Ok(bytes)
            })
        } else {
            Answer::ok(bytes)
        }
    }

    fn waiting(&mut self, _cx: &mut Context<Self>) -> Answer<u64> {
        Answer::ok(Arc::strong_count(&self.waiting) as u64 - 1)
    }

    fn wait(&mut self, _cx: &mut Context<Self>) -> Answer<()> {
        let alive = Arc::clone(&self.waiting);
        Answer::future(async move {
            let _alive = alive;
            std::future::pending().await
        })
    }

    fn caller(&mut self, cx: &mut Context<Self>) -> Answer<String> {
        Answer::ok(
            cx.caller()
                .map_or_else(|| "local".to_owned(), |peer| peer.id.to_string()),
        )
    }

    fn reset(&mut self, _cx: &mut Context<Self>) -> Answer<()> {
        self.value = 0;
        Answer::ok(())
    }

    fn bump(&mut self, _cx: &mut Context<Self>, amount: u64) {
        self.value += amount;
    }
}

pub(crate) fn id(name: &str) -> ResourceId {
    ResourceId::new(name).unwrap()
}

pub(crate) fn service() -> RpcService {
    RpcService::builder(id("node-1")).build().unwrap()
}

/// Starts an endpoint that serves one gateway.
pub(crate) fn serve<G: ServedBy<E>, E: Endpoint>(
    service: &RpcService,
    name: &str,
    state: E,
) -> EndpointHandle<E> {
    let endpoint = service.endpoint(name, state).serve::<G>().spawn().unwrap();
    endpoint.start();
    endpoint
}

pub(crate) fn counter(service: &RpcService, name: &str) -> EndpointHandle<Counter> {
    serve::<CounterClient, _>(service, name, Counter::default())
}

/// A node on an in-memory network, whose certificate, if any, has this role.
pub(crate) async fn node(network: &MemNetwork, name: &str, role: Option<&str>) -> Node {
    let identity = role.map(|role| VerifiedPeer {
        id: id(name),
        role: role.into(),
        uri: format!("spiffe://test/{role}/{name}").into(),
        expires_at: u64::MAX,
    });
    Node::builder(id(name), TransportConfig::default())
        .network(NetworkRuntime::Current)
        .start(MemTransport::new(network.clone(), identity))
        .await
        .unwrap()
}

pub(crate) fn on(node: &Node, config: RpcConfig) -> RpcService {
    RpcService::builder(node.id().clone())
        .connections(Arc::new(node.clone()))
        .config(config)
        .build()
        .unwrap()
}

/// Two services on their own nodes.
pub(crate) async fn pair(config: RpcConfig) -> (RpcService, RpcService) {
    let network = MemNetwork::new();
    let caller = node(&network, "caller", None).await;
    let callee = node(&network, "callee", None).await;
    (on(&caller, config.clone()), on(&callee, config))
}

/// Lets every task run until nothing moves; time is paused.
pub(crate) async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}
