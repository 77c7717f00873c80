//! The exchange with many requests at once, over every backend: all finish, and nothing is left behind.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, which fail by panicking"
)]

use thalweg_tests::{
    conformance::Backend,
    harness::{MemBackend, PRODUCER, QuicBackend, TcpBackend, Worker, in_time, until},
    on_backends,
};
use thalweg_transport::{
    Connections, Profile, TransportConfig,
    exchange::{ConnectionManager, Input, PartitionWriter, RecordReader, ResultPartition},
};
use tokio::task::JoinSet;

/// A worker whose channels have so many exclusive buffers.
async fn start<B: Backend>(backend: &B, id: &str, exclusive: u32) -> Worker {
    let mut config = TransportConfig::default();
    config.exclusive_buffers_per_channel = exclusive;
    Worker::start(backend, id, &config).await
}

/// The writer of a partition with a pool of its own of so many buffers.
fn publish(
    producer: &Worker,
    number: u32,
    subpartitions: usize,
    buffers: usize,
) -> PartitionWriter {
    let pool = producer.exchange.pool().local(2, buffers).unwrap();
    let id = Worker::partition(number);
    let partition = ResultPartition::with_pool(id, PRODUCER, subpartitions, pool).unwrap();
    let partitions = producer.exchange.partitions();
    partitions.register(partition.clone()).unwrap();
    partition.writer().unwrap()
}

/// What is in use: buffers, partitions, parked requests, served streams, streams of all connections.
fn in_use(worker: &Worker) -> [usize; 5] {
    let partitions = worker.exchange.partitions();
    let server = worker.exchange.connection_manager().server_stats();
    let open = worker.node.snapshot();
    let open: u64 = open.iter().map(|c| c.stats.streams_open).sum();
    [
        worker.used(),
        partitions.registered(),
        partitions.parked(),
        server.streams,
        usize::try_from(open).unwrap(),
    ]
}

async fn ten_thousand_requests_at_once_all_finish<B: Backend>(backend: B) {
    let producer = start(&backend, "producer", 0).await;
    let consumer = start(&backend, "consumer", 0).await;
    let mut tasks = JoinSet::new();
    for first in (0..REQUESTS).step_by(GATE_CHANNELS as usize) {
        let channels = (first..first + GATE_CHANNELS).map(|index| producer.channel(0, index));
        let gate = consumer.gate(channels.collect()).await;
        tasks.spawn(async move {
            let mut reader = RecordReader::new(gate);
            let mut records = 0;
            while let Some((channel, input)) = reader.next().await.unwrap() {
                if let Input::Record(record) = input {
                    let expected = first + u32::try_from(channel).unwrap();
                    assert_eq!(record[..], expected.to_be_bytes());
                    records += 1;
                }
            }
            assert_eq!(records, GATE_CHANNELS);
        });
    }
    let mut writer = publish(&producer, 0, REQUESTS as usize, 64);
    for index in 0..REQUESTS {
        let record = index.to_be_bytes();
        let emit = writer.emit(index as usize, &record);
        in_time("room", emit).await.unwrap();
    }
    writer.finish().unwrap();
    while let Some(done) = in_time("readers", tasks.join_next()).await {
        done.unwrap();
    }
    assert_eq!(
        consumer
            .exchange
            .connection_manager()
            .number_of_active_connections(),
        1
    );
    until("nothing is left", || {
        [in_use(&producer), in_use(&consumer)] == [[0; 5]; 2]
    })
    .await;
    let peak = [&producer, &consumer].map(|worker| worker.exchange.pool().stats().peak);
    assert!(peak.iter().all(|&peak| peak <= 2048), "{peak:?}");
}

