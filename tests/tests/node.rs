//! Nodes over real backends: shared connections, hellos, streams and the end of a node.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, which fail by panicking"
)]

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use thalweg_tests::{
    conformance::Backend,
    harness::{
        DEADLINE, ECHO, Echo, MemBackend, QuicBackend, TcpBackend, accepted, address_of, in_time,
        start_node, until,
    },
    on_backends,
};
use thalweg_transport::{
    BoxFuture, BoxRecvStream, ConnectionError, ConnectionId, Connections, ErrorCode, Lease, Node,
    PeerStream, Profile, RecvStream, ResourceId, SendStream, StreamError, StreamHandler,
    StreamKind, TransportConfig,
};
use tokio::task::JoinSet;

#[derive(Debug)]
struct Panics;

impl StreamHandler for Panics {
    fn handle(&self, _stream: PeerStream) -> BoxFuture<'static, ()> {
        panic!("the handler of this test")
    }
}

async fn start<B: Backend>(backend: &B, id: &str) -> Node {
    let node = start_node(backend, id, &TransportConfig::default()).await;
    node.register(ECHO, Arc::new(Echo));
    node
}

async fn open(lease: &Lease, kind: StreamKind, text: &str) -> PeerStream {
    let mut stream = in_time("open", lease.open(kind)).await.unwrap();
    let chunk = Bytes::copy_from_slice(text.as_bytes());
    stream.send.write(&mut [chunk]).await.unwrap();
    stream
}

async fn read_all(recv: &mut BoxRecvStream) -> Result<Vec<u8>, StreamError> {
    let mut all = vec![];
    while let Some(chunk) = recv.read(1000).await? {
        all.extend_from_slice(&chunk);
    }
    Ok(all)
}

async fn echoes(lease: &Lease, text: &str) {
    let mut stream = open(lease, ECHO, text).await;
    stream.send.finish().unwrap();
    let heard = in_time("echo", read_all(&mut stream.recv)).await;
    assert_eq!(heard.unwrap(), text.as_bytes());
}

async fn many_callers_share_one_connection<B: Backend>(backend: B) {
    let (a, b) = (start(&backend, "a").await, start(&backend, "b").await);
    let callers: JoinSet<_> = (0..50).map(|_| a.acquire(address_of(&b))).collect();
    let leases = in_time("acquires", callers.join_all()).await;
    for lease in &leases {
        echoes(lease.as_ref().unwrap(), "shared").await;
    }
    let back = in_time("acquire", b.acquire(address_of(&a))).await.unwrap();
    echoes(&back, "the other way").await;
    assert_eq!((accepted(&a), accepted(&b)), (1, 1));
    assert_eq!((a.active(), b.active()), (1, 1));
}

async fn a_wrong_node_is_refused<B: Backend>(backend: B) {
    let (a, b) = (start(&backend, "a").await, start(&backend, "b").await);
    let wrong = ConnectionId::new(ResourceId::new("c").unwrap(), b.advertised());
    let error = in_time("acquire", a.acquire(wrong)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::IDENTITY_MISMATCH, "{error}");
    until("the other side drops it", || accepted(&b) == 0).await;
    assert_eq!(a.active(), 0);
}

async fn failures_stay_where_they_belong<B: Backend>(backend: B) {
    let (a, b) = (start(&backend, "a").await, start(&backend, "b").await);
    b.register(StreamKind(65), Arc::new(Panics));
    let lease = in_time("acquire", a.acquire(address_of(&b))).await.unwrap();
    let mut unknown = open(&lease, StreamKind(99), "hello?").await;
    let refused = in_time("refusal", read_all(&mut unknown.recv)).await;
    let code = refused.unwrap_err().code();
    assert_eq!(code, ErrorCode::UNKNOWN_STREAM_KIND);
    echoes(&lease, "the connection lives").await;
    let _panics = open(&lease, StreamKind(65), "x").await;
    let end = in_time("close", lease.closed()).await;
    assert_eq!(end.code(), ErrorCode::INTERNAL, "{end}");
    let again = in_time("acquire", a.acquire(address_of(&b))).await.unwrap();
    echoes(&again, "a new connection").await;
}

async fn streams_are_allowed_as_they_are_used<B: Backend>(backend: B) {
    let (a, b) = (start(&backend, "a").await, start(&backend, "b").await);
    let lease = in_time("acquire", a.acquire(address_of(&b))).await.unwrap();
    let mut held = vec![];
    for _ in 0..600 {
        held.push(open(&lease, ECHO, "held").await);
    }
    echoes(&lease, "one more").await;
}

async fn a_shutdown_is_told<B: Backend>(backend: B) {
    let (a, b) = (start(&backend, "a").await, start(&backend, "b").await);
    let c = start(&backend, "c").await;
    let to_b = in_time("acquire", a.acquire(address_of(&b))).await.unwrap();
    let from_b = in_time("acquire", b.acquire(address_of(&c))).await.unwrap();
    echoes(&from_b, "to c").await;
    in_time("shutdown", b.shutdown(DEADLINE / 2)).await.unwrap();
    let end = in_time("close", to_b.closed()).await;
    let ConnectionError::ClosedByPeer { code, reason } = end else {
        panic!("closed by the peer expected, not {end}");
    };
    assert_eq!(code, ErrorCode::SHUTTING_DOWN);
    assert_eq!(reason, "node b is shutting down");
    // Well before the idle time-out would show it.
    let seen = until("c sees the end", || accepted(&c) == 0);
    tokio::time::timeout(Duration::from_secs(1), seen)
        .await
        .unwrap();
    until("a lets it go", || a.active() == 0).await;
    drop((to_b, from_b));
    in_time("shutdown", a.shutdown(DEADLINE / 2)).await.unwrap();
    in_time("shutdown", c.shutdown(DEADLINE / 2)).await.unwrap();
}

/// Behind the first write, which carries the stream's header, a small message goes without a wait.
async fn a_small_message_is_taken_at_once<B: Backend>(backend: B) {
    let (a, b) = (start(&backend, "a").await, start(&backend, "b").await);
    let lease = in_time("dial", a.acquire(address_of(&b))).await.unwrap();
    let mut stream = in_time("open", lease.open(ECHO)).await.unwrap();
    let mut first = [Bytes::from_static(b"one ")];
    assert!(!stream.send.try_write(&mut first).unwrap());
    stream.send.write(&mut first).await.unwrap();
    let mut second = [Bytes::from_static(b"two"), Bytes::from_static(b" three")];
    assert!(stream.send.try_write(&mut second).unwrap());
    stream.send.finish().unwrap();
    let heard = in_time("echo", read_all(&mut stream.recv)).await;
    assert_eq!(heard.unwrap(), b"one two three");
}

on_backends! {
    [
        many_callers_share_one_connection,
        a_small_message_is_taken_at_once,
        a_wrong_node_is_refused,
        failures_stay_where_they_belong,
        streams_are_allowed_as_they_are_used,
        a_shutdown_is_told,
    ]:
    mem = MemBackend::new(),
    mem_without_identities = MemBackend::anonymous(),
    quic = QuicBackend::new(Profile::Loopback),
    tcp = TcpBackend::plaintext(),
    tls = TcpBackend::tls(),
}
