//! How many streams may be open, and waits that are given up (contract 1).

use std::{collections::VecDeque, pin::pin};

use bytes::Bytes;
use thalweg_transport::{Connection, RecvStream, SendStream};

use super::{
    backend::{Backend, Pair, open_stream},
    support::{
        never, open_all, poll_once, read, read_to_end, still_pending, within, write,
        write_and_finish,
    },
};

/// At the peer's limit `open` waits, and goes on when the peer allows more.
pub async fn open_waits_for_the_limit_and_goes_on_when_it_is_raised<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let held = open_all::<B>(&pair.dialled).await;
    assert!(!held.is_empty(), "not one stream is allowed");
    let mut waiting = pin!(pair.dialled.open());
    still_pending("opening beyond the limit", &mut waiting).await;
    pair.accepted.allow_streams(count(&held) + 1);
    within("the raised limit", waiting).await.expect("a stream");
}

/// The wait of the check before shows in the counters.
pub async fn waits_for_the_limit_are_counted<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    assert_eq!(pair.dialled.stats().open_waits, 0);
    // Ends with one `open` that waits and is dropped.
    let held = open_all::<B>(&pair.dialled).await;
    let waits = pair.dialled.stats().open_waits;
    assert!(waits >= 1, "{} streams and no wait", held.len());
    never("opening beyond the limit", pair.dialled.open()).await;
    assert!(
        pair.dialled.stats().open_waits > waits,
        "the second wait is not counted"
    );
    assert_eq!(pair.accepted.stats().open_waits, 0, "the peer did not wait");
}

/// A stream that both sides are done with makes room for the next: with as many streams as are allowed, each that
/// ends lets another be opened.
pub async fn a_stream_that_is_over_makes_room<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let allowed = open_all::<B>(&Pair::new(backend).await.dialled).await.len() + 10;
    pair.accepted
        .allow_streams(u32::try_from(allowed).expect("few streams"));
    let mut held = VecDeque::new();
    for number in 0..allowed + 30 {
        if number >= allowed {
            // The oldest of the allowed number is brought to its end.
            let ((mut send, mut recv), (mut far_send, mut far_recv)) =
                held.pop_front().expect("as many streams as are allowed");
            write_and_finish::<B>(&mut send, "x").await;
            assert_eq!(read_to_end::<B>(&mut far_recv).await, "x");
            write_and_finish::<B>(&mut far_send, "y").await;
            assert_eq!(read_to_end::<B>(&mut recv).await, "y");
        }
        held.push_back(pair.stream().await);
    }
}

/// Dropped waits take no place: after them, as many streams can be opened as without them.
pub async fn a_cancelled_open_takes_no_stream<B: Backend>(backend: &B) {
    let mut opened = Vec::new();
    for cancelled in [0, 15] {
        let pair = Pair::new(backend).await;
        let mut held = open_all::<B>(&pair.dialled).await;
        for _ in 0..cancelled {
            let opened = poll_once(pair.dialled.open()).await;
            assert!(opened.is_none(), "a stream beyond the limit");
        }
        pair.accepted.allow_streams(count(&held) + 20);
        // Until the raised limit has arrived, the next ones wait.
        held.push(within("open", pair.dialled.open()).await.expect("a stream"));
        held.extend(open_all::<B>(&pair.dialled).await);
        opened.push(held.len());
    }
    assert_eq!(
        opened[0], opened[1],
        "streams without and with cancelled waits before"
    );
}

/// A smaller number than before changes nothing.
pub async fn allow_streams_never_lowers<B: Backend>(backend: &B) {
    let limit = open_all::<B>(&Pair::new(backend).await.dialled).await.len();
    let pair = Pair::new(backend).await;
    pair.accepted.allow_streams(1);
    pair.accepted.allow_streams(0);
    let held = open_all::<B>(&pair.dialled).await;
    assert_eq!(held.len(), limit, "streams that may be opened");
    pair.accepted.allow_streams(count(&held) + 2);
    pair.accepted.allow_streams(count(&held) + 1);
    let first = within("open", pair.dialled.open()).await;
    let second = within("open", pair.dialled.open()).await;
    first.and(second).expect("two more streams");
}

/// Waits for a stream that are given up take none.
pub async fn a_cancelled_accept_loses_no_stream<B: Backend>(backend: &B) {
    const STREAMS: u8 = 10;
    let pair = Pair::new(backend).await;
    let mut held = Vec::new();
    let mut seen = Vec::new();
    for number in 0..STREAMS {
        let (mut send, recv) = within("open", pair.dialled.open()).await.expect("a stream");
        write::<B>(&mut send, vec![number]).await;
        held.push((send, recv));
        if let Some(accepted) = poll_once(pair.accepted.accept()).await {
            seen.push(accepted.expect("a stream"));
        }
    }
    while seen.len() < usize::from(STREAMS) {
        if let Some(accepted) = poll_once(pair.accepted.accept()).await {
            seen.push(accepted.expect("a stream"));
            continue;
        }
        seen.push(
            within("accept", pair.accepted.accept())
                .await
                .expect("a stream"),
        );
    }
    let mut numbers = Vec::new();
    for (_, recv) in &mut seen {
        numbers.extend(read::<B>(recv, 10).await.expect("the stream's number"));
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..STREAMS).collect::<Vec<_>>());
}

/// Either side opens streams, and each arrives at the other.
pub async fn both_sides_open_streams<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    for (opener, acceptor) in [
        (&pair.dialled, &pair.accepted),
        (&pair.accepted, &pair.dialled),
    ] {
        let ((mut send, _), (_, mut recv)) = open_stream::<B>(opener, acceptor).await;
        write_and_finish::<B>(&mut send, "hello").await;
        assert_eq!(read_to_end::<B>(&mut recv).await, "hello");
    }
}

/// Many more streams than the limit, one after the other: each gives its place back, also those that were dropped.
pub async fn streams_come_and_go_without_end<B: Backend>(backend: &B) {
    let limit = open_all::<B>(&Pair::new(backend).await.dialled).await.len();
    let pair = Pair::new(backend).await;
    for number in 0..limit * 3 {
        let ((mut send, mut recv), (mut far_send, mut far_recv)) = pair.stream().await;
        match number % 3 {
            0 => {
                write_and_finish::<B>(&mut send, "call").await;
                assert_eq!(read_to_end::<B>(&mut far_recv).await, "call");
                write_and_finish::<B>(&mut far_send, "answer").await;
                assert_eq!(read_to_end::<B>(&mut recv).await, "answer");
            }
            1 => {
                send.reset(thalweg_transport::ErrorCode::CANCELLED);
                far_recv.stop(thalweg_transport::ErrorCode::CANCELLED);
            }
            // Just dropped, on both sides.
            _ => {}
        }
    }
    let mut chunks = [Bytes::from_static(b"last")];
    let ((mut send, _recv), _far) = pair.stream().await;
    within("write", send.write(&mut chunks))
        .await
        .expect("a write");
}

fn count<T>(streams: &[T]) -> u32 {
    u32::try_from(streams.len()).expect("fewer than the most that a check opens")
}
