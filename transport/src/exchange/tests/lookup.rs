//! How requests find their partition, and what happens if they do not.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::stream::BoxFuture;

#[tokio::test(start_paused = true)]
async fn a_partition_may_be_registered_after_its_request() {
    let (producer, consumer) = pair().await;
    let gate = consumer.consume(vec![producer.remote(0, 0)]).await;
    until("the request waits", || producer.partitions.parked() == 1).await;
    tokio::time::sleep(Duration::from_secs(9)).await;
    let task = tokio::spawn(write(producer.produce(0, 1), 1, 0, 100));
    check(gate, &[0], 100).await;
    task.await.unwrap();
    assert_eq!(producer.partitions.parked(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_its_time_out_and_no_longer() {
    let (producer, consumer) = pair().await;
    let begun = crate::now();
    let mut far = consumer.consume(vec![producer.remote(0, 0)]).await;
    let mut near = producer
        .consume(vec![ChannelSource::Local(request(0, 0))])
        .await;
    for gate in [&mut far, &mut near] {
        let error = failure(gate).await;
        assert!(
            matches!(error, ExchangeError::PartitionNotFound { partition } if partition == id(0))
        );
        let waited = crate::now() - begun;
        assert!(
            waited >= Duration::from_secs(10) && waited < Duration::from_secs(11),
            "{waited:?}"
        );
    }
    assert_eq!(producer.partitions.parked(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_request_dies_with_its_stream() {
    let (producer, consumer) = pair().await;
    let gate = consumer.consume(vec![producer.remote(0, 0)]).await;
    until("the request waits", || producer.partitions.parked() == 1).await;
    drop(gate);
    until("it is forgotten", || producer.partitions.parked() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn another_attempts_partition_is_another_partition() {
    let (producer, consumer) = pair().await;
    let _old = producer.produce(0, 1);
    let mut wanted = request(0, 0);
    wanted.producer = ExecutionAttemptId(99);
    let mut gate = consumer
        .consume(vec![ChannelSource::Remote {
            connection: producer.address(),
            request: wanted,
        }])
        .await;
    assert!(matches!(
        failure(&mut gate).await,
        ExchangeError::PartitionNotFound { .. }
    ));
}

#[tokio::test(start_paused = true)]
async fn a_subpartition_is_consumed_once() {
    let (producer, consumer) = pair().await;
    let writer = producer.produce(0, 1);
    let _first = consumer.consume(vec![producer.remote(0, 0)]).await;
    settle().await;
    let mut second = consumer.consume(vec![producer.remote(0, 0)]).await;
    let error = failure(&mut second).await;
    assert!(error.to_string().contains("consumed already"), "{error}");
    let mut third = consumer.consume(vec![producer.remote(0, 1)]).await;
    let error = failure(&mut third).await;
    assert!(
        error.to_string().contains("no such subpartition"),
        "{error}"
    );
    drop(writer);
}

#[tokio::test(start_paused = true)]
async fn a_partition_is_registered_once_and_released_by_name() {
    let (producer, consumer) = pair().await;
    let mut writer = producer.produce(0, 1);
    let partition = writer.partition().clone();
    assert!(matches!(
        producer.partitions.register(partition.clone()),
        Err(ExchangeError::AlreadyRegistered { .. })
    ));
    assert!(partition.writer().is_err());
    let mut gate = consumer.consume(vec![producer.remote(0, 0)]).await;
    writer.emit(0, b"x").await.unwrap();
    settle().await;
    producer.partitions.release_partition(id(0), PRODUCER);
    producer.partitions.release_partition(id(0), PRODUCER);
    assert!(matches!(
        failure(&mut gate).await,
        ExchangeError::PartitionNotFound { .. }
    ));
    drop(writer);
    assert_eq!(producer.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn shutdown_of_the_registry_ends_waits_and_partitions() {
    let (producer, consumer) = pair().await;
    let _writer = producer.produce(0, 1);
    let channels = |n| vec![producer.remote(n, 0)];
    let mut served = consumer.consume(channels(0)).await;
    let mut waiting = consumer.consume(channels(1)).await;
    until("one waits", || producer.partitions.parked() == 1).await;
    producer.partitions.shutdown();
    for gate in [&mut served, &mut waiting] {
        assert!(matches!(
            failure(gate).await,
            ExchangeError::PartitionNotFound { .. }
        ));
    }
    let late = ResultPartition::pipelined_bounded(id(2), PRODUCER, 1, &producer.pool).unwrap();
    assert!(producer.partitions.register(late).is_err());
}

/// Counts the questions, and answers them all alike.
#[derive(Debug)]
pub(super) struct Asks(AtomicU32, Verdict);

impl Asks {
    pub(super) fn new(verdict: Verdict) -> Self {
        Self(AtomicU32::new(0), verdict)
    }

    pub(super) fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl ProducerCheck for Asks {
    fn on_partition_not_found(&self, _: SubpartitionRequest) -> BoxFuture<'static, Verdict> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(self.1))
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_partition_is_requested_again_if_its_producer_is_well() {
    let (producer, consumer) = pair().await;
    let channels = || vec![producer.remote(0, 0), ChannelSource::Local(request(1, 0))];
    let mut context = consumer.context();
    let fails = Arc::new(Asks::new(Verdict::Fail));
    context.producer_check = Some(fails.clone());
    let mut gate = consumer.consume_with(context.clone(), channels()).await;
    failure(&mut gate).await;
    drop(gate);
    let again = Arc::new(Asks::new(Verdict::RequestAgain));
    context.producer_check = Some(again.clone());
    let gate = consumer.consume_with(context, channels()).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(again.count(), 2);
    let tasks = [
        tokio::spawn(write(producer.produce(0, 1), 1, 0, 100)),
        tokio::spawn(write(consumer.produce(1, 1), 1, 1, 100)),
    ];
    check(gate, &[0, 1], 100).await;
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_requested_again_where_requests_do_not_wait_or_one_is_all() {
    let (producer, mut consumer) = pair().await;
    for once in [false, true] {
        if !once {
            consumer.config.partition_request_timeout = Duration::ZERO;
        }
        for source in [producer.remote(0, 0), ChannelSource::Local(request(1, 0))] {
            let asked = Arc::new(Asks::new(Verdict::RequestAgain));
            let mut context = consumer.context();
            context.producer_check = Some(asked.clone());
            if once {
                context.partition_requests = 1;
            }
            let mut gate = consumer.consume_with(context, vec![source]).await;
            assert!(matches!(
                failure(&mut gate).await,
                ExchangeError::PartitionNotFound { .. }
            ));
            assert_eq!(asked.count(), 0);
        }
        consumer.config = small();
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_without_network_has_local_channels_only() {
    let pool = BufferPool::new(&small());
    let partitions = ResultPartitionManager::new(Duration::from_secs(10));
    let connections = Arc::new(LocalConnectionManager);
    connections
        .start(Arc::new(partitions.clone()), Arc::default())
        .unwrap();
    assert_eq!(connections.data_port(), None);
    assert_eq!(connections.number_of_active_connections(), 0);
    let context = GateContext::new(
        &small(),
        connections.clone(),
        Arc::new(partitions.clone()),
        pool.clone(),
        tokio::runtime::Handle::current(),
        crate::Shutdown::new(),
    );
    let nowhere = ConnectionId::to_address("127.0.0.1:1");
    let refused = connections.create_partition_request_client(nowhere).await;
    assert!(matches!(refused, Err(ExchangeError::NoNetwork { .. })));

    let partition = ResultPartition::pipelined_bounded(id(0), PRODUCER, 1, &pool).unwrap();
    partitions.register(partition.clone()).unwrap();
    let source = ChannelSource::Local(request(0, 0));
    let gate = InputGate::setup("gate", CONSUMER, vec![source], context)
        .await
        .unwrap();
    gate.request_partitions();
    let task = tokio::spawn(write(partition.writer().unwrap(), 1, 4, 100));
    check(gate, &[4], 100).await;
    task.await.unwrap();
    assert_eq!(pool.stats().used, 0);
}

#[tokio::test(start_paused = true)]
async fn the_connection_manager_starts_once_and_refuses_after_shutdown() {
    let (producer, consumer) = pair().await;
    let provider = Arc::new(consumer.partitions.clone());
    assert!(
        consumer
            .connections
            .start(provider, Arc::default())
            .is_err()
    );
    let port = producer.node.local_addr().port();
    assert_eq!(producer.connections.data_port(), Some(port));
    let client = consumer
        .connections
        .create_partition_request_client(producer.address())
        .await
        .unwrap();
    assert_eq!(client.peer().id, *producer.node.id());
    assert!(client.close_reason().is_none());
    consumer.connections.shutdown();
    let refused = consumer
        .connections
        .create_partition_request_client(producer.address())
        .await;
    assert!(matches!(refused, Err(ExchangeError::NoNetwork { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_the_node_cannot_feed_is_refused_with_advice() {
    let (producer, consumer) = pair().await;
    let mut context = consumer.context();
    context.exclusive_buffers = 1024;
    let channels = vec![producer.remote(0, 0), producer.remote(0, 1)];
    let error = InputGate::setup("gate", CONSUMER, channels, context)
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("raise transport.buffer_pool"),
        "{error}"
    );
    assert_eq!(consumer.pool.stats().guaranteed, 0);
}

#[tokio::test(start_paused = true)]
async fn a_near_consumer_hears_that_its_partition_was_released_and_gets_nothing_of_it() {
    let (_, node) = pair().await;
    let mut writer = node.produce(0, 1);
    let source = ChannelSource::Local(request(0, 0));
    let mut gate = node.consume(vec![source]).await;
    writer.emit(0, &[7; 996]).await.unwrap();
    settle().await;
    node.partitions.release_partition(id(0), PRODUCER);
    for _ in 0..2 {
        assert!(matches!(
            within("error", gate.next()).await,
            Err(ExchangeError::PartitionNotFound { .. })
        ));
    }
    drop((writer, gate));
    assert_eq!(node.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_was_there_and_was_released_is_not_requested_again() {
    let (producer, consumer) = pair().await;
    let mut writer = producer.produce(0, 1);
    let asks = Arc::new(Asks::new(Verdict::RequestAgain));
    let mut context = consumer.context();
    context.producer_check = Some(asks.clone());
    let channels = vec![producer.remote(0, 0)];
    let mut gate = consumer.consume_with(context, channels).await;
    writer.emit(0, b"part of it").await.unwrap();
    writer.flush();
    within("buffer", gate.next()).await.unwrap().unwrap();
    producer.partitions.release_partition(id(0), PRODUCER);
    assert!(matches!(
        failure(&mut gate).await,
        ExchangeError::PartitionNotFound { .. }
    ));
    assert_eq!(asks.count(), 0);
}
