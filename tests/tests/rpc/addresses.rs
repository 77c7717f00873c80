//! Where services listen, and what their peers dial.

use std::{collections::BTreeSet, net::SocketAddr};

use thalweg_runtime::rpc::{RpcConfig, RpcService};
use thalweg_tests::{
    conformance::Backend,
    harness::{MemBackend, QuicBackend, TcpBackend, in_time},
    on_backends,
    process::{Forwarder, free_port},
};
use thalweg_transport::{
    Connections as _, Node, NodeBuilder, NodeError, Profile, ResourceId, Transport as _,
    TransportConfig, chain,
};
use tokio::task::JoinSet;

use super::support::*;

fn builder(name: &str) -> NodeBuilder {
    Node::builder(ResourceId::new(name).unwrap(), TransportConfig::default())
}

async fn listening<B: Backend>(backend: &B, name: &str, bind: &str) -> Result<Node, NodeError> {
    let builder = builder(name).bind(bind.parse().unwrap());
    in_time("start", builder.start(backend.transport(name))).await
}

/// `127.0.0.1:FIRST-LAST` with so many ports, most of which nobody else uses.
fn range(ports: u16) -> (u16, u16) {
    // Below the ports that the system gives to those who do not choose.
    let first = free_port().min(32_767 - ports);
    (first, first + ports - 1)
}

async fn services_that_start_at_once_share_a_range_of_ports<B: Backend>(backend: B) {
    let (first, last) = range(40);
    let bind = format!("127.0.0.1:{first}-{last}");
    let mut starting = JoinSet::new();
    for number in 0..8 {
        let name = format!("n{number}");
        let builder = builder(&name).bind(bind.parse().unwrap());
        starting.spawn(builder.start(backend.transport(&name)));
    }
    let mut services: Vec<(RpcService, Node)> = Vec::new();
    while let Some(node) = in_time("start", starting.join_next()).await {
        let node = node.unwrap().unwrap();
        services.push((on(&node, RpcConfig::default()), node));
    }
    let ports: BTreeSet<_> = services.iter().filter_map(|(rpc, _)| rpc.port()).collect();
    assert_eq!(ports.len(), 8);
    assert!(
        ports.iter().all(|port| (first..=last).contains(port)),
        "{ports:?}"
    );
    for (number, (callee, _)) in services.iter().enumerate() {
        let desk = desk(callee, "desk");
        let caller = &services[(number + 1) % 8].0;
        let client: DeskClient = in_time("connect", caller.connect(desk.address(), None))
            .await
            .unwrap();
        assert_eq!(in_time("call", client.double(3)).await, Ok(6));
    }
}

async fn a_range_without_a_free_port_is_named<B: Backend>(backend: B) {
    let (first, last) = range(2);
    let bind = format!("127.0.0.1:{first}-{last}");
    let mut nodes = Vec::new();
    let error = loop {
        assert!(nodes.len() <= 2, "a port was given twice");
        match listening(&backend, "node", &bind).await {
            Ok(node) => nodes.push(node),
            Err(error) => break error,
        }
    };
    let text = chain(&error);
    assert!(text.contains(&bind), "{text}");
    // Whoever goes leaves its port to the next one.
    let gone = nodes.pop().expect("one of two ports is free");
    in_time("shutdown", gone.shutdown(CLOSE)).await.unwrap();
    listening(&backend, "node", &bind).await.unwrap();
}

async fn an_occupied_port_is_named<B: Backend>(backend: B) {
    let first = listening(&backend, "first", "127.0.0.1:0").await.unwrap();
    let bind = first.local_addr().to_string();
    let error = listening(&backend, "second", &bind).await.unwrap_err();
    let text = chain(&error);
    assert!(
        text.contains(&format!("address {bind} is already in use")),
        "{text}"
    );
}

async fn peers_dial_what_a_service_advertises<B: Backend>(backend: B) {
    let builder = builder("callee")
        .bind("0.0.0.0:0".parse().unwrap())
        .advertise("127.0.0.1");
    let node = in_time("start", builder.start(backend.transport("callee"))).await;
    let node = node.unwrap();
    let callee = on(&node, RpcConfig::default());
    let port = callee.port().unwrap();
    assert_eq!(node.local_addr(), SocketAddr::from(([0, 0, 0, 0], port)));
    assert_eq!(callee.address(), Some(format!("127.0.0.1:{port}")));

    let desk = desk(&callee, "desk");
    assert_eq!(
        desk.address().to_string(),
        format!("thalweg://callee@127.0.0.1:{port}/desk")
    );
    let (caller, _here) = service(&backend, "caller").await;
    let client: DeskClient = in_time("connect", caller.connect(desk.address(), None))
        .await
        .unwrap();
    assert_eq!(in_time("call", client.double(3)).await, Ok(6));
    // Of what it advertises, it knows that it is itself.
    let own: DeskClient = in_time("connect", callee.connect(desk.address(), None))
        .await
        .unwrap();
    assert_eq!(in_time("call", own.double(4)).await, Ok(8));
    assert_eq!(node.active(), 0, "without a connection");
}

async fn a_service_is_reached_behind_a_port_mapping<B: Backend>(backend: B) {
    let port = free_port();
    let transport = backend.transport("callee");
    let mapped = Forwarder::start(transport.name(), SocketAddr::from(([127, 0, 0, 1], port)));
    let builder = builder("callee")
        .bind(format!("127.0.0.1:{port}").parse().unwrap())
        .advertise(mapped.address().to_string());
    let node = in_time("start", builder.start(transport)).await.unwrap();
    let callee = on(&node, RpcConfig::default());
    assert_eq!(callee.port(), Some(port));
    assert_eq!(callee.address(), Some(mapped.address().to_string()));

    let desk = desk(&callee, "desk");
    let (caller, _here) = service(&backend, "caller").await;
    let client: DeskClient = in_time("connect", caller.connect(desk.address(), None))
        .await
        .unwrap();
    assert_eq!(in_time("call", client.double(3)).await, Ok(6));
    assert!(mapped.passed() > 0, "it goes through the mapping");
}

on_backends! {
    [
        services_that_start_at_once_share_a_range_of_ports,
        a_range_without_a_free_port_is_named,
        an_occupied_port_is_named,
        peers_dial_what_a_service_advertises,
    ]:
    mem = MemBackend::new(),
    quic = QuicBackend::new(Profile::Loopback),
    tcp = TcpBackend::plaintext(),
    tls = TcpBackend::tls(),
}

mod mapped {
    use super::*;

    on_backends! {
        [a_service_is_reached_behind_a_port_mapping]:
        quic = QuicBackend::new(Profile::Loopback),
        tcp = TcpBackend::plaintext(),
        tls = TcpBackend::tls(),
    }
}
