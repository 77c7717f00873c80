//! The end of a connection (contract 6).

use std::{pin::pin, time::Duration};

use bytes::Bytes;
use thalweg_transport::{
    Connection, ConnectionError, ErrorCode, Listener, RecvStream, SendStream, Transport,
};
use tokio::{sync::oneshot, task::JoinSet};

use super::{
    backend::{Backend, Conn, Ends, Pair},
    support::{
        QUIET, assert_closed_by_peer, assert_closed_locally, assert_same, connection_end, never,
        open_all, pattern, read, still_pending, within, write_and_finish,
    },
};

const CODE: ErrorCode = ErrorCode::SHUTTING_DOWN;
const REASON: &str = "the node goes down";

/// Accept, read, write, stopped and closed, all waiting on both sides, end with one close: ours there, the peer's here.
pub async fn close_wakes_every_pending_operation<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let (near_quiet, far_quiet) = pair.stream().await;
    let (near_full, far_full) = pair.stream().await;
    let mut near = pending_operations::<B>(&pair.dialled, near_quiet, near_full);
    let mut far = pending_operations::<B>(&pair.accepted, far_quiet, far_full);
    never("an operation ends on the dialling side", near.join_next()).await;
    never("an operation ends on the listening side", far.join_next()).await;

    pair.accepted.close(CODE, REASON);
    while let Some(ended) = within("waking the closing side", far.join_next()).await {
        let (_what, error) = ended.expect("an operation that ends with an error");
        assert_closed_locally(&error, CODE, REASON);
    }
    while let Some(ended) = within("waking the other side", near.join_next()).await {
        let (_what, error) = ended.expect("an operation that ends with an error");
        assert_closed_by_peer(&error, CODE, REASON);
    }
}

/// `open`, waiting for the limit on both sides, ends too.
pub async fn close_wakes_open_at_the_limit<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let _held = (
        open_all::<B>(&pair.dialled).await,
        open_all::<B>(&pair.accepted).await,
    );
    let mut near = pin!(pair.dialled.open());
    let mut far = pin!(pair.accepted.open());
    still_pending("opening beyond the limit", &mut near).await;
    still_pending("opening beyond the limit", &mut far).await;
    pair.dialled.close(CODE, REASON);
    let near = within("waking the closing side", near).await;
    let far = within("waking the other side", far).await;
    assert_closed_locally(&expect_end(near), CODE, REASON);
    assert_closed_by_peer(&expect_end(far), CODE, REASON);
}

/// What is begun after the end fails with the same error as what was pending.
pub async fn operations_after_the_close_fail_alike<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let (mut near, mut far) = pair.stream().await;
    pair.dialled.close(CODE, REASON);
    assert_closed_by_peer(
        &within("the close", pair.accepted.closed()).await,
        CODE,
        REASON,
    );

    for (connection, ends, local) in [
        (&pair.dialled, &mut near, true),
        (&pair.accepted, &mut far, false),
    ] {
        let write = within("write", ends.0.write(&mut [Bytes::from_static(b"x")])).await;
        let read = within("read", ends.1.read(10)).await;
        let errors = [
            expect_end(within("open", connection.open()).await),
            expect_end(within("accept", connection.accept()).await),
            within("closed", connection.closed()).await,
            connection_end(write.expect_err("a write after the end")),
            connection_end(read.expect_err("a read after the end")),
        ];
        for error in &errors {
            if local {
                assert_closed_locally(error, CODE, REASON);
            } else {
                assert_closed_by_peer(error, CODE, REASON);
            }
        }
    }
}

/// A second close on the same side changes nothing.
pub async fn the_first_close_wins<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    pair.dialled.close(CODE, REASON);
    pair.dialled.close(ErrorCode::INTERNAL, "too late");
    pair.dialled
        .clone()
        .close(ErrorCode::PROTOCOL, "later still");
    assert_closed_locally(&within("closed", pair.dialled.closed()).await, CODE, REASON);
    assert_closed_by_peer(
        &within("closed", pair.accepted.closed()).await,
        CODE,
        REASON,
    );
}

/// A close that comes after the peer's does not take its place.
pub async fn close_after_the_peers_close_changes_nothing<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    pair.dialled.close(CODE, REASON);
    assert_closed_by_peer(
        &within("closed", pair.accepted.closed()).await,
        CODE,
        REASON,
    );
    pair.accepted.close(ErrorCode::INTERNAL, "too late");
    assert_closed_by_peer(
        &within("closed", pair.accepted.closed()).await,
        CODE,
        REASON,
    );
    assert_closed_by_peer(&expect_end(pair.accepted.open().await), CODE, REASON);
    assert_closed_locally(&within("closed", pair.dialled.closed()).await, CODE, REASON);
}

/// Codes use all 32 bits; an empty reason stays empty.
pub async fn large_codes_arrive<B: Backend>(backend: &B) {
    for code in [ErrorCode(0), ErrorCode(1 << 31), ErrorCode(u32::MAX - 1)] {
        let pair = Pair::new(backend).await;
        pair.accepted.close(code, "");
        assert_closed_by_peer(&within("closed", pair.dialled.closed()).await, code, "");
    }
}

