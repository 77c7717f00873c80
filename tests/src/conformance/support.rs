//! Deadlines, quiet times, and short words for what checks do all the time.

use std::{future::Future, pin::pin, task::Poll, time::Duration};

use bytes::{Bytes, BytesMut};
use thalweg_transport::{
    Connection, ConnectionError, ErrorCode, RecvStream, SendStream, StreamError,
};

use super::backend::{Backend, Conn, RecvHalf, SendHalf};

/// How long a check waits for what has to happen. Long, because a loaded machine is slow; only a failure takes it.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// How long a check watches that something does *not* happen.
pub const QUIET: Duration = Duration::from_millis(100);

/// Runs a check on a runtime of its own.
pub fn run_check(check: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime with time and I/O")
        .block_on(check);
}

/// Waits for what has to happen.
pub(super) async fn within<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(output) => output,
        Err(_) => panic!("{what}: nothing happened for {DEADLINE:?}"),
    }
}

/// Watches that a future stays pending, and gives up on it.
pub(super) async fn never<F: Future>(what: &str, future: F) {
    let mut future = pin!(future);
    still_pending(what, &mut future).await;
}

/// Watches that a future stays pending, and leaves it running.
pub(super) async fn still_pending<F: Future + Unpin>(what: &str, future: &mut F) {
    if tokio::time::timeout(QUIET, future).await.is_ok() {
        panic!("{what}: must not happen, but did");
    }
}

/// Polls a future once and drops it.
pub(super) async fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        Poll::Ready(match future.as_mut().poll(cx) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

/// Writes all of it.
pub(super) async fn write<B: Backend>(send: &mut SendHalf<B>, data: impl Into<Bytes>) {
    within("write", send.write(&mut [data.into()]))
        .await
        .expect("a write on an open stream");
}

/// Writes all of it and finishes the stream.
pub(super) async fn write_and_finish<B: Backend>(send: &mut SendHalf<B>, data: impl Into<Bytes>) {
    write::<B>(send, data).await;
    send.finish().expect("a finish of an open stream");
}

/// One read, which has to work.
pub(super) async fn read<B: Backend>(recv: &mut RecvHalf<B>, max: usize) -> Option<Bytes> {
    within("read", recv.read(max))
        .await
        .expect("a read on an open stream")
}

/// Everything up to the end.
pub(super) async fn read_to_end<B: Backend>(recv: &mut RecvHalf<B>) -> Bytes {
    let mut all = BytesMut::new();
    while let Some(chunk) = read::<B>(recv, 64 * 1024).await {
        all.extend_from_slice(&chunk);
    }
    all.freeze()
}

/// Reads until the stream fails.
pub(super) async fn read_error<B: Backend>(recv: &mut RecvHalf<B>) -> StreamError {
    loop {
        match within("reading up to an error", recv.read(64 * 1024)).await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the stream ended as if it were complete"),
            Err(error) => return error,
        }
    }
}

/// Writes until the stream fails; the peer may need time to tell us.
pub(super) async fn write_error<B: Backend>(send: &mut SendHalf<B>) -> StreamError {
    let chunk = Bytes::from(vec![0; 32 * 1024]);
    loop {
        if let Err(error) = within("writing up to an error", send.write(&mut [chunk.clone()])).await
        {
            return error;
        }
    }
}

/// Opens streams until `open` waits. Gives the streams, which hold the limit.
pub(super) async fn open_all<B: Backend>(connection: &Conn<B>) -> Vec<(SendHalf<B>, RecvHalf<B>)> {
    let mut open = Vec::new();
    while open.len() < MOST_INITIAL_STREAMS {
        match tokio::time::timeout(QUIET, connection.open()).await {
            Ok(stream) => open.push(stream.expect("a stream below the limit")),
            Err(_) => return open,
        }
    }
    panic!("{MOST_INITIAL_STREAMS} streams were opened and no limit was met");
}

/// Bytes in which a shift, a swap or a repetition shows.
pub(super) fn pattern(len: usize) -> Bytes {
    let mut state = 0x9e37_79b9_u32;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        })
        .collect::<Vec<_>>()
        .into()
}

/// Whether two runs of bytes are equal, said without printing megabytes.
#[track_caller]
pub(super) fn assert_same(found: &[u8], expected: &[u8]) {
    if let Some(at) = found.iter().zip(expected).position(|(a, b)| a != b) {
        panic!(
            "byte {at} differs: {} instead of {}",
            found[at], expected[at]
        );
    }
    assert_eq!(found.len(), expected.len(), "number of bytes");
}

#[track_caller]
pub(super) fn assert_closed_locally(error: &ConnectionError, code: ErrorCode, reason: &str) {
    match error {
        ConnectionError::ClosedLocally { code: c, reason: r } if *c == code && r == reason => {}
        other => panic!("expected our own close with {code:?} {reason:?}, found {other:?}"),
    }
}

#[track_caller]
pub(super) fn assert_closed_by_peer(error: &ConnectionError, code: ErrorCode, reason: &str) {
    match error {
        ConnectionError::ClosedByPeer { code: c, reason: r } if *c == code && r == reason => {}
        other => panic!("expected the peer's close with {code:?} {reason:?}, found {other:?}"),
    }
}

/// The connection's end that a stream operation reports.
#[track_caller]
pub(super) fn connection_end(error: StreamError) -> ConnectionError {
    match error {
        StreamError::Connection(error) => error,
        other => panic!("expected the end of the connection, found {other:?}"),
    }
}

/// A backend that starts with more allowed streams than this has no limit worth the name.
const MOST_INITIAL_STREAMS: usize = 10_000;
