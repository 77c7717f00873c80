//! Consumers that ask for smaller buffers.

use super::{lookup::Asks, *};

/// The lengths of the buffers that are there.
async fn lengths(gate: &mut InputGate) -> Vec<usize> {
    settle().await;
    let mut lengths = Vec::new();
    while let Some(item) = gate.try_next() {
        if let Some((_, BufferOrEvent::Buffer(buffer))) = item.unwrap() {
            lengths.push(buffer.len());
        }
        settle().await;
    }
    lengths
}

async fn buffers_shrink(local: bool) {
    let (producer, consumer) = pair().await;
    let mut writer = producer.produce(0, 1);
    let (worker, source) = if local {
        (&producer, ChannelSource::Local(request(0, 0)))
    } else {
        (&consumer, producer.remote(0, 0))
    };
    let mut gate = worker.consume(vec![source]).await;
    settle().await;
    let handle = gate.handle();
    assert!(handle.announce_buffer_size(0, 0).is_err());
    assert!(handle.announce_buffer_size(1, 65).is_err());
    handle.announce_buffer_size(0, 70).unwrap();
    handle.announce_buffer_size(0, 65).unwrap();
    settle().await;
    writer.emit(0, &[1; 124]).await.unwrap();
    assert_eq!(
        lengths(&mut gate).await,
        [128],
        "a record is never cut short"
    );
    for _ in 0..10 {
        assert!(writer.try_emit(0, &[2; 22]).unwrap());
    }
    assert_eq!(lengths(&mut gate).await, [65; 4], "260 bytes fill four");
    let mut bytes = Bytes::from(vec![3; 130]);
    writer.emit_bytes(0, &mut bytes).await.unwrap();
    assert_eq!(lengths(&mut gate).await, [65, 65]);
    handle.announce_buffer_size(0, u32::MAX).unwrap();
    settle().await;
    writer.emit(0, &[4; 3000]).await.unwrap();
    writer.flush();
    assert_eq!(lengths(&mut gate).await, [1000, 1000, 1000, 4]);
    gate.close();
    let closed = handle.announce_buffer_size(0, 65);
    assert!(matches!(closed, Err(ExchangeError::Cancelled { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_far_producer_finishes_buffers_at_the_announced_size_but_not_below_a_record() {
    buffers_shrink(false).await;
}

#[tokio::test(start_paused = true)]
async fn a_near_producer_finishes_buffers_at_the_announced_size_but_not_below_a_record() {
    buffers_shrink(true).await;
}

#[tokio::test(start_paused = true)]
async fn broadcast_buffers_have_the_smallest_announced_size() {
    let (producer, consumer) = pair().await;
    let mut writer = producer.produce(0, 3);
    let channels = (0..3).map(|s| producer.remote(0, s)).collect();
    let mut gate = consumer.consume(channels).await;
    settle().await;
    for (channel, bytes) in [(0, 300), (2, 200)] {
        gate.handle().announce_buffer_size(channel, bytes).unwrap();
    }
    settle().await;
    for _ in 0..4 {
        writer.broadcast(&[0; 96]).await.unwrap();
    }
    assert_eq!(lengths(&mut gate).await, [200; 6]);
}

#[tokio::test(start_paused = true)]
async fn a_size_that_comes_before_its_partition_counts_from_its_start_also_after_another_request() {
    for repeated in [false, true] {
        let (producer, consumer) = pair().await;
        let mut context = consumer.context();
        context.producer_check = Some(Arc::new(Asks::new(Verdict::RequestAgain)));
        let channels = vec![producer.remote(0, 0), ChannelSource::Local(request(1, 0))];
        let mut gate = consumer.consume_with(context, channels).await;
        until("one waits", || producer.partitions.parked() == 1).await;
        for channel in 0..2 {
            gate.handle().announce_buffer_size(channel, 65).unwrap();
        }
        settle().await;
        if repeated {
            tokio::time::sleep(Duration::from_secs(11)).await;
        }
        for (number, worker) in [(0, &producer), (1, &consumer)] {
            let mut writer = worker.produce(number, 1);
            settle().await;
            for _ in 0..10 {
                writer.emit(0, &[0; 22]).await.unwrap();
            }
            assert_eq!(lengths(&mut gate).await, [65; 4], "260 bytes fill four");
            writer.finish().unwrap();
        }
    }
}
