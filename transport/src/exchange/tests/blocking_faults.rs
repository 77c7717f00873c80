//! Disks that fail: one partition or one reader hears of it, by the name of the file.

use std::fs;

use super::{
    blocking::{Disk, local},
    *,
};

/// Writes until it fails.
async fn write_until_it_fails(writer: &mut PartitionWriter) -> ExchangeError {
    for sequence in 0..200_000 {
        if let Err(error) = writer.emit(0, &record(0, sequence)).await {
            return error;
        }
    }
    panic!("nothing failed");
}

#[tokio::test(start_paused = true)]
async fn a_folder_that_vanishes_fails_the_writer_and_names_the_file() {
    let (producer, consumer) = pair().await;
    let disk = Disk::new(&producer);
    let mut writer = disk.produce(&producer, 0, 1);
    let partition = writer.partition().clone();
    let mut waiting = consumer.consume(vec![producer.remote(0, 0)]).await;
    until("the request waits", || producer.partitions.parked() == 1).await;
    let folder = disk.process();
    fs::remove_dir_all(&folder).unwrap();
    let error = write_until_it_fails(&mut writer).await;
    assert!(matches!(error, ExchangeError::Spill(_)), "{error}");
    assert!(!error.is_retryable());
    let shown = folder.display().to_string();
    assert!(error.to_string().contains(&shown), "{error}");
    let heard = failure(&mut waiting).await;
    assert!(
        matches!(&heard, ExchangeError::ProducerFailed { cause, .. } if cause.contains(&shown)),
        "{heard}"
    );
    assert!(matches!(
        partition.finished().await,
        Err(ExchangeError::Spill(_))
    ));
    assert!(writer.emit(0, b"x").await.is_err());
    drop(writer);
    until("all comes back", || producer.used() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn what_fails_after_finish_is_heard_by_who_waits_for_it() {
    let (producer, _consumer) = pair().await;
    let disk = Disk::new(&producer);
    let mut writer = disk.produce(&producer, 0, 1);
    writer.emit(0, b"only in memory yet").await.unwrap();
    fs::remove_dir_all(disk.process()).unwrap();
    let partition = writer.partition().clone();
    writer.finish().unwrap();
    let error = within("finished", partition.finished()).await.unwrap_err();
    assert!(matches!(error, ExchangeError::Spill(_)), "{error}");
    let error = failure(&mut producer.consume(vec![local(0, 0)]).await).await;
    assert!(matches!(error, ExchangeError::ProducerFailed { .. }));
}

/// A finished partition of so many subpartitions, and its file.
async fn finished(disk: &Disk, worker: &Worker, subpartitions: u32) -> std::path::PathBuf {
    let writer = disk.produce(worker, 0, subpartitions as usize);
    let partition = writer.partition().clone();
    write(writer, subpartitions, 0, 100).await;
    partition.finished().await.unwrap();
    disk.files().pop().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_damaged_block_fails_its_readers_and_no_others() {
    let (producer, consumer) = pair().await;
    let disk = Disk::new(&producer);
    let file = finished(&disk, &producer, 4).await;
    let mut bytes = fs::read(&file).unwrap();
    let at = 100;
    bytes[at] ^= 1;
    fs::write(&file, &bytes).unwrap();
    for source in [producer.remote(0, 0), local(0, 0)] {
        let worker = match &source {
            ChannelSource::Local(_) => &producer,
            _ => &consumer,
        };
        let error = failure(&mut worker.consume(vec![source]).await).await;
        let text = error.to_string();
        assert!(text.contains(&file.display().to_string()), "{text}");
        assert!(text.contains("the checksum is wrong"), "{text}");
    }
    let others = (1..4).map(|n| producer.remote(0, n)).collect();
    check(consumer.consume(others).await, &[1, 2, 3], 100).await;
    bytes[at] ^= 1;
    fs::write(&file, &bytes).unwrap();
    check(producer.consume(vec![local(0, 0)]).await, &[0], 100).await;
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_cut_off_or_gone_fails_its_readers() {
    let (producer, _consumer) = pair().await;
    let disk = Disk::new(&producer);
    let file = finished(&disk, &producer, 2).await;
    let whole = fs::metadata(&file).unwrap().len();
    for length in [whole / 2, 0] {
        let opened = fs::OpenOptions::new().write(true).open(&file).unwrap();
        opened.set_len(length).unwrap();
        let error = failure(&mut producer.consume(vec![local(0, 1)]).await).await;
        assert!(error.to_string().contains("the file ends there"), "{error}");
    }
    fs::remove_file(&file).unwrap();
    let error = failure(&mut producer.consume(vec![local(0, 1)]).await).await;
    assert!(error.to_string().contains("cannot open"), "{error}");
    until("all comes back", || producer.used() == 0).await;
}

/// Changes the bytes of a file.
type Damage = Box<dyn Fn(&mut [u8])>;

/// What can happen to an index of four entries of 16 bytes: each change leaves the blocks as they are, and makes a
/// subpartition look shorter than it is.
fn damages(index: usize) -> [(&'static str, Damage); 4] {
    let entry = move |n: usize| index + n * 16..index + n * 16 + 16;
    [
        (
            "its blocks begin where they end",
            Box::new(move |file| {
                file.copy_within(entry(2).start..entry(2).start + 8, entry(1).start)
            }),
        ),
        (
            "they end where they begin",
            Box::new(move |file| {
                file.copy_within(entry(1).start..entry(1).start + 8, entry(2).start)
            }),
        ),
        (
            "another subpartition's entry stands there",
            Box::new(move |file| file.copy_within(entry(0), entry(1).start)),
        ),
        (
            "nothing stands there",
            Box::new(move |file| file[index..].fill(0)),
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_changed_index_is_an_error_that_names_file_and_region_and_no_short_stream() {
    let (producer, consumer) = pair().await;
    let disk = Disk::new(&producer);
    let file = finished(&disk, &producer, 4).await;
    let good = fs::read(&file).unwrap();
    for (what, damage) in damages(good.len() - 4 * 16 - 8) {
        let mut bad = good.clone();
        damage(&mut bad);
        fs::write(&file, &bad).unwrap();
        for (worker, source) in [(&consumer, producer.remote(0, 1)), (&producer, local(0, 1))] {
            let error = failure(&mut worker.consume(vec![source]).await).await;
            let text = error.to_string();
            let expected = format!("{} is damaged in region", file.display());
            assert!(text.contains(&expected), "{what}: {text}");
            assert!(text.contains("checksum of its index"), "{what}: {text}");
        }
    }
    fs::write(&file, &good).unwrap();
    check(producer.consume(vec![local(0, 1)]).await, &[1], 100).await;
}

/// A disk on a runtime of its own, which ends when the test says so.
fn mortal(worker: &Worker) -> (tempfile::TempDir, BlockingContext, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (dir, tasks) = (tempfile::tempdir().unwrap(), crate::Shutdown::new());
    let dirs = [dir.path().to_path_buf()];
    let io = IoManager::start(&dirs, worker.node.id(), 2, runtime.handle().clone(), tasks);
    let context = BlockingContext::new(&worker.config, io.unwrap(), worker.pool.clone());
    (dir, context, runtime)
}

fn is_closed<T: std::fmt::Debug>(result: Result<T, ExchangeError>) {
    let error = result.unwrap_err();
    assert!(
        matches!(error, ExchangeError::Spill(SpillError::Closed)),
        "{error}"
    );
}

#[tokio::test]
async fn a_runtime_that_ends_before_the_writer_is_an_error_of_who_waits_for_the_disk() {
    let (producer, _consumer) = pair().await;
    for spilled in [0, 3000] {
        let (_dir, context, runtime) = mortal(&producer);
        let partition = ResultPartition::blocking(id(0), PRODUCER, 1, &context).unwrap();
        let mut writer = partition.writer().unwrap();
        writer.emit(0, b"gathered").await.unwrap();
        for sequence in 0..spilled {
            writer.emit(0, &record(0, sequence)).await.unwrap();
        }
        let waiting = tokio::spawn({
            let partition = partition.clone();
            async move { partition.finished().await }
        });
        runtime.shutdown_background();
        writer.finish().unwrap();
        is_closed(within("finished", waiting).await.unwrap());
        is_closed(within("finished", partition.finished()).await);
    }
}

#[tokio::test]
async fn a_runtime_that_ends_while_a_writer_writes_is_an_error_of_the_writer() {
    let (producer, _consumer) = pair().await;
    let (_dir, context, runtime) = mortal(&producer);
    let partition = ResultPartition::blocking(id(0), PRODUCER, 1, &context).unwrap();
    let mut writer = partition.writer().unwrap();
    writer.emit(0, b"gathered").await.unwrap();
    runtime.shutdown_background();
    let error = within("error", write_until_it_fails(&mut writer)).await;
    is_closed(Err::<(), _>(error));
    is_closed(within("finished", partition.finished()).await);
}

#[tokio::test]
async fn a_runtime_that_ends_before_the_readers_is_an_error_of_theirs() {
    let (producer, consumer) = pair().await;
    let (_dir, context, runtime) = mortal(&producer);
    let partition = ResultPartition::blocking(id(0), PRODUCER, 2, &context).unwrap();
    producer.partitions.register(partition.clone()).unwrap();
    write(partition.writer().unwrap(), 2, 0, 3000).await;
    partition.finished().await.unwrap();
    let mut begun = producer.consume(vec![local(0, 0)]).await;
    drop(within("buffer", begun.next()).await.unwrap());
    runtime.shutdown_background();
    let closed = SpillError::Closed.to_string();
    let mut far = consumer.consume(vec![producer.remote(0, 1)]).await;
    for gate in [&mut begun, &mut far] {
        let error = failure(gate).await.to_string();
        assert!(error.contains(&closed), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_flipped_byte_is_noticed() {
    let (producer, _consumer) = pair().await;
    let disk = Disk::new(&producer);
    let writer = disk.produce(&producer, 0, 1);
    let partition = writer.partition().clone();
    write(writer, 1, 0, 5).await;
    partition.finished().await.unwrap();
    let file = disk.files().pop().unwrap();
    let good = fs::read(&file).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] = !bad[at];
        fs::write(&file, &bad).unwrap();
        let error = failure(&mut producer.consume(vec![local(0, 0)]).await).await;
        assert!(matches!(error, ExchangeError::Spill(_)), "{at}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_is_dropped_leaves_no_file_and_no_buffer() {
    let (producer, _consumer) = pair().await;
    let disk = Disk::new(&producer);
    let mut writer = disk.produce(&producer, 0, 1);
    for sequence in 0..3000 {
        writer.emit(0, &record(0, sequence)).await.unwrap();
    }
    drop(writer);
    until("all comes back", || {
        producer.used() == 0 && disk.files().is_empty()
    })
    .await;
    assert_eq!(disk.context.io().stats().files, 0);
}