/// A reason cannot break a log line, nor fill a log.
pub async fn the_reason_is_made_safe_for_a_log<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let words = format!("one\ntwo\u{1b}[31m {}", "long ".repeat(2_000));
    pair.accepted.close(CODE, &words);
    match within("closed", pair.dialled.closed()).await {
        ConnectionError::ClosedByPeer { code, reason } => {
            assert_eq!(code, CODE);
            assert!(!reason.chars().any(char::is_control), "{reason:?}");
            assert!(reason.len() < MOST_REASON_BYTES, "{} bytes", reason.len());
        }
        other => panic!("expected the peer's close, found {other:?}"),
    }
}

/// A living connection is not closed.
pub async fn closed_waits_for_the_end<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let mut near = pin!(pair.dialled.closed());
    still_pending("closed, of a living connection", &mut near).await;
    never("closed, of a living connection", pair.accepted.closed()).await;
    pair.accepted.close(CODE, REASON);
    assert_closed_by_peer(&within("closed", near).await, CODE, REASON);
}

/// A finished stream that was read in part when this side closed gives the rest or an error, never an early end.
pub async fn what_a_close_cuts_off_never_reads_as_the_end<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    let data = pattern(10_000);
    write_and_finish::<B>(&mut send, data.clone()).await;
    let mut found = read::<B>(&mut recv, 10).await.expect("data").to_vec();
    // Time for the rest and the finish to arrive.
    tokio::time::sleep(QUIET).await;
    pair.accepted.close(CODE, REASON);
    loop {
        match within("reading after the close", recv.read(1_000)).await {
            Ok(Some(chunk)) => found.extend_from_slice(&chunk),
            Ok(None) => return assert_same(&found, &data),
            Err(error) => {
                return assert_closed_locally(&connection_end(error), CODE, REASON);
            }
        }
    }
}

/// A clone is the same connection; dropping one of two handles ends nothing.
pub async fn clones_share_the_end<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let clone = pair.dialled.clone();
    drop(pair.dialled.clone());
    never("closed, after dropping a clone", pair.accepted.closed()).await;
    clone.close(CODE, REASON);
    assert_closed_locally(&within("closed", pair.dialled.closed()).await, CODE, REASON);
}

/// Without handles and streams on one side, the other hears that the connection is over.
pub async fn dropping_the_last_handle_ends_the_connection<B: Backend>(backend: &B) {
    let Pair {
        dialled,
        accepted,
        listener: _listener,
        server: _server,
        client: _client,
    } = Pair::new(backend).await;
    drop(dialled);
    let error = within("closed", accepted.closed()).await;
    assert!(!error.is_local(), "{error:?}");
}

/// A peer whose process is gone without a word is noticed, and a new connection may be tried.
pub async fn a_vanished_peer_is_noticed<B: Backend>(backend: &B) {
    let server = backend.transport("listener");
    let mut listener = within("listening", server.listen(&backend.bind()))
        .await
        .expect("a listener on a free port");
    let address = listener.local_addr();
    let client = backend.transport("dialler");
    let (connected, connection) = oneshot::channel();
    let (vanish, vanishing) = oneshot::channel::<()>();
    // The peer has a runtime of its own. When that is destroyed, nobody is left who could say goodbye; the handles
    // live on to the end of the check, so that dropping them is no goodbye either.
    let peer = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let kept = runtime.block_on(async move {
            let connection = client.connect(address, None).await.expect("a connection");
            let _ = connected.send(connection.clone());
            let _ = vanishing.await;
            (client, connection)
        });
        drop(runtime);
        kept
    });
    let survivor = within("accept", listener.accept())
        .await
        .expect("the connection");
    let vanished = within("connecting", connection)
        .await
        .expect("the peer runs");
    let mut closed = pin!(survivor.closed());
    still_pending("closed, while the peer lives", &mut closed).await;

    backend.vanish(&vanished);
    vanish.send(()).expect("the peer waits for its end");
    let error = within("noticing the loss", closed).await;
    assert!(!error.is_local(), "{error:?}");
    assert!(error.is_retryable(), "{error:?}");
    let accepted = expect_end(within("accept", survivor.accept()).await);
    assert_eq!(
        accepted.to_string(),
        error.to_string(),
        "two ends of one connection"
    );
    drop(peer.join().expect("the peer's thread"));
}

/// Accept, read, write, stopped and closed, each waiting in a task.
fn pending_operations<B: Backend>(
    connection: &Conn<B>,
    (mut quiet_send, mut quiet_recv): Ends<B>,
    (mut full_send, full_recv): Ends<B>,
) -> JoinSet<(&'static str, ConnectionError)> {
    let mut tasks = JoinSet::new();
    let handle = connection.clone();
    tasks.spawn(async move { ("accept", expect_end(handle.accept().await)) });
    let handle = connection.clone();
    tasks.spawn(async move { ("closed", handle.closed().await) });
    tasks.spawn(async move {
        let read = quiet_recv.read(10).await;
        ("read", connection_end(read.expect_err("an end")))
    });
    tasks.spawn(async move {
        let stopped = quiet_send.stopped().await;
        ("stopped", connection_end(stopped.expect_err("an end")))
    });
    tasks.spawn(async move {
        let _unread = full_recv;
        let chunk = Bytes::from(vec![0; 64 * 1024]);
        loop {
            if let Err(error) = full_send.write(&mut [chunk.clone()]).await {
                return ("write", connection_end(error));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    tasks
}

fn expect_end<T>(result: Result<T, ConnectionError>) -> ConnectionError {
    match result {
        Ok(_) => panic!("an operation succeeded after the end of the connection"),
        Err(error) => error,
    }
}

/// 1,024 bytes of words, of which each may be escaped.
const MOST_REASON_BYTES: usize = 8 * 1024;