async fn a_thousand_requests_and_cancels_leave_all_as_before<B: Backend>(backend: B) {
    let producer = start(&backend, "producer", 2).await;
    let consumer = start(&backend, "consumer", 2).await;
    // The connection, and what it takes while nothing runs.
    let mut writer = publish(&producer, 0, 1, 4);
    let mut gate = consumer.gate(vec![producer.channel(0, 0)]).await;
    writer.emit(0, b"first").await.unwrap();
    writer.flush();
    in_time("first", gate.next()).await.unwrap();
    drop((gate, writer));
    let idle = [[0; 5]; 2];
    until("idle", || [in_use(&producer), in_use(&consumer)] == idle).await;
    for round in 1..=ROUNDS {
        let mut gate = consumer.gate(vec![producer.channel(round, 0)]).await;
        let mut writer = None;
        // Cancelled before it is connected, while it is parked, with data queued, with a buffer in hand, at the end.
        if round % 5 > 1 {
            let mut begun = publish(&producer, round, 1, 4);
            begun.emit(0, &[7; 50_000]).await.unwrap();
            begun.flush();
            writer = Some(begun);
        }
        let held = match round % 5 {
            0 => None,
            1 => {
                until("parked", || producer.exchange.partitions().parked() > 0).await;
                None
            }
            2 => None,
            _ => in_time("buffer", gate.next()).await.unwrap(),
        };
        if round % 5 == 4 {
            writer.take().unwrap().finish().unwrap();
        }
        drop(gate);
        drop((held, writer));
    }
    until("all as before", || {
        [in_use(&producer), in_use(&consumer)] == idle
    })
    .await;
    assert_eq!(
        consumer
            .exchange
            .connection_manager()
            .number_of_active_connections(),
        1
    );
}

/// One source feeds a join twice: straight, and through a stage on a third node. The join takes both in step.
async fn a_diamond_gets_on_with_the_fewest_buffers<B: Backend>(backend: B) {
    for exclusive in [0, 2] {
        let source = start(&backend, &format!("source-{exclusive}"), exclusive).await;
        let stage = start(&backend, &format!("stage-{exclusive}"), exclusive).await;
        let join = start(&backend, &format!("join-{exclusive}"), exclusive).await;
        let mut out = publish(&source, 0, 2, 2);
        let mut through = publish(&stage, 1, 1, 2);
        let middle = stage.gate(vec![source.channel(0, 0)]).await;
        let straight = join.gate(vec![source.channel(0, 1)]).await;
        let bent = join.gate(vec![stage.channel(1, 0)]).await;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            for number in 0..RECORDS {
                for target in 0..2 {
                    out.emit(target, &record(number)).await.unwrap();
                }
            }
            out.finish().unwrap();
        });
        tasks.spawn(async move {
            let mut reader = RecordReader::new(middle);
            while let Some((_, input)) = reader.next().await.unwrap() {
                if let Input::Record(record) = input {
                    through.emit(0, &record).await.unwrap();
                }
            }
            through.finish().unwrap();
        });
        tasks.spawn(async move {
            let mut sides = [RecordReader::new(straight), RecordReader::new(bent)];
            for number in 0..RECORDS {
                for side in &mut sides {
                    let (_, input) = side.next().await.unwrap().unwrap();
                    assert_eq!(input, Input::Record(record(number).into()));
                }
            }
        });
        while let Some(done) = in_time("diamond", tasks.join_next()).await {
            done.unwrap();
        }
    }
}

/// Lengths around that of a buffer.
fn record(number: u32) -> Vec<u8> {
    let mut record = vec![0; 4 + (number as usize * 7919) % 70_000];
    record[..4].copy_from_slice(&number.to_be_bytes());
    record
}

const REQUESTS: u32 = 10_000;
const GATE_CHANNELS: u32 = 500;
const ROUNDS: u32 = 1_000;
const RECORDS: u32 = 300;

on_backends! {
    [
        ten_thousand_requests_at_once_all_finish,
        a_thousand_requests_and_cancels_leave_all_as_before,
        a_diamond_gets_on_with_the_fewest_buffers,
    ]:
    mem = MemBackend::new(),
    quic = QuicBackend::new(Profile::Lan),
    tls = TcpBackend::tls(),
}
