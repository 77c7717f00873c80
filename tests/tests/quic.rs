//! What only the QUIC backend has: profiles, TLS failures in words, certificates that change while in use.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use thalweg_tests::{
    conformance::{Backend, Pair, run_check},
    harness::{QuicBackend, TestAuthority, TestCredentials},
};
use thalweg_transport::{
    BindAddr, ConnectError, Connection, ConnectionError, ErrorCode, Listener, Profile, RecvStream,
    ResourceId, SendStream, Transport, TransportConfig,
    quic::{QuicConnection, QuicListener, QuicTransport},
};

const DEADLINE: Duration = Duration::from_secs(20);

fn any_port() -> BindAddr {
    BindAddr::single(SocketAddr::from(([127, 0, 0, 1], 0)))
}

fn transport(credentials: TestCredentials) -> QuicTransport {
    QuicTransport::new(&TransportConfig::default(), Arc::new(credentials)).unwrap()
}

/// Moves 32 MiB over one stream of a fresh pair and gives both connections.
async fn transfer(profile: Profile) -> Pair<QuicBackend> {
    let pair = Pair::new(&QuicBackend::new(profile)).await;
    let ((mut send, _), (_, mut recv)) = pair.stream().await;
    let frame = Bytes::from(vec![0x5a; 32 * 1024]);
    let writing = async {
        for _ in 0..128 {
            let mut chunks: [Bytes; 8] = std::array::from_fn(|_| frame.clone());
            send.write(&mut chunks).await.unwrap();
            tokio::task::yield_now().await;
        }
        send.finish().unwrap();
    };
    let reading = async {
        let mut chunks = vec![Bytes::new(); 32];
        let mut bytes = 0;
        while let Some(count) = recv.read_chunks(&mut chunks).await.unwrap() {
            for chunk in &mut chunks[..count] {
                assert!(chunk.iter().all(|&byte| byte == 0x5a));
                bytes += std::mem::take(chunk).len();
            }
        }
        bytes
    };
    let transfer = async { tokio::join!(reading, writing).0 };
    let bytes = tokio::time::timeout(DEADLINE, transfer).await.unwrap();
    assert_eq!(bytes, 32 * 1024 * 1024);
    pair
}

#[test]
fn loopback_keeps_its_packet_size_under_load() {
    run_check(async {
        let pair = transfer(Profile::Loopback).await;
        // A batch beyond 64 KiB is lost whole, and the packet size then falls to 1,200.
        assert_eq!(pair.dialled.stats().mtu, Some(65_000));
        assert_eq!(pair.accepted.stats().mtu, Some(65_000));
    });
}

#[test]
fn jumbo_keeps_its_packet_size_under_load() {
    run_check(async {
        let pair = transfer(Profile::Jumbo).await;
        assert_eq!(pair.dialled.stats().mtu, Some(8_952));
    });
}

#[test]
fn lan_and_wan_find_1452_bytes() {
    run_check(async {
        for profile in [Profile::Lan, Profile::Wan] {
            let pair = transfer(profile).await;
            assert_eq!(pair.dialled.stats().mtu, Some(1_452), "{profile}");
            assert!(pair.dialled.stats().rtt.unwrap() < Duration::from_millis(100));
        }
    });
}

#[test]
fn profiles_of_the_two_sides_may_differ() {
    run_check(async {
        let authority = TestAuthority::new("mixed");
        for (listens, dials) in [
            (Profile::Lan, Profile::Loopback),
            (Profile::Loopback, Profile::Lan),
            (Profile::Jumbo, Profile::Wan),
        ] {
            let node = |name: &str, profile| {
                let mut config = TransportConfig::default();
                config.profile = profile;
                QuicTransport::new(&config, Arc::new(authority.node(name))).unwrap()
            };
            let (server, client) = (node("a", listens), node("b", dials));
            let mut listener = server.listen(&any_port()).await.unwrap();
            let (dialled, accepted) = connect(&client, &mut listener).await;
            let (dialled, accepted) = (dialled.unwrap(), accepted.unwrap());
            let (mut send, _recv) = dialled.open().await.unwrap();
            let echo = async {
                let (_send, mut recv) = accepted.accept().await.unwrap();
                let mut bytes = 0;
                while let Some(chunk) = recv.read(1 << 20).await.unwrap() {
                    bytes += chunk.len();
                }
                bytes
            };
            let write = async {
                send.write(&mut [vec![1; 3_000_000].into()]).await.unwrap();
                send.finish().unwrap();
            };
            let both = tokio::time::timeout(DEADLINE, async { tokio::join!(echo, write) });
            assert_eq!(both.await.unwrap().0, 3_000_000, "{listens} from {dials}");
        }
    });
}

