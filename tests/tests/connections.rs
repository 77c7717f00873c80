//! The shared connections of a node over every backend: who gets which, and when they are replaced.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, which fail by panicking"
)]

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use thalweg_tests::{
    conformance::Backend,
    harness::{
        DEADLINE, ECHO, Echo, MemBackend, QuicBackend, TcpBackend, accepted, address_of, in_time,
        start_node, until,
    },
    on_backends,
};
use thalweg_transport::{
    BindAddr, ConnectError, ConnectionId, Connections, ErrorCode, Lease, Node, Profile, RecvStream,
    ResourceId, SendStream, Transport, TransportConfig, TransportError,
};
use tokio::{sync::Semaphore, task::JoinSet};

/// What a test does to the dials of a node.
#[derive(Debug)]
struct Script {
    attempts: AtomicU32,
    /// So many of the first attempts fail.
    failures: u32,
    /// Attempts take a permit before they begin.
    gate: Semaphore,
}

impl Script {
    fn failing(failures: u32) -> Arc<Self> {
        Arc::new(Self {
            attempts: AtomicU32::new(0),
            failures,
            gate: Semaphore::new(Semaphore::MAX_PERMITS),
        })
    }

    fn gated() -> Arc<Self> {
        let mut script = Self::failing(0);
        if let Some(script) = Arc::get_mut(&mut script) {
            script.gate = Semaphore::new(0);
        }
        script
    }

    fn attempts(&self) -> u32 {
        self.attempts.load(Ordering::SeqCst)
    }
}

/// A transport whose dials follow a script.
struct Scripted<T> {
    inner: T,
    script: Arc<Script>,
}

impl<T: Transport> Transport for Scripted<T> {
    type Connection = T::Connection;
    type Listener = T::Listener;

    fn name(&self) -> &'static str {
        self.inner.name()
    }

    async fn listen(&self, bind: &BindAddr) -> Result<T::Listener, ConnectError> {
        self.inner.listen(bind).await
    }

    async fn connect(
        &self,
        address: SocketAddr,
        expected: Option<&ResourceId>,
    ) -> Result<T::Connection, ConnectError> {
        let before = self.script.attempts.fetch_add(1, Ordering::SeqCst);
        self.script.gate.acquire().await.unwrap().forget();
        if before < self.script.failures {
            return Err(ConnectError::Unreachable {
                address: address.to_string(),
                reason: "the test says so".to_owned(),
            });
        }
        self.inner.connect(address, expected).await
    }

    async fn drained(&self) {
        self.inner.drained().await;
    }
}

async fn start_scripted<B: Backend>(
    backend: &B,
    script: &Arc<Script>,
    config: TransportConfig,
) -> Node {
    let transport = Scripted {
        inner: backend.transport("a"),
        script: Arc::clone(script),
    };
    let node = Node::builder(ResourceId::new("a").unwrap(), config);
    in_time("start", node.start(transport)).await.unwrap()
}

/// Quick pauses between attempts, so many attempts after the first, and connections that are kept or not.
fn dialling(connect_retries: u32, reuse_connections: bool) -> TransportConfig {
    let mut config = TransportConfig::default();
    config.connect_retries = connect_retries;
    config.connect_backoff = Duration::from_millis(1);
    config.reuse_connections = reuse_connections;
    config
}

async fn start_echo<B: Backend>(backend: &B, id: &str) -> Node {
    let node = start_node(backend, id, &TransportConfig::default()).await;
    node.register(ECHO, Arc::new(Echo));
    node
}

async fn echoes(lease: &Lease) {
    let echo = async {
        let mut stream = lease.open(ECHO).await.unwrap();
        stream.send.write(&mut ["echo".into()]).await.unwrap();
        stream.send.finish().unwrap();
        let mut heard = vec![];
        while let Some(chunk) = stream.recv.read(100).await.unwrap() {
            heard.extend_from_slice(&chunk);
        }
        assert_eq!(heard, b"echo");
    };
    in_time("echo", echo).await;
}

async fn acquire(node: &Node, connection: ConnectionId) -> Result<Lease, TransportError> {
    in_time("acquire", node.acquire(connection)).await
}

async fn a_caller_that_gives_up_is_not_remembered<B: Backend>(backend: B) {
    for reuse in [true, false] {
        let script = Script::gated();
        let a = start_scripted(&backend, &script, dialling(0, reuse)).await;
        let b = start_echo(&backend, "b").await;
        let given_up = tokio::spawn(a.acquire(address_of(&b)));
        until("the dial", || script.attempts() == 1).await;
        assert_eq!(a.active(), 1, "a dial in flight counts");
        given_up.abort();
        until("nobody waits", || a.active() == 0).await;
        script.gate.add_permits(10);
        echoes(&acquire(&a, address_of(&b)).await.unwrap()).await;
    }
}

