//! Peers that do not get through the handshake.

use super::*;
use crate::ConnectError;

const LIMIT: Duration = Duration::from_millis(200);

#[tokio::test]
async fn a_silent_peer_is_dropped_at_the_handshake_limit() {
    let listener = listen(&quick(|config| config.handshake_timeout = LIMIT)).await;
    let mut peer = RawPeer::dial(&listener).await;
    let _accepting = accept_all(listener);
    let start = crate::now();
    assert_eq!(peer.read_to_end().await, b"");
    assert!(crate::now() - start >= LIMIT / 2);
}

#[tokio::test]
async fn a_peer_that_sends_byte_by_byte_gets_no_more_time() {
    let listener = listen(&quick(|config| config.handshake_timeout = LIMIT)).await;
    let mut peer = RawPeer::dial(&listener).await;
    let _accepting = accept_all(listener);
    let mut pace = tokio::time::interval(LIMIT / 4);
    let bytes = preface(1000);
    let mut sent = 0;
    // Each byte comes well within the limit, the last one of the preface long after it.
    for byte in &bytes {
        pace.tick().await;
        if peer.socket.write_all(&[*byte]).await.is_err() {
            break;
        }
        sent += 1;
    }
    assert!(sent < bytes.len(), "the whole preface was taken");
}

#[tokio::test]
async fn other_protocols_are_told_at_once_what_is_wrong() {
    let listener = listen(&TransportConfig::default()).await;
    let address = listener.local_addr();
    let _accepting = accept_all(listener);
    for (words, reason) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "another protocol"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "another protocol"),
        (b"\xac\xed\x00\x05", "another protocol"),
        (b"\xba\xdc\x0f\xfe", "another protocol"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", "speaks TLS"),
        (b"THALWEG\x02", "version 2"),
        (b"THALWEG\x01\x00\x00\x00\x01\x00\x00\x00\x01", "Data"),
        (b"THALWEG\x01\x0a\xff\xff\xff\x00\x00\x00\x00", "16777215"),
        (&[0xff; 4096], "another protocol"),
    ] {
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(words).await.unwrap();
        let mut answer = [0; MAGIC.len()];
        within("the answer", socket.read_exact(&mut answer))
            .await
            .unwrap();
        assert_eq!(answer, MAGIC);
        let mut peer = RawPeer {
            socket,
            decoder: Decoder::new(),
            unread: Bytes::new(),
        };
        let (code, text, _) = peer.read_close().await;
        let version = words.starts_with(b"THALWEG\x02");
        let expected = if version {
            ErrorCode::VERSION_MISMATCH
        } else {
            ErrorCode::PROTOCOL
        };
        assert_eq!(code, expected);
        assert!(text.contains(reason), "{text:?} has no {reason:?}");
    }
}

#[tokio::test]
async fn silent_peers_on_all_places_delay_a_good_one_by_a_second_at_most() {
    let config = quick(|config| {
        config.max_handshakes = 3;
        config.handshake_timeout = DEADLINE * 3;
    });
    let mut listener = listen(&config).await;
    let mut silent = Vec::new();
    for _ in 0..6 {
        silent.push(RawPeer::dial(&listener).await);
    }
    let client = TcpTransport::new(&TransportConfig::default(), None);
    let (dialled, accepted) = within("connecting", async {
        tokio::join!(
            client.connect(listener.local_addr(), None),
            listener.accept()
        )
    })
    .await;
    dialled.unwrap();
    accepted.unwrap();
}

#[tokio::test]
async fn connects_that_are_ended_at_once_leave_nothing_behind() {
    let mut listener = listen(&TransportConfig::default()).await;
    let address = listener.local_addr();
    let client = TcpTransport::new(&TransportConfig::default(), None);
    let dials = async {
        for number in 0..300 {
            let socket = TcpStream::connect(address).await.unwrap();
            if number % 2 == 0 {
                socket2::SockRef::from(&socket)
                    .set_linger(Some(Duration::ZERO))
                    .unwrap();
            }
        }
        client.connect(address, None).await
    };
    let (dialled, accepted) = within("connecting", async {
        tokio::join!(dials, listener.accept())
    })
    .await;
    dialled.unwrap();
    accepted.unwrap();
    assert!(listener.failed_handshakes() <= 300);
    assert!(listener.failed_handshakes() > 0);
}

/// A server by hand: answers each dial with these bytes and waits for the dialler to go.
async fn dial_server(answer: &'static [u8], config: &TransportConfig) -> ConnectError {
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    let serve = async {
        let (mut socket, _) = server.accept().await.unwrap();
        socket.write_all(answer).await.unwrap();
        let mut all = Vec::new();
        let _ = socket.read_to_end(&mut all).await;
    };
    let client = TcpTransport::new(config, None);
    let dial = client.connect(address, None);
    let (error, ()) = within("the dial", async { tokio::join!(dial, serve) }).await;
    error.unwrap_err()
}

#[tokio::test]
async fn a_dialler_says_what_is_wrong_with_the_server() {
    let config = quick(|config| config.handshake_timeout = LIMIT);
    let silent = dial_server(b"", &config).await;
    assert!(matches!(silent, ConnectError::TimedOut { .. }), "{silent}");
    assert!(silent.is_retryable());
    let tls = dial_server(b"\x15\x03\x03\x00\x02\x02\x32", &config).await;
    assert!(tls.to_string().contains("speaks TLS"), "{tls}");
    let http = dial_server(b"HTTP/1.1 400 Bad Request\r\n", &config).await;
    assert!(http.to_string().contains("HTTP/1.1"), "{http}");
    let refusal = b"THALWEG\x01\x09\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x02bye";
    match dial_server(refusal, &config).await {
        ConnectError::Refused { code, reason, .. } => {
            assert_eq!((code, &*reason), (ErrorCode::SHUTTING_DOWN, "bye"));
        }
        other => panic!("{other}"),
    }
}