#[test]
fn a_node_can_dial_itself() {
    run_check(async {
        let node = transport(TestAuthority::new("self").node("only"));
        let mut listener = node.listen(&any_port()).await.unwrap();
        let (dialled, accepted) = connect(&node, &mut listener).await;
        let (dialled, accepted) = (dialled.unwrap(), accepted.unwrap());
        // One socket for both: the dial leaves from the listening port.
        assert_eq!(dialled.remote_addr(), accepted.remote_addr());
        assert_eq!(dialled.peer().verified().unwrap().id.as_str(), "only");
    });
}

#[test]
fn ipv6_works_beside_an_ipv4_listener() {
    run_check(async {
        let authority = TestAuthority::new("families");
        let server = transport(authority.node("six"));
        let client = transport(authority.node("four"));
        let Ok(mut listener) = server.listen(&"[::1]:0".parse().unwrap()).await else {
            // A machine without IPv6.
            return;
        };
        let _own = client.listen(&any_port()).await.unwrap();
        let (dialled, accepted) = connect(&client, &mut listener).await;
        assert!(dialled.unwrap().remote_addr().is_ipv6());
        assert!(accepted.unwrap().remote_addr().is_ipv6());
    });
}

#[test]
fn an_unknown_authority_is_named_on_both_sides() {
    run_check(async {
        let (ours, theirs) = (TestAuthority::new("ours"), TestAuthority::new("theirs"));

        // The dialler does not trust the listener: it knows at once.
        let error = failed_dial(theirs.node("tm-1"), ours.node("jm")).await;
        assert!(matches!(error, ConnectError::Tls { .. }), "{error:?}");
        assert!(error.to_string().contains("UnknownIssuer"), "{error}");
        assert!(!error.is_retryable());

        // The listener does not trust the dialler: it is told in words.
        let impostor = TestAuthority::new("ours");
        let (end, log) = refused_dialler(impostor.node_that_trusts("tm-1", &ours), &ours).await;
        let words = end.to_string();
        assert!(
            words.contains("the peer refused our certificate"),
            "{words}"
        );
        assert!(!end.is_retryable(), "{end:?}");
        assert!(log.contains("UnknownIssuer"), "{log}");
    });
}

#[test]
fn a_missing_certificate_is_named_on_both_sides() {
    run_check(async {
        let authority = TestAuthority::new("strict");
        let bare = authority.node_without_client_certificate("tm-1");
        let (end, log) = refused_dialler(bare, &authority).await;
        let words = end.to_string();
        assert!(words.contains("we sent no certificate"), "{words}");
        assert!(!end.is_retryable(), "{end:?}");
        assert!(log.contains("peer sent no certificates"), "{log}");
    });
}

#[test]
fn an_expired_certificate_is_named_on_both_sides() {
    run_check(async {
        let authority = TestAuthority::new("late");
        let error = failed_dial(authority.node("tm-1"), authority.expired_node("jm")).await;
        assert!(matches!(error, ConnectError::Tls { .. }), "{error:?}");
        assert!(
            error.to_string().to_lowercase().contains("expired"),
            "{error}"
        );

        let (end, log) = refused_dialler(authority.expired_node("tm-1"), &authority).await;
        let words = end.to_string();
        assert!(words.contains("it has expired"), "{words}");
        assert!(log.contains("expired"), "{log}");
    });
}

