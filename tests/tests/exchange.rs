//! The data exchange between nodes over every backend.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, which fail by panicking"
)]

use thalweg_tests::{
    conformance::Backend,
    harness::{DEADLINE, MemBackend, PRODUCER, QuicBackend, TcpBackend, Worker, in_time, until},
    on_backends,
};
use thalweg_transport::{
    Compression, Connections, Profile, Shutdown, TransportConfig, TransportError,
    exchange::{
        BlockingContext, ConnectionManager, Event, ExchangeError, Input, InputGate, IoManager,
        PartitionWriter, RecordReader, ResultPartition,
    },
};
use tokio::task::JoinSet;

/// A worker with the default configuration.
async fn start<B: Backend>(backend: &B, id: &str) -> Worker {
    Worker::start(backend, id, &TransportConfig::default()).await
}

fn record(tag: u32, sequence: u32) -> Vec<u8> {
    let length = 8 + (sequence as usize * 97) % 3000 + usize::from(sequence % 100 == 7) * 150_000;
    let mut record = Vec::with_capacity(length);
    record.extend_from_slice(&tag.to_be_bytes());
    record.extend_from_slice(&sequence.to_be_bytes());
    record.resize(length, (tag ^ sequence).to_be_bytes()[3]);
    record
}

async fn write(mut writer: PartitionWriter, subpartitions: u32, count: u32) {
    for sequence in 0..count {
        for subpartition in 0..subpartitions {
            let record = record(subpartition, sequence);
            writer.emit(subpartition as usize, &record).await.unwrap();
        }
    }
    writer.finish().unwrap();
}

async fn check(gate: InputGate, tag: u32, count: u32) {
    let mut reader = RecordReader::new(gate);
    let mut next = 0;
    while let Some((_, input)) = in_time("record", reader.next()).await.unwrap() {
        match input {
            Input::Record(bytes) => {
                assert!(bytes == record(tag, next), "record {next} of {tag}");
                next += 1;
            }
            Input::Event(event) => assert_eq!(event, Event::EndOfPartition),
        }
    }
    assert_eq!(next, count);
}

async fn records_arrive_whole_and_memory_comes_back<B: Backend>(backend: B) {
    let producer = start(&backend, "producer").await;
    let consumer = start(&backend, "consumer").await;
    let mut tasks = JoinSet::new();
    for tag in 0..8 {
        tasks.spawn(check(
            consumer.gate(vec![producer.channel(0, tag)]).await,
            tag,
            400,
        ));
    }
    tasks.spawn(write(producer.publish(0, 8), 8, 400));
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(
        consumer
            .exchange
            .connection_manager()
            .number_of_active_connections(),
        1
    );
    until("memory comes back", || {
        producer.used() + consumer.used() == 0
    })
    .await;
    assert_eq!(producer.exchange.partitions().registered(), 0);
}

async fn a_cancelled_gate_frees_both_sides_and_disturbs_nobody<B: Backend>(backend: B) {
    let producer = start(&backend, "producer").await;
    let consumer = start(&backend, "consumer").await;
    let mut cancelled = consumer.gate(vec![producer.channel(0, 0)]).await;
    let other = consumer.gate(vec![producer.channel(1, 0)]).await;
    let mut tasks = JoinSet::new();
    tasks.spawn(write(producer.publish(0, 1), 1, 2000));
    in_time("buffer", cancelled.next()).await.unwrap().unwrap();
    drop(cancelled);
    tasks.spawn(write(producer.publish(1, 1), 1, 2000));
    tasks.spawn(check(other, 0, 2000));
    while let Some(done) = in_time("all", tasks.join_next()).await {
        done.unwrap();
    }
    until("memory comes back", || {
        producer.used() + consumer.used() == 0
    })
    .await;
    until("no stream is served", || {
        producer
            .exchange
            .connection_manager()
            .server_stats()
            .streams
            == 0
    })
    .await;
}

