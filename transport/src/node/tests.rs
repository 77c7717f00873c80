//! The node over the in-memory backend. What does not need one backend in particular is generic over [`Fabric`].

mod draining;
mod hello;
mod lifecycle;
mod sharing;
mod streams;

use std::{
    future::Future,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use bytes::Bytes;
use tokio::sync::Semaphore;

use super::*;
use crate::{
    BindAddr, ConnectError, Connection, PeerIdentity, PeerStream, RecvStream, SendStream,
    Transport, VerifiedPeer,
    mem::{MemNetwork, MemTransport},
    stream::BoxRecvStream,
};

/// A network on which nodes of one backend meet.
trait Fabric {
    type Transport: Transport;

    fn transport(&self, id: &str) -> Self::Transport;
}

/// The in-memory network; nodes have a certificate if `verified`.
#[derive(Debug, Default)]
struct Mem {
    network: MemNetwork,
    verified: bool,
}

impl Fabric for Mem {
    type Transport = MemTransport;

    fn transport(&self, id: &str) -> MemTransport {
        let identity = self.verified.then(|| verified(id));
        MemTransport::new(self.network.clone(), identity)
    }
}

fn verified(id: &str) -> VerifiedPeer {
    VerifiedPeer {
        id: name(id),
        role: "taskmanager".into(),
        uri: format!("spiffe://test/taskmanager/{id}").into(),
        expires_at: u64::MAX,
    }
}

/// What a test does to the dials of a node.
#[derive(Debug, Default)]
struct Script {
    attempts: AtomicU32,
    fail_first: AtomicU32,
    failure: Mutex<Option<ConnectError>>,
    /// If set, a dial waits for a permit here before it connects.
    gate: Option<Semaphore>,
}

impl Script {
    fn failing(count: u32, failure: ConnectError) -> Arc<Self> {
        let script = Self::default();
        script.fail_first.store(count, Ordering::SeqCst);
        *script.failure.lock().unwrap() = Some(failure);
        Arc::new(script)
    }

    fn gated() -> Arc<Self> {
        Arc::new(Self {
            gate: Some(Semaphore::new(0)),
            ..Self::default()
        })
    }

    fn attempts(&self) -> u32 {
        self.attempts.load(Ordering::SeqCst)
    }

    fn open_gate(&self) {
        self.gate.as_ref().unwrap().add_permits(1);
    }
}

/// A transport whose dials follow a script.
struct Scripted<T> {
    transport: T,
    script: Arc<Script>,
}

impl<T: Transport> Transport for Scripted<T> {
    type Connection = T::Connection;
    type Listener = T::Listener;

    fn name(&self) -> &'static str {
        self.transport.name()
    }

    async fn listen(&self, bind: &BindAddr) -> Result<T::Listener, ConnectError> {
        self.transport.listen(bind).await
    }

    async fn connect(
        &self,
        address: SocketAddr,
        expected: Option<&ResourceId>,
    ) -> Result<T::Connection, ConnectError> {
        let before = self.script.attempts.fetch_add(1, Ordering::SeqCst);
        if let Some(gate) = &self.script.gate {
            gate.acquire().await.unwrap().forget();
        }
        if before < self.script.fail_first.load(Ordering::SeqCst) {
            return Err(self.script.failure.lock().unwrap().clone().unwrap());
        }
        self.transport.connect(address, expected).await
    }
}

/// Answers with the bytes it reads, to the end.
#[derive(Debug)]
struct Echo;

impl StreamHandler for Echo {
    fn handle(&self, mut stream: PeerStream) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            while let Ok(Some(chunk)) = stream.recv.read(usize::MAX).await {
                if stream.send.write(&mut [chunk]).await.is_err() {
                    return;
                }
            }
            let _ = stream.send.finish();
        })
    }
}

#[derive(Debug)]
struct Panics;

impl StreamHandler for Panics {
    fn handle(&self, _stream: PeerStream) -> BoxFuture<'static, ()> {
        panic!("the handler of this test")
    }
}

fn name(id: &str) -> ResourceId {
    ResourceId::new(id).unwrap()
}

fn unreachable() -> ConnectError {
    ConnectError::Unreachable {
        address: "there".to_owned(),
        reason: "the test says so".to_owned(),
    }
}

fn builder(id: &str, config: TransportConfig) -> NodeBuilder {
    Node::builder(name(id), config).network(NetworkRuntime::Current)
}

async fn start<F: Fabric>(fabric: &F, id: &str) -> Node {
    let config = TransportConfig::default();
    builder(id, config)
        .start(fabric.transport(id))
        .await
        .unwrap()
}

async fn start_scripted<F: Fabric>(
    fabric: &F,
    id: &str,
    config: TransportConfig,
    script: &Arc<Script>,
) -> Node {
    let transport = Scripted {
        transport: fabric.transport(id),
        script: Arc::clone(script),
    };
    builder(id, config).start(transport).await.unwrap()
}

fn to(node: &Node) -> ConnectionId {
    ConnectionId::new(node.id().clone(), node.advertised())
}

/// Connections that the node accepted and that live.
fn accepted(node: &Node) -> usize {
    node.snapshot().iter().filter(|c| !c.dialled).count()
}

/// Lets tasks run until the condition holds; it must within ten seconds of tokio's time.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    in_time(what, wait).await;
}

/// Awaits something that must come within ten seconds of tokio's time.
async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(10), future)
        .await
        .unwrap_or_else(|_| panic!("{what}: not within 10 s"))
}

async fn send(stream: &mut PeerStream, text: &str) -> Result<(), crate::StreamError> {
    let chunk = Bytes::copy_from_slice(text.as_bytes());
    stream.send.write(&mut [chunk]).await
}

/// Reads to the end.
async fn read_all(recv: &mut BoxRecvStream) -> Result<Vec<u8>, crate::StreamError> {
    let mut all = vec![];
    while let Some(chunk) = recv.read(7).await? {
        all.extend_from_slice(&chunk);
    }
    Ok(all)
}

/// Opens a stream of the echo kind and expects the text back.
async fn echoes(lease: &Lease, kind: StreamKind, text: &str) {
    let exchange = async {
        let mut stream = lease.open(kind).await.unwrap();
        send(&mut stream, text).await.unwrap();
        stream.send.finish().unwrap();
        assert_eq!(read_all(&mut stream.recv).await.unwrap(), text.as_bytes());
    };
    in_time("echo", exchange).await;
}
