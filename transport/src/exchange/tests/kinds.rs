//! Whatever is written to a partition of any kind is read from it, near and far.

use proptest::prelude::*;

use super::{blocking::Disk, *};

/// What a producer does.
#[derive(Debug, Clone)]
enum Step {
    Emit(usize, usize),
    TryEmit(usize, usize),
    Broadcast(usize),
    Bytes(usize, usize),
    Event(usize),
    Flush,
}

#[derive(Debug, Clone)]
struct Plan {
    kind: PartitionKind,
    buffer_size: u32,
    consumer_buffer_size: u32,
    buffers: usize,
    subpartitions: usize,
    compression: Compression,
    steps: Vec<Step>,
}

fn plan() -> impl Strategy<Value = Plan> {
    let kind = prop::sample::select(PartitionKind::ALL.to_vec());
    let sizes = prop::sample::select(vec![1024_u32, 1500, 4096]);
    let compression = if cfg!(feature = "lz4") {
        vec![Compression::None, Compression::Lz4]
    } else {
        vec![Compression::None]
    };
    let compression = prop::sample::select(compression);
    let shape = (kind, sizes.clone(), sizes, 1..40_usize, 1..6_usize);
    (shape, compression).prop_flat_map(|((kind, buffer, consumer, buffers, n), compression)| {
        let length = prop_oneof![4 => 0..200_usize, 1 => 0..9000_usize];
        let step = prop_oneof![
            6 => (0..n, length.clone()).prop_map(|(n, length)| Step::Emit(n, length)),
            3 => (0..n, length.clone()).prop_map(|(n, length)| Step::TryEmit(n, length)),
            1 => length.clone().prop_map(Step::Broadcast),
            1 => (0..n, length).prop_map(|(n, length)| Step::Bytes(n, length)),
            1 => (0..3000_usize).prop_map(Step::Event),
            1 => Just(Step::Flush),
        ];
        prop::collection::vec(step, 0..120).prop_map(move |steps| Plan {
            kind,
            buffer_size: buffer,
            consumer_buffer_size: consumer,
            buffers,
            subpartitions: n,
            compression,
            steps,
        })
    })
}

/// What one subpartition gets: the stream of its bytes, with the events in it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Expected {
    bytes: Vec<u8>,
    /// Where in the bytes, and what.
    events: Vec<(usize, Bytes)>,
}

fn payload(length: usize, number: usize) -> Vec<u8> {
    (0..length)
        .map(|at| ((number * 31 + at / 7) % 251).to_be_bytes()[7])
        .collect()
}

async fn produce(mut writer: PartitionWriter, steps: Vec<Step>, expected: &mut [Expected]) {
    let add = |expected: &mut Expected, record: &[u8]| {
        let length = u32::try_from(record.len()).unwrap();
        expected.bytes.extend_from_slice(&length.to_be_bytes());
        expected.bytes.extend_from_slice(record);
    };
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Emit(n, length) => {
                let record = payload(length, number);
                writer.emit(n, &record).await.unwrap();
                add(&mut expected[n], &record);
            }
            Step::TryEmit(n, length) => {
                let record = payload(length, number);
                if writer.try_emit(n, &record).unwrap() {
                    add(&mut expected[n], &record);
                }
            }
            Step::Broadcast(length) => {
                let record = payload(length, number);
                writer.broadcast(&record).await.unwrap();
                expected.iter_mut().for_each(|e| add(e, &record));
            }
            Step::Bytes(n, length) => {
                let bytes = payload(length, number);
                let mut sent = Bytes::from(bytes.clone());
                writer.emit_bytes(n, &mut sent).await.unwrap();
                expected[n].bytes.extend(bytes);
            }
            Step::Event(length) => {
                let bytes = Bytes::from(payload(length, number));
                writer.broadcast_event(Event::User(bytes.clone())).unwrap();
                for e in &mut *expected {
                    e.events.push((e.bytes.len(), bytes.clone()));
                }
            }
            Step::Flush => writer.flush(),
        }
    }
    writer.finish().unwrap();
}

async fn read(mut gate: InputGate, channels: usize) -> Vec<Expected> {
    let mut got = vec![Expected::default(); channels];
    while let Some((channel, item)) = within("item", gate.next()).await.unwrap() {
        let got = &mut got[channel];
        match item {
            BufferOrEvent::Buffer(bytes) => got.bytes.extend_from_slice(&bytes),
            BufferOrEvent::Event(Event::User(bytes)) => got.events.push((got.bytes.len(), bytes)),
            BufferOrEvent::Event(event) => assert_eq!(event, Event::EndOfPartition),
        }
    }
    got
}

async fn run(plan: Plan) {
    let network = MemNetwork::new();
    let config = |buffer_size| TransportConfig {
        buffer_size,
        buffer_pool: 1024 * 1024,
        blocking_compression: plan.compression,
        ..TransportConfig::default()
    };
    let producer = Worker::start(&network, "producer", config(plan.buffer_size)).await;
    let consumer = Worker::start(&network, "consumer", config(plan.consumer_buffer_size)).await;
    let disk = Disk::new(&producer);
    let n = plan.subpartitions;
    let local_pool = producer.pool.local(plan.buffers, plan.buffers).unwrap();
    let partition = match plan.kind {
        PartitionKind::Pipelined => ResultPartition::pipelined(id(0), PRODUCER, n, &producer.pool),
        PartitionKind::PipelinedBounded => {
            ResultPartition::with_pool(id(0), PRODUCER, n, local_pool)
        }
        PartitionKind::Blocking => {
            ResultPartition::blocking_with_pool(id(0), PRODUCER, n, &disk.context, local_pool)
        }
    }
    .unwrap();
    producer.partitions.register(partition.clone()).unwrap();
    let writer = partition.writer().unwrap();
    let count = u32::try_from(n).unwrap();
    let near = |n| ChannelSource::Local(request(0, n));
    let mut expected = vec![Expected::default(); n];
    if plan.kind.is_reconsumable() {
        within("produce", produce(writer, plan.steps, &mut expected)).await;
        let far = (0..count).map(|n| producer.remote(0, n)).collect();
        let far = consumer.consume(far).await;
        let near = producer.consume((0..count).map(near).collect()).await;
        let (far, near) = tokio::join!(read(far, n), read(near, n));
        assert!(far == expected && near == expected);
        producer.partitions.release_partition(id(0), PRODUCER);
    } else {
        // Half of the subpartitions are read here, half there.
        let (mut channels_far, mut channels_near) = (Vec::new(), Vec::new());
        for n in 0..count {
            match n % 2 {
                0 => channels_far.push(producer.remote(0, n)),
                _ => channels_near.push(near(n)),
            }
        }
        let (fars, nears) = (channels_far.len(), channels_near.len());
        let far = consumer.consume(channels_far).await;
        let near = producer.consume(channels_near).await;
        let ((), far, near) = tokio::join!(
            within("produce", produce(writer, plan.steps, &mut expected)),
            read(far, fars),
            read(near, nears)
        );
        for (index, expected) in expected.iter().enumerate() {
            let got = [&far, &near][index % 2];
            assert!(got[index / 2] == *expected);
        }
    }
    drop(partition);
    until("all comes back", || producer.used() + consumer.used() == 0).await;
    until("files are gone", || disk.files().is_empty()).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(plan in plan()) {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap()
            .block_on(run(plan));
    }
}
