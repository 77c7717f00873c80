//! Streams and the code that serves them.

use super::*;
use crate::{ConnectionError, ErrorCode, StreamError};

const ECHO: StreamKind = StreamKind(64);

async fn pair(fabric: &Mem) -> (Node, Node) {
    let b = builder("b", TransportConfig::default()).handler(ECHO, Arc::new(Echo));
    let b = b.start(fabric.transport("b")).await.unwrap();
    (start(fabric, "a").await, b)
}

async fn an_unknown_kind_fails_only_its_stream<F: Fabric>(fabric: F) {
    let (a, b) = (start(&fabric, "a").await, start(&fabric, "b").await);
    b.register(ECHO, Arc::new(Echo));
    let lease = a.acquire(to(&b)).await.unwrap();
    let mut other = lease.open(ECHO).await.unwrap();
    send(&mut other, "begun before ").await.unwrap();
    let mut unknown = lease.open(StreamKind(99)).await.unwrap();
    send(&mut unknown, "hello?").await.unwrap();
    let error = in_time("refusal", read_all(&mut unknown.recv)).await;
    let code = ErrorCode::UNKNOWN_STREAM_KIND;
    assert!(matches!(error, Err(StreamError::Reset { code: c }) if c == code));
    let stopped = in_time("stop", unknown.send.stopped()).await;
    assert_eq!(stopped.unwrap(), Some(code));
    send(&mut other, "and after").await.unwrap();
    other.send.finish().unwrap();
    assert_eq!(
        read_all(&mut other.recv).await.unwrap(),
        b"begun before and after"
    );
    echoes(&lease, ECHO, "a new one").await;
    assert_eq!(accepted(&b), 1);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_kind_is_refused_and_only_that_stream() {
    an_unknown_kind_fails_only_its_stream(Mem::default()).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_a_handler_fails_its_connection_only() {
    let fabric = Mem::default();
    let (a, b) = pair(&fabric).await;
    let c = start(&fabric, "c").await;
    b.register(StreamKind(65), Arc::new(Panics));
    let from_a = a.acquire(to(&b)).await.unwrap();
    let from_c = c.acquire(to(&b)).await.unwrap();
    let mut stream = from_a.open(StreamKind(65)).await.unwrap();
    send(&mut stream, "x").await.unwrap();
    let end = in_time("close", from_a.closed()).await;
    assert!(matches!(
        &end,
        ConnectionError::ClosedByPeer { code, .. } if *code == ErrorCode::INTERNAL
    ));
    echoes(&from_c, ECHO, "still here").await;
    let again = a.acquire(to(&b)).await.unwrap();
    echoes(&again, ECHO, "and again").await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_its_kind_is_reset_in_time_and_alone() {
    let fabric = Mem::default();
    let (_, b) = pair(&fabric).await;
    let transport = fabric.transport("raw");
    let connection = transport.connect(b.local_addr(), None).await.unwrap();
    let (mut send, mut recv) = connection.open().await.unwrap();
    let mut chunks = [
        Bytes::from_static(&[1, 1]),
        hello::hello_of("raw").encode().unwrap(),
    ];
    send.write(&mut chunks).await.unwrap();
    send.finish().unwrap();
    while let Some(_hello) = recv.read(1024).await.unwrap() {}

    let begin = crate::now();
    let (mut slow, mut answer) = connection.open().await.unwrap();
    slow.write(&mut [Bytes::from_static(&[64])]).await.unwrap();
    let error = in_time("reset", answer.read(1)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::TIMED_OUT);
    assert_eq!(crate::now() - begin, Duration::from_secs(5));

    let (mut newer, mut answer) = connection.open().await.unwrap();
    newer
        .write(&mut [Bytes::from_static(&[64, 2])])
        .await
        .unwrap();
    let error = in_time("reset", answer.read(1)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::VERSION_MISMATCH);

    let (mut bare, mut answer) = connection.open().await.unwrap();
    bare.write(&mut [Bytes::from_static(&[64])]).await.unwrap();
    bare.finish().unwrap();
    let error = in_time("reset", answer.read(1)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::STREAM_PROTOCOL);
    assert_eq!(accepted(&b), 1);
}

#[tokio::test(start_paused = true)]
async fn an_accepted_connection_is_not_used_to_dial_back() {
    let fabric = Mem::default();
    let a = start(&fabric, "a").await;
    a.register(ECHO, Arc::new(Echo));
    let transport = fabric.transport("b");
    let bind = BindAddr::single("127.0.0.1:0".parse().unwrap());
    let mut listener = transport.listen(&bind).await.unwrap();
    let address = crate::Listener::local_addr(&listener);
    let (lease, connection) = tokio::join!(
        a.acquire(ConnectionId::to_address(address.to_string())),
        hello::accept_raw(&mut listener, "b")
    );
    let lease = lease.unwrap();
    let (mut back, mut answer) = connection.open().await.unwrap();
    let header = Bytes::from_static(&[64, crate::STREAM_VERSION]);
    back.write(&mut [header]).await.unwrap();
    let error = in_time("refusal", answer.read(1)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::UNKNOWN_STREAM_KIND);
    assert!(lease.close_reason().is_none());
}

#[tokio::test(start_paused = true)]
async fn more_streams_are_allowed_as_they_are_used() {
    let fabric = Mem::default();
    let (a, b) = pair(&fabric).await;
    let lease = a.acquire(to(&b)).await.unwrap();
    let mut streams = vec![];
    for _ in 0..1000 {
        let mut stream = in_time("open", lease.open(ECHO)).await.unwrap();
        send(&mut stream, "held").await.unwrap();
        streams.push(stream);
    }
    echoes(&lease, ECHO, "one more").await;
}

#[tokio::test(start_paused = true)]
async fn the_stream_limit_of_the_configuration_holds() {
    let fabric = Mem::default();
    let a = start(&fabric, "a").await;
    let config = TransportConfig {
        max_streams_per_connection: 200,
        ..TransportConfig::default()
    };
    let b = builder("b", config)
        .start(fabric.transport("b"))
        .await
        .unwrap();
    b.register(ECHO, Arc::new(Echo));
    let lease = a.acquire(to(&b)).await.unwrap();
    let mut streams = vec![];
    for _ in 0..200 {
        let mut stream = in_time("open", lease.open(ECHO)).await.unwrap();
        send(&mut stream, "held").await.unwrap();
        streams.push(stream);
    }
    let more = timeout(Duration::from_secs(5), lease.open(ECHO)).await;
    assert!(more.is_err(), "the 201st stream has to wait");
    let mut first = streams.swap_remove(0);
    first.send.finish().unwrap();
    assert_eq!(read_all(&mut first.recv).await.unwrap(), b"held");
    in_time("open", lease.open(ECHO)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn bytes_after_the_header_reach_the_handler_however_they_are_cut() {
    let fabric = Mem {
        network: MemNetwork::with_window(3),
        ..Mem::default()
    };
    let (a, b) = pair(&fabric).await;
    let lease = a.acquire(to(&b)).await.unwrap();
    let exchange = async {
        let mut stream = lease.open(ECHO).await.unwrap();
        let (mut send, recv) = (stream.send, &mut stream.recv);
        let write = async {
            let mut chunks = [Bytes::from_static(b"one "), Bytes::from_static(b"two")];
            send.write(&mut chunks).await.unwrap();
            assert!(chunks.iter().all(Bytes::is_empty));
            send.finish().unwrap();
        };
        let ((), heard) = tokio::join!(write, read_all(recv));
        assert_eq!(heard.unwrap(), b"one two");
    };
    in_time("echo", exchange).await;
}

#[tokio::test(start_paused = true)]
async fn an_end_is_remote_or_local_by_who_caused_it() {
    let fabric = Mem::default();
    let a = start(&fabric, "a").await;
    let transport = fabric.transport("b");
    let bind = BindAddr::single("127.0.0.1:0".parse().unwrap());
    let mut listener = transport.listen(&bind).await.unwrap();
    let target = ConnectionId::to_address(crate::Listener::local_addr(&listener).to_string());
    for lost in [true, false] {
        let (lease, connection) = tokio::join!(
            a.acquire(target.clone()),
            hello::accept_raw(&mut listener, "b")
        );
        if lost {
            connection.sever();
        } else {
            connection.close(ErrorCode::NO_ERROR, "not needed");
        }
        let error = lease.unwrap().open(ECHO).await.unwrap_err();
        assert!(matches!(error, TransportError::Remote { .. }), "{error}");
        assert!(error.is_retryable());
        assert!(error.to_string().contains("may be lost"), "{error}");
    }
    let (lease, _connection) =
        tokio::join!(a.acquire(target), hello::accept_raw(&mut listener, "b"));
    let lease = lease.unwrap();
    a.shutdown(Duration::from_secs(1)).await.unwrap();
    let error = lease.open(ECHO).await.unwrap_err();
    assert!(matches!(error, TransportError::Local { .. }), "{error}");
}
