//! Events that overtake, barriers that announce themselves, and what is in flight meanwhile.

use super::*;

fn priority(n: u8) -> Event {
    Event::Priority(Bytes::copy_from_slice(&[n]))
}

async fn next(gate: &mut InputGate) -> (usize, BufferOrEvent) {
    within("item", gate.next()).await.unwrap().unwrap()
}

/// Takes items until an event comes; gives the bytes before it.
async fn until_event(gate: &mut InputGate) -> (usize, Event) {
    let mut bytes = 0;
    loop {
        match next(gate).await.1 {
            BufferOrEvent::Buffer(buffer) => bytes += buffer.len(),
            BufferOrEvent::Event(event) => return (bytes, event),
        }
    }
}

/// A writer, and a gate with one channel that reads it from near or far.
async fn channel(local: bool) -> (Worker, Worker, PartitionWriter, InputGate) {
    let (producer, consumer) = pair().await;
    let writer = producer.produce_with(0, 1, 60);
    let (worker, source) = if local {
        (&producer, ChannelSource::Local(request(0, 0)))
    } else {
        (&consumer, producer.remote(0, 0))
    };
    let gate = worker.consume(vec![source]).await;
    settle().await;
    (producer, consumer, writer, gate)
}

async fn priority_events_overtake(local: bool) {
    let (producer, _consumer, mut writer, mut gate) = channel(local).await;
    for _ in 0..60 {
        writer.emit(0, &[7; 996]).await.unwrap();
    }
    settle().await;
    next(&mut gate).await;
    settle().await;
    let inflight = gate.handle().inflight(0).unwrap();
    assert!(inflight.iter().all(|buffer| buffer.len() == 1000));
    let partition = writer.partition().clone();
    assert_eq!(inflight.len() + partition.inflight(0).len(), 59);
    assert!(!inflight.is_empty() && !partition.inflight(0).is_empty());
    drop(inflight);
    writer.broadcast_event(priority(1)).unwrap();
    let behind = partition.inflight(0).len();
    let overtaken = writer.overtake(&Bytes::from_static(&[2])).unwrap();
    assert_eq!(overtaken.len(), 1);
    assert_eq!(overtaken[0].len(), behind);
    drop(overtaken);
    writer.broadcast_event(Event::User(Bytes::new())).unwrap();
    settle().await;
    for n in [1, 2] {
        assert_eq!(
            next(&mut gate).await,
            (0, BufferOrEvent::Event(priority(n)))
        );
    }
    let (bytes, event) = until_event(&mut gate).await;
    assert_eq!((bytes, event), (59_000, Event::User(Bytes::new())));
    writer.broadcast_event(priority(3)).unwrap();
    writer.finish().unwrap();
    assert_eq!(until_event(&mut gate).await, (0, priority(3)));
    assert_eq!(until_event(&mut gate).await, (0, Event::EndOfPartition));
    until("all comes back", || producer.used() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn priority_events_overtake_what_waits_at_a_far_producer_and_in_the_channel() {
    priority_events_overtake(false).await;
}

#[tokio::test(start_paused = true)]
async fn priority_events_overtake_what_waits_at_a_near_producer_and_in_the_channel() {
    priority_events_overtake(true).await;
}

#[tokio::test(start_paused = true)]
async fn a_channel_with_a_priority_event_is_read_before_others() {
    let (producer, consumer) = pair().await;
    let mut writers: Vec<_> = (0..4)
        .map(|number| {
            if number < 2 {
                producer.produce(number, 1)
            } else {
                consumer.produce(number, 1)
            }
        })
        .collect();
    let mut channels: Vec<_> = (0..2).map(|number| producer.remote(number, 0)).collect();
    channels.extend((2..4).map(|number| ChannelSource::Local(request(number, 0))));
    let mut gate = consumer.consume(channels).await;
    for writer in &mut writers {
        for _ in 0..3 {
            writer.emit(0, &[0; 996]).await.unwrap();
        }
    }
    settle().await;
    let mut seen = [0; 4];
    seen[next(&mut gate).await.0] += 1;
    for (n, channel) in [(1, 3), (2, 0)] {
        writers[channel].broadcast_event(priority(n)).unwrap();
        settle().await;
    }
    let mut got = [next(&mut gate).await, next(&mut gate).await];
    got.sort_by_key(|(channel, _)| *channel);
    let expected = [(0, 2), (3, 1)].map(|(c, n)| (c, BufferOrEvent::Event(priority(n))));
    assert_eq!(got, expected);
    for _ in 0..11 {
        seen[next(&mut gate).await.0] += 1;
    }
    assert_eq!(seen, [3; 4]);
}

async fn priority_events_wait_behind_a_barrier(local: bool) {
    let (_producer, _consumer, mut writer, mut gate) = channel(local).await;
    let barrier = Event::Barrier(Bytes::from_static(b"checkpoint 1"));
    writer.broadcast_event(barrier.clone()).unwrap();
    assert_eq!(until_event(&mut gate).await, (0, barrier));
    writer.emit(0, &[7; 996]).await.unwrap();
    writer.broadcast_event(priority(1)).unwrap();
    settle().await;
    assert!(gate.try_next().is_none(), "nothing passes a barrier");
    gate.resume_consumption(0).unwrap();
    assert_eq!(until_event(&mut gate).await, (0, priority(1)));
    assert!(matches!(next(&mut gate).await.1, BufferOrEvent::Buffer(_)));
}

#[tokio::test(start_paused = true)]
async fn priority_events_of_a_far_producer_wait_behind_a_barrier() {
    priority_events_wait_behind_a_barrier(false).await;
}

#[tokio::test(start_paused = true)]
async fn priority_events_of_a_near_producer_wait_behind_a_barrier() {
    priority_events_wait_behind_a_barrier(true).await;
}

async fn blocking_events_of_each_kind(local: bool) {
    let (_producer, _consumer, mut writer, mut gate) = channel(local).await;
    let bytes = Bytes::from_static(b"checkpoint 1");
    writer.emit(0, &[7; 996]).await.unwrap();
    let timeoutable = Event::TimeoutableBarrier(bytes.clone());
    writer.broadcast_event(timeoutable.clone()).unwrap();
    writer.broadcast_event(Event::RecoveryCompletion).unwrap();
    writer.broadcast_event(Event::User(bytes.clone())).unwrap();
    let announcement = Event::Announcement(bytes.clone());
    assert!(writer.broadcast_event(announcement.clone()).is_err());
    settle().await;
    assert_eq!(until_event(&mut gate).await, (0, announcement));
    assert_eq!(until_event(&mut gate).await, (1000, timeoutable));
    settle().await;
    assert!(gate.try_next().is_none());
    gate.resume_consumption(0).unwrap();
    assert_eq!(until_event(&mut gate).await, (0, Event::RecoveryCompletion));
    settle().await;
    assert!(gate.try_next().is_none());
    gate.resume_consumption(0).unwrap();
    assert_eq!(until_event(&mut gate).await, (0, Event::User(bytes)));
}

#[tokio::test(start_paused = true)]
async fn a_far_timeoutable_barrier_is_announced_and_blocks_in_its_place() {
    blocking_events_of_each_kind(false).await;
}

#[tokio::test(start_paused = true)]
async fn a_near_timeoutable_barrier_is_announced_and_blocks_in_its_place() {
    blocking_events_of_each_kind(true).await;
}

/// The producer's buffers are eight times the consumer's, so that one waits for credit in parts.
#[tokio::test(start_paused = true)]
async fn priority_events_pass_between_the_parts_of_a_buffer() {
    let network = MemNetwork::new();
    let large = TransportConfig {
        buffer_size: 8192,
        ..small()
    };
    let producer = Worker::start(&network, "producer", large).await;
    let consumer = Worker::start(&network, "consumer", small()).await;
    let mut context = consumer.context();
    (context.exclusive_buffers, context.floating_buffers) = (1, 1);
    let mut gate = consumer
        .consume_with(context, vec![producer.remote(0, 0)])
        .await;
    let mut writer = producer.produce(0, 1);
    writer.emit(0, &[7; 8000]).await.unwrap();
    writer.flush();
    settle().await;
    let first = next(&mut gate).await;
    settle().await;
    writer.broadcast_event(priority(1)).unwrap();
    writer.finish().unwrap();
    settle().await;
    drop(first);
    let (bytes, event) = until_event(&mut gate).await;
    assert_eq!(event, priority(1));
    assert!(bytes < 7000, "{bytes} bytes came before it");
    let rest = until_event(&mut gate).await;
    assert_eq!(rest, (7004 - bytes, Event::EndOfPartition));
}

#[tokio::test(start_paused = true)]
async fn buffers_in_flight_are_refused_for_channels_that_do_not_exist_and_after_the_end() {
    let (_producer, _consumer, writer, mut gate) = channel(false).await;
    assert!(gate.handle().inflight(1).is_err());
    assert!(writer.partition().inflight(1).is_empty());
    gate.close();
    assert!(matches!(
        gate.handle().inflight(0),
        Err(ExchangeError::Cancelled { .. })
    ));
}
