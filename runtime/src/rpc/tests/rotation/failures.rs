//! Clients that cannot move to a new connection, or whose peer does not let them.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};

use thalweg_transport::{
    BoxFuture, ConnectionId, ConnectionSnapshot, Lease, PeerStream, RecvStream, SendStream,
    Shutdown, StreamHandler, StreamKind, TransportError,
};
use tokio::runtime::Handle;

use super::{
    super::super::wire::{Decoder, Head},
    *,
};

/// A node whose new connections can be refused.
#[derive(Debug)]
struct Refusing {
    node: Node,
    refuses: AtomicBool,
    refused: AtomicU32,
}

impl Refusing {
    /// A service of this node, and the node.
    fn service(node: &Node) -> (Arc<Self>, RpcService) {
        let refusing = Arc::new(Self {
            node: node.clone(),
            refuses: AtomicBool::new(false),
            refused: AtomicU32::new(0),
        });
        let service = RpcService::builder(id("caller"))
            .connections(Arc::clone(&refusing) as _)
            .build()
            .unwrap();
        (refusing, service)
    }

    fn refused(&self) -> u32 {
        self.refused.load(Ordering::SeqCst)
    }
}

impl Connections for Refusing {
    fn id(&self) -> &ResourceId {
        self.node.id()
    }

    fn local_addr(&self) -> SocketAddr {
        self.node.local_addr()
    }

    fn advertised(&self) -> String {
        self.node.advertised()
    }

