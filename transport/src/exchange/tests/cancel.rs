//! Ends that are not the end of the partition: cancelled, failed, lost.

use super::*;
use crate::{ErrorCode, TransportError};

#[tokio::test(start_paused = true)]
async fn closing_a_gate_gives_back_every_buffer_and_view() {
    let (producer, consumer) = pair().await;
    let writer = producer.produce_with(0, 2, 8);
    let partition = writer.partition().clone();
    let channels = vec![producer.remote(0, 0), producer.remote(0, 1)];
    let mut gate = consumer.consume(channels).await;
    let task = tokio::spawn(write(writer, 2, 0, 500));
    let held = within("buffer", gate.next()).await.unwrap().unwrap();
    gate.close();
    gate.close();
    assert!(matches!(
        gate.next().await,
        Err(ExchangeError::Cancelled { .. })
    ));
    until("views are released", || partition.is_released()).await;
    within("the producer gets on", task).await.unwrap();
    assert!(consumer.used() <= 1, "only what the consumer holds");
    drop(held);
    until("all comes back", || producer.used() + consumer.used() == 0).await;
    assert_eq!(producer.partitions.registered(), 0);
    assert_eq!(consumer.pool.stats().guaranteed, 0);
    until("no stream is served", || {
        producer.connections.server_stats().streams == 0
    })
    .await;
    assert!(producer.connections.server_stats().buffers > 0);
}

#[tokio::test(start_paused = true)]
async fn closing_a_gate_wakes_its_consumer() {
    let (producer, consumer) = pair().await;
    let mut gate = consumer.consume(vec![producer.remote(0, 0)]).await;
    let handle = gate.handle();
    let waiting = tokio::spawn(async move { gate.next().await });
    settle().await;
    handle.close();
    let error = within("wake", waiting).await.unwrap().unwrap_err();
    assert!(matches!(error, ExchangeError::Cancelled { .. }));
}

