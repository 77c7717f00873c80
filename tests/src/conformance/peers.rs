//! Listening, dialling, and who the peer is (contract 9 and 10).

use std::net::SocketAddr;

use thalweg_transport::{
    BindAddr, ConnectError, Connection, ErrorCode, Listener, PeerIdentity, RecvStream, ResourceId,
    SendStream, Transport,
};
use tokio::task::JoinSet;

use super::{
    backend::{Backend, Conn, Pair, open_stream},
    support::{never, pattern, poll_once, read_to_end, within, write_and_finish},
};

/// Each side knows the other's proved name, or that nothing is proved.
pub async fn peer_is_what_was_proved<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    for (connection, name) in [(&pair.dialled, "listener"), (&pair.accepted, "dialler")] {
        match connection.peer() {
            PeerIdentity::Verified(peer) if backend.proves_identity() => {
                assert_eq!(peer.id, id(name));
            }
            PeerIdentity::Unverified if !backend.proves_identity() => {}
            other => panic!("the peer {name} is taken for {other:?}"),
        }
    }
}

/// A dial that names the node reaches it.
pub async fn the_expected_node_is_reached<B: Backend>(backend: &B) {
    let Pair {
        mut listener,
        client,
        ..
    } = Pair::new(backend).await;
    let name = id("listener");
    let (dialled, accepted) = within("connecting", async {
        tokio::join!(
            client.connect(listener.local_addr(), Some(&name)),
            accept_one::<B>(&mut listener)
        )
    })
    .await;
    open_stream::<B>(&dialled.expect("a connection"), &accepted).await;
}

