//! TCP with TLS against peers with wrong certificates, without TLS, and without manners.

use std::{io, sync::Arc, time::Duration};

use rustls::{ClientConfig, ServerConfig, pki_types::CertificateDer, pki_types::ServerName};
use thalweg_tests::harness::{TestAuthority, TestCredentials};
use thalweg_transport::{
    Admission, BindAddr, ConnectError, Connection, ConnectionError, Credentials, ErrorCode,
    Listener, RecvStream, Refusal, SERVER_NAME, SendStream, StreamError, Transport,
    TransportConfig, VerifiedPeer,
    tcp::{TcpConnection, TcpListener, TcpTransport},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

/// Far above what anything here takes: only a failure waits for it.
const DEADLINE: Duration = Duration::from_secs(10);

async fn within<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(output) => output,
        Err(_) => panic!("{what}: nothing happened for {DEADLINE:?}"),
    }
}

fn transport(credentials: impl Credentials) -> TcpTransport {
    TcpTransport::new(&TransportConfig::default(), Some(Arc::new(credentials)))
}

fn plaintext() -> TcpTransport {
    TcpTransport::new(&TransportConfig::default(), None)
}

async fn listen(transport: &TcpTransport) -> TcpListener {
    let any: BindAddr = "127.0.0.1:0".parse().expect("an address");
    transport.listen(&any).await.expect("a free port")
}

/// A dial that has to fail. The listener must not give a connection, and counts the failure.
async fn refused(client: &TcpTransport, server: &TcpTransport) -> ConnectError {
    let mut listener = listen(server).await;
    let address = listener.local_addr();
    let error = within("the dial", async {
        tokio::select! {
            dialled = client.connect(address, None) => dialled.expect_err("a refusal"),
            accepted = listener.accept() => panic!("accepted {accepted:?}"),
        }
    })
    .await;
    within("the count", async {
        while listener.failed_handshakes() == 0 {
            let step = tokio::time::timeout(Duration::from_millis(1), listener.accept());
            assert!(step.await.is_err(), "accepted after all");
        }
    })
    .await;
    error
}

/// Two connected nodes.
async fn connected(
    client: &TcpTransport,
    listener: &mut TcpListener,
) -> (TcpConnection, TcpConnection) {
    let address = listener.local_addr();
    let (dialled, accepted) = within("connecting", async {
        tokio::join!(client.connect(address, None), listener.accept())
    })
    .await;
    (
        dialled.expect("a connection"),
        accepted.expect("a connection"),
    )
}

