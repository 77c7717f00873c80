//! Blocking partitions: on disk, read after their end, as often as somebody wants.

use super::*;
use crate::Shutdown;

/// The disk of a worker.
pub(super) struct Disk {
    _dir: tempfile::TempDir,
    pub(super) context: BlockingContext,
}

impl Disk {
    pub(super) fn new(worker: &Worker) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let io = IoManager::start(
            &[dir.path().to_path_buf()],
            worker.node.id(),
            4,
            tokio::runtime::Handle::current(),
            Shutdown::new(),
        )
        .unwrap();
        let context = BlockingContext::new(&worker.config, io, worker.pool.clone());
        Self { _dir: dir, context }
    }

    pub(super) fn produce(
        &self,
        worker: &Worker,
        number: u32,
        subpartitions: usize,
    ) -> PartitionWriter {
        let partition =
            ResultPartition::blocking(id(number), PRODUCER, subpartitions, &self.context).unwrap();
        worker.partitions.register(partition.clone()).unwrap();
        partition.writer().unwrap()
    }

    /// The folder of this process.
    pub(super) fn process(&self) -> std::path::PathBuf {
        self.context.io().dirs().next().unwrap().to_path_buf()
    }

    /// Spilled files, without the lock.
    pub(super) fn files(&self) -> Vec<std::path::PathBuf> {
        std::fs::read_dir(self.process())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|e| e == "spill"))
            .collect()
    }
}

pub(super) fn local(number: u32, subpartition: u32) -> ChannelSource {
    ChannelSource::Local(request(number, subpartition))
}