async fn others_go_on_when_the_first_caller_gives_up<B: Backend>(backend: B) {
    for reuse in [true, false] {
        let script = Script::gated();
        let a = start_scripted(&backend, &script, dialling(0, reuse)).await;
        let b = start_echo(&backend, "b").await;
        let first = tokio::spawn(a.acquire(address_of(&b)));
        until("the dial", || script.attempts() == 1).await;
        let others: JoinSet<_> = (0..5).map(|_| a.acquire(address_of(&b))).collect();
        tokio::task::yield_now().await;
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        script.gate.add_permits(1);
        for lease in in_time("the others", others.join_all()).await {
            echoes(&lease.unwrap()).await;
        }
        assert_eq!(script.attempts(), 1);
    }
}

async fn a_failure_is_told_to_all_and_not_remembered<B: Backend>(backend: B) {
    for reuse in [true, false] {
        let script = Script::failing(3);
        let a = start_scripted(&backend, &script, dialling(2, reuse)).await;
        let b = start_echo(&backend, "b").await;
        let callers: JoinSet<_> = (0..10).map(|_| a.acquire(address_of(&b))).collect();
        for outcome in in_time("failures", callers.join_all()).await {
            let error = outcome.unwrap_err();
            assert!(matches!(error, TransportError::Remote { .. }), "{error:?}");
            let text = error.to_string();
            let named = format!("b@{}", b.advertised());
            assert!(
                text.contains(&named) && text.contains("may be lost"),
                "{text}"
            );
        }
        assert_eq!((script.attempts(), a.active()), (3, 0));
        echoes(&acquire(&a, address_of(&b)).await.unwrap()).await;
    }
}

async fn all_callers_get_a_client_after_two_failures_with_two_retries<B: Backend>(backend: B) {
    for reuse in [true, false] {
        let script = Script::failing(2);
        let a = start_scripted(&backend, &script, dialling(2, reuse)).await;
        let b = start_echo(&backend, "b").await;
        let callers: JoinSet<_> = (0..10).map(|_| a.acquire(address_of(&b))).collect();
        let leases = in_time("callers", callers.join_all()).await;
        for lease in &leases {
            echoes(lease.as_ref().unwrap()).await;
        }
        assert_eq!(script.attempts(), 3);
        assert_eq!((a.active(), accepted(&b)), (1, 1));
    }
}

async fn a_hundred_indexes_share_the_connections_of_a_peer<B: Backend>(backend: B) {
    let b = start_echo(&backend, "b").await;
    for connections_per_peer in [1, 2, 5, 10] {
        for reuse in [true, false] {
            let mut config = dialling(0, reuse);
            config.connections_per_peer = connections_per_peer;
            let a = start_node(&backend, "a", &config).await;
            let indexes = (0..100).map(|number: u32| number.wrapping_mul(2_654_435_761));
            let callers: JoinSet<_> = indexes
                .map(|index| a.acquire(address_of(&b).with_index(index)))
                .collect();
            let leases = in_time("callers", callers.join_all()).await;
            for lease in &leases {
                echoes(lease.as_ref().unwrap()).await;
            }
            assert_eq!(a.active(), connections_per_peer as usize);
            assert_eq!(accepted(&b), connections_per_peer as usize);
            drop(leases);
            for index in 0..100 {
                a.close_unused(&address_of(&b).with_index(index));
            }
            assert_eq!(a.active(), 0);
            until("they are closed", || accepted(&b) == 0).await;
        }
    }
}

async fn an_idle_connection_that_the_peer_closed_is_replaced<B: Backend>(backend: B) {
    let a = start_node(&backend, "a", &TransportConfig::default()).await;
    let b = start_echo(&backend, "b").await;
    let target = address_of(&b);
    drop(acquire(&a, target.clone()).await.unwrap());
    assert_eq!(a.active(), 1, "kept for the next job");
    let address = b.local_addr();
    in_time("shutdown", b.shutdown(DEADLINE)).await.unwrap();
    until("the end is seen without a stream", || a.active() == 0).await;
    let again = Node::builder(target.peer.clone().unwrap(), TransportConfig::default())
        .bind(BindAddr::single(address));
    let again = in_time("start", again.start(backend.transport("b")))
        .await
        .unwrap();
    again.register(ECHO, Arc::new(Echo));
    echoes(&acquire(&a, target).await.unwrap()).await;
}