#[track_caller]
fn assert_tls(error: &ConnectError, words: &str) {
    let ConnectError::Tls { reason, .. } = error else {
        panic!("expected a TLS error, found {error:?}");
    };
    assert!(
        reason.to_lowercase().contains(&words.to_lowercase()),
        "{reason:?} has no {words:?}"
    );
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn a_client_of_another_authority_hears_the_servers_alert() {
    // The client trusts the server and its cluster, so that only the server has a reason to refuse.
    let (ours, other) = (TestAuthority::new("ours"), TestAuthority::new("ours"));
    let client = transport(other.node_that_trusts("client", &ours));
    assert_tls(
        &refused(&client, &transport(ours.node("server"))).await,
        "does not trust the authority",
    );
}

#[tokio::test]
async fn a_server_of_another_authority_is_refused() {
    let (ours, other) = (TestAuthority::new("ours"), TestAuthority::new("other"));
    let server = transport(other.node_that_trusts("server", &ours));
    assert_tls(
        &refused(&transport(ours.node("client")), &server).await,
        "certificate",
    );
}

#[tokio::test]
async fn an_expired_certificate_is_refused_on_either_side() {
    let ours = TestAuthority::new("ours");
    let (good, expired) = (
        transport(ours.node("good")),
        transport(ours.expired_node("expired")),
    );
    assert_tls(&refused(&expired, &good).await, "expired");
    assert_tls(&refused(&good, &expired).await, "expired");
}

#[tokio::test]
async fn a_client_without_certificate_is_refused() {
    let ours = TestAuthority::new("ours");
    let client = transport(ours.node_without_client_certificate("client"));
    assert_tls(
        &refused(&client, &transport(ours.node("server"))).await,
        "sent no certificate",
    );
}

/// Credentials with one thing changed.
#[derive(Debug)]
struct Changed {
    inner: TestCredentials,
    refuses: bool,
    alpn: Option<&'static [u8]>,
}

impl Credentials for Changed {
    fn server_config(&self) -> Arc<ServerConfig> {
        self.inner.server_config()
    }

    fn client_config(&self) -> Arc<ClientConfig> {
        let mut config = (*self.inner.client_config()).clone();
        if let Some(alpn) = self.alpn {
            config.alpn_protocols = vec![alpn.to_vec()];
            config.alpn_protocols.retain(|name| !name.is_empty());
        }
        Arc::new(config)
    }

    fn identify(&self, end_entity: &CertificateDer<'_>) -> Result<VerifiedPeer, Refusal> {
        self.inner.identify(end_entity)
    }

    fn admit(&self, peer: &VerifiedPeer, admission: Admission<'_>) -> Result<(), Refusal> {
        if self.refuses {
            return Err(Refusal {
                code: ErrorCode::WRONG_ROLE,
                reason: format!("{} may not come in", peer.uri),
            });
        }
        self.inner.admit(peer, admission)
    }
}

#[tokio::test]
async fn a_refusal_by_identity_reaches_the_dialler_in_words() {
    let ours = TestAuthority::new("ours");
    let server = transport(Changed {
        inner: ours.node("server"),
        refuses: true,
        alpn: None,
    });
    match refused(&transport(ours.node("client")), &server).await {
        ConnectError::Refused { code, reason, .. } => {
            assert_eq!(code, ErrorCode::WRONG_ROLE);
            assert_eq!(reason, "spiffe://ours/taskmanager/client may not come in");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_dialler_that_refuses_says_so_and_is_counted() {
    let ours = TestAuthority::new("ours");
    let client = transport(Changed {
        inner: ours.node("client"),
        refuses: true,
        alpn: None,
    });
    match refused(&client, &transport(ours.node("server"))).await {
        ConnectError::PeerRejected { code, .. } => assert_eq!(code, ErrorCode::WRONG_ROLE),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn another_protocol_name_or_none_is_refused() {
    let ours = TestAuthority::new("ours");
    let server = transport(ours.node("server"));
    let client = |alpn| {
        transport(Changed {
            inner: ours.node("client"),
            refuses: false,
            alpn: Some(alpn),
        })
    };
    assert_tls(&refused(&client(b"h2"), &server).await, "protocol");
    match refused(&client(b""), &server).await {
        ConnectError::PeerRejected { code, .. } => assert_eq!(code, ErrorCode::VERSION_MISMATCH),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_plaintext_dialler_is_told_that_the_port_speaks_tls() {
    let ours = TestAuthority::new("ours");
    let error = refused(&plaintext(), &transport(ours.node("server"))).await;
    match error {
        ConnectError::Refused { code, reason, .. } => {
            assert_eq!(code, ErrorCode::PROTOCOL);
            assert!(reason.contains("speaks TLS"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_tls_dialler_finds_that_the_port_speaks_none() {
    let ours = TestAuthority::new("ours");
    let error = refused(&transport(ours.node("client")), &plaintext()).await;
    assert_tls(&error, "speaks no TLS");
}

#[tokio::test]
async fn a_peer_that_speaks_no_tls_gets_an_alert_at_once() {
    let ours = TestAuthority::new("ours");
    let mut listener = listen(&transport(ours.node("server"))).await;
    let address = listener.local_addr();
    let peers = async {
        for words in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"SSH-2.0-OpenSSH_9.6\r\n",
            &[0xff; 1024 * 1024],
            // A TLS record of 65,535 bytes.
            b"\x16\x03\x01\xff\xff\x01\x00\x00\x00\x00\x00\x00",
        ] {
            let mut socket = TcpStream::connect(address).await.expect("a connection");
            let _ = socket.write_all(words).await;
            let mut answer = Vec::new();
            let _ = socket.read_to_end(&mut answer).await;
            assert!(answer.starts_with(b"\x15\x03"), "{answer:?}");
        }
    };
    within("the alerts", async {
        tokio::select! {
            () = peers => {}
            accepted = listener.accept() => panic!("accepted {accepted:?}"),
        }
    })
    .await;
}

/// A client by hand that has gone through TLS and the prefaces.
async fn by_hand(
    credentials: &TestCredentials,
    listener: &mut TcpListener,
) -> (tokio_rustls::client::TlsStream<TcpStream>, TcpConnection) {
    let address = listener.local_addr();
    let dial = async {
        let socket = TcpStream::connect(address).await?;
        let name = ServerName::try_from(SERVER_NAME).expect("a DNS name");
        let mut tls = TlsConnector::from(credentials.client_config())
            .connect(name, socket)
            .await?;
        tls.write_all(
            b"THALWEG\x01\x0a\x00\x00\x08\x00\x00\x00\x00\x00\x20\x00\x00\x00\x00\x00\x64",
        )
        .await?;
        tls.flush().await?;
        let mut answer = [0; 24];
        tls.read_exact(&mut answer).await?;
        io::Result::Ok(tls)
    };
    let (tls, accepted) = within("connecting", async {
        tokio::join!(dial, listener.accept())
    })
    .await;
    (tls.expect("a peer"), accepted.expect("a connection"))
}

#[tokio::test]
async fn an_end_of_tls_without_a_close_frame_is_a_loss() {
    let ours = TestAuthority::new("ours");
    let mut listener = listen(&transport(ours.node("server"))).await;
    let client = ours.node("client");
    for (notify, cut) in [(true, 0), (true, 5), (false, 0), (false, 5)] {
        let (mut tls, connection) = by_hand(&client, &mut listener).await;
        let frame = b"\x01\x00\x00\x0a\x00\x00\x00\x010123456789";
        tls.write_all(b"\x00\x00\x00\x01\x00\x00\x00\x01!")
            .await
            .expect("a write");
        tls.write_all(&frame[..cut]).await.expect("a write");
        tls.flush().await.expect("a flush");
        let (_send, mut recv) = within("accept", connection.accept())
            .await
            .expect("a stream");
        let first = within("read", recv.read(10)).await.expect("a read");
        assert_eq!(first.as_deref(), Some(&b"!"[..]));
        if notify {
            tls.shutdown().await.expect("close_notify");
        } else {
            drop(tls);
        }
        let error = within("read", recv.read(10)).await;
        assert!(
            matches!(
                error,
                Err(StreamError::Connection(ConnectionError::Lost { .. }))
            ),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn a_connection_takes_the_certificate_of_its_time() {
    let (old, new) = (TestAuthority::new("cluster"), TestAuthority::new("cluster"));
    let server = Arc::new(old.node("server"));
    let transport = TcpTransport::new(&TransportConfig::default(), Some(server.clone()));
    let mut listener = listen(&transport).await;
    let old_client = self::transport(old.node("client"));
    let (first, accepted) = connected(&old_client, &mut listener).await;
    server.replace_by(&new.node("server"));
    connected(&self::transport(new.node("client")), &mut listener).await;

    let (mut send, _recv) = within("open", first.open()).await.expect("a stream");
    within("write", send.write(&mut ["still here".into()]))
        .await
        .expect("a write");
    let (_send, mut recv) = within("accept", accepted.accept()).await.expect("a stream");
    let read = within("read", recv.read(100)).await.expect("a read");
    assert_eq!(read.as_deref(), Some(&b"still here"[..]));
}