/// A dial that names another node is refused with `IDENTITY_MISMATCH`, and is not worth a retry.
///
/// Holds only where identities are proved.
pub async fn the_wrong_node_is_refused<B: Backend>(backend: &B) {
    if !backend.proves_identity() {
        return;
    }
    let Pair {
        mut listener,
        client,
        ..
    } = Pair::new(backend).await;
    let address = listener.local_addr();
    let name = id("somebody-else");
    // The listener may see a connection that ends at once, or nothing.
    let refused = tokio::select! {
        refused = within("connecting", client.connect(address, Some(&name))) => refused,
        () = accept_for_ever::<B>(&mut listener) => unreachable!("accepts for ever"),
    };
    let error = refused.expect_err("the wrong node");
    assert!(
        matches!(
            &error,
            ConnectError::PeerRejected {
                code: ErrorCode::IDENTITY_MISMATCH,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(!error.is_retryable(), "{error}");
    assert!(error.to_string().contains("somebody-else"), "{error}");
}

/// Peers that begin a handshake and fall silent delay nobody.
pub async fn accept_is_not_held_up_by_a_silent_peer<B: Backend>(backend: &B) {
    let server = backend.transport("listener");
    let client = backend.transport("dialler");
    let mut listener = within("listening", server.listen(&backend.bind()))
        .await
        .expect("a listener on a free port");
    let address = listener.local_addr();
    let mut silent = Vec::new();
    for _ in 0..SILENT_PEERS {
        silent.push(within("dialling silently", backend.dial_silently(address)).await);
    }
    never("accepting a silent peer", listener.accept()).await;
    let (dialled, accepted) = within("connecting beside silent peers", async {
        tokio::join!(client.connect(address, None), listener.accept())
    })
    .await;
    open_stream::<B>(
        &dialled.expect("a connection"),
        &accepted.expect("the accepted connection"),
    )
    .await;
}

/// Twenty nodes dial at the same moment, and each gets a connection of its own.
pub async fn many_peers_connect_at_once<B: Backend>(backend: &B) {
    const PEERS: usize = 20;
    let server = backend.transport("listener");
    let mut listener = within("listening", server.listen(&backend.bind()))
        .await
        .expect("a listener on a free port");
    let address = listener.local_addr();
    let mut dials = JoinSet::new();
    for number in 0..PEERS {
        let client = backend.transport(&format!("dialler-{number}"));
        dials.spawn(async move {
            let dialled = client.connect(address, None).await.expect("a connection");
            (client, dialled)
        });
    }
    let mut accepted = Vec::new();
    while accepted.len() < PEERS {
        accepted.push(
            within("accept", listener.accept())
                .await
                .expect("the accepted connection"),
        );
    }
    let mut dialled = Vec::new();
    while let Some(done) = within("the dials", dials.join_next()).await {
        dialled.push(done.expect("a dial that works"));
    }
    if backend.proves_identity() {
        let names = |connection: &Conn<B>| connection.peer().verified().map(|peer| peer.id.clone());
        let mut seen: Vec<_> = accepted.iter().map(names).collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), PEERS, "{seen:?}");
    }
}

/// Waits for a connection that are given up take none.
pub async fn a_cancelled_accept_loses_no_connection<B: Backend>(backend: &B) {
    let server = backend.transport("listener");
    let client = backend.transport("dialler");
    let mut listener = within("listening", server.listen(&backend.bind()))
        .await
        .expect("a listener on a free port");
    let address = listener.local_addr();
    for _ in 0..3 {
        let accepting = async {
            loop {
                if let Some(accepted) = poll_once(listener.accept()).await {
                    break accepted.expect("the accepted connection");
                }
                tokio::task::yield_now().await;
            }
        };
        let (dialled, accepted) = within("connecting", async {
            tokio::join!(client.connect(address, None), accepting)
        })
        .await;
        open_stream::<B>(&dialled.expect("a connection"), &accepted).await;
    }
}

/// Dials that are given up half way leave the listener able to accept others.
pub async fn a_dropped_dial_leaves_the_listener_working<B: Backend>(backend: &B) {
    let server = backend.transport("listener");
    let client = backend.transport("dialler");
    let mut listener = within("listening", server.listen(&backend.bind()))
        .await
        .expect("a listener on a free port");
    let address = listener.local_addr();
    for _ in 0..5 {
        drop(poll_once(client.connect(address, None)).await);
    }
    let dial = async {
        let dialled = client.connect(address, None).await.expect("a connection");
        let (mut send, recv) = dialled.open().await.expect("a stream");
        send.write(&mut ["hello".into()]).await.expect("a write");
        (dialled, send, recv)
    };
    let accept = async {
        loop {
            // Dials that were dropped late may arrive, but are over.
            let accepted = listener.accept().await.expect("a connection");
            if let Ok((send, mut recv)) = accepted.accept().await {
                let chunk = recv.read(100).await.expect("a read").expect("data");
                assert_eq!(chunk, "hello");
                break (accepted, send, recv);
            }
        }
    };
    within("connecting after dropped dials", async {
        tokio::join!(dial, accept)
    })
    .await;
}

/// A listener knows its port, and each side the other's address.
pub async fn addresses_are_real<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let address = pair.listener.local_addr();
    assert_ne!(address.port(), 0);
    assert_eq!(pair.dialled.remote_addr(), address);
    assert_ne!(pair.accepted.remote_addr(), address);
    assert_ne!(pair.accepted.remote_addr().port(), 0);
}

/// One port that is taken: [`ConnectError::AddressInUse`], with the address.
pub async fn a_taken_port_is_said_to_be_taken<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let taken = pair.listener.local_addr();
    let other = backend.transport("other");
    let listened = within("listening", other.listen(&BindAddr::single(taken))).await;
    match listened.err() {
        Some(ConnectError::AddressInUse { address }) => assert_eq!(address, taken.to_string()),
        other => panic!("expected AddressInUse, found {other:?}"),
    }
}

/// A range that begins with a taken port gives a later one; a range of taken ports gives [`ConnectError::Bind`].
pub async fn a_port_range_takes_the_first_free_one<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let taken = pair.listener.local_addr();
    let last = taken.port().saturating_add(50);
    let range = |first: SocketAddr, last: u16| -> BindAddr {
        format!("{first}-{last}").parse().expect("a port range")
    };
    if last > taken.port() {
        let other = backend.transport("other");
        let listener = within("listening", other.listen(&range(taken, last)))
            .await
            .expect("a free port of fifty");
        let port = listener.local_addr().port();
        assert!(
            (taken.port() + 1..=last).contains(&port),
            "port {port} after {taken}"
        );

        if port == taken.port() + 1 {
            let third = backend.transport("third");
            let listened = within("listening", third.listen(&range(taken, port))).await;
            assert!(
                matches!(listened, Err(ConnectError::Bind { .. })),
                "two taken ports"
            );
        }
    }
}

