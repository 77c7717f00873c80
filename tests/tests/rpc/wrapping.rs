//! Failures that pass through three endpoints, each on its own node, on their way to the caller.

use std::{error::Error, fmt, io};

use thalweg_runtime::rpc::{
    Answer, Context, Endpoint, EndpointHandle, HandlerError, RpcError, RpcService, gateway,
};
use thalweg_tests::{
    conformance::Backend,
    harness::{MemBackend, QuicBackend, TcpBackend, in_time},
    on_backends,
};
use thalweg_transport::{Node, Profile};

use super::support::*;

/// Asks the next one, and says where it was when that fails.
#[gateway(callers = ["taskmanager"])]
trait RelayGateway {
    async fn fetch(&self, block: u32) -> u64;
}

#[derive(Debug)]
struct Relay {
    name: &'static str,
    /// `None` for the one that has the blocks, and none of them.
    next: Option<RelayClient>,
}

impl Endpoint for Relay {}

#[derive(Debug)]
struct BlockError {
    block: u32,
    source: io::Error,
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read block {}", self.block)
    }
}

impl Error for BlockError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

impl RelayGateway for Relay {
    fn fetch(&mut self, _cx: &mut Context<Self>, block: u32) -> Answer<u64> {
        let name = self.name;
        let Some(next) = self.next.clone() else {
            let source = io::Error::other("disk on fire");
            let error = HandlerError::from_error("block.unreadable", &BlockError { block, source });
            return Answer::err(if block == 0 { error.retryable() } else { error });
        };
        Answer::future(async move {
            let context = |error: RpcError| error.context(format!("{name} cannot fetch"));
            next.fetch(block).await.map_err(context)
        })
    }
}

/// A client of the first of three relays in front of the one that fails.
struct Chain {
    client: RelayClient,
    relays: Vec<EndpointHandle<Relay>>,
    _nodes: Vec<(RpcService, Node)>,
}

impl Chain {
    async fn new<B: Backend>(backend: &B) -> Self {
        let mut nodes = Vec::new();
        let mut relays: Vec<EndpointHandle<Relay>> = Vec::new();
        for name in ["disk", "third", "second", "first"] {
            let (service, node) = service(backend, name).await;
            let next = match relays.last() {
                Some(relay) => Some(connect(&service, relay).await),
                None => None,
            };
            let relay = Relay { name, next };
            relays.push(serve::<RelayClient, _>(&service, name, relay));
            nodes.push((service, node));
        }
        let (service, node) = service(backend, "caller").await;
        let client = connect(&service, &relays[3]).await;
        nodes.push((service, node));
        Self {
            client,
            relays,
            _nodes: nodes,
        }
    }
}

async fn connect(service: &RpcService, relay: &EndpointHandle<Relay>) -> RelayClient {
    let client = in_time("connect", service.connect(relay.address(), None)).await;
    client.unwrap()
}

async fn a_failure_keeps_kind_retryability_and_sources_through_three_endpoints<B: Backend>(
    backend: B,
) {
    let chain = Chain::new(&backend).await;
    for block in [0, 9] {
        let error = in_time("call", chain.client.fetch(block))
            .await
            .unwrap_err();
        let RpcError::Handler(handler) = &error else {
            panic!("{error}");
        };
        assert_eq!(handler.kind, "block.unreadable");
        assert_eq!(error.is_retryable(), block == 0);
        assert_eq!(handler.message, "first cannot fetch");
        assert_eq!(
            handler.chain,
            [
                "second cannot fetch".to_owned(),
                "third cannot fetch".to_owned(),
                format!("cannot read block {block}"),
                "disk on fire".to_owned(),
            ]
        );
    }
}

async fn a_failure_of_the_rpc_layer_keeps_them_too<B: Backend>(backend: B) {
    let chain = Chain::new(&backend).await;
    let disk = chain.relays[0].address().to_string();
    in_time("end", chain.relays[0].terminate()).await.unwrap();
    let error = in_time("call", chain.client.fetch(1)).await.unwrap_err();
    let RpcError::Handler(handler) = &error else {
        panic!("{error}");
    };
    assert_eq!(handler.kind, "rpc.recipient_unreachable");
    assert!(error.is_retryable());
    assert_eq!(handler.chain.len(), 3, "{error}");
    let root = &handler.chain[2];
    assert!(
        root.starts_with(&format!("recipient {disk} is unreachable")),
        "{root}"
    );
}

on_backends! {
    [
        a_failure_keeps_kind_retryability_and_sources_through_three_endpoints,
        a_failure_of_the_rpc_layer_keeps_them_too,
    ]:
    mem = MemBackend::new(),
    quic = QuicBackend::new(Profile::Loopback),
    tcp = TcpBackend::plaintext(),
    tls = TcpBackend::tls(),
}
