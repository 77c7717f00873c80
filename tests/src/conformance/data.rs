//! Bytes of one stream: order, chunks, the end (contract 2, 4 and 7).

use bytes::{Bytes, BytesMut};
use thalweg_transport::{Connection, RecvStream, SendStream, StreamError};

use super::{
    backend::{Backend, Pair},
    support::{
        assert_same, never, pattern, poll_once, read, read_to_end, within, write, write_and_finish,
    },
};

/// Writes of many sizes come out as one run of bytes in the same order.
pub async fn bytes_keep_their_order<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    let data = pattern(200_000);
    let writes = async {
        let mut rest = data.clone();
        let mut size = 1;
        while !rest.is_empty() {
            write::<B>(&mut send, rest.split_to(size.min(rest.len()))).await;
            size = (size * 3 + 1) % 4_099 + 1;
        }
        send.finish().expect("a finish");
    };
    let (found, ()) = tokio::join!(read_to_end::<B>(&mut recv), writes);
    assert_same(&found, &data);
}

/// 16 MiB arrive as they were sent, in chunks as the exchange writes them.
pub async fn a_big_transfer_arrives_intact<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    let data = pattern(16 * 1024 * 1024);
    let writes = async {
        let mut rest = data.clone();
        while !rest.is_empty() {
            let mut chunks: Vec<Bytes> = (0..8)
                .map(|_| rest.split_to(rest.len().min(32 * 1024)))
                .collect();
            within("write", send.write(&mut chunks))
                .await
                .expect("a write");
            tokio::task::yield_now().await;
        }
        send.finish().expect("a finish");
    };
    let (found, ()) = tokio::join!(read_to_end::<B>(&mut recv), writes);
    assert_same(&found, &data);
}

/// What is tried without waiting, and what is written after it, comes out in order; nothing twice.
pub async fn tries_and_writes_keep_their_order<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    let data = pattern(3_000_000);
    let writes = async {
        let mut rest = data.clone();
        let mut size = 1;
        while !rest.is_empty() {
            let mut chunks = [size, 1, 3 * size].map(|size| rest.split_to(size.min(rest.len())));
            // Nobody reads while it is tried, so that windows and queues are met full, too.
            if !send.try_write(&mut chunks).expect("a try") {
                within("write", send.write(&mut chunks))
                    .await
                    .expect("a write");
            }
            assert!(chunks.iter().all(Bytes::is_empty));
            size = (size * 3 + 1) % 40_099 + 1;
        }
        send.finish().expect("a finish");
        assert!(matches!(
            send.try_write(&mut [Bytes::from_static(b"late")]),
            Ok(false) | Err(StreamError::Closed)
        ));
    };
    let (found, ()) = tokio::join!(read_to_end::<B>(&mut recv), writes);
    assert_same(&found, &data);
}

/// A chunk has at least one byte and at most as many as were asked for.
pub async fn chunks_have_one_to_max_bytes<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    let data = pattern(20_000);
    write_and_finish::<B>(&mut send, data.clone()).await;
    let mut found = BytesMut::new();
    for max in [1, 2, 7, 100, 1_000].into_iter().cycle() {
        let Some(chunk) = read::<B>(&mut recv, max).await else {
            break;
        };
        assert!(
            (1..=max).contains(&chunk.len()),
            "a read of at most {max} bytes gave {}",
            chunk.len()
        );
        found.extend_from_slice(&chunk);
    }
    assert_same(&found, &data);
}

/// `write` takes the chunks out of the slice.
pub async fn written_chunks_are_left_empty<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    let mut chunks = [pattern(10), pattern(5_000), pattern(1)];
    within("write", send.write(&mut chunks))
        .await
        .expect("a write");
    assert!(chunks.iter().all(Bytes::is_empty), "chunks are left over");
    send.finish().expect("a finish");
    assert_eq!(read_to_end::<B>(&mut recv).await.len(), 5_011);
}

/// `read_chunks` fills as many entries as it says, none of them empty, in order, and ends with `None`.
pub async fn read_chunks_gives_every_byte_in_order<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    let data = pattern(300_000);
    let reads = async {
        let mut found = BytesMut::new();
        let mut chunks = vec![Bytes::new(); 8];
        while let Some(count) = within("read_chunks", recv.read_chunks(&mut chunks))
            .await
            .expect("a read")
        {
            assert!((1..=8).contains(&count), "{count} chunks of 8");
            for chunk in &mut chunks[..count] {
                assert!(!chunk.is_empty(), "an empty chunk");
                found.extend_from_slice(&std::mem::take(chunk));
            }
        }
        found
    };
    let writes = async {
        for chunk in data.chunks(1_000) {
            write::<B>(&mut send, Bytes::copy_from_slice(chunk)).await;
        }
        send.finish().expect("a finish");
    };
    let (found, ()) = tokio::join!(reads, writes);
    assert_same(&found, &data);
}

/// Finishing right after the first byte gives that byte and the end, and nothing else.
pub async fn a_finish_without_data_reads_as_the_end<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    send.finish().expect("a finish");
    assert_eq!(read::<B>(&mut recv, 10).await, None);
}