#[test]
fn the_listener_is_told_why_the_dialler_refused_it() {
    run_check(async {
        let (ours, theirs) = (TestAuthority::new("ours"), TestAuthority::new("theirs"));
        // Trusted by signature, but of another cluster by name: refused after the handshake, with a code.
        let server = transport(theirs.node_that_trusts("tm-1", &ours));
        let client = transport(ours.node_that_trusts("jm", &theirs));
        let mut listener = server.listen(&any_port()).await.unwrap();
        let address = listener.local_addr();
        let dial = tokio::spawn(async move { client.connect(address, None).await });
        // The listener refuses too, so that the code that arrives first is what each side hears.
        let accepting = tokio::time::timeout(Duration::from_secs(1), listener.accept());
        assert!(
            accepting.await.is_err(),
            "a peer of another cluster was accepted"
        );
        assert_eq!(listener.failed_handshakes(), 1);
        let error = dial.await.unwrap().unwrap_err();
        assert_eq!(error.code(), ErrorCode::WRONG_CLUSTER, "{error:?}");
    });
}

#[test]
fn new_certificates_are_used_without_a_new_listener() {
    run_check(async {
        let (old, new) = (TestAuthority::new("cluster"), TestAuthority::new("cluster"));
        let credentials = Arc::new(old.node("jm"));
        let server = QuicTransport::new(
            &TransportConfig::default(),
            Arc::<TestCredentials>::clone(&credentials),
        )
        .unwrap();
        let mut listener = server.listen(&any_port()).await.unwrap();
        let before = transport(old.node("tm-1"));
        let (kept, accepted) = connect(&before, &mut listener).await;
        let (kept, _accepted) = (kept.unwrap(), accepted.unwrap());

        credentials.replace_by(&new.node("jm"));
        let after = transport(new.node("tm-2"));
        let (dialled, _accepted) = connect(&after, &mut listener).await;
        assert_eq!(
            dialled.unwrap().peer().verified().unwrap().id.as_str(),
            "jm"
        );
        let late = transport(old.node("tm-3"));
        let (refused, _none) = connect(&late, &mut listener).await;
        assert!(
            matches!(refused, Err(ConnectError::Tls { .. })),
            "{refused:?}"
        );
        // Connections of before stay.
        kept.open().await.unwrap();
    });
}

#[test]
fn more_handshakes_than_the_limit_all_come_through() {
    run_check(async {
        let authority = TestAuthority::new("busy");
        let mut config = TransportConfig::default();
        config.max_handshakes = 4;
        let server = QuicTransport::new(&config, Arc::new(authority.node("jm"))).unwrap();
        let mut listener = server.listen(&any_port()).await.unwrap();
        let address = listener.local_addr();
        let client = Arc::new(transport(authority.node("tm")));
        let mut dials = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let client = Arc::clone(&client);
            dials.spawn(async move { client.connect(address, None).await.unwrap() });
        }
        let mut held = Vec::new();
        for _ in 0..100 {
            let accepted = tokio::time::timeout(DEADLINE, listener.accept()).await;
            held.push(accepted.unwrap().unwrap());
        }
        while let Some(dialled) = dials.join_next().await {
            held.push(dialled.unwrap());
        }
        assert_eq!((held.len(), listener.failed_handshakes()), (200, 0));
    });
}

#[test]
fn peers_prove_their_address_when_many_shake_hands() {
    run_check(async {
        let backend = QuicBackend::new(Profile::Lan);
        let server = backend.transport("listener");
        let mut listener = server.listen(&backend.bind()).await.unwrap();
        let address = listener.local_addr();
        let mut silent = Vec::new();
        for _ in 0..70 {
            silent.push(backend.dial_silently(address).await);
        }
        // The last of these were sent a retry, which they never saw; a real one answers it.
        let quiet = tokio::time::timeout(Duration::from_millis(300), listener.accept());
        assert!(quiet.await.is_err());
        let client = backend.transport("dialler");
        let (dialled, accepted) = connect(&client, &mut listener).await;
        assert_eq!(
            accepted.unwrap().peer().verified().unwrap().id.as_str(),
            "dialler"
        );
        dialled.unwrap().open().await.unwrap();
    });
}

