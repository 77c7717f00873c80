//! Connections that have become too old.

use tokio::{sync::mpsc, task::JoinSet};

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

/// Reads to the end when it may, and gives what it read.
#[derive(Debug)]
struct Slow {
    may_read: Arc<Semaphore>,
    read: mpsc::Sender<Result<Vec<u8>, crate::StreamError>>,
}

impl StreamHandler for Slow {
    fn handle(&self, mut stream: PeerStream) -> BoxFuture<'static, ()> {
        let (may_read, read) = (Arc::clone(&self.may_read), self.read.clone());
        Box::pin(async move {
            let _permit = may_read.acquire().await;
            let _ = read.send(read_all(&mut stream.recv).await).await;
        })
    }
}

/// Finishes a stream to a slow reader, and lets it and its drained connection go.
async fn finish_and_let_go(
    a: &Node,
    b: &Node,
) -> (
    Arc<Semaphore>,
    mpsc::Receiver<Result<Vec<u8>, crate::StreamError>>,
) {
    let may_read = Arc::new(Semaphore::new(0));
    let (read, received) = mpsc::channel(1);
    let slow = Slow {
        may_read: Arc::clone(&may_read),
        read,
    };
    b.register(StreamKind(65), Arc::new(slow));
    let lease = a.acquire(to(b)).await.unwrap();
    let mut stream = lease.open(StreamKind(65)).await.unwrap();
    send(&mut stream, "the last words").await.unwrap();
    stream.send.finish().unwrap();
    lease.draining().await;
    drop((lease, stream));
    (may_read, received)
}

#[tokio::test(start_paused = true)]
async fn an_old_connection_lives_until_what_was_finished_on_it_is_read() {
    let (_fabric, a, b) = pair().await;
    let (may_read, mut received) = finish_and_let_go(&a, &b).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!((dialled(&a), accepted(&b)), ((1, 1), 1));
    may_read.add_permits(1);
    let heard = in_time("the last words", received.recv()).await.unwrap();
    assert_eq!(heard.unwrap(), b"the last words");
    until("it is let go", || accepted(&b) == 0).await;
    assert_eq!(dialled(&a), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_keeps_an_old_connection_for_the_time_of_a_write() {
    let (_fabric, a, b) = pair().await;
    let begin = crate::now();
    let _never = finish_and_let_go(&a, &b).await;
    let drained = crate::now();
    assert!(drained > begin);
    let ended = async {
        while accepted(&b) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(40), ended).await.unwrap();
    let waited = (crate::now() - drained).as_secs();
    assert_eq!(
        waited, 31,
        "30 s for the reader, 1 s for what is on its way"
    );
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