/// A reader that asks again after the end gets the end again.
pub async fn the_end_can_be_read_again<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    write_and_finish::<B>(&mut send, "x").await;
    assert_eq!(read_to_end::<B>(&mut recv).await, "x");
    assert_eq!(read::<B>(&mut recv, 10).await, None);
    let mut chunks = [Bytes::new()];
    let again = within("read_chunks", recv.read_chunks(&mut chunks)).await;
    assert_eq!(again.expect("a read after the end"), None);
}

/// What was written before the finish is delivered, also if the sender is dropped right after.
pub async fn everything_before_the_finish_arrives<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    for len in [1, 1_000, 100_000] {
        let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
        let data = pattern(len);
        write_and_finish::<B>(&mut send, data.clone()).await;
        drop(send);
        assert_same(&read_to_end::<B>(&mut recv).await, &data);
    }
}

/// A finished direction says nothing about the other one.
pub async fn half_close_leaves_the_other_direction_open<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut near_send, mut near_recv), (mut far_send, mut far_recv)) = pair.stream().await;
    write_and_finish::<B>(&mut near_send, "question").await;
    assert_eq!(read_to_end::<B>(&mut far_recv).await, "question");
    drop((near_send, far_recv));
    let data = pattern(50_000);
    write_and_finish::<B>(&mut far_send, data.clone()).await;
    assert_same(&read_to_end::<B>(&mut near_recv).await, &data);
}

/// Both directions of a stream carry data at the same time.
pub async fn both_directions_flow_at_once<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut near_send, mut near_recv), (mut far_send, mut far_recv)) = pair.stream().await;
    let data = pattern(2_000_000);
    let (there, back, (), ()) = tokio::join!(
        read_to_end::<B>(&mut far_recv),
        read_to_end::<B>(&mut near_recv),
        write_and_finish::<B>(&mut near_send, data.clone()),
        write_and_finish::<B>(&mut far_send, data.clone()),
    );
    assert_same(&there, &data);
    assert_same(&back, &data);
}

/// Empty chunks among the others, and a write of nothing, are no data and no end.
pub async fn empty_chunks_are_no_data<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    let empty = Bytes::new;
    let mut chunks = [empty(), "a".into(), empty(), empty(), "b".into(), empty()];
    within("write", send.write(&mut chunks))
        .await
        .expect("a write");
    within("write", send.write(&mut []))
        .await
        .expect("a write of no chunk");
    within("write", send.write(&mut [empty()]))
        .await
        .expect("a write of no byte");
    write_and_finish::<B>(&mut send, "c").await;
    assert_eq!(read_to_end::<B>(&mut recv).await, "abc");
}

/// An opened stream is unknown to the peer until something is written.
pub async fn a_stream_is_seen_at_its_first_byte<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let (mut send, _recv) = within("open", pair.dialled.open()).await.expect("a stream");
    never("accepting a stream without a byte", pair.accepted.accept()).await;
    write::<B>(&mut send, "first").await;
    let (_send, mut recv) = within("accept", pair.accepted.accept())
        .await
        .expect("the stream");
    assert_eq!(
        read::<B>(&mut recv, 100).await.as_deref(),
        Some(&b"first"[..])
    );
}

/// Changing a stream's priority between writes does not change the order of its bytes.
pub async fn priorities_do_not_reorder_a_stream<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    let data = pattern(200_000);
    let writes = async {
        for (chunk, priority) in data
            .chunks(5_000)
            .zip([0, 7, -3, i32::MAX, i32::MIN].into_iter().cycle())
        {
            send.set_priority(priority);
            write::<B>(&mut send, Bytes::copy_from_slice(chunk)).await;
        }
        send.finish().expect("a finish");
    };
    let (found, ()) = tokio::join!(read_to_end::<B>(&mut recv), writes);
    assert_same(&found, &data);
}

/// Reads that are dropped after one poll lose no byte, whether data was there or not.
pub async fn a_cancelled_read_loses_nothing<B: Backend>(backend: &B) {
    let pair = Pair::new(backend).await;
    let ((mut send, _recv), (_send, mut recv)) = pair.stream().await;
    let data = pattern(100_000);
    let reads = async {
        let mut found = BytesMut::new();
        let mut chunks = vec![Bytes::new(); 4];
        for turn in 0_u64.. {
            // Alternately both ways of reading, so that each is cancelled with data under way.
            let ended = if turn.is_multiple_of(2) {
                match poll_once(recv.read(3_000)).await {
                    Some(Ok(Some(chunk))) => {
                        found.extend_from_slice(&chunk);
                        false
                    }
                    Some(Ok(None)) => true,
                    Some(Err(error)) => panic!("a read failed: {error}"),
                    None => false,
                }
            } else {
                match poll_once(recv.read_chunks(&mut chunks)).await {
                    Some(Ok(Some(count))) => {
                        for chunk in &mut chunks[..count] {
                            found.extend_from_slice(&std::mem::take(chunk));
                        }
                        false
                    }
                    Some(Ok(None)) => true,
                    Some(Err(error)) => panic!("a read failed: {error}"),
                    None => false,
                }
            };
            if ended {
                break;
            }
            tokio::task::yield_now().await;
        }
        found
    };
    let writes = async {
        for chunk in data.chunks(2_500) {
            write::<B>(&mut send, Bytes::copy_from_slice(chunk)).await;
            tokio::task::yield_now().await;
        }
        send.finish().expect("a finish");
    };
    let (found, ()) = within("the transfer", async { tokio::join!(reads, writes) }).await;
    assert_same(&found, &data);
}