    fn acquire(
        &self,
        connection: ConnectionId,
    ) -> BoxFuture<'static, Result<Lease, TransportError>> {
        if self.refuses.load(Ordering::SeqCst) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            let error = thalweg_transport::ConnectError::Unreachable {
                address: connection.address.clone(),
                reason: "the test says so".to_owned(),
            };
            let error = TransportError::from_connect(&connection, &error);
            return Box::pin(std::future::ready(Err(error)));
        }
        self.node.acquire(connection)
    }

    fn close_unused(&self, connection: &ConnectionId) {
        self.node.close_unused(connection);
    }

    fn active(&self) -> usize {
        self.node.active()
    }

    fn snapshot(&self) -> Vec<ConnectionSnapshot> {
        self.node.snapshot()
    }

    fn register(&self, kind: StreamKind, handler: Arc<dyn StreamHandler>) {
        self.node.register(kind, handler);
    }

    fn runtime(&self) -> &Handle {
        self.node.runtime()
    }

    fn tasks(&self) -> &Shutdown {
        self.node.tasks()
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_stays_where_it_is_while_no_new_connection_can_be_made() {
    let mem = mem().await;
    let (refusing, service) = Refusing::service(&mem.nodes[0]);
    let client: JournalClient = service.connect(mem.client.address(), None).await.unwrap();
    refusing.refuses.store(true, Ordering::SeqCst);
    tokio::time::sleep(AGE * 3 / 2).await;
    assert_eq!(client.ask(1).await, Ok(1));
    assert_eq!(service.stats().gateways_moved, 0);
    refusing.refuses.store(false, Ordering::SeqCst);
    tokio::time::sleep(AGE / 4).await;
    assert_eq!(service.stats().gateways_moved, 1);
    tokio::time::sleep(AGE / 2).await;
    assert_eq!(client.ask(2).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_nobody_uses_any_more_looks_for_no_new_connection() {
    let mem = mem().await;
    mem.nodes[1].register(StreamKind::RPC, Arc::new(Silent));
    let (refusing, service) = Refusing::service(&mem.nodes[0]);
    let client: JournalClient = service.connect(mem.client.address(), None).await.unwrap();
    refusing.refuses.store(true, Ordering::SeqCst);
    while refusing.refused() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // The stream lives on for a while, as its peer does not say that it has read everything.
    drop(client);
    settle().await;
    let refused = refusing.refused();
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(refusing.refused(), refused);
}

/// Reads a caller's hello and welcomes it.
async fn welcome(stream: &mut PeerStream) -> Decoder {
    let mut decoder = Decoder::new(1024);
    while decoder.next_frame().unwrap().is_none() {
        decoder.push(&stream.recv.read(1024).await.unwrap().unwrap());
    }
    let mut welcome = bytes::BytesMut::new();
    let head = Head::Welcome {
        version: 1,
        max_frame: 1024,
    };
    head.encode(7, &mut welcome);
    welcome.extend_from_slice(b"journal");
    stream.send.write(&mut [welcome.freeze()]).await.unwrap();
    decoder
}

/// Answers no call on its first stream, lets the caller move to another one, and ends that.
#[derive(Debug, Default)]
struct EndsTheSecond {
    streams: AtomicU32,
}

impl StreamHandler for EndsTheSecond {
    fn handle(&self, mut stream: PeerStream) -> BoxFuture<'static, ()> {
        let is_first = self.streams.fetch_add(1, Ordering::SeqCst) == 0;
        Box::pin(async move {
            let mut decoder = welcome(&mut stream).await;
            if !is_first {
                return stream.send.finish().unwrap();
            }
            loop {
                match decoder.next_frame().unwrap() {
                    Some(frame) if matches!(frame.head, Head::Drain) => {
                        let mut drained = bytes::BytesMut::new();
                        Head::Drained.encode(0, &mut drained);
                        stream.send.write(&mut [drained.freeze()]).await.unwrap();
                    }
                    Some(_) => {}
                    None => match stream.recv.read(1024).await {
                        Ok(Some(bytes)) => decoder.push(&bytes),
                        _ => return,
                    },
                }
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_gateway_ends_its_calls_on_older_streams_too() {
    let mem = mem().await;
    mem.nodes[1].register(StreamKind::RPC, Arc::new(EndsTheSecond::default()));
    let address = mem.client.address();
    let client: JournalClient = mem.services[0].connect(address, None).await.unwrap();
    let held = tokio::spawn(client.hold());
    let end = client.wait_closed().await;
    let begin = now();
    let error = held.await.unwrap().unwrap_err();
    assert_eq!(error, end);
    assert!(
        now() - begin <= Duration::from_secs(2),
        "{:?}",
        now() - begin
    );
}

/// Welcomes every caller, and reads and says nothing more.
#[derive(Debug)]
struct Silent;

impl StreamHandler for Silent {
    fn handle(&self, mut stream: PeerStream) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let _decoder = welcome(&mut stream).await;
            std::future::pending().await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_say_what_it_has_read_loses_the_client_rather_than_its_order() {
    let mem = mem().await;
    mem.nodes[1].register(StreamKind::RPC, Arc::new(Silent));
    let address = mem.client.address();
    let client: JournalClient = mem.services[0].connect(address, None).await.unwrap();
    client.tell(1).unwrap();
    // Up to a tenth is taken off the age, so that the limit of the move may be over at its end.
    tokio::time::sleep(AGE * 9 / 10).await;
    mem.moved(1).await;
    client.tell(2).unwrap();
    let begin = now();
    let error = client.wait_closed().await;
    assert!(now() - begin <= Duration::from_secs(21));
    let text = error.to_string();
    assert!(text.contains("did not hand on"), "{text}");
    assert!(error.is_retryable());
    assert_eq!(client.tell(3), Err(error));
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_nobody_asked_for_breaks_the_stream() {
    #[derive(Debug)]
    struct Hasty;
    impl StreamHandler for Hasty {
        fn handle(&self, mut stream: PeerStream) -> BoxFuture<'static, ()> {
            Box::pin(async move {
                let mut bytes = bytes::BytesMut::new();
                let head = Head::Welcome {
                    version: 1,
                    max_frame: 1024,
                };
                head.encode(7, &mut bytes);
                bytes.extend_from_slice(b"journal");
                Head::Drained.encode(0, &mut bytes);
                stream.send.write(&mut [bytes.freeze()]).await.unwrap();
                while let Ok(Some(_)) = stream.recv.read(1024).await {}
            })
        }
    }
    let mem = mem().await;
    mem.nodes[1].register(StreamKind::RPC, Arc::new(Hasty));
    let address = mem.client.address();
    let client: JournalClient = mem.services[0].connect(address, None).await.unwrap();
    let error = client.wait_closed().await;
    assert!(matches!(error, RpcError::Decode { .. }), "{error}");
}