async fn without_reuse_the_last_user_closes_and_loses_nothing<B: Backend>(backend: B) {
    let a = start_node(&backend, "a", &dialling(0, false)).await;
    let b = start_echo(&backend, "b").await;
    let lease = acquire(&a, address_of(&b)).await.unwrap();
    let mut stream = in_time("open", lease.open(ECHO)).await.unwrap();
    drop(lease);
    // The stream is a user, too.
    stream.send.write(&mut ["still".into()]).await.unwrap();
    let heard = in_time("echo", stream.recv.read(100)).await.unwrap();
    assert_eq!(heard.as_deref(), Some(&b"still"[..]));
    assert_eq!(a.active(), 1);
    drop(stream);
    assert_eq!(a.active(), 0);
    until("the peer sees the end", || accepted(&b) == 0).await;
}

async fn a_node_takes_only_so_many_connections<B: Backend>(backend: B) {
    let mut config = TransportConfig::default();
    config.max_connections = 2;
    let full = start_node(&backend, "full", &config).await;
    full.register(ECHO, Arc::new(Echo));
    let mut held = vec![];
    for id in ["a", "b"] {
        let node = start_node(&backend, id, &dialling(0, true)).await;
        let lease = acquire(&node, address_of(&full)).await.unwrap();
        echoes(&lease).await;
        held.push((node, lease));
    }
    let late = start_node(&backend, "late", &dialling(0, true)).await;
    let error = acquire(&late, address_of(&full)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::LIMIT_EXCEEDED, "{error}");
    assert!(error.to_string().contains("2 connections"), "{error}");
    assert!(error.is_retryable());
    for (_, lease) in &held {
        echoes(lease).await;
    }
    let (node, lease) = held.remove(0);
    drop(lease);
    in_time("shutdown", node.shutdown(DEADLINE)).await.unwrap();
    until("a place is free", || accepted(&full) == 1).await;
    echoes(&acquire(&late, address_of(&full)).await.unwrap()).await;
}

async fn one_node_leaves_others_a_place<B: Backend>(backend: B) {
    let mut config = TransportConfig::default();
    config.max_connections = 8;
    let full = start_node(&backend, "full", &config).await;
    full.register(ECHO, Arc::new(Echo));
    let mut many = dialling(0, true);
    many.connections_per_peer = 64;
    let greedy = start_node(&backend, "greedy", &many).await;
    let mut held = vec![];
    for index in 0..7 {
        let lease = acquire(&greedy, address_of(&full).with_index(index)).await;
        held.push(lease.unwrap());
    }
    let more = acquire(&greedy, address_of(&full).with_index(7)).await;
    let error = more.unwrap_err();
    assert_eq!(error.code(), ErrorCode::LIMIT_EXCEEDED, "{error}");
    let words = "greedy has 7 connections to this node";
    assert!(error.to_string().contains(words), "{error}");
    assert!(error.is_retryable());
    let other = start_node(&backend, "other", &dialling(0, true)).await;
    echoes(&acquire(&other, address_of(&full)).await.unwrap()).await;
    for lease in &held {
        echoes(lease).await;
    }
}

#[tokio::test]
async fn a_dial_that_no_packet_answers_says_that_udp_may_be_blocked() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let mut config = dialling(3, true);
    config.connect_timeout = Duration::from_millis(700);
    let backend = QuicBackend::new(Profile::Loopback);
    let a = start_node(&backend, "a", &config).await;
    let peer = ConnectionId::new(ResourceId::new("b").unwrap(), address.to_string());
    let error = acquire(&a, peer).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::TIMED_OUT);
    let text = error.to_string();
    for words in [
        &format!("b@{address}"),
        "after 700 ms",
        &format!("no packet came from {address}"),
        "UDP is blocked",
        "the tcp backend needs no UDP",
    ] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
}

on_backends! {
    [
        a_caller_that_gives_up_is_not_remembered,
        others_go_on_when_the_first_caller_gives_up,
        a_failure_is_told_to_all_and_not_remembered,
        all_callers_get_a_client_after_two_failures_with_two_retries,
        a_hundred_indexes_share_the_connections_of_a_peer,
        an_idle_connection_that_the_peer_closed_is_replaced,
        without_reuse_the_last_user_closes_and_loses_nothing,
        a_node_takes_only_so_many_connections,
    one_node_leaves_others_a_place,
    ]:
    mem = MemBackend::new(),
    quic = QuicBackend::new(Profile::Loopback),
    tcp = TcpBackend::plaintext(),
    tls = TcpBackend::tls(),
}
