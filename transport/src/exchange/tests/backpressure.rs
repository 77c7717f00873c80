//! Slow consumers stop their producers, and nobody else.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_consumer_that_does_not_read_stops_its_producer_within_bounded_memory() {
    let (producer, consumer) = pair().await;
    let gate = consumer.consume(vec![producer.remote(0, 0)]).await;
    let writer = producer.produce_with(0, 1, 10);
    let partition = writer.partition().clone();
    let task = tokio::spawn(write(writer, 1, 3, 3000));
    settle().await;
    let written = partition.stats().records;
    settle().await;
    assert!(!task.is_finished());
    assert_eq!(partition.stats().records, written, "the producer stands");
    let bound = 10 + OVERDRAFT_BUFFERS;
    assert!((10..=bound).contains(&partition.stats().pool_used));
    let most = 2 + consumer.config.floating_buffers_per_gate as usize;
    assert!(consumer.used() <= most && producer.used() <= bound);
    check(gate, &[3], 3000).await;
    task.await.unwrap();
    assert!(consumer.pool.stats().peak <= most);
    assert!(producer.pool.stats().peak <= bound);
}

#[tokio::test(start_paused = true)]
async fn one_stalled_channel_leaves_63_others_of_the_connection_alone() {
    let (producer, consumer) = pair().await;
    let stalled = consumer.consume(vec![producer.remote(0, 0)]).await;
    let first = tokio::spawn(write(producer.produce_with(0, 1, 3), 1, 0, 2000));
    settle().await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 1..64 {
        let mut context = consumer.context();
        context.floating_buffers = 4;
        let gate = consumer
            .consume_with(context, vec![producer.remote(number, 0)])
            .await;
        tasks.spawn(write(producer.produce_with(number, 1, 4), 1, number, 100));
        tasks.spawn(async move { check(gate, &[number], 100).await });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert!(!first.is_finished());
    assert_eq!(consumer.connections.number_of_active_connections(), 1);
    check(stalled, &[0], 2000).await;
    first.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn channels_of_a_gate_take_turns_at_the_floating_buffers() {
    let (producer, consumer) = pair().await;
    let mut context = consumer.context();
    (context.exclusive_buffers, context.floating_buffers) = (0, 3);
    let channels = (0..6).map(|n| producer.remote(n, 0)).collect();
    let mut gate = consumer.consume_with(context, channels).await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..6 {
        tasks.spawn(write(producer.produce_with(number, 1, 4), 1, number, 400));
    }
    let mut seen = [0; 6];
    for _ in 0..120 {
        if let (channel, BufferOrEvent::Buffer(_)) =
            within("buffer", gate.next()).await.unwrap().unwrap()
        {
            seen[channel] += 1;
        }
    }
    assert!(seen.iter().all(|&count| count >= 10), "{seen:?}");
    drop(gate);
    tasks.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn records_that_the_consumer_keeps_do_not_stop_the_rest() {
    let (producer, consumer) = pair().await;
    let mut context = consumer.context();
    (context.exclusive_buffers, context.floating_buffers) = (4, 12);
    let gate = consumer
        .consume_with(context, vec![producer.remote(0, 0)])
        .await;
    let mut writer = producer.produce_with(0, 1, 4);
    let task = tokio::spawn(async move {
        for _ in 0..200 {
            writer.emit(0, &[1; 996]).await.unwrap();
        }
        writer.finish().unwrap();
    });
    let (mut reader, mut kept, mut count) = (RecordReader::new(gate), Vec::new(), 0);
    while let Some((_, input)) = within("record", reader.next()).await.unwrap() {
        if let Input::Record(record) = input {
            count += 1;
            // A lone channel may have its 4 and 7 of the floating ones: all but one stay with the consumer.
            if kept.len() < 10 {
                kept.push(record);
            }
        }
    }
    assert_eq!(count, 200);
    task.await.unwrap();
}

/// One source, two ways, one sink that reads both in lockstep: each way must get on while the other one waits.
#[tokio::test(start_paused = true)]
async fn a_diamond_with_tiny_pools_does_not_deadlock() {
    let (left, right) = pair().await;
    let mut source = left.produce_with(0, 2, 3);
    let mut context = right.context();
    (context.exclusive_buffers, context.floating_buffers) = (0, 1);
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        for sequence in 0..300u32 {
            // Long runs to one side, so that the other side's records lie in an open buffer meanwhile.
            for _ in 0..8 {
                source
                    .emit((sequence / 16 % 2) as usize, &record(1, sequence))
                    .await
                    .unwrap();
            }
            source.broadcast(&sequence.to_be_bytes()).await.unwrap();
        }
        source.finish().unwrap();
    });
    for way in 0..2u32 {
        let gate = right
            .consume_with(context.clone(), vec![left.remote(0, way)])
            .await;
        let mut writer = right.produce_with(10 + way, 1, 2);
        tasks.spawn(async move {
            let mut reader = RecordReader::new(gate);
            while let Some((_, input)) = reader.next().await.unwrap() {
                if let Input::Record(record) = input
                    && record.len() == 4
                {
                    writer.emit(0, &record).await.unwrap();
                }
            }
            writer.finish().unwrap();
        });
    }
    let mut sides = Vec::new();
    for way in 0..2 {
        let gate = left
            .consume_with(left_context(&left), vec![right.remote(10 + way, 0)])
            .await;
        sides.push(RecordReader::new(gate));
    }
    for sequence in 0..300u32 {
        for side in &mut sides {
            let got = within("lockstep", side.next()).await.unwrap();
            let expected = Bytes::copy_from_slice(&sequence.to_be_bytes());
            assert_eq!(got, Some((0, Input::Record(expected))));
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

fn left_context(worker: &Worker) -> GateContext {
    let mut context = worker.context();
    (context.exclusive_buffers, context.floating_buffers) = (0, 1);
    context
}

#[tokio::test(start_paused = true)]
async fn credit_is_announced_in_groups() {
    let (producer, consumer) = pair().await;
    let gate = consumer.consume(vec![producer.remote(0, 0)]).await;
    let handle = gate.handle();
    let task = tokio::spawn(write(producer.produce(0, 1), 1, 3, 4000));
    check(gate, &[3], 4000).await;
    task.await.unwrap();
    let stats = handle.stats();
    assert!(
        stats.credit_messages * 2 < stats.buffers_remote,
        "{stats:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn gates_get_on_while_others_have_taken_all_memory_beyond_the_guarantees() {
    let (producer, consumer) = pair().await;
    for exclusive in [0, 1] {
        let mut context = consumer.context();
        context.exclusive_buffers = exclusive;
        let numbers = [exclusive * 2, exclusive * 2 + 1];
        let channels = numbers.map(|n| producer.remote(n, 0)).to_vec();
        let gate = consumer.consume_with(context, channels).await;
        let stats = consumer.pool.stats();
        let rest = stats.total - stats.guaranteed;
        let hog = consumer.pool.local(rest, rest).unwrap();
        let hoarded: Vec<_> = std::iter::from_fn(|| hog.try_request().unwrap()).collect();
        assert_eq!(consumer.used(), consumer.pool.stats().total);
        let tasks = numbers.map(|n| tokio::spawn(write(producer.produce(n, 1), 1, n, 200)));
        check(gate, &numbers, 200).await;
        for task in tasks {
            task.await.unwrap();
        }
        drop(hoarded);
        until("all comes back", || consumer.used() == 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_spans_buffers_is_finished_before_its_task_waits() {
    let (producer, _) = pair().await;
    let mut writer = producer.produce_with(0, 1, 1);
    within("record", writer.emit(0, &[0; 5000])).await.unwrap();
    let next = tokio::time::timeout(Duration::from_millis(1), writer.emit(0, &[0; 2000]));
    assert!(next.await.is_err(), "the overdraft is paid back first");
}

#[tokio::test(start_paused = true)]
async fn a_task_may_wait_for_room_before_it_has_a_record() {
    let (producer, _) = pair().await;
    let mut writer = producer.produce_with(0, 1, 1);
    within("room", writer.ready()).await.unwrap();
    within("the same room", writer.ready()).await.unwrap();
    assert!(writer.try_emit(0, b"fits").unwrap());
    writer.flush();
    let full = tokio::time::timeout(Duration::from_millis(1), writer.ready());
    assert!(full.await.is_err());
    let mut gate = producer
        .consume(vec![ChannelSource::Local(request(0, 0))])
        .await;
    drop(within("buffer", gate.next()).await.unwrap());
    within("room again", writer.ready()).await.unwrap();
    writer.finish().unwrap();
    until("nothing is kept", || producer.used() == 0).await;
}
