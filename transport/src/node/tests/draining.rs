//! Connections that have become too old.

use tokio::task::JoinSet;

use super::*;
use crate::{ConnectionSnapshot, ErrorCode};

const AGE: Duration = Duration::from_secs(1000);

/// Starts a node whose connections live so long.
async fn start_with_age(fabric: &Mem, max_connection_age: Duration) -> Node {
    let config = TransportConfig {
        max_connection_age,
        connections_per_peer: 8,
        ..TransportConfig::default()
    };
    let node = builder("a", config).start(fabric.transport("a")).await;
    node.unwrap()
}

async fn pair() -> (Mem, Node, Node) {
    let fabric = Mem::default();
    let a = start_with_age(&fabric, AGE).await;
    let b = start(&fabric, "b").await;
    b.register(StreamKind(64), Arc::new(Echo));
    (fabric, a, b)
}

/// Connections that the node dialled, and how many of them are drained.
fn dialled(node: &Node) -> (usize, usize) {
    let dialled: Vec<ConnectionSnapshot> = node.snapshot();
    let drained = dialled.iter().filter(|c| c.draining).count();
    (dialled.len(), drained)
}

async fn exchange(stream: &mut PeerStream, text: &str) {
    send(stream, text).await.unwrap();
    let heard = in_time("echo", stream.recv.read(usize::MAX)).await;
    assert_eq!(heard.unwrap().unwrap(), text.as_bytes());
}

#[tokio::test(start_paused = true)]
async fn connections_are_drained_at_their_age_but_not_all_at_once() {
    let (_fabric, a, b) = pair().await;
    let mut leases = JoinSet::new();
    let begin = crate::now();
    for index in 0..8 {
        let lease = a.acquire(to(&b).with_index(index)).await.unwrap();
        leases.spawn(async move {
            assert!(!lease.is_draining());
            lease.draining().await;
            assert!(lease.is_draining() && lease.close_reason().is_none());
            crate::now() - begin
        });
    }
    let mut ages = leases.join_all().await;
    ages.sort();
    assert!(ages[0] >= AGE * 9 / 10, "{ages:?}");
    assert!(ages[7] <= AGE + Duration::from_secs(1), "{ages:?}");
    assert!(ages[7] - ages[0] > Duration::from_millis(100), "{ages:?}");
}

#[tokio::test(start_paused = true)]
async fn an_old_connection_that_nobody_uses_is_closed() {
    let (_fabric, a, b) = pair().await;
    drop(a.acquire(to(&b)).await.unwrap());
    tokio::time::sleep(AGE / 2).await;
    assert_eq!((dialled(&a), accepted(&b)), ((1, 0), 1));
    tokio::time::sleep(AGE / 2).await;
    assert_eq!((a.active(), dialled(&a)), (0, (0, 0)));
    until("the peer sees the end", || accepted(&b) == 0).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_under_way_on_an_old_connection_finishes_there() {
    let (_fabric, a, b) = pair().await;
    let old = a.acquire(to(&b)).await.unwrap();
    let mut running = old.open(StreamKind(64)).await.unwrap();
    exchange(&mut running, "before").await;
    old.draining().await;
    assert_eq!((a.active(), dialled(&a)), (0, (1, 1)));
    let new = a.acquire(to(&b)).await.unwrap();
    assert!(!new.is_draining());
    until("a second connection", || accepted(&b) == 2).await;
    assert_eq!((a.active(), dialled(&a)), (1, (2, 1)));
    // The lease can still open streams, and a stream outlives its lease.
    echoes(&old, StreamKind(64), "late").await;
    drop(old);
    exchange(&mut running, "after").await;
    assert_eq!(dialled(&a), (2, 1));
    drop(running);
    until("it is let go", || dialled(&a) == (1, 0)).await;
    until("the peer sees the end", || accepted(&b) == 1).await;
    echoes(&new, StreamKind(64), "new").await;
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_last_arrives_before_a_connection_without_users_is_closed() {
    let (_fabric, a, b) = pair().await;
    let lease = a.acquire(to(&b)).await.unwrap();
    lease.draining().await;
    let begin = crate::now();
    drop(lease);
    until("the peer sees the end", || accepted(&b) == 0).await;
    let waited = crate::now() - begin;
    assert!(waited >= Duration::from_secs(1), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_drained_connection_that_is_never_let_go_ends_at_twice_the_age() {
    let (_fabric, a, b) = pair().await;
    let begin = crate::now();
    let lease = a.acquire(to(&b)).await.unwrap();
    let mut stream = lease.open(StreamKind(64)).await.unwrap();
    exchange(&mut stream, "x").await;
    let end = lease.closed().await;
    let lived = crate::now() - begin;
    assert_eq!((end.code(), end.is_local()), (ErrorCode::REPLACED, true));
    assert!(end.is_retryable());
    assert!(lived >= AGE * 19 / 10 && lived <= AGE * 2 + Duration::from_secs(1));
    assert!(stream.recv.read(1).await.is_err());
    until("the peer sees the end", || accepted(&b) == 0).await;
    assert_eq!(dialled(&a), (0, 0));
    drop((lease, stream));
    a.acquire(to(&b)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_acquire_after_another_rotation_never_gets_a_draining_connection() {
    let (_fabric, a, b) = pair().await;
    let mut held = vec![];
    let mut age = Duration::ZERO;
    while age < AGE * 5 {
        let lease = a.acquire(to(&b)).await.unwrap();
        assert!(!lease.is_draining());
        assert!(lease.close_reason().is_none());
        assert_eq!(a.active(), 1);
        held.push(lease);
        tokio::time::sleep(AGE / 10).await;
        age += AGE / 10;
    }
    // Those of the age before last were overdue.
    assert!(dialled(&a).0 <= 3, "{:?}", dialled(&a));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_draining_connections_too() {
    let (_fabric, a, b) = pair().await;
    let held = a.acquire(to(&b)).await.unwrap();
    held.draining().await;
    let let_go = a.acquire(to(&b).with_index(1)).await.unwrap();
    let_go.draining().await;
    drop(let_go);
    a.shutdown(Duration::from_secs(1)).await.unwrap();
    assert_eq!(held.closed().await.code(), ErrorCode::SHUTTING_DOWN);
    until("the peer sees both ends", || accepted(&b) == 0).await;
}
