//! Streams that nobody reads, beside others (contract 8).

use bytes::Bytes;
use thalweg_transport::{ErrorCode, RecvStream, SendStream, StreamError};

use super::{
    backend::{Backend, Pair, SendHalf, open_stream},
    support::{QUIET, assert_same, pattern, read, read_to_end, within, write, write_and_finish},
};

/// A writer is held back when nobody reads: a peer cannot make this side hold what it likes.
pub async fn an_unread_stream_takes_a_bounded_number_of_bytes<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), _unread) = pair.stream().await;
    let taken = fill::<B>(&mut send).await;
    assert!(
        taken < MOST_UNREAD,
        "{taken} bytes were taken without a reader"
    );
}

/// While one stream is full and unread, another carries data both ways.
pub async fn a_stalled_stream_does_not_stall_a_neighbour<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut stalled, _recv), _unread) = pair.stream().await;
    fill::<B>(&mut stalled).await;
    let ((mut near, mut near_recv), (mut far, mut far_recv)) = pair.stream().await;
    let data = pattern(4 * 1024 * 1024);
    let (there, ()) = tokio::join!(
        read_to_end::<B>(&mut far_recv),
        write_and_finish::<B>(&mut near, data.clone())
    );
    assert_same(&there, &data);
    write_and_finish::<B>(&mut far, "answer").await;
    assert_eq!(read_to_end::<B>(&mut near_recv).await, "answer");
}

/// With streams stalled in both directions, both sides still open and accept streams.
pub async fn a_stalled_stream_does_not_stall_opening<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut near, _near_recv), (mut far, _far_recv)) = pair.stream().await;
    tokio::join!(fill::<B>(&mut near), fill::<B>(&mut far));
    for _ in 0..3 {
        open_stream::<B>(&pair.dialled, &pair.accepted).await;
        open_stream::<B>(&pair.accepted, &pair.dialled).await;
    }
}

/// Fifty streams at the same time do not mix their bytes.
pub async fn many_streams_carry_their_own_data<B: Backend>(backend: &B) {
    const STREAMS: usize = 50;
    const STEP: usize = 1_111;
    let pair = Pair::new(backend).await;
    let data = pattern(100_000 + STREAMS * STEP);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..STREAMS {
        let ((mut send, _), (_, mut recv)) = pair.stream().await;
        let part = data.slice(number * STEP..number * STEP + 100_000);
        tasks.spawn(async move {
            let (found, ()) = tokio::join!(
                read_to_end::<B>(&mut recv),
                write_and_finish::<B>(&mut send, part.clone())
            );
            assert_same(&found, &part);
        });
    }
    while let Some(done) = within("the streams", tasks.join_next()).await {
        done.expect("a stream's own data");
    }
}

/// A writer that waits for a reader hears that the reader stopped.
pub async fn stopping_a_stalled_stream_wakes_its_writer<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut unread)) = pair.stream().await;
    fill::<B>(&mut send).await;
    let mut chunks = [pattern(1_000)];
    let waiting = send.write(&mut chunks);
    let stopping = async {
        tokio::task::yield_now().await;
        unread.stop(ErrorCode::CANCELLED);
    };
    let (written, ()) = within("the writer", async { tokio::join!(waiting, stopping) }).await;
    assert!(
        matches!(
            written,
            Err(StreamError::Stopped {
                code: ErrorCode::CANCELLED
            })
        ),
        "{written:?}"
    );
}

/// A stream that was full goes on when its reader does, without a gap.
pub async fn a_stalled_stream_goes_on_when_it_is_read<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    let data = pattern(MOST_UNREAD);
    let writing = async {
        let mut rest = data.clone();
        while !rest.is_empty() {
            write::<B>(&mut send, rest.split_to(rest.len().min(CHUNK))).await;
        }
        send.finish().expect("a finish");
    };
    let reading = async {
        // Long enough for the writer to meet the window.
        let first = read::<B>(&mut recv, 1).await.expect("the first byte");
        tokio::time::sleep(QUIET).await;
        [first, read_to_end::<B>(&mut recv).await].concat()
    };
    let (found, ()) = tokio::join!(reading, writing);
    assert_same(&found, &data);
}

/// Writes until a write waits, which is dropped: afterwards the stream may only be reset, stopped or waited on.
async fn fill<B: Backend>(send: &mut SendHalf<B>) -> usize {
    let chunk = Bytes::from(vec![7; CHUNK]);
    let mut taken = 0;
    while taken < MOST_UNREAD {
        match tokio::time::timeout(QUIET, send.write(&mut [chunk.clone()])).await {
            Ok(written) => written.expect("a write"),
            Err(_) => return taken,
        }
        taken += CHUNK;
    }
    taken
}

const CHUNK: usize = 64 * 1024;

/// More than any backend's window and socket buffers for one stream.
const MOST_UNREAD: usize = 32 * 1024 * 1024;
