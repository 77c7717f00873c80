//! Buffers whose size follows the throughput of their gate.

use super::*;

/// Writes records of 96 bytes until its partition is given up.
async fn pour(mut writer: PartitionWriter) {
    while writer.emit(0, &[7; 92]).await.is_ok() {}
}

async fn next(gate: &mut InputGate) -> usize {
    match within("buffer", gate.next()).await.unwrap().unwrap().1 {
        BufferOrEvent::Buffer(buffer) => buffer.len(),
        BufferOrEvent::Event(event) => panic!("{event:?}"),
    }
}

/// Reads a buffer every so often, for a minute; gives the last sizes.
async fn read(gate: &mut InputGate, pause: Duration) -> Vec<usize> {
    let (begun, mut sizes) = (crate::now(), Vec::new());
    while crate::now() - begun < Duration::from_secs(60) {
        sizes.push(next(gate).await);
        tokio::time::sleep(pause).await;
    }
    sizes.split_off(sizes.len() - 100)
}

async fn sizes_follow_the_consumer(local: bool) {
    let (producer, consumer) = pair().await;
    let writer = producer.produce_with(0, 1, 30);
    let (worker, source) = if local {
        (&producer, ChannelSource::Local(request(0, 0)))
    } else {
        (&consumer, producer.remote(0, 0))
    };
    let mut context = worker.context();
    context.buffer_debloating = true;
    let mut gate = worker.consume_with(context, vec![source]).await;
    let task = tokio::spawn(pour(writer));
    // 10 buffers a second, and some 60 under way: a second's bytes make less than the smallest buffers.
    let slow = read(&mut gate, Duration::from_millis(100)).await;
    assert!(slow.iter().all(|&size| size == 256), "{slow:?}");
    // 1,000 of 256 bytes a second make some 4,000 each: more than a buffer holds.
    let fast = read(&mut gate, Duration::from_millis(1)).await;
    assert!(fast.iter().all(|&size| size == 1000), "{fast:?}");
    drop(gate);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn buffers_of_a_far_producer_follow_the_throughput_of_their_consumer() {
    sizes_follow_the_consumer(false).await;
}

#[tokio::test(start_paused = true)]
async fn buffers_of_a_near_producer_follow_the_throughput_of_their_consumer() {
    sizes_follow_the_consumer(true).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_gate_and_one_without_debloating_leave_buffers_as_they_are() {
    let (producer, consumer) = pair().await;
    for (number, debloating) in [(0, true), (1, false)] {
        let mut context = consumer.context();
        assert!(!context.buffer_debloating, "off by default");
        context.buffer_debloating = debloating;
        let mut gate = consumer
            .consume_with(context, vec![producer.remote(number, 0)])
            .await;
        let mut writer = producer.produce(number, 1);
        let pause = Duration::from_secs(if debloating { 100 } else { 0 });
        let waited = tokio::time::timeout(pause, gate.next()).await;
        assert!(waited.is_err(), "nothing was written");
        let task = tokio::spawn(async move {
            writer.emit(0, &[7; 996]).await.unwrap();
            pour(writer).await;
        });
        if debloating {
            assert_eq!(next(&mut gate).await, 1000);
        } else {
            let slow = read(&mut gate, Duration::from_millis(100)).await;
            assert!(slow.iter().all(|&size| size == 1000), "{slow:?}");
        }
        drop(gate);
        task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn buffers_in_use_are_those_queued_and_those_that_wait_at_the_producer() {
    let (producer, consumer) = pair().await;
    let channels = vec![producer.remote(0, 0), ChannelSource::Local(request(1, 0))];
    let mut context = consumer.context();
    (context.exclusive_buffers, context.floating_buffers) = (1, 2);
    let gate = consumer.consume_with(context, channels).await;
    settle().await;
    let handle = gate.handle();
    assert_eq!(
        [0, 1, 2].map(|channel| handle.buffers_in_use(channel)),
        [0; 3]
    );
    for (number, worker) in [(0, &producer), (1, &consumer)] {
        let mut writer = worker.produce(number, 1);
        settle().await;
        for _ in 0..20 {
            writer.emit(0, &[7; 996]).await.unwrap();
        }
        writer.finish().unwrap();
    }
    settle().await;
    assert_eq!(
        [0, 1].map(|channel| handle.buffers_in_use(channel)),
        [20; 2]
    );
}
