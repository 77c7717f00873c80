//! Producers learn that their consumers have processed all records.

use super::*;

fn waiting(partition: &Arc<ResultPartition>) -> tokio::task::JoinHandle<Result<(), ExchangeError>> {
    let partition = partition.clone();
    tokio::spawn(async move { partition.all_records_acknowledged().await })
}

/// Takes items until the end of data.
async fn end_of_data(gate: &mut InputGate, channel: usize) {
    loop {
        let (index, item) = within("item", gate.next()).await.unwrap().unwrap();
        if index == channel && item == BufferOrEvent::Event(Event::EndOfData) {
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_producer_waits_until_near_and_far_consumers_have_acknowledged() {
    let (producer, consumer) = pair().await;
    let mut writer = producer.produce(0, 2);
    let partition = writer.partition().clone();
    let mut far = consumer.consume(vec![producer.remote(0, 0)]).await;
    let mut near = producer
        .consume(vec![ChannelSource::Local(request(0, 1))])
        .await;
    let early = far.handle().acknowledge_all_records(0);
    assert!(early.unwrap_err().to_string().contains("end of data"));
    writer.broadcast(b"x").await.unwrap();
    writer.broadcast_event(Event::EndOfData).unwrap();
    let (first, second) = (waiting(&partition), waiting(&partition));
    let dropped = tokio::time::timeout(
        Duration::from_millis(5),
        partition.all_records_acknowledged(),
    );
    assert!(dropped.await.is_err());
    for gate in [&mut far, &mut near] {
        end_of_data(gate, 0).await;
        settle().await;
        assert!(!first.is_finished() && !second.is_finished());
        let handle = gate.handle();
        handle.acknowledge_all_records(0).unwrap();
        handle.acknowledge_all_records(0).unwrap();
        assert!(handle.acknowledge_all_records(1).is_err());
        settle().await;
    }
    for waiting in [first, second] {
        within("acknowledgement", waiting).await.unwrap().unwrap();
    }
    writer.finish().unwrap();
    for gate in [&mut far, &mut near] {
        let end = within("end", gate.next()).await.unwrap();
        assert_eq!(end, Some((0, BufferOrEvent::Event(Event::EndOfPartition))));
        gate.handle().acknowledge_all_records(0).unwrap();
        gate.close();
        let closed = gate.handle().acknowledge_all_records(0);
        assert!(matches!(closed, Err(ExchangeError::Cancelled { .. })));
    }
    partition.all_records_acknowledged().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_subpartition_that_its_consumer_has_released_needs_no_acknowledgement() {
    let (producer, consumer) = pair().await;
    let mut writer = producer.produce(0, 2);
    let partition = writer.partition().clone();
    let gone = consumer.consume(vec![producer.remote(0, 0)]).await;
    let rest = consumer.consume(vec![producer.remote(0, 1)]).await;
    writer.broadcast(b"x").await.unwrap();
    let waiting = waiting(&partition);
    settle().await;
    drop(gone);
    settle().await;
    assert!(!waiting.is_finished());
    writer.finish().unwrap();
    let mut reader = RecordReader::new(rest);
    while within("record", reader.next()).await.unwrap().is_some() {}
    within("acknowledgement", waiting).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failed_or_released_partition_is_never_acknowledged() {
    let (producer, consumer) = pair().await;
    for number in 0..2 {
        let writer = producer.produce(number, 1);
        let partition = writer.partition().clone();
        let _gate = consumer.consume(vec![producer.remote(number, 0)]).await;
        let waiting = waiting(&partition);
        settle().await;
        if number == 0 {
            writer.fail("division by zero");
        } else {
            producer.partitions.release_partition(id(number), PRODUCER);
        }
        let error = within("failure", waiting).await.unwrap().unwrap_err();
        let expected = match number {
            0 => matches!(error, ExchangeError::ProducerFailed { .. }),
            _ => matches!(error, ExchangeError::PartitionNotFound { .. }),
        };
        assert!(expected, "{error:?}");
        settle().await;
        assert!(partition.all_records_acknowledged().await.is_err());
    }
}