#[test]
fn silent_peers_on_all_places_make_way_for_a_good_one() {
    run_check(async {
        let backend = QuicBackend::new(Profile::Lan);
        let authority = TestAuthority::new("silent");
        let mut config = TransportConfig::default();
        config.max_handshakes = 3;
        config.handshake_timeout = DEADLINE * 3;
        let server = QuicTransport::new(&config, Arc::new(authority.node("jm"))).unwrap();
        let mut listener = server.listen(&any_port()).await.unwrap();
        let mut silent = Vec::new();
        for _ in 0..6 {
            silent.push(backend.dial_silently(listener.local_addr()).await);
        }
        let client = transport(authority.node("tm"));
        let (dialled, accepted) = connect(&client, &mut listener).await;
        accepted.unwrap();
        dialled.unwrap();
    });
}

#[test]
fn a_bad_configuration_is_refused_before_any_socket() {
    let authority = TestAuthority::new("config");
    let mut config = TransportConfig::default();
    config.keep_alive = config.idle_timeout;
    let error = QuicTransport::new(&config, Arc::new(authority.node("jm"))).unwrap_err();
    assert_eq!(error.key, "keep_alive");
}

#[test]
fn an_address_that_is_not_ours_cannot_be_bound() {
    run_check(async {
        let node = transport(TestAuthority::new("bind").node("jm"));
        // A documentation address (RFC 5737), which no machine has.
        let error = node
            .listen(&"192.0.2.1:0".parse().unwrap())
            .await
            .unwrap_err();
        assert!(matches!(error, ConnectError::Bind { .. }), "{error:?}");
    });
}

/// Dials and accepts at the same time; the listener is given a second for a peer that it refuses.
async fn connect(
    client: &QuicTransport,
    listener: &mut QuicListener,
) -> (
    Result<QuicConnection, ConnectError>,
    Result<QuicConnection, tokio::time::error::Elapsed>,
) {
    let address = listener.local_addr();
    let accept = tokio::time::timeout(Duration::from_secs(5), async {
        listener.accept().await.unwrap()
    });
    let dial = client.connect(address, None::<&ResourceId>);
    tokio::pin!(accept, dial);
    tokio::select! {
        accepted = &mut accept => (dial.await, accepted),
        dialled = &mut dial => {
            if dialled.is_err() {
                // Nobody will be accepted.
                let accepted = tokio::time::timeout(Duration::from_millis(50), accept).await;
                return (dialled, accepted.and_then(|inner| inner));
            }
            (dialled, accept.await)
        }
    }
}

/// The error of a dial that fails during the handshake.
async fn failed_dial(dialler: TestCredentials, listener: TestCredentials) -> ConnectError {
    let server = transport(listener);
    let client = transport(dialler);
    let mut listener = server.listen(&any_port()).await.unwrap();
    let (dialled, _refused) = connect(&client, &mut listener).await;
    dialled.unwrap_err()
}

/// How the connection of a dialler ends whose certificate the listener refuses, and what the listener logs.
///
/// In TLS 1.3 the dialler is done before the listener has seen its certificate.
async fn refused_dialler(
    dialler: TestCredentials,
    authority: &TestAuthority,
) -> (ConnectionError, String) {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let server = transport(authority.node("jm"));
    let client = transport(dialler);
    let mut listener = server.listen(&any_port()).await.unwrap();
    let address = listener.local_addr();
    let dial = tokio::spawn(async move {
        let dialled = client.connect(address, None).await.unwrap();
        dialled.closed().await
    });
    let accepting = tokio::time::timeout(Duration::from_secs(1), listener.accept());
    assert!(
        accepting.await.is_err(),
        "a peer was accepted that must not be"
    );
    let end = tokio::time::timeout(DEADLINE, dial).await.unwrap().unwrap();
    assert_eq!(listener.failed_handshakes(), 1);
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert_eq!(text.matches("WARN").count(), 1, "{text}");
    (end, text)
}

/// What is logged during a test.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