#[tokio::test(start_paused = true)]
async fn two_hundred_rounds_of_request_and_cancel_leave_everything_as_before() {
    let (producer, consumer) = pair().await;
    for round in 0..200 {
        let writer = (round % 3 != 0).then(|| producer.produce_with(round, 1, 4));
        let task = writer.map(|writer| tokio::spawn(write(writer, 1, 0, 40)));
        let mut gate = consumer.consume(vec![producer.remote(round, 0)]).await;
        match round % 4 {
            0 => {}
            1 => tokio::task::yield_now().await,
            2 => tokio::time::sleep(Duration::from_millis(1)).await,
            _ => drop(tokio::time::timeout(Duration::from_millis(5), gate.next()).await),
        }
        drop(gate);
        if let Some(task) = task {
            if round % 2 == 0 {
                task.abort();
            }
            drop(task.await);
            producer.partitions.release_partition(id(round), PRODUCER);
        }
    }
    until("all comes back", || producer.used() + consumer.used() == 0).await;
    until("no request waits", || producer.partitions.parked() == 0).await;
    assert_eq!(producer.partitions.registered(), 0);
    let (left, right) = (producer.pool.stats(), consumer.pool.stats());
    assert_eq!((left.guaranteed, right.guaranteed), (0, 0));
    assert_eq!((left.waiting, right.waiting), (0, 0));
    assert_eq!(consumer.connections.number_of_active_connections(), 1);
    until("no stream is left", || {
        let connections = consumer.node.snapshot();
        connections.iter().all(|c| c.stats.streams_open <= 1)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_cause_of_a_failed_producer_reaches_near_and_far_consumers() {
    let (producer, consumer) = pair().await;
    let mut writer = producer.produce(0, 2);
    let mut far = consumer.consume(vec![producer.remote(0, 0)]).await;
    let mut near = producer
        .consume(vec![ChannelSource::Local(request(0, 1))])
        .await;
    writer.emit(0, b"x").await.unwrap();
    settle().await;
    writer.fail(&format!("division by zero\n{}", "é".repeat(1000)));
    for gate in [&mut far, &mut near] {
        let error = failure(gate).await;
        let ExchangeError::ProducerFailed { partition, cause } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(*partition, id(0));
        assert!(cause.starts_with("division by zero"));
        assert!(!error.is_retryable());
        assert_eq!(failure(gate).await.to_string(), error.to_string());
    }
    assert_eq!(producer.partitions.registered(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_is_dropped_fails_its_partition() {
    let (producer, consumer) = pair().await;
    let mut gate = consumer.consume(vec![producer.remote(0, 0)]).await;
    drop(producer.produce(0, 1));
    let error = failure(&mut gate).await;
    assert!(
        matches!(error, ExchangeError::ProducerFailed { .. }),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_after_its_producer_failed_hears_the_cause_at_once() {
    let (producer, consumer) = pair().await;
    producer.produce(0, 1).fail("division by zero");
    let before = crate::now();
    let mut far = consumer.consume(vec![producer.remote(0, 0)]).await;
    let mut near = producer
        .consume(vec![ChannelSource::Local(request(0, 0))])
        .await;
    for gate in [&mut far, &mut near] {
        let error = failure(gate).await;
        let ExchangeError::ProducerFailed { cause, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(cause, "division by zero");
    }
    assert!(crate::now() - before < Duration::from_secs(1));
    producer.partitions.release_partition(id(0), PRODUCER);
    let mut late = consumer.consume(vec![producer.remote(0, 0)]).await;
    assert!(matches!(
        failure(&mut late).await,
        ExchangeError::PartitionNotFound { .. }
    ));
}

#[tokio::test(start_paused = true)]
async fn only_the_last_failures_are_remembered() {
    let (producer, _) = pair().await;
    for number in 0..=1024 {
        producer.produce(number, 1).fail("division by zero");
    }
    let mut gates = Vec::new();
    for number in [0, 1, 1024] {
        let source = ChannelSource::Local(request(number, 0));
        gates.push(producer.consume(vec![source]).await);
    }
    let mut failed = Vec::new();
    for gate in &mut gates {
        let error = failure(gate).await;
        failed.push(matches!(error, ExchangeError::ProducerFailed { .. }));
    }
    assert_eq!(failed, [false, true, true]);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_emit_leaves_a_writer_that_can_only_fail() {
    let (producer, _) = pair().await;
    let mut writer = producer.produce_with(0, 1, 1);
    let dropped = tokio::time::timeout(Duration::from_millis(1), writer.emit(0, &[0; 9000])).await;
    assert!(dropped.is_err());
    assert!(matches!(
        writer.emit(0, b"x").await,
        Err(ExchangeError::InvalidState { .. })
    ));
    assert!(writer.try_emit(0, b"x").is_err());
    writer.fail("gave up");
    assert_eq!((producer.used(), producer.partitions.registered()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_failed_partition_wakes_a_writer_that_waits_for_memory() {
    let (producer, _) = pair().await;
    let mut writer = producer.produce_with(0, 1, 1);
    let partition = writer.partition().clone();
    let waiting = tokio::spawn(async move { writer.emit(0, &[0; 9000]).await });
    settle().await;
    partition.fail("another part of the task failed");
    let error = within("wake", waiting).await.unwrap().unwrap_err();
    assert!(matches!(error, ExchangeError::Buffers(BufferError::Closed)));
    assert_eq!(producer.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn every_channel_hears_of_a_lost_connection_at_once_as_a_remote_error() {
    let (producer, consumer) = pair().await;
    let mut gates = Vec::new();
    let mut writers = Vec::new();
    for number in 0..20 {
        let mut writer = producer.produce(number, 1);
        writer.emit(0, b"x").await.unwrap();
        writer.flush();
        writers.push(writer);
        let mut gate = consumer.consume(vec![producer.remote(number, 0)]).await;
        within("buffer", gate.next()).await.unwrap().unwrap();
        gates.push(gate);
    }
    let waiting: Vec<_> = gates
        .into_iter()
        .map(|mut gate| tokio::spawn(async move { gate.next().await }))
        .collect();
    settle().await;
    let before = crate::now();
    producer
        .node
        .shutdown(Duration::from_secs(1))
        .await
        .unwrap();
    for gate in waiting {
        let error = within("error", gate).await.unwrap().unwrap_err();
        let ExchangeError::Transport(TransportError::Remote { peer, .. }) = &error else {
            panic!("{error:?}");
        };
        assert!(peer.contains("producer"), "{peer}");
        assert!(error.is_retryable());
    }
    assert!(crate::now() - before < Duration::from_secs(1));
    drop(writers);
    until("all comes back", || producer.used() + consumer.used() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_consumers_node_ends_its_gates() {
    let (producer, consumer) = pair().await;
    let mut remote = consumer.consume(vec![producer.remote(0, 0)]).await;
    let mut local = consumer
        .consume(vec![ChannelSource::Local(request(0, 0))])
        .await;
    settle().await;
    consumer
        .node
        .shutdown(Duration::from_secs(1))
        .await
        .unwrap();
    for gate in [&mut remote, &mut local] {
        let error = failure(gate).await;
        let local_end = matches!(
            error,
            ExchangeError::Cancelled { .. }
                | ExchangeError::Transport(TransportError::Local { .. })
        );
        assert!(local_end, "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_cannot_be_reached_is_a_remote_error() {
    let (_, consumer) = pair().await;
    let nowhere = ChannelSource::Remote {
        connection: ConnectionId::to_address("127.0.0.1:1"),
        request: request(0, 0),
    };
    let mut gate = consumer.consume(vec![nowhere]).await;
    assert!(matches!(
        failure(&mut gate).await,
        ExchangeError::Transport(TransportError::Remote { .. })
    ));
    assert_eq!(consumer.connections.number_of_active_connections(), 0);
}

#[tokio::test(start_paused = true)]
async fn codes_tell_the_kinds_of_failure_apart() {
    let not_found = ExchangeError::PartitionNotFound { partition: id(0) };
    assert_eq!(not_found.code(), ErrorCode::PARTITION_NOT_FOUND);
    assert!(not_found.is_retryable());
    let too_few = ExchangeError::from(BufferError::Closed);
    assert_eq!(too_few.code(), ErrorCode::LIMIT_EXCEEDED);
}
