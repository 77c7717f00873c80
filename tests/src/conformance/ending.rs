//! How streams end other than by a finish (contract 3 and 5).

use std::pin::pin;

use bytes::Bytes;
use thalweg_transport::{ErrorCode, RecvStream, SendStream, StreamError};

use super::{
    backend::{Backend, Pair},
    support::{
        assert_same, never, pattern, read, read_error, read_to_end, still_pending, within, write,
        write_and_finish, write_error,
    },
};

/// Codes over the whole range that a stream can end with.
const CODES: [ErrorCode; 5] = [
    ErrorCode::NO_ERROR,
    ErrorCode::CANCELLED,
    ErrorCode(1_000),
    ErrorCode(1 << 31),
    ErrorCode(u32::MAX - 1),
];

/// The reader gets the code that the writer gave.
pub async fn a_reset_arrives_with_its_code<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    for code in CODES {
        let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
        write::<B>(&mut send, "lost").await;
        send.reset(code);
        assert_reset(&read_error::<B>(&mut recv).await, code);
    }
}

/// A reader that waits for data hears of the reset.
pub async fn a_reset_wakes_a_pending_read<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    let mut reading = pin!(recv.read(10));
    still_pending("reading before data", &mut reading).await;
    send.reset(ErrorCode::CANCELLED);
    let read = within("the reset", reading).await;
    assert_reset(&read.expect_err("a reset"), ErrorCode::CANCELLED);
}

/// The writer gets the code that the reader gave.
pub async fn a_stop_arrives_with_its_code<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    for code in CODES {
        let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
        recv.stop(code);
        assert_stopped(&write_error::<B>(&mut send).await, code);
    }
}

/// A writer that only waits for the reader's word gets it, with the code.
pub async fn a_stop_wakes_stopped<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    let mut stopped = pin!(send.stopped());
    still_pending("stopped, of a stream in use", &mut stopped).await;
    recv.stop(ErrorCode::PARTITION_NOT_FOUND);
    let code = within("stopped", stopped)
        .await
        .expect("a living connection");
    assert_eq!(code, Some(ErrorCode::PARTITION_NOT_FOUND));
}

/// A sender that is dropped half way is a reset with `DROPPED`, never an end of data.
pub async fn dropping_an_unfinished_sender_resets_it<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    write::<B>(&mut send, "half").await;
    drop(send);
    assert_reset(&read_error::<B>(&mut recv).await, ErrorCode::DROPPED);
}

/// A receiver that is dropped before its end stops the stream with `DROPPED`.
pub async fn dropping_an_unread_receiver_stops_it<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, recv)) = pair.stream().await;
    drop(recv);
    assert_stopped(&write_error::<B>(&mut send).await, ErrorCode::DROPPED);
}

/// After a finish the sender may go; the data arrives whole.
pub async fn dropping_a_finished_sender_loses_nothing<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    let data = pattern(1_000_000);
    let writing = async {
        write_and_finish::<B>(&mut send, data.clone()).await;
        drop(send);
    };
    let (found, ()) = tokio::join!(read_to_end::<B>(&mut recv), writing);
    assert_same(&found, &data);
}

/// A receiver that has read the end may go without the sender hearing a stop.
pub async fn dropping_a_receiver_at_its_end_stops_nothing<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    write_and_finish::<B>(&mut send, "all").await;
    assert_eq!(read_to_end::<B>(&mut recv).await, "all");
    drop(recv);
    let stopped = within("stopped", send.stopped()).await;
    assert_eq!(stopped.expect("a living connection"), None);
}

/// After a finish, `stopped` waits until the peer has everything.
pub async fn stopped_says_that_all_was_received<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    let data = pattern(500_000);
    let sending = async {
        write_and_finish::<B>(&mut send, data.clone()).await;
        within("stopped", send.stopped()).await
    };
    let (found, stopped) = tokio::join!(read_to_end::<B>(&mut recv), sending);
    assert_same(&found, &data);
    assert_eq!(stopped.expect("a living connection"), None);
}

