//! Everything that is written arrives once and in order.

use super::*;
use crate::proto::DataType;

#[tokio::test(start_paused = true)]
async fn many_channels_deliver_every_record_in_order() {
    let (producer, consumer) = pair().await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..4 {
        tasks.spawn(write(producer.produce(number, 4), 4, number * 100, 200));
    }
    for subpartition in 0..4 {
        let channels = (0..4).map(|n| producer.remote(n, subpartition)).collect();
        let gate = consumer.consume(channels).await;
        tasks.spawn(async move {
            let tags: Vec<_> = (0..4).map(|n| n * 100 + subpartition).collect();
            check(gate, &tags, 200).await;
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(consumer.connections.number_of_active_connections(), 1);
    until("all comes back", || {
        producer.used() == 0 && consumer.used() == 0 && producer.partitions.registered() == 0
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_record_of_5_mb_passes_through_two_buffers_and_the_overdraft() {
    let (producer, consumer) = pair_with(TransportConfig::default()).await;
    let mut writer = producer.produce_with(0, 1, 2);
    let big: Vec<u8> = (0..5_000_000u32)
        .map(|i| (i * 7).to_be_bytes()[2])
        .collect();
    let mut context = consumer.context();
    context.floating_buffers = 1;
    let gate = consumer
        .consume_with(context, vec![producer.remote(0, 0)])
        .await;
    let sent = big.clone();
    let task = tokio::spawn(async move {
        writer.emit(0, &sent).await.unwrap();
        writer.emit(0, b"after").await.unwrap();
        writer.finish().unwrap();
    });
    let mut reader = RecordReader::new(gate);
    let got = within("big", reader.next()).await.unwrap();
    assert!(got == Some((0, Input::Record(big.into()))));
    let got = within("small", reader.next()).await.unwrap();
    assert_eq!(got, Some((0, Input::Record(Bytes::from_static(b"after")))));
    task.await.unwrap();
    assert!(producer.pool.stats().peak <= 2 + OVERDRAFT_BUFFERS);
    assert!(consumer.pool.stats().peak <= 3);
}

#[tokio::test(start_paused = true)]
async fn local_and_remote_channels_mix_in_one_gate() {
    let (producer, consumer) = pair().await;
    let channels = vec![
        producer.remote(0, 0),
        ChannelSource::Local(request(1, 0)),
        producer.remote(2, 0),
    ];
    let gate = consumer.consume(channels).await;
    let handle = gate.handle();
    let remote = producer.produce(0, 1);
    let tasks = [
        tokio::spawn(write(remote, 1, 10, 300)),
        tokio::spawn(write(consumer.produce(1, 1), 1, 11, 300)),
        tokio::spawn(write(producer.produce(2, 1), 1, 12, 300)),
    ];
    check(gate, &[10, 11, 12], 300).await;
    for task in tasks {
        task.await.unwrap();
    }
    let stats = handle.stats();
    assert!(stats.bytes_local > 0 && stats.bytes_remote == 2 * stats.bytes_local);
    assert_eq!((stats.open_channels, stats.events), (0, 3));
    until("all comes back", || producer.used() + consumer.used() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn local_channels_share_the_producers_memory() {
    let (_, worker) = pair().await;
    let mut writer = worker.produce(0, 1);
    let mut gate = worker
        .consume(vec![ChannelSource::Local(request(0, 0))])
        .await;
    writer.emit(0, b"x").await.unwrap();
    writer.flush();
    let (_, item) = within("buffer", gate.next()).await.unwrap().unwrap();
    assert_eq!(worker.used(), 1, "one buffer on both sides");
    drop(item);
    assert_eq!(worker.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn broadcasts_keep_their_place_among_single_records_and_share_buffers() {
    let (producer, consumer) = pair().await;
    let mut writer = producer.produce(0, 3);
    let channels = (0..3).map(|s| producer.remote(0, s)).collect();
    let mut reader = RecordReader::new(consumer.consume(channels).await);
    for sequence in 0..40u8 {
        if sequence % 5 == 0 {
            writer.broadcast(&[sequence; 700]).await.unwrap();
        } else {
            for subpartition in 0..3 {
                writer.emit(subpartition, &[sequence]).await.unwrap();
            }
        }
    }
    let partition = writer.partition().clone();
    writer.broadcast_event(Event::EndOfData).unwrap();
    writer.finish().unwrap();
    let mut next = [0u8; 3];
    while let Some((channel, input)) = within("record", reader.next()).await.unwrap() {
        match input {
            Input::Record(bytes) => {
                assert_eq!(bytes[0], next[channel]);
                next[channel] += 1;
            }
            Input::Event(Event::EndOfData) => assert_eq!(next[channel], 40),
            Input::Event(event) => assert_eq!(event, Event::EndOfPartition),
        }
    }
    assert_eq!(next, [40; 3]);
    assert_eq!(partition.stats().records, 8 + 32 * 3);
}

#[tokio::test(start_paused = true)]
async fn events_pass_at_zero_credit_and_keep_their_place() {
    let (producer, consumer) = pair().await;
    let mut writer = producer.produce(0, 1);
    let mut context = consumer.context();
    context.exclusive_buffers = 0;
    let mut gate = consumer
        .consume_with(context, vec![producer.remote(0, 0)])
        .await;
    let user = |n: u8| Event::User(Bytes::copy_from_slice(&[n]));
    writer.broadcast_event(user(1)).unwrap();
    let first = within("event", gate.next()).await.unwrap();
    assert_eq!(first, Some((0, BufferOrEvent::Event(user(1)))));
    writer.emit(0, b"data").await.unwrap();
    writer.broadcast_event(user(2)).unwrap();
    let (_, item) = within("data", gate.next()).await.unwrap().unwrap();
    assert!(matches!(item, BufferOrEvent::Buffer(_)));
    let last = within("event", gate.next()).await.unwrap();
    assert_eq!(last, Some((0, BufferOrEvent::Event(user(2)))));
    let big = Event::User(vec![0; 70_000].into());
    assert!(matches!(
        writer.broadcast_event(big),
        Err(ExchangeError::TooLarge { .. })
    ));
    assert!(writer.broadcast_event(Event::EndOfPartition).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_consumer_with_smaller_buffers_gets_the_same_records() {
    let network = MemNetwork::new();
    let large = TransportConfig {
        buffer_size: 8192,
        ..small()
    };
    let producer = Worker::start(&network, "producer", large).await;
    let consumer = Worker::start(&network, "consumer", small()).await;
    for exclusive in [0, 2] {
        let mut context = consumer.context();
        context.exclusive_buffers = exclusive;
        let gate = consumer
            .consume_with(context, vec![producer.remote(exclusive, 0)])
            .await;
        let task = tokio::spawn(write(producer.produce(exclusive, 1), 1, 5, 300));
        check(gate, &[5], 300).await;
        task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn no_exclusive_and_one_floating_buffer_are_enough() {
    let (producer, consumer) = pair().await;
    let mut context = consumer.context();
    (context.exclusive_buffers, context.floating_buffers) = (0, 1);
    let channels = (0..8).map(|s| producer.remote(0, s)).collect();
    let gate = consumer.consume_with(context, channels).await;
    let task = tokio::spawn(write(producer.produce(0, 8), 8, 0, 60));
    check(gate, &[0, 1, 2, 3, 4, 5, 6, 7], 60).await;
    task.await.unwrap();
    assert_eq!(consumer.pool.stats().peak, 1);
}

#[tokio::test(start_paused = true)]
async fn an_unfinished_buffer_is_seen_only_after_a_flush() {
    let (producer, consumer) = pair().await;
    let mut writer = producer.produce(0, 1);
    let mut gate = consumer.consume(vec![producer.remote(0, 0)]).await;
    writer.emit(0, b"x").await.unwrap();
    settle().await;
    assert!(gate.try_next().is_none());
    writer.flush();
    within("buffer", gate.next()).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn unknown_channels_become_local_or_remote() {
    let (producer, consumer) = pair().await;
    let gate = InputGate::setup(
        "gate",
        CONSUMER,
        vec![ChannelSource::Unknown; 2],
        consumer.context(),
    )
    .await
    .unwrap();
    assert_eq!(consumer.used(), 5, "2 exclusive each, 1 floating");
    let handle = gate.handle();
    handle.update_channel(0, producer.remote(0, 0)).unwrap();
    settle().await;
    assert_eq!(consumer.connections.number_of_active_connections(), 0);
    gate.request_partitions();
    gate.request_partitions();
    assert!(handle.update_channel(0, producer.remote(0, 0)).is_err());
    assert!(handle.update_channel(2, producer.remote(0, 0)).is_err());
    assert!(handle.update_channel(1, ChannelSource::Unknown).is_err());
    let local = ChannelSource::Local(request(1, 0));
    handle.update_channel(1, local).unwrap();
    let tasks = [
        tokio::spawn(write(producer.produce(0, 1), 1, 0, 50)),
        tokio::spawn(write(consumer.produce(1, 1), 1, 1, 50)),
    ];
    check(gate, &[0, 1], 50).await;
    for task in tasks {
        task.await.unwrap();
    }
}

/// A partition of an embedding engine: mostly empty buffers.
#[derive(Debug)]
struct Hollow;

impl PartitionSource for Hollow {
    fn id(&self) -> PartitionId {
        id(0)
    }

    fn producer(&self) -> ExecutionAttemptId {
        PRODUCER
    }

    fn create_view(
        self: Arc<Self>,
        _: SubpartitionIndex,
        listener: Arc<dyn AvailabilityListener>,
    ) -> Result<Box<dyn SubpartitionView>, ExchangeError> {
        listener.on_available();
        Ok(Box::new(HollowView { taken: 0 }))
    }

    fn release(&self, _: ExchangeError) {}
}

#[derive(Debug)]
struct HollowView {
    taken: usize,
}

impl SubpartitionView for HollowView {
    fn take(&mut self, _: Credit, max: usize, out: &mut Vec<Item>) -> Result<(), ExchangeError> {
        for _ in 0..max.min(101 - self.taken) {
            let ends = self.taken == 100;
            self.taken += 1;
            out.push(Item {
                data_type: if ends {
                    DataType::EndOfPartition
                } else {
                    DataType::Data
                },
                payload: Bytes::new(),
                compressed: false,
                backlog: 0,
            });
        }
        Ok(())
    }

    fn backlog(&self) -> u32 {
        0
    }
}

#[tokio::test(start_paused = true)]
async fn empty_buffers_of_any_number_hide_nothing_behind_them() {
    let (producer, consumer) = pair().await;
    producer.partitions.register(Arc::new(Hollow)).unwrap();
    for (worker, source) in [
        (&producer, ChannelSource::Local(request(0, 0))),
        (&consumer, producer.remote(0, 0)),
    ] {
        let mut gate = worker.consume(vec![source]).await;
        let item = within("end", gate.next()).await.unwrap();
        let end = BufferOrEvent::Event(Event::EndOfPartition);
        assert_eq!(item, Some((0, end)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_channel_that_ends_inside_a_record_is_an_error_every_time() {
    let (producer, _) = pair().await;
    let mut writers = [producer.produce(0, 1), producer.produce(1, 1)];
    let mut half = Bytes::from_static(&[0, 0, 0, 9, 1]);
    writers[0].emit_bytes(0, &mut half).await.unwrap();
    let [first, second] = writers;
    first.finish().unwrap();
    let sources = [0, 1].map(|number| ChannelSource::Local(request(number, 0)));
    let mut reader = RecordReader::new(producer.consume(sources.into()).await);
    let error = within("error", reader.next()).await.unwrap_err();
    assert!(
        error.to_string().contains("ends inside a record"),
        "{error}"
    );
    write(second, 1, 0, 10).await;
    settle().await;
    let again = within("error", reader.next()).await.unwrap_err();
    assert_eq!(again.to_string(), error.to_string());
    assert!(reader.try_next().is_err());
}
