//! The first words of a gateway stream: versions, gateways, certificates.

use std::sync::Arc;

use bytes::Bytes;
use thalweg_runtime::rpc::{Answer, Context, Deadline, RpcConfig, RpcError, RpcService, gateway};
use thalweg_tests::{
    conformance::Backend,
    harness::{
        MemBackend, QuicBackend, TcpBackend, TestAuthority, TestCredentials, address_of, in_time,
    },
    on_backends,
};
use thalweg_transport::{
    Node, Profile, RecvStream as _, ResourceId, SendStream as _, StreamKind, TransportConfig,
    quic::QuicTransport, tcp::TcpTransport,
};

use super::support::*;

/// Opens a stream as a caller of these versions, and reads the answer to its hello.
async fn greet(pair: &Pair, versions: [u8; 2]) -> Vec<u8> {
    let lease = in_time(
        "acquire",
        thalweg_transport::Connections::acquire(&pair.nodes[0], address_of(&pair.nodes[1])),
    )
    .await
    .unwrap();
    let mut stream = in_time("open", lease.open(StreamKind::RPC)).await.unwrap();
    let body = b"\x04Desk\x04desk";
    let mut hello = vec![1, versions[0], versions[1], 0, 0, 0, 4, 0, 0, 0, 0];
    hello.push(u8::try_from(body.len()).unwrap());
    hello.extend_from_slice(body);
    let written = stream.send.write(&mut [Bytes::from(hello)]).await;
    written.unwrap();
    let mut answer = Vec::new();
    // Welcome: 12 bytes and the name; refuse: 8 bytes and an error.
    while answer.len() < 16 {
        match in_time("answer", stream.recv.read(1024)).await.unwrap() {
            Some(bytes) => answer.extend_from_slice(&bytes),
            None => break,
        }
    }
    answer
}

async fn versions_have_to_overlap<B: Backend>(backend: B) {
    let pair = Pair::new(&backend).await;
    for versions in [[1, 1], [0, 1], [1, 9]] {
        let answer = greet(&pair, versions).await;
        assert_eq!(answer[..4], [2, 1, 0, 0], "{versions:?}");
        assert_eq!(&answer[12..], b"desk");
    }
    for versions in [[0, 0], [2, 9]] {
        let answer = greet(&pair, versions).await;
        assert_eq!(answer[..4], [3, 0, 0, 0], "{versions:?}");
        let text = String::from_utf8_lossy(&answer);
        assert!(text.contains("no common protocol version"), "{text}");
    }
    assert_eq!(in_time("call", pair.client.double(1)).await, Ok(2));
}

/// Not served by a desk.
#[gateway(callers = ["taskmanager"])]
trait OtherGateway {
    async fn ask(&self) -> u32;
}

impl OtherGateway for Desk {
    fn ask(&mut self, _cx: &mut Context<Self>) -> Answer<u32> {
        Answer::ok(2)
    }
}

async fn an_endpoint_refuses_gateways_that_it_does_not_serve<B: Backend>(backend: B) {
    let pair = Pair::new(&backend).await;
    let address = pair.desk.address();
    for service in [&pair.caller, &pair.callee] {
        let error = in_time("connect", service.connect::<OtherClient>(address, None))
            .await
            .unwrap_err();
        let RpcError::Handshake {
            address: said,
            reason,
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!(*said, address.to_string());
        assert!(reason.contains("does not serve gateway Other"), "{reason}");
    }
}

async fn one_endpoint_serves_several_gateways<B: Backend>(backend: B) {
    let pair = Pair::new(&backend).await;
    let both = pair
        .callee
        .endpoint("both", Desk::default())
        .serve::<DeskClient>()
        .serve::<OtherClient>()
        .spawn()
        .unwrap();
    both.start();
    let desk: DeskClient = in_time("connect", pair.caller.connect(both.address(), None))
        .await
        .unwrap();
    let other: OtherClient = in_time("connect", pair.caller.connect(both.address(), None))
        .await
        .unwrap();
    assert_eq!(in_time("call", desk.double(4)).await, Ok(8));
    assert_eq!(in_time("call", other.ask()).await, Ok(2));
}

on_backends! {
    [
        versions_have_to_overlap,
        an_endpoint_refuses_gateways_that_it_does_not_serve,
        one_endpoint_serves_several_gateways,
    ]:
    mem = MemBackend::new(),
    quic = QuicBackend::new(Profile::Loopback),
    tcp = TcpBackend::plaintext(),
    tls = TcpBackend::tls(),
}

#[derive(Debug, Clone, Copy)]
enum Secured {
    Quic,
    Tls,
}

async fn secured(kind: Secured, name: &str, credentials: TestCredentials) -> (RpcService, Node) {
    let config = TransportConfig::default();
    let builder = Node::builder(ResourceId::new(name).unwrap(), config.clone());
    let credentials = Arc::new(credentials);
    let node = match kind {
        Secured::Quic => {
            let transport = QuicTransport::new(&config, credentials).unwrap();
            in_time("start", builder.start(transport)).await
        }
        Secured::Tls => {
            let transport = TcpTransport::new(&config, Some(credentials));
            in_time("start", builder.start(transport)).await
        }
    };
    let node = node.unwrap();
    (on(&node, RpcConfig::default()), node)
}

async fn bad_certificates_are_connection_errors_on_either_side(kind: Secured) {
    let (ours, foreign) = (TestAuthority::new("ours"), TestAuthority::new("ours"));
    let (callee, _node) = secured(kind, "callee", ours.node("callee")).await;
    let desk = desk(&callee, "desk");
    let bad = [
        ("foreign caller", foreign.node_that_trusts("caller", &ours)),
        (
            "caller that trusts another authority",
            ours.node_that_trusts("caller", &foreign),
        ),
        ("expired caller", ours.expired_node("caller")),
        (
            "caller without certificate",
            ours.node_without_client_certificate("caller"),
        ),
    ];
    for (who, credentials) in bad {
        let (caller, _node) = secured(kind, "caller", credentials).await;
        let error = in_time(who, caller.connect::<DeskClient>(desk.address(), None))
            .await
            .unwrap_err();
        assert!(
            matches!(
                error,
                RpcError::Connection {
                    retryable: false,
                    ..
                }
            ),
            "{who}: {error}"
        );
    }
    let (caller, _node) = secured(kind, "caller", ours.node("caller")).await;
    let client: DeskClient = in_time("connect", caller.connect(desk.address(), None))
        .await
        .unwrap();
    let client = client.with_deadline(Deadline::Never);
    assert_eq!(in_time("call", client.double(1)).await, Ok(2));
}

#[tokio::test]
async fn bad_certificates_are_connection_errors_over_quic() {
    bad_certificates_are_connection_errors_on_either_side(Secured::Quic).await;
}

#[tokio::test]
async fn bad_certificates_are_connection_errors_over_tcp() {
    bad_certificates_are_connection_errors_on_either_side(Secured::Tls).await;
}