/// `finish` ends writing on this side, once.
pub async fn writing_after_the_finish_is_an_error<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    write_and_finish::<B>(&mut send, "x").await;
    let written = within("write", send.write(&mut ["y".into()])).await;
    assert!(matches!(written, Err(StreamError::Closed)), "{written:?}");
    let finished = send.finish();
    assert!(matches!(finished, Err(StreamError::Closed)), "{finished:?}");
    assert_eq!(read_to_end::<B>(&mut recv).await, "x");
}

/// `reset` ends writing on this side; a second one is harmless.
pub async fn writing_after_a_reset_is_an_error<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    send.reset(ErrorCode::CANCELLED);
    send.reset(ErrorCode::INTERNAL);
    let written = within("write", send.write(&mut ["y".into()])).await;
    assert!(matches!(written, Err(StreamError::Closed)), "{written:?}");
    let finished = send.finish();
    assert!(matches!(finished, Err(StreamError::Closed)), "{finished:?}");
    assert_reset(&read_error::<B>(&mut recv).await, ErrorCode::CANCELLED);
}

/// `stop` ends reading on this side.
pub async fn reading_after_a_stop_is_an_error<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    write::<B>(&mut send, "unread").await;
    recv.stop(ErrorCode::CANCELLED);
    let read = within("read", recv.read(10)).await;
    assert!(matches!(read, Err(StreamError::Closed)), "{read:?}");
    let mut chunks = [Bytes::new()];
    let read = within("read_chunks", recv.read_chunks(&mut chunks)).await;
    assert!(matches!(read, Err(StreamError::Closed)), "{read:?}");
}

/// A finish after the peer's stop does not look like success.
pub async fn finishing_a_stopped_stream_says_so<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    recv.stop(ErrorCode::CANCELLED);
    let code = within("stopped", send.stopped())
        .await
        .expect("a living connection");
    assert_eq!(code, Some(ErrorCode::CANCELLED));
    let finished = send.finish();
    assert_stopped(
        &finished.expect_err("a stopped stream"),
        ErrorCode::CANCELLED,
    );
}

/// After a write that was given up, a reset tells the peer that the data is not whole.
pub async fn a_dropped_write_may_be_reset<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    let mut chunks = [pattern(64 * 1024 * 1024)];
    never("writing 64 MiB to nobody", send.write(&mut chunks)).await;
    send.reset(ErrorCode::PRODUCER_FAILED);
    assert_reset(
        &read_error::<B>(&mut recv).await,
        ErrorCode::PRODUCER_FAILED,
    );
}

/// A stream that is reset or stopped takes nothing with it.
pub async fn the_end_of_a_stream_leaves_its_neighbours<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    for _ in 0..5 {
        let ((mut near, near_recv), (far, mut far_recv)) = pair.stream().await;
        near.reset(ErrorCode::INTERNAL);
        far_recv.stop(ErrorCode::INTERNAL);
        drop((near_recv, far));
    }
    write::<B>(&mut send, "still ").await;
    assert_eq!(
        read::<B>(&mut recv, 6).await.as_deref(),
        Some(&b"still "[..])
    );
    write_and_finish::<B>(&mut send, "here").await;
    assert_eq!(read_to_end::<B>(&mut recv).await, "here");
}

#[track_caller]
fn assert_reset(error: &StreamError, expected: ErrorCode) {
    match error {
        StreamError::Reset { code } if *code == expected => {}
        other => panic!("expected a reset with {expected:?}, found {other:?}"),
    }
}

#[track_caller]
fn assert_stopped(error: &StreamError, expected: ErrorCode) {
    match error {
        StreamError::Stopped { code } if *code == expected => {}
        other => panic!("expected a stop with {expected:?}, found {other:?}"),
    }
}
