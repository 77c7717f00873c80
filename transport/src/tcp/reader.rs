//! The task that reads a connection's socket, and watches over the peer's life.

use std::{future::poll_fn, io, sync::Arc, task::Poll, time::Duration};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::{
    halves::ReadHalf,
    shared::{Shared, TaskGuard},
};
use crate::{landing::YIELD_BYTES, proto::mux::Decoder};

/// Reads until the connection ends. Never waits for a consumer: what is read lands, or goes into the streams' queues,
/// which their windows bound.
pub(super) async fn run<R: ReadHalf>(shared: Arc<Shared>, mut socket: R, idle_timeout: Duration) {
    let _guard = TaskGuard(shared.clone());
    let lost = tokio::select! {
        biased;
        () = shared.ended.cancelled() => None,
        lost = read(&shared, &mut socket, idle_timeout) => lost,
    };
    if let Some(error) = lost {
        shared.fail(error);
    }
    drain(&mut socket).await;
}

/// Why the connection was lost, or `None` if it ended otherwise.
async fn read<R: ReadHalf>(
    shared: &Shared,
    socket: &mut R,
    idle_timeout: Duration,
) -> Option<io::Error> {
    let mut decoder = Decoder::new();
    let timer = tokio::time::sleep(Duration::ZERO);
    tokio::pin!(timer);
    loop {
        let taken = tokio::select! {
            biased;
            () = &mut timer => {
                let wait = shared.check_liveness(idle_timeout);
                timer.as_mut().reset(tokio::time::Instant::from_std(crate::now() + wait));
                continue;
            }
            taken = take(shared, socket, &mut decoder) => taken,
        };
        match taken {
            Ok(Taken::Much) => tokio::task::yield_now().await,
            Ok(Taken::Goodbye) => return None,
            Ok(Taken::End) if decoder.is_inside_frame() => {
                return Some(ended("the peer ended the connection inside a frame"));
            }
            Ok(Taken::End) => {
                return Some(ended("the peer ended the connection without a close frame"));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // rustls misses the close_notify that a process which dies cannot send.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Some(ended("the peer ended the connection without a goodbye"));
            }
            Err(error) => return Some(error),
        }
    }
}

enum Taken {
    /// Enough for others to have their turn.
    Much,
    /// The socket ended.
    End,
    /// What came ended the connection.
    Goodbye,
}

/// Takes what comes until the connection is at its end or it is the turn of others.
///
/// Cancel-safe: what was taken off the socket has been received.
async fn take<R: ReadHalf>(
    shared: &Shared,
    socket: &mut R,
    decoder: &mut Decoder,
) -> io::Result<Taken> {
    let mut taken = 0;
    poll_fn(|cx| {
        loop {
            let mut goes_on = true;
            let mut receive = |bytes: &[u8]| goes_on = shared.receive(decoder, bytes);
            let bytes = std::task::ready!(socket.poll_take(cx, &mut receive))?;
            taken += bytes;
            if bytes == 0 {
                return Poll::Ready(Ok(Taken::End));
            }
            if !goes_on {
                return Poll::Ready(Ok(Taken::Goodbye));
            }
            if taken >= YIELD_BYTES {
                return Poll::Ready(Ok(Taken::Much));
            }
        }
    })
    .await
}

fn ended(how: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, how)
}

/// Reads and forgets, until the peer has ended its side too.
///
/// A socket that is closed with unread bytes sends a reset, which may overtake the CLOSE frame that the peer has not
/// read yet.
pub(super) async fn drain<R: AsyncRead + Unpin>(socket: &mut R) {
    let mut sink = BytesMut::with_capacity(SINK_BYTES);
    let drained = async {
        while socket.read_buf(&mut sink).await.is_ok_and(|read| read > 0) {
            sink.clear();
            tokio::task::yield_now().await;
        }
    };
    // A peer that goes on sending loses the goodbye, not more.
    let _ = tokio::time::timeout(LINGER, drained).await;
}

/// Bytes that are forgotten at a time.
const SINK_BYTES: usize = 16 * 1024;

/// How long a connection at its end waits for the peer to hear of it.
pub(super) const LINGER: Duration = Duration::from_secs(1);
