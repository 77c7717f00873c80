//! Who may introduce himself how.

use super::*;
use crate::{
    ConnectionError, ErrorCode, Listener,
    mem::{MemConnection, MemListener},
    proto::hello::{Hello, Versions},
};

pub(super) fn hello_of(id: &str) -> Hello {
    Hello {
        versions: Versions::SUPPORTED,
        features: 0,
        buffer_size: 4096,
        max_frame: 8192,
        id: name(id),
        cluster: None,
    }
}

/// Accepts a connection and its hello, and answers as this node, by hand.
pub(super) async fn accept_raw(listener: &mut MemListener, id: &str) -> MemConnection {
    let connection = in_time("accept", listener.accept()).await.unwrap();
    let (mut send, mut recv) = connection.accept().await.unwrap();
    let mut heard = vec![];
    while let Some(chunk) = recv.read(3).await.unwrap() {
        heard.extend_from_slice(&chunk);
    }
    assert_eq!(heard[..2], [1, crate::STREAM_VERSION]);
    assert!(Hello::decode(&heard[2..]).unwrap().is_some());
    let hello = hello_of(id).encode().unwrap();
    send.write(&mut [hello]).await.unwrap();
    send.finish().unwrap();
    connection
}

async fn dial_raw(fabric: &Mem, id: &str, node: &Node) -> MemConnection {
    let transport = fabric.transport(id);
    transport.connect(node.local_addr(), None).await.unwrap()
}

/// Writes these bytes as the first stream and says how the node closes the connection.
async fn verdict(fabric: &Mem, node: &Node, bytes: Vec<u8>) -> (ErrorCode, String) {
    let connection = dial_raw(fabric, "raw", node).await;
    let (mut send, _recv) = connection.open().await.unwrap();
    // Cut in the least convenient way: byte by byte.
    for byte in bytes {
        if send
            .write(&mut [Bytes::copy_from_slice(&[byte])])
            .await
            .is_err()
        {
            break;
        }
    }
    let _ = send.finish();
    closed_by_peer(&connection).await
}

async fn closed_by_peer(connection: &MemConnection) -> (ErrorCode, String) {
    match in_time("close", connection.closed()).await {
        ConnectionError::ClosedByPeer { code, reason } => (code, reason),
        other => panic!("closed by the peer expected, not {other:?}"),
    }
}

fn first_stream(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = vec![1, crate::STREAM_VERSION];
    bytes.extend_from_slice(&hello_of("raw").encode().unwrap());
    change(&mut bytes);
    bytes
}

