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

#[tokio::test(start_paused = true)]
async fn bytes_arrive_uncopied_in_pieces_of_a_buffer_and_keep_their_order_with_records() {
    let (producer, _) = pair().await;
    let mut writer = producer.produce(0, 1);
    let gate = producer
        .consume(vec![ChannelSource::Local(request(0, 0))])
        .await;
    let owned = Bytes::from(vec![7; 2500]);
    writer.emit(0, b"before").await.unwrap();
    writer.emit_bytes(0, owned.clone()).await.unwrap();
    writer.emit_bytes(0, Bytes::new()).await.unwrap();
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
    assert!(writer.try_emit_bytes(0, &block).unwrap());
    assert!(writer.try_emit_bytes(0, &block).unwrap());
    assert!(!writer.try_emit_bytes(0, &block).unwrap());
    assert_eq!(producer.used(), 2);
    let gate = consumer.consume(vec![producer.remote(0, 0)]).await;
    let reading = tokio::spawn(buffers(gate));
    within("room", writer.emit_bytes(0, block.clone()))
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
    let mut buffer = writer.request_buffer().await.unwrap();
    assert_eq!(buffer.append(&[3; 5000]), 1000);
    writer.emit_buffer(0, buffer).unwrap();
    let empty = writer.request_buffer().await.unwrap();
    writer.emit_buffer(0, empty).unwrap();
    assert!(matches!(
        writer.try_emit_bytes(0, &Bytes::from(vec![0; 1001])),
        Err(ExchangeError::TooLarge { limit: 1000, .. })
    ));
    assert!(matches!(
        writer.emit_bytes(1, Bytes::new()).await,
        Err(ExchangeError::Subpartition { .. })
    ));
    writer.finish().unwrap();
    assert_eq!(buffers(gate).await, [vec![3; 1000]]);
    assert_eq!(producer.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn bytes_that_were_sent_in_part_leave_a_writer_that_can_only_fail() {
    let (producer, _) = pair().await;
    let mut writer = producer.produce_with(0, 1, 1);
    let half = writer.emit_bytes(0, Bytes::from(vec![0; 2000]));
    let dropped = tokio::time::timeout(Duration::from_millis(1), half).await;
    assert!(dropped.is_err());
    assert!(
        writer
            .emit_bytes(0, Bytes::from_static(b"x"))
            .await
            .is_err()
    );
    writer.fail("gave up");
    assert_eq!(producer.used(), 0);
    // What waits with nothing sent may be dropped.
    let mut writer = producer.produce_with(1, 1, 1);
    writer
        .emit_bytes(0, Bytes::from_static(b"x"))
        .await
        .unwrap();
    let waiting = writer.emit_bytes(0, Bytes::from_static(b"y"));
    let dropped = tokio::time::timeout(Duration::from_millis(1), waiting).await;
    assert!(dropped.is_err());
    writer.finish().unwrap();
}