#[tokio::test(start_paused = true)]
async fn a_finished_partition_is_read_near_and_far_as_often_as_somebody_wants() {
    let (producer, consumer) = pair().await;
    let disk = Disk::new(&producer);
    let writer = disk.produce(&producer, 0, 3);
    let partition = writer.partition().clone();
    write(writer, 3, 10, 500).await;
    partition.finished().await.unwrap();
    assert_eq!(disk.files().len(), 1);
    for _ in 0..2 {
        let far = (0..3).map(|n| producer.remote(0, n)).collect();
        let near = (0..3).map(|n| local(0, n)).collect();
        let (far, near) = (consumer.consume(far).await, producer.consume(near).await);
        tokio::join!(
            check(far, &[10, 11, 12], 500),
            check(near, &[10, 11, 12], 500)
        );
    }
    assert_eq!(producer.partitions.registered(), 1, "its owner releases it");
    producer.partitions.release_partition(id(0), PRODUCER);
    drop(partition);
    until("all comes back", || {
        producer.used() + consumer.used() == 0 && disk.files().is_empty()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_the_end_of_the_producer() {
    let (producer, consumer) = pair().await;
    let disk = Disk::new(&producer);
    let mut writer = disk.produce(&producer, 0, 1);
    let far = consumer.consume(vec![producer.remote(0, 0)]).await;
    let near = producer.consume(vec![local(0, 0)]).await;
    writer.emit(0, &record(5, 0)).await.unwrap();
    writer.flush();
    until("requests wait", || producer.partitions.parked() == 2).await;
    let rest = async {
        for sequence in 1..50 {
            writer.emit(0, &record(5, sequence)).await.unwrap();
        }
        writer.finish().unwrap();
    };
    tokio::join!(rest, check(far, &[5], 50), check(near, &[5], 50));
    assert_eq!(producer.partitions.parked(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_failed_producers_consumers_hear_why_and_its_file_goes() {
    let (producer, consumer) = pair().await;
    let disk = Disk::new(&producer);
    let mut writer = disk.produce(&producer, 0, 1);
    let mut waiting = consumer.consume(vec![producer.remote(0, 0)]).await;
    until("the request waits", || producer.partitions.parked() == 1).await;
    for sequence in 0..3000 {
        writer.emit(0, &record(0, sequence)).await.unwrap();
    }
    until("a file is there", || disk.files().len() == 1).await;
    let partition = writer.partition().clone();
    writer.fail("out of luck");
    let mut late = consumer.consume(vec![producer.remote(0, 0)]).await;
    for gate in [&mut waiting, &mut late] {
        let error = failure(gate).await;
        assert!(
            matches!(&error, ExchangeError::ProducerFailed { cause, .. } if cause == "out of luck"),
            "{error}"
        );
    }
    assert!(partition.finished().await.is_err() && partition.is_released());
    until("all comes back", || {
        producer.used() == 0 && disk.files().is_empty()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn events_and_broadcast_records_keep_their_place() {
    let (producer, consumer) = pair().await;
    let disk = Disk::new(&producer);
    let mut writer = disk.produce(&producer, 0, 3);
    let mut sequence = 0;
    for round in 0..40_u8 {
        for _ in 0..20 {
            for subpartition in 0..3 {
                writer
                    .emit(subpartition, &record(1, sequence))
                    .await
                    .unwrap();
            }
            sequence += 1;
        }
        for _ in 0..20 {
            writer.broadcast(&record(1, sequence)).await.unwrap();
            sequence += 1;
        }
        let event = Event::User(vec![round; usize::from(round) * 100].into());
        writer.broadcast_event(event).unwrap();
    }
    writer.broadcast_event(Event::EndOfData).unwrap();
    writer.finish().unwrap();
    for source in [local(0, 0), producer.remote(0, 1), local(0, 2)] {
        let worker = match &source {
            ChannelSource::Local(_) => &producer,
            _ => &consumer,
        };
        let mut reader = RecordReader::new(worker.consume(vec![source]).await);
        let (mut next, mut events) = (0, 0_u8);
        while let Some((_, input)) = within("input", reader.next()).await.unwrap() {
            match input {
                Input::Record(bytes) => {
                    assert_eq!(bytes, record(1, next));
                    next += 1;
                }
                Input::Event(Event::User(bytes)) => {
                    assert_eq!(next, (u32::from(events) + 1) * 40);
                    assert_eq!(bytes, vec![events; usize::from(events) * 100]);
                    events += 1;
                }
                Input::Event(event) => {
                    assert!(matches!(event, Event::EndOfData | Event::EndOfPartition));
                }
            }
        }
        assert_eq!((next, events), (1600, 40));
    }
}

#[tokio::test(start_paused = true)]
async fn a_producer_that_failed_before_its_registration_tells_its_cause_at_once() {
    let (producer, consumer) = pair().await;
    let disk = Disk::new(&producer);
    let partition = ResultPartition::blocking(id(0), PRODUCER, 1, &disk.context).unwrap();
    partition.fail("out of luck");
    producer.partitions.register(partition).unwrap();
    let begun = crate::now();
    let mut gate = consumer.consume(vec![producer.remote(0, 0)]).await;
    let error = failure(&mut gate).await;
    assert!(error.to_string().contains("out of luck"), "{error}");
    assert!(crate::now() - begun < Duration::from_secs(1));
}

#[derive(Debug)]
struct Deaf;

impl AvailabilityListener for Deaf {
    fn on_available(&self) {}
}

#[tokio::test(start_paused = true)]
async fn a_far_consumer_with_all_the_credit_there_is_is_none_of_this_node() {
    let (producer, _consumer) = pair().await;
    let disk = Disk::new(&producer);
    let writer = disk.produce(&producer, 0, 1);
    let partition = writer.partition().clone();
    write(writer, 1, 0, 100).await;
    partition.finished().await.unwrap();
    for (credit, expected) in [(Credit::Buffers(u32::MAX), 8), (Credit::Unlimited, 1)] {
        let view = partition
            .clone()
            .create_view(SubpartitionIndex(0), Arc::new(Deaf));
        let (mut view, mut items) = (view.unwrap(), Vec::new());
        view.take(credit, 8, &mut items).unwrap();
        until("blocks are read", || {
            view.take(credit, 8, &mut items).unwrap();
            !items.is_empty()
        })
        .await;
        assert_eq!(items.len(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_of_the_caller_arrive_as_they_were_cut() {
    let (producer, _consumer) = pair().await;
    let disk = Disk::new(&producer);
    let mut writer = disk.produce(&producer, 0, 2);
    for size in [1, 999, 1000, 1001, 2500] {
        let mut bytes = Bytes::from(vec![7; size]);
        writer.emit_bytes(1, &mut bytes).await.unwrap();
    }
    let mut buffer = writer.request_buffer(0).await.unwrap();
    buffer.append(b"filled in place");
    writer.emit_buffer(1, buffer).unwrap();
    writer.finish().unwrap();
    let mut gate = producer.consume(vec![local(0, 1)]).await;
    let mut sizes = Vec::new();
    while let Some((_, item)) = within("item", gate.next()).await.unwrap() {
        if let BufferOrEvent::Buffer(bytes) = item {
            sizes.push(bytes.len());
        }
    }
    assert_eq!(sizes, [1, 999, 1000, 1000, 1, 1000, 1000, 500, 15]);
}

#[tokio::test(start_paused = true)]
async fn a_barrier_blocks_until_the_consumer_goes_on() {
    let (producer, consumer) = pair().await;
    let disk = Disk::new(&producer);
    let mut writer = disk.produce(&producer, 0, 1);
    writer.emit(0, b"before").await.unwrap();
    let barrier = Event::Barrier(Bytes::from_static(b"7"));
    writer.broadcast_event(barrier.clone()).unwrap();
    writer.emit(0, b"after").await.unwrap();
    writer.finish().unwrap();
    for (worker, source) in [(&producer, local(0, 0)), (&consumer, producer.remote(0, 0))] {
        let mut gate = worker.consume(vec![source]).await;
        assert!(matches!(
            within("data", gate.next()).await.unwrap(),
            Some((0, BufferOrEvent::Buffer(_)))
        ));
        assert_eq!(
            within("barrier", gate.next()).await.unwrap(),
            Some((0, BufferOrEvent::Event(barrier.clone())))
        );
        settle().await;
        assert!(gate.try_next().is_none());
        gate.resume_consumption(0).unwrap();
        assert!(matches!(
            within("data", gate.next()).await.unwrap(),
            Some((0, BufferOrEvent::Buffer(_)))
        ));
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_partition_has_an_end_and_no_file() {
    let (producer, consumer) = pair().await;
    let disk = Disk::new(&producer);
    disk.produce(&producer, 0, 2).finish().unwrap();
    check(consumer.consume(vec![producer.remote(0, 1)]).await, &[0], 0).await;
    check(producer.consume(vec![local(0, 0)]).await, &[0], 0).await;
    assert!(disk.files().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_thousand_readers_at_once_share_few_buffers() {
    let (producer, consumer) = pair_with(TransportConfig {
        buffer_pool: 128 * 1024,
        ..small()
    })
    .await;
    let disk = Disk::new(&producer);
    let writer = disk.produce(&producer, 0, 1000);
    let partition = writer.partition().clone();
    write(writer, 1000, 0, 20).await;
    partition.finished().await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    let mut context = consumer.context();
    (context.exclusive_buffers, context.floating_buffers) = (0, 64);
    let far = (0..1000).map(|n| producer.remote(0, n)).collect();
    let far = consumer.consume_with(context, far).await;
    let near = (0..1000).map(|n| local(0, n)).collect();
    let near = producer.consume(near).await;
    for gate in [far, near] {
        tasks.spawn(async move {
            let tags: Vec<u32> = (0..1000).collect();
            check(gate, &tags, 20).await;
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert!(producer.pool.stats().peak <= 128);
    until("all comes back", || producer.used() + consumer.used() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn readers_hear_of_a_release_and_the_file_goes_with_the_last_of_them() {
    let (producer, consumer) = pair().await;
    let disk = Disk::new(&producer);
    write(disk.produce(&producer, 0, 1), 1, 0, 3000).await;
    let mut far = consumer.consume(vec![producer.remote(0, 0)]).await;
    let mut near = producer.consume(vec![local(0, 0)]).await;
    for gate in [&mut far, &mut near] {
        within("first", gate.next()).await.unwrap().unwrap();
    }
    producer.partitions.release_partition(id(0), PRODUCER);
    for gate in [&mut far, &mut near] {
        assert!(matches!(
            failure(gate).await,
            ExchangeError::PartitionNotFound { .. }
        ));
    }
    drop((far, near));
    until("all comes back", || {
        producer.used() + consumer.used() == 0 && disk.files().is_empty()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_a_consumer_asks_for_and_does_not_take_holds_up_nobody() {
    let (producer, _consumer) = pair_with(TransportConfig {
        buffer_pool: 160 * 1024,
        ..small()
    })
    .await;
    let disk = Disk::new(&producer);
    for number in 0..2 {
        let writer = disk.produce(&producer, number, 20);
        write(writer, 20, number * 100, 60).await;
    }
    let all = |number| (0..20).map(|n| local(number, n)).collect();
    let mut idle = producer.consume(all(0)).await;
    until("the idle gate has asked", || {
        let _ = idle.try_next();
        settled(&producer)
    })
    .await;
    let tags: Vec<u32> = (100..120).collect();
    check(producer.consume(all(1)).await, &tags, 60).await;
    // What was dropped meanwhile comes all the same.
    drop(idle);
    let tags: Vec<u32> = (0..20).collect();
    check(producer.consume(all(0)).await, &tags, 60).await;
    until("all comes back", || producer.used() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_near_consumer_keeps_holds_up_other_readers_until_it_drops_one() {
    let (producer, consumer) = pair_with(TransportConfig {
        buffer_pool: 64 * 1024,
        ..small()
    })
    .await;
    let disk = Disk::new(&producer);
    for number in 0..2 {
        write(disk.produce(&producer, number, 1), 1, number, 200).await;
    }
    let mut keeping = producer.consume(vec![local(0, 0)]).await;
    let mut kept = Vec::new();
    while let Ok(item) = tokio::time::timeout(Duration::from_secs(1), keeping.next()).await {
        kept.push(item.unwrap().unwrap());
    }
    assert_eq!(
        kept.len(),
        READ_BUFFERS,
        "a quarter of the node's, which is the guarantee"
    );
    let far = consumer.consume(vec![producer.remote(1, 0)]).await;
    let reading = tokio::spawn(check(far, &[1], 200));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(!reading.is_finished());
    kept.pop();
    within("the others", reading).await.unwrap();
    drop((kept, keeping));
    until("all comes back", || producer.used() + consumer.used() == 0).await;
}

/// Whether the readers' part of the pool is in use.
fn settled(worker: &Worker) -> bool {
    worker.used() >= READ_BUFFERS
}

#[tokio::test(start_paused = true)]
async fn a_release_does_not_wait_for_the_disk() {
    let (producer, _consumer) = pair().await;
    let disk = Disk::new(&producer);
    for number in 0..3 {
        let writer = disk.produce(&producer, number, 1);
        let partition = writer.partition().clone();
        write(writer, 1, 0, 50).await;
        partition.finished().await.unwrap();
    }
    let (free, busy) = std::sync::mpsc::channel::<()>();
    let busy = Arc::new(std::sync::Mutex::new(busy));
    for _ in 0..disk.context.io().stats().operations {
        let busy = busy.clone();
        drop(disk.context.io().submit(move |_| {
            let _ = busy.lock().unwrap().recv();
        }));
    }
    let stats = || disk.context.io().stats();
    let mut tries = 0;
    while stats().running < stats().operations && tries < 1_000_000 {
        tries += 1;
        tokio::task::yield_now().await;
    }
    producer.partitions.release_partition(id(0), PRODUCER);
    producer.partitions.shutdown();
    assert_eq!(disk.files().len(), 3, "nothing could be removed yet");
    drop(free);
    until("the files go", || disk.files().is_empty()).await;
}
