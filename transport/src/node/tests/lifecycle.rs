//! How nodes start and end.

use tokio::sync::oneshot;

use super::*;
use crate::{ConnectionError, ErrorCode};

const ECHO: StreamKind = StreamKind(64);
const DEADLINE: Duration = Duration::from_secs(5);

fn told_of_the_shutdown(end: &ConnectionError, id: &str) {
    let ConnectionError::ClosedByPeer { code, reason } = end else {
        panic!("closed by the peer expected, not {end:?}");
    };
    assert_eq!(*code, ErrorCode::SHUTTING_DOWN);
    assert_eq!(*reason, format!("node {id} is shutting down"));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_is_told_to_both_kinds_of_peers() {
    let fabric = Mem::default();
    let (a, b) = (start(&fabric, "a").await, start(&fabric, "b").await);
    let c = start(&fabric, "c").await;
    let dialler_of_b = a.acquire(to(&b)).await.unwrap();
    let _dialled_by_b = b.acquire(to(&c)).await.unwrap();
    until("accepted", || accepted(&c) == 1).await;
    b.shutdown(DEADLINE).await.unwrap();
    told_of_the_shutdown(&in_time("close", dialler_of_b.closed()).await, "b");
    until("c sees it", || accepted(&c) == 0).await;
    assert_eq!((b.active(), b.snapshot().len()), (0, 0));
    let refused = b.acquire(to(&a)).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::SHUTTING_DOWN);
    let gone = a.acquire(to(&b)).await.unwrap_err();
    assert!(gone.is_retryable(), "{gone}");
    b.shutdown(DEADLINE).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_answers_those_who_wait_for_a_dial() {
    let fabric = Mem::default();
    let script = Script::gated();
    let a = start_scripted(&fabric, "a", TransportConfig::default(), &script).await;
    let b = start(&fabric, "b").await;
    let waiting = tokio::spawn(a.acquire(to(&b)));
    until("the dial", || script.attempts() == 1).await;
    a.shutdown(DEADLINE).await.unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.code(), ErrorCode::SHUTTING_DOWN);
    assert!(error.to_string().contains("node a is shutting down"));
}