/// A dial to a port where nobody listens fails in time, and may be tried again.
pub async fn nobody_listening_is_worth_a_retry<B: Backend>(backend: &B) {
    let Pair {
        listener,
        dialled,
        accepted,
        server,
        client,
    } = Pair::new(backend).await;
    let address = listener.local_addr();
    drop((dialled, accepted, listener, server));
    let error = within("dialling nobody", client.connect(address, None))
        .await
        .expect_err("nobody listens");
    assert!(error.is_retryable(), "{error:?}");
}

/// Two connections of the same nodes: the end of one is not the end of the other.
pub async fn connections_are_independent<B: Backend>(backend: &B) {
    let Pair {
        mut listener,
        client,
        dialled,
        accepted,
        ..
    } = Pair::new(backend).await;
    let (second, second_accepted) = within("connecting", async {
        tokio::join!(
            client.connect(listener.local_addr(), None),
            accept_one::<B>(&mut listener)
        )
    })
    .await;
    dialled.close(ErrorCode::REPLACED, "one of two");
    within("closed", accepted.closed()).await;
    let second = second.expect("a connection");
    let ((mut send, _), (_, mut recv)) = open_stream::<B>(&second, &second_accepted).await;
    write_and_finish::<B>(&mut send, "alive").await;
    assert_eq!(read_to_end::<B>(&mut recv).await, "alive");
}

/// Without the listener, connections that it accepted go on.
pub async fn a_dropped_listener_leaves_its_connections<B: Backend>(backend: &B) {
    let Pair {
        dialled,
        accepted,
        listener,
        server: _server,
        client: _client,
    } = Pair::new(backend).await;
    drop(listener);
    let ((mut send, _), (_, mut recv)) = open_stream::<B>(&dialled, &accepted).await;
    let data = pattern(500_000);
    let (found, ()) = tokio::join!(
        read_to_end::<B>(&mut recv),
        write_and_finish::<B>(&mut send, data.clone())
    );
    assert_eq!(found.len(), data.len());
}

/// Bytes and streams show in the counters of both sides, and streams that are gone do not stay open there.
pub async fn stats_move<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let before = pair.dialled.stats();
    assert_eq!(
        (before.streams_open, before.streams_total),
        (0, 0),
        "{before:?}"
    );
    let (mut near, mut far) = pair.stream().await;
    write_and_finish::<B>(&mut near.0, pattern(50_000)).await;
    read_to_end::<B>(&mut far.1).await;
    let (sent, received) = (pair.dialled.stats(), pair.accepted.stats());
    assert!(sent.bytes_sent >= 50_001, "{sent:?}");
    assert!(received.bytes_received >= 50_001, "{received:?}");
    assert_eq!((sent.streams_total, received.streams_total), (1, 1));
    assert_eq!((sent.streams_open, received.streams_open), (1, 1));
    far.0.finish().expect("a finish");
    read_to_end::<B>(&mut near.1).await;
    drop((near, far));
    within("counting the stream as over", async {
        while pair.dialled.stats().streams_open + pair.accepted.stats().streams_open > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// So many that waiting for one after the other exceeds the deadline, with a handshake limit of a few seconds.
const SILENT_PEERS: usize = 4;

async fn accept_one<B: Backend>(listener: &mut <B::Transport as Transport>::Listener) -> Conn<B> {
    listener.accept().await.expect("the accepted connection")
}

async fn accept_for_ever<B: Backend>(listener: &mut <B::Transport as Transport>::Listener) {
    loop {
        drop(listener.accept().await);
    }
}

fn id(name: &str) -> ResourceId {
    ResourceId::new(name).expect("a name in the alphabet of resource ids")
}
