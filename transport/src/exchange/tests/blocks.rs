//! Bytes and buffers that a producer sends whole.

use super::*;

/// Takes the buffers of one channel to its end.
async fn buffers(mut gate: InputGate) -> Vec<Bytes> {
    let mut buffers = Vec::new();
    while let Some((_, item)) = within("buffer", gate.next()).await.unwrap() {
        if let BufferOrEvent::Buffer(bytes) = item {
            buffers.push(bytes);
        }
    }
    buffers
}

/// The bytes of one channel, whose buffers hold at most so many each and are given back as they come.
async fn contents(mut gate: InputGate, most: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some((_, item)) = within("buffer", gate.next()).await.unwrap() {
        if let BufferOrEvent::Buffer(bytes) = item {
            assert!(bytes.len() <= most);
            all.extend_from_slice(&bytes);
        }
    }
    all
}

#[tokio::test(start_paused = true)]
async fn bytes_arrive_uncopied_in_pieces_of_a_buffer_and_keep_their_order_with_records() {
    let (producer, _) = pair().await;
    let mut writer = producer.produce(0, 1);
    let gate = producer
        .consume(vec![ChannelSource::Local(request(0, 0))])
        .await;
    let owned = Bytes::from(vec![7; 2500]);
    writer.emit(0, b"before").await.unwrap();
    writer.emit_bytes(0, &mut owned.clone()).await.unwrap();
    writer.emit_bytes(0, &mut Bytes::new()).await.unwrap();
    writer.broadcast(b"after").await.unwrap();
    writer.finish().unwrap();
    let received = buffers(gate).await;
    let lengths: Vec<_> = received.iter().map(Bytes::len).collect();
    assert_eq!(lengths, [10, 1000, 1000, 500, 9]);
    assert_eq!(received[1].as_ptr(), owned.as_ptr());
    drop(received);
    assert_eq!(producer.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn owned_bytes_take_the_place_of_buffers_until_they_are_consumed() {
    let (producer, consumer) = pair().await;
    let mut writer = producer.produce_with(0, 1, 2);
    let block = Bytes::from(vec![1; 1000]);
    let mut blocks = Bytes::from(vec![1; 3000]);
    assert!(!writer.try_emit_bytes(0, &mut blocks).unwrap());
    assert_eq!(blocks, block, "one did not fit");
    assert!(!writer.try_emit_bytes(0, &mut blocks).unwrap());
    assert_eq!(producer.used(), 2);
    let gate = consumer.consume(vec![producer.remote(0, 0)]).await;
    let reading = tokio::spawn(buffers(gate));
    within("room", writer.emit_bytes(0, &mut blocks))
        .await
        .unwrap();
    writer.finish().unwrap();
    assert_eq!(within("end", reading).await.unwrap(), vec![block; 3]);
    until("the buffers' return", || {
        producer.used() + consumer.used() == 0
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_buffer_is_filled_in_place_and_sent() {
    let (producer, _) = pair().await;
    let mut writer = producer.produce(0, 1);
    let gate = producer
        .consume(vec![ChannelSource::Local(request(0, 0))])
        .await;
    let mut buffer = writer.request_buffer(0).await.unwrap();
    assert_eq!(buffer.append(&[3; 5000]), 1000);
    writer.emit_buffer(0, buffer).unwrap();
    let empty = writer.request_buffer(0).await.unwrap();
    writer.emit_buffer(0, empty).unwrap();
    let wrong = [
        writer.emit_bytes(1, &mut Bytes::new()).await.unwrap_err(),
        writer.request_buffer(1).await.unwrap_err(),
    ];
    for error in wrong {
        assert!(matches!(error, ExchangeError::Subpartition { .. }));
    }
    writer.finish().unwrap();
    assert_eq!(buffers(gate).await, [vec![3; 1000]]);
    assert_eq!(producer.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_leaves_what_was_not_sent_and_another_goes_on_with_it() {
    let (producer, consumer) = pair().await;
    for wanted in [None, Some(300)] {
        let mut writer = producer.produce_with(0, 1, 2);
        let gate = producer
            .consume(vec![ChannelSource::Local(request(0, 0))])
            .await;
        settle().await;
        if let Some(bytes) = wanted {
            gate.handle().announce_buffer_size(0, bytes).unwrap();
        }
        let all = Bytes::from(
            (0..2500)
                .map(|n| n.to_string().as_bytes()[0])
                .collect::<Vec<_>>(),
        );
        let mut bytes = all.clone();
        let half = writer.emit_bytes(0, &mut bytes);
        let dropped = tokio::time::timeout(Duration::from_millis(1), half).await;
        assert!(dropped.is_err());
        let size = wanted.unwrap_or(1000) as usize;
        assert_eq!(bytes, all[2 * size..], "two buffers are taken");
        let reading = tokio::spawn(contents(gate, size));
        within("the rest", writer.emit_bytes(0, &mut bytes))
            .await
            .unwrap();
        assert!(bytes.is_empty());
        writer.finish().unwrap();
        assert_eq!(within("end", reading).await.unwrap(), all);
        assert_eq!(producer.used(), 0);
    }
    drop(consumer);
}

#[tokio::test(start_paused = true)]
async fn every_way_to_send_whole_buffers_heeds_the_size_that_the_consumer_wants() {
    let (producer, _) = pair().await;
    let mut writer = producer.produce(0, 1);
    let gate = producer
        .consume(vec![ChannelSource::Local(request(0, 0))])
        .await;
    settle().await;
    gate.handle().announce_buffer_size(0, 300).unwrap();
    let mut bytes = Bytes::from(vec![1; 700]);
    assert!(writer.try_emit_bytes(0, &mut bytes).unwrap());
    let mut buffer = writer.request_buffer(0).await.unwrap();
    assert_eq!(buffer.append(&[2; 5000]), 300);
    writer.emit_buffer(0, buffer).unwrap();
    writer.finish().unwrap();
    let lengths: Vec<_> = buffers(gate).await.iter().map(Bytes::len).collect();
    assert_eq!(lengths, [300, 300, 100, 300]);
}

#[tokio::test(start_paused = true)]
async fn buffers_of_other_pools_are_refused() {
    let (producer, _) = pair().await;
    let mut writer = producer.produce(0, 1);
    let larger = BufferPool::with_buffers(32, 5000, Duration::from_secs(1));
    for pool in [&larger, &producer.pool] {
        let foreign = pool.local(1, 1).unwrap();
        let mut buffer = foreign.request().await.unwrap();
        buffer.append(b"not ours");
        let refused = writer.emit_buffer(0, buffer).unwrap_err().to_string();
        assert!(refused.contains("belongs to another pool"), "{refused}");
        assert_eq!(foreign.used(), 0);
    }
    assert_eq!(writer.partition().stats().buffers, 0);
    let disk = blocking::Disk::new(&producer);
    let pool = larger.local(16, 32).unwrap();
    let refused =
        ResultPartition::blocking_with_pool(id(1), PRODUCER, 1, &disk.context, pool).unwrap_err();
    let expected = "buffer of the writer's pool of 5000 bytes is too large: at most 1000 bytes";
    assert!(refused.to_string().starts_with(expected), "{refused}");
}
