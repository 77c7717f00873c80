//! Nodes over any backend, and what tests ask them.

use thalweg_transport::{
    BoxFuture, ConnectionId, Connections, Node, PeerStream, RecvStream, ResourceId, SendStream,
    StreamHandler, StreamKind, TransportConfig,
};

use super::in_time;
use crate::conformance::Backend;

/// Starts a node on any free port.
///
/// # Panics
/// If the id is no resource id, or the node does not start.
pub async fn start_node<B: Backend>(backend: &B, id: &str, config: &TransportConfig) -> Node {
    let builder = Node::builder(ResourceId::new(id).expect("a resource id"), config.clone());
    let started = in_time("start", builder.start(backend.transport(id))).await;
    started.expect("the node starts")
}

/// The way to a node.
#[must_use]
pub fn address_of(node: &Node) -> ConnectionId {
    ConnectionId::new(node.id().clone(), node.advertised())
}

/// Live connections that others have dialled.
#[must_use]
pub fn accepted(node: &Node) -> usize {
    node.snapshot().iter().filter(|c| !c.dialled).count()
}

/// The kind of streams that [`Echo`] serves in tests.
pub const ECHO: StreamKind = StreamKind(64);

/// Sends back what it reads until the end.
#[derive(Debug)]
pub struct Echo;

impl StreamHandler for Echo {
    fn handle(&self, mut stream: PeerStream) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            while let Ok(Some(chunk)) = stream.recv.read(64 * 1024).await {
                if stream.send.write(&mut [chunk]).await.is_err() {
                    return;
                }
            }
            if stream.send.finish().is_ok() {
                let _ = stream.send.stopped().await;
            }
        })
    }
}