#[tokio::test(start_paused = true)]
async fn bad_hellos_close_the_connection_with_their_code() {
    let fabric = Mem::default();
    let node = start(&fabric, "a").await;
    let cases: [(Vec<u8>, ErrorCode); 8] = [
        (first_stream(|b| b[0] = 3), ErrorCode::PROTOCOL),
        (first_stream(|b| b[1] = 9), ErrorCode::VERSION_MISMATCH),
        (first_stream(|b| b[2] = b'G'), ErrorCode::PROTOCOL),
        (
            first_stream(|b| b[6..8].fill(0)),
            ErrorCode::VERSION_MISMATCH,
        ),
        (
            first_stream(|b| b[6..8].fill(255)),
            ErrorCode::VERSION_MISMATCH,
        ),
        (first_stream(|b| b[8] = 0xff), ErrorCode::PROTOCOL),
        (first_stream(|b| b.push(0)), ErrorCode::PROTOCOL),
        (first_stream(|b| b.truncate(20)), ErrorCode::PROTOCOL),
    ];
    for (bytes, code) in cases {
        let (heard, reason) = verdict(&fabric, &node, bytes.clone()).await;
        assert_eq!(heard, code, "{reason} for {bytes:?}");
    }
    assert_eq!(accepted(&node), 0);
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_closed_at_the_hello_limit() {
    let fabric = Mem::default();
    let node = start(&fabric, "a").await;
    let begin = crate::now();
    let silent = dial_raw(&fabric, "raw", &node).await;
    let (code, reason) = closed_by_peer(&silent).await;
    assert_eq!(code, ErrorCode::TIMED_OUT, "{reason}");
    assert_eq!(crate::now() - begin, Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_delays_no_other() {
    let fabric = Mem::default();
    let (a, b) = (start(&fabric, "a").await, start(&fabric, "b").await);
    let _silent = dial_raw(&fabric, "raw", &a).await;
    let begin = crate::now();
    b.acquire(to(&a)).await.unwrap();
    assert_eq!(crate::now(), begin);
}

#[tokio::test(start_paused = true)]
async fn more_silent_connections_than_handshakes_are_refused() {
    let fabric = Mem::default();
    let config = TransportConfig {
        max_handshakes: 2,
        ..TransportConfig::default()
    };
    let node = builder("a", config)
        .start(fabric.transport("a"))
        .await
        .unwrap();
    let _first = dial_raw(&fabric, "raw", &node).await;
    let _second = dial_raw(&fabric, "raw", &node).await;
    let third = dial_raw(&fabric, "raw", &node).await;
    assert_eq!(closed_by_peer(&third).await.0, ErrorCode::LIMIT_EXCEEDED);
}

#[tokio::test(start_paused = true)]
async fn a_second_hello_closes_the_connection() {
    let fabric = Mem::default();
    let node = start(&fabric, "a").await;
    let connection = dial_raw(&fabric, "raw", &node).await;
    for _ in 0..2 {
        let (mut send, mut recv) = connection.open().await.unwrap();
        let bytes = Bytes::from(first_stream(|_| {}));
        send.write(&mut [bytes]).await.unwrap();
        send.finish().unwrap();
        while let Ok(Some(_)) = recv.read(1024).await {}
    }
    let (code, reason) = closed_by_peer(&connection).await;
    assert_eq!(code, ErrorCode::PROTOCOL);
    assert_eq!(reason, "a second hello on the connection");
}

#[tokio::test(start_paused = true)]
async fn a_wrong_node_is_refused_on_both_sides() {
    for verified in [false, true] {
        let fabric = Mem {
            verified,
            ..Mem::default()
        };
        let (a, b) = (start(&fabric, "a").await, start(&fabric, "b").await);
        let wrong = ConnectionId::new(name("c"), b.advertised());
        let error = a.acquire(wrong).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::IDENTITY_MISMATCH);
        assert!(!error.is_retryable());
        until("the other side drops it, too", || accepted(&b) == 0).await;
        assert_eq!(a.active(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_turns_out_to_be_another_is_dialled_once() {
    let fabric = Mem::default();
    let script = Arc::<Script>::default();
    let a = start_scripted(&fabric, "a", TransportConfig::default(), &script).await;
    let b = start(&fabric, "b").await;
    let wrong = ConnectionId::new(name("c"), b.advertised());
    let error = a.acquire(wrong).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::IDENTITY_MISMATCH);
    assert_eq!(script.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_refused_node_hears_why() {
    let fabric = Mem::default();
    let a = start(&fabric, "a").await;
    let transport = fabric.transport("b");
    let bind = BindAddr::single("127.0.0.1:0".parse().unwrap());
    let mut listener = transport.listen(&bind).await.unwrap();
    let wanted = ConnectionId::new(name("c"), listener.local_addr().to_string());
    let (lease, connection) = tokio::join!(a.acquire(wanted), accept_raw(&mut listener, "b"));
    lease.unwrap_err();
    let (code, reason) = closed_by_peer(&connection).await;
    assert_eq!(code, ErrorCode::IDENTITY_MISMATCH);
    assert_eq!(reason, "node a dialled c and found b");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_the_certificate_does_not_prove_is_refused() {
    let fabric = Mem {
        verified: true,
        ..Mem::default()
    };
    let a = start(&fabric, "a").await;
    // The certificate says c, the hello says b.
    let liar = builder("b", TransportConfig::default())
        .start(fabric.transport("c"))
        .await
        .unwrap();
    let error = liar.acquire(to(&a)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::IDENTITY_MISMATCH, "{error}");
    let anyone = ConnectionId::to_address(liar.advertised());
    let error = a.acquire(anyone).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::IDENTITY_MISMATCH, "{error}");
    assert_eq!((accepted(&a), accepted(&liar)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn clusters_do_not_mix() {
    let fabric = Mem::default();
    let of = |id, cluster: &'static str| {
        let node = builder(id, TransportConfig::default()).cluster_id(cluster);
        node.start(fabric.transport(id))
    };
    let (a, b) = (
        of("a", "prod").await.unwrap(),
        of("b", "test").await.unwrap(),
    );
    let error = a.acquire(to(&b)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::WRONG_CLUSTER);
    assert!(!error.is_retryable());
    let c = of("c", "prod").await.unwrap();
    a.acquire(to(&c)).await.unwrap();
    assert!(matches!(
        of("d", "no word").await,
        Err(NodeError::Cluster(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn both_sides_know_the_agreement() {
    let fabric = Mem {
        verified: true,
        ..Mem::default()
    };
    let config = TransportConfig {
        buffer_size: 2048,
        ..TransportConfig::default()
    };
    let a = builder("a", TransportConfig::default()).features(0b11);
    let a = a.start(fabric.transport("a")).await.unwrap();
    let b = builder("b", config).features(0b110).max_frame(1);
    let b = b.start(fabric.transport("b")).await.unwrap();
    let lease = a.acquire(to(&b)).await.unwrap();
    let agreement = lease.agreement().unwrap();
    let stated = agreement.features & !crate::proto::hello::OWN_FEATURE_BITS;
    assert_eq!((agreement.version, stated), (1, 0b10));
    assert_eq!(agreement.peer_buffer_size, 2048);
    assert_eq!(agreement.peer_max_frame, 2048);
    let identity = PeerIdentity::Verified(verified("b"));
    assert_eq!(lease.peer().identity, identity);
    until("accepted", || accepted(&b) == 1).await;
    assert_eq!(b.snapshot()[0].peer.id, name("a"));
}
