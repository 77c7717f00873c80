//! Peers that got through the handshake and misbehave then.

use super::*;

#[tokio::test]
async fn a_violation_closes_the_connection_with_its_reason() {
    let mut listener = listen(&TransportConfig::default()).await;
    let window = 16 * 1024;
    let mut beyond_window = data(1, window, &vec![0; window], false);
    beyond_window.extend(data(1, 1, b"", false));
    for (bytes, reason) in [
        (vec![0xee; 8], "unknown frame kind 0xee"),
        (data(1, 0, b"", false), "0 payload bytes"),
        (vec![0x00, 0xff, 0xff, 0xff, 0, 0, 0, 1], "16777215"),
        (data(2, 1, b"x", false), "never opened"),
        (data(1, 0, b"", true).repeat(2), "after its end"),
        (beyond_window, "window"),
        (preface(1)[8..].to_vec(), "second settings"),
    ] {
        let (mut peer, connection) = RawPeer::connected(&mut listener, 1000).await;
        peer.send(&bytes).await;
        let (code, text, _) = peer.read_close().await;
        assert_eq!(code, ErrorCode::PROTOCOL);
        assert!(text.contains(reason), "{text:?} has no {reason:?}");
        let error = within("closed", connection.closed()).await;
        assert!(
            matches!(&error, ConnectionError::Protocol { reason } if *reason == text),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn an_end_inside_a_frame_is_never_the_end_of_the_data() {
    let mut listener = listen(&TransportConfig::default()).await;
    for (reset, cut) in [(false, 3), (true, 3), (false, 0), (true, 0)] {
        let (mut peer, connection) = RawPeer::connected(&mut listener, 1000).await;
        let mut bytes = data(1, 5, b"whole", false);
        bytes.extend(data(1, 100, &[7; 100][..cut], true));
        peer.send(&bytes).await;
        let (_send, mut recv) = within("accept", connection.accept()).await.unwrap();
        let mut read = Vec::new();
        while read.len() < 5 + cut {
            read.extend(within("read", recv.read(100)).await.unwrap().unwrap());
        }
        if reset {
            peer.abort();
        } else {
            drop(peer);
        }
        let error = within("read", recv.read(100)).await.unwrap_err();
        assert!(
            matches!(error, StreamError::Connection(ConnectionError::Lost { .. })),
            "{error:?}"
        );
        assert!(error.is_retryable());
    }
}

#[tokio::test]
async fn an_end_between_frames_without_close_is_a_loss() {
    let mut listener = listen(&TransportConfig::default()).await;
    let (peer, connection) = RawPeer::connected(&mut listener, 1000).await;
    drop(peer);
    let error = within("closed", connection.closed()).await;
    assert!(matches!(error, ConnectionError::Lost { .. }), "{error:?}");
}

#[tokio::test]
async fn a_peer_that_does_not_read_is_dropped_and_others_live() {
    let limit = Duration::from_millis(400);
    let mut listener = listen(&quick(|config| config.write_timeout = limit)).await;
    let (_peer, stuck) = RawPeer::connected(&mut listener, 1 << 30).await;
    let client = TcpTransport::new(&TransportConfig::default(), None);
    let (dialled, accepted) = within("connecting", async {
        tokio::join!(
            client.connect(listener.local_addr(), None),
            listener.accept()
        )
    })
    .await;
    let (dialled, accepted) = (dialled.unwrap(), accepted.unwrap());

    let (mut send, _recv) = stuck.open().await.unwrap();
    let chunk = Bytes::from(vec![0; 1024 * 1024]);
    let stuck_writer = async {
        loop {
            if let Err(error) = send.write(&mut [chunk.clone()]).await {
                return error;
            }
        }
    };
    let calls = async {
        let (mut send, _recv) = dialled.open().await.unwrap();
        send.write(&mut [Bytes::from_static(b"0")]).await.unwrap();
        let (_send, mut recv) = accepted.accept().await.unwrap();
        loop {
            recv.read(100).await.unwrap().unwrap();
            send.write(&mut [Bytes::from_static(b"1")]).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let error = within("the drop", async {
        tokio::select! {
            error = stuck_writer => error,
            () = calls => unreachable!("calls go on for ever"),
        }
    })
    .await;
    assert!(
        matches!(&error, StreamError::Connection(ConnectionError::TimedOut { reason })
            if reason.contains("did not read")),
        "{error:?}"
    );
    let live = tokio::time::timeout(Duration::ZERO, dialled.closed()).await;
    assert!(live.is_err(), "{live:?}");
}

#[tokio::test]
async fn a_peer_that_falls_silent_is_pinged_and_dropped() {
    let mut listener = listen(&quick(|config| {
        config.keep_alive = Duration::from_millis(50);
        config.idle_timeout = Duration::from_millis(300);
    }))
    .await;
    let (mut peer, connection) = RawPeer::connected(&mut listener, 1000).await;
    // Half a frame is no sign of life for longer than its bytes.
    peer.send(&data(1, 1000, b"half", false)).await;
    let (code, text, pings) = peer.read_close().await;
    assert_eq!(code, ErrorCode::TIMED_OUT);
    assert!(text.contains("nothing was heard"), "{text}");
    assert!(pings >= 2, "{pings} pings");
    let error = within("closed", connection.closed()).await;
    assert!(
        matches!(error, ConnectionError::TimedOut { .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn one_byte_a_segment_gives_the_same_as_whole_frames() {
    let mut listener = listen(&TransportConfig::default()).await;
    let (mut peer, connection) = RawPeer::connected(&mut listener, 1000).await;
    let mut bytes = data(1, 5, b"hello", false);
    bytes.extend(control(&Control::Ping { token: 7 }));
    bytes.extend(data(1, 6, b" world", true));
    peer.socket.set_nodelay(true).unwrap();
    for byte in &bytes {
        peer.send(&[*byte]).await;
        tokio::task::yield_now().await;
    }
    let (_send, mut recv) = within("accept", connection.accept()).await.unwrap();
    let mut read = Vec::new();
    while let Some(chunk) = within("read", recv.read(100)).await.unwrap() {
        read.extend(chunk);
    }
    assert_eq!(read, b"hello world");
}

#[tokio::test]
async fn a_million_smallest_frames_leave_a_neighbour_its_turn() {
    let mut listener = listen(&TransportConfig::default()).await;
    let (mut flood, flooded) = RawPeer::connected(&mut listener, 1000).await;
    let (mut peer, connection) = RawPeer::connected(&mut listener, 1000).await;
    let ping = control(&Control::Ping { token: 1 }).repeat(1000);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let (mut read, mut write) = flood.socket.split();
        let pings = async {
            for _ in 0..1000 {
                write.write_all(&ping).await.unwrap();
            }
            let last = control(&Control::Ping { token: 2 });
            write.write_all(&last).await.unwrap();
        };
        // However much of the flood the kernel keeps, it is over when the last ping is answered.
        let last = control(&Control::Pong { token: 2 });
        let pongs = async {
            let mut answers = Vec::new();
            while !answers.ends_with(&last) {
                let kept = answers.len().saturating_sub(last.len());
                answers.drain(..kept);
                let read = read.read_buf(&mut answers).await.unwrap();
                assert!(read > 0, "the flood was cut off");
            }
        };
        tokio::join!(pings, pongs);
    });
    peer.send(&data(1, 1, b"!", false)).await;
    let (_send, mut recv) = within("accept", connection.accept()).await.unwrap();
    let mut answers = 0;
    while tasks.try_join_next().is_none() {
        within("read", recv.read(100)).await.unwrap().unwrap();
        answers += 1;
        peer.send(&data(1, 1, b"!", false)).await;
    }
    // 16 MiB of frames are 128 turns of the reader.
    assert!(answers >= 10, "{answers} answers beside the flood");
    assert!(flooded.stats().rtt.is_none());
}

#[tokio::test]
async fn a_closed_peer_hears_the_reason_behind_data_under_way() {
    let mut listener = listen(&TransportConfig::default()).await;
    let (mut peer, connection) = RawPeer::connected(&mut listener, 1 << 20).await;
    let (mut send, _recv) = connection.open().await.unwrap();
    send.write(&mut [Bytes::from(vec![1; 200_000])])
        .await
        .unwrap();
    tokio::task::yield_now().await;
    connection.close(ErrorCode::REPLACED, "newer one");
    let (code, reason, _) = peer.read_close().await;
    assert_eq!((code, &*reason), (ErrorCode::REPLACED, "newer one"));
}