/// Holds its node, as the server of an exchange does.
#[derive(Debug)]
struct Holds(#[expect(dead_code, reason = "held")] Node);

impl StreamHandler for Holds {
    fn handle(&self, _stream: PeerStream) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_comes_after_the_shutdown_keeps_no_node() {
    let fabric = Mem::default();
    let a = start(&fabric, "a").await;
    let early = Arc::new(Holds(a.clone()));
    a.register(ECHO, Arc::clone(&early) as _);
    a.shutdown(DEADLINE).await.unwrap();
    let late = Arc::new(Holds(a.clone()));
    a.register(ECHO, Arc::clone(&late) as _);
    assert_eq!(
        (Arc::strong_count(&early), Arc::strong_count(&late)),
        (1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_tasks_until_its_deadline() {
    let fabric = Mem::default();
    let a = start(&fabric, "a").await;
    let stubborn = a.tasks().spawn(std::future::pending::<()>());
    let begin = crate::now();
    let error = a.shutdown(DEADLINE).await.unwrap_err();
    assert!(matches!(error, NodeError::Unfinished { tasks: 1, .. }));
    assert_eq!(crate::now() - begin, DEADLINE);
    stubborn.abort();
}

#[tokio::test(start_paused = true)]
async fn handlers_are_dropped_with_their_connection() {
    #[derive(Debug)]
    struct Stays(Mutex<Option<[oneshot::Sender<()>; 2]>>);
    impl StreamHandler for Stays {
        fn handle(&self, stream: PeerStream) -> BoxFuture<'static, ()> {
            let [begun, dropped] = self.0.lock().unwrap().take().unwrap();
            Box::pin(async move {
                let _held = (stream, dropped);
                begun.send(()).unwrap();
                std::future::pending().await
            })
        }
    }
    let fabric = Mem::default();
    let (a, b) = (start(&fabric, "a").await, start(&fabric, "b").await);
    let ((begin, begun), (held, dropped)) = (oneshot::channel(), oneshot::channel());
    b.register(ECHO, Arc::new(Stays(Mutex::new(Some([begin, held])))));
    let lease = a.acquire(to(&b)).await.unwrap();
    let mut stream = lease.open(ECHO).await.unwrap();
    send(&mut stream, "x").await.unwrap();
    in_time("the handler", begun).await.unwrap();
    drop((stream, lease));
    a.close_unused(&to(&b));
    in_time("drop", dropped).await.unwrap_err();
    until("gone", || accepted(&b) == 0).await;
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_handle_ends_the_node() {
    let fabric = Mem::default();
    let (a, b) = (start(&fabric, "a").await, start(&fabric, "b").await);
    let lease = a.acquire(to(&b)).await.unwrap();
    let address = b.local_addr();
    let clone = b.clone();
    drop(b);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(lease.close_reason().is_none());
    drop(clone);
    told_of_the_shutdown(&in_time("close", lease.closed()).await, "b");
    let rebound = builder("b", TransportConfig::default()).bind(BindAddr::single(address));
    rebound.start(fabric.transport("b")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_outlives_its_node_harmlessly() {
    let fabric = Mem::default();
    let (a, b) = (start(&fabric, "a").await, start(&fabric, "b").await);
    let lease = a.acquire(to(&b)).await.unwrap();
    a.shutdown(DEADLINE).await.unwrap();
    drop(a);
    let reason = lease.close_reason().unwrap();
    assert!(reason.is_local(), "{reason}");
    let error = lease.open(ECHO).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::SHUTTING_DOWN);
}

#[tokio::test(start_paused = true)]
async fn a_bad_configuration_or_a_taken_address_does_not_start() {
    let fabric = Mem::default();
    let config = TransportConfig {
        connections_per_peer: 0,
        ..TransportConfig::default()
    };
    let bad = builder("a", config).start(fabric.transport("a")).await;
    assert!(matches!(bad, Err(NodeError::Config(_))));
    let a = start(&fabric, "a").await;
    let taken = builder("b", TransportConfig::default()).bind(BindAddr::single(a.local_addr()));
    let taken = taken.start(fabric.transport("b")).await.unwrap_err();
    assert!(taken.is_retryable(), "{taken}");
    let advertise = builder("b", TransportConfig::default()).advertise("a b");
    let advertise = advertise.start(fabric.transport("b")).await;
    assert!(matches!(advertise, Err(NodeError::Advertise { .. })));
}

/// A node on a network thread of its own.
async fn start_dedicated<F: Fabric>(fabric: &F, id: &str) -> Node {
    let node = Node::builder(name(id), TransportConfig::default());
    node.start(fabric.transport(id)).await.unwrap()
}

async fn nodes_work_from_any_runtime<F: Fabric>(fabric: F) {
    let (a, b) = (
        start_dedicated(&fabric, "a").await,
        start_dedicated(&fabric, "b").await,
    );
    b.register(ECHO, Arc::new(Echo));
    let thread = b
        .runtime()
        .spawn(async { std::thread::current().name().map(str::to_owned) });
    assert_eq!(thread.await.unwrap().as_deref(), Some("net-b"));
    let lease = in_time("acquire", a.acquire(to(&b))).await.unwrap();
    echoes(&lease, ECHO, "from the test's runtime").await;
    let (target, other) = (to(&b), a.clone());
    let elsewhere = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            let lease = other.acquire(target).await.unwrap();
            echoes(&lease, ECHO, "from another runtime").await;
        });
    });
    in_time("elsewhere", elsewhere).await.unwrap();
    assert_eq!(a.active(), 1);
    in_time("shutdown", b.shutdown(DEADLINE)).await.unwrap();
    told_of_the_shutdown(&in_time("close", lease.closed()).await, "b");
    in_time("shutdown", a.shutdown(DEADLINE)).await.unwrap();
    // The lease's release needs no runtime, and the network thread is gone.
    std::thread::spawn(move || drop(lease)).join().unwrap();
}

#[tokio::test]
async fn dedicated_nodes_work_from_any_runtime() {
    nodes_work_from_any_runtime(Mem::default()).await;
}

#[tokio::test]
async fn dropping_the_last_handle_ends_the_network_thread() {
    let fabric = Mem::default();
    let node = start_dedicated(&fabric, "a").await;
    let (held, dropped) = oneshot::channel::<()>();
    // Lives until the runtime of the thread is dropped.
    drop(node.runtime().spawn(async move {
        let _held = held;
        std::future::pending::<()>().await;
    }));
    drop(node);
    in_time("the end of the runtime", dropped)
        .await
        .unwrap_err();
}

#[tokio::test]
async fn a_blocked_network_thread_is_reported() {
    let fabric = Mem::default();
    let node = start_dedicated(&fabric, "a").await;
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    drop(node.runtime().spawn(async move { blocked.recv() }));
    let error = node.shutdown(Duration::from_millis(1)).await.unwrap_err();
    assert!(matches!(error, NodeError::Stuck { .. }), "{error}");
    drop(release);
    in_time("shutdown", node.shutdown(DEADLINE)).await.unwrap();
}