/// A blocking partition of records that get smaller, read by all of its consumers at once, twice, with a neighbour that
/// does not read on.
async fn a_stored_partition_is_read_twice_by_many<B: Backend>(backend: B) {
    let producer = start(&backend, "producer").await;
    let consumer = start(&backend, "consumer").await;
    let dir = tempfile::tempdir().unwrap();
    for (number, compression) in [(0, Compression::None), (1, Compression::Lz4)] {
        let io = IoManager::start(
            &[dir.path().to_path_buf()],
            producer.node.id(),
            4,
            tokio::runtime::Handle::current(),
            Shutdown::new(),
        )
        .unwrap();
        let mut config = TransportConfig::default();
        config.blocking_compression = compression;
        let context = BlockingContext::new(&config, io.clone(), producer.exchange.pool().clone());
        let id = Worker::partition(number);
        let partition = ResultPartition::blocking(id, PRODUCER, 8, &context).unwrap();
        producer
            .exchange
            .partitions()
            .register(partition.clone())
            .unwrap();
        write(partition.writer().unwrap(), 8, 200).await;
        in_time("stored", partition.finished()).await.unwrap();
        let mut idle = consumer.gate(vec![producer.channel(number, 0)]).await;
        in_time("buffer", idle.next()).await.unwrap().unwrap();
        let mut tasks = JoinSet::new();
        for tag in (0..8).chain(0..8) {
            tasks.spawn(check(
                consumer.gate(vec![producer.channel(number, tag)]).await,
                tag,
                200,
            ));
        }
        while let Some(done) = in_time("all", tasks.join_next()).await {
            done.unwrap();
        }
        drop(idle);
        until("readers are gone", || partition.stats().readers == 0).await;
        producer
            .exchange
            .partitions()
            .release_partition(id, PRODUCER);
        drop(partition);
        until("the file is gone", || io.stats().files == 0).await;
    }
    until("memory comes back", || {
        producer.used() + consumer.used() == 0
    })
    .await;
}

async fn the_cause_of_a_failed_producer_arrives<B: Backend>(backend: B) {
    let producer = start(&backend, "producer").await;
    let consumer = start(&backend, "consumer").await;
    let mut gate = consumer.gate(vec![producer.channel(0, 0)]).await;
    let mut writer = producer.publish(0, 1);
    writer.emit(0, b"x").await.unwrap();
    writer.flush();
    in_time("buffer", gate.next()).await.unwrap().unwrap();
    writer.fail("division by zero");
    let error = in_time("failure", gate.next()).await.unwrap_err();
    assert!(
        matches!(&error, ExchangeError::ProducerFailed { cause, .. } if cause == "division by zero"),
        "{error:?}"
    );
}

async fn a_lost_node_is_a_remote_error_of_every_channel<B: Backend>(backend: B) {
    let producer = start(&backend, "producer").await;
    let consumer = start(&backend, "consumer").await;
    let mut gates = Vec::new();
    let mut writers = Vec::new();
    for number in 0..10 {
        let mut writer = producer.publish(number, 1);
        writer.emit(0, b"x").await.unwrap();
        writer.flush();
        let mut gate = consumer.gate(vec![producer.channel(number, 0)]).await;
        in_time("buffer", gate.next()).await.unwrap().unwrap();
        gates.push(gate);
        writers.push(writer);
    }
    let stop = producer.node.shutdown(DEADLINE);
    in_time("shutdown", stop).await.unwrap();
    for mut gate in gates {
        let error = in_time("failure", gate.next()).await.unwrap_err();
        assert!(
            matches!(
                error,
                ExchangeError::Transport(TransportError::Remote { .. })
            ),
            "{error:?}"
        );
    }
    drop(writers);
    until("memory comes back", || {
        producer.used() + consumer.used() == 0
    })
    .await;
}

on_backends! {
    [
        records_arrive_whole_and_memory_comes_back,
        a_cancelled_gate_frees_both_sides_and_disturbs_nobody,
        a_stored_partition_is_read_twice_by_many,
        the_cause_of_a_failed_producer_arrives,
        a_lost_node_is_a_remote_error_of_every_channel,
    ]:
    mem = MemBackend::new(),
    quic = QuicBackend::new(Profile::Lan),
    quic_loopback = QuicBackend::new(Profile::Loopback),
    tcp = TcpBackend::plaintext(),
    tls = TcpBackend::tls(),
}
