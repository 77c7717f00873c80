//! Compressed partitions: smaller on disk and on the wire, the same to their readers.

use super::{
    blocking::{Disk, local},
    *,
};
use crate::{
    RecvStream, SendStream,
    proto::{Frame, HeaderDecoder, PartitionRequest},
};

fn with_lz4(buffer_size: u32) -> TransportConfig {
    TransportConfig {
        buffer_size,
        blocking_compression: Compression::Lz4,
        ..small()
    }
}

/// Every second record is full of what cannot be compressed.
async fn produce(disk: &Disk, worker: &Worker) -> Vec<Vec<u8>> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut writer = disk.produce(worker, 0, 1);
    let mut records = Vec::new();
    for number in 0..200_u8 {
        let mut record = vec![number; 3000];
        if number % 2 == 1 {
            record.fill_with(|| random.u8(..));
        }
        writer.emit(0, &record).await.unwrap();
        records.push(record);
    }
    let partition = writer.partition().clone();
    writer.finish().unwrap();
    partition.finished().await.unwrap();
    records
}

async fn read(gate: InputGate) -> Vec<Vec<u8>> {
    let (mut reader, mut records) = (RecordReader::new(gate), Vec::new());
    while let Some((_, input)) = within("input", reader.next()).await.unwrap() {
        if let Input::Record(record) = input {
            records.push(record.to_vec());
        }
    }
    records
}

/// Frames of a subpartition that are compressed, and those that are not.
async fn frames(producer: &Worker, consumer: &Worker, buffer_size: u32) -> (u32, u32) {
    let client = consumer
        .connections
        .create_partition_request_client(producer.address())
        .await
        .unwrap();
    let wanted = PartitionRequest {
        partition: id(0),
        subpartition: SubpartitionIndex(0),
        initial_credit: 10_000,
        buffer_size,
        producer: PRODUCER,
        consumer: CONSUMER,
    };
    let mut stream = client.request_subpartition(&wanted).await.unwrap();
    let (mut decoder, mut skip, mut seen) = (HeaderDecoder::default(), 0, (0, 0));
    while let Some(mut bytes) = within("bytes", stream.recv.read(4096)).await.unwrap() {
        while !bytes.is_empty() {
            let skipped = bytes.split_to(bytes.len().min(skip));
            skip -= skipped.len();
            match decoder.decode(&mut bytes).unwrap() {
                Some(Frame::CompressedBuffer { length, .. }) => {
                    seen.0 += 1;
                    skip = length as usize;
                }
                Some(Frame::Buffer { length, .. }) => {
                    seen.1 += 1;
                    skip = length as usize;
                }
                _ => {}
            }
        }
    }
    stream.send.finish().unwrap();
    seen
}

#[tokio::test(start_paused = true)]
async fn what_gets_smaller_is_compressed_on_disk_and_on_the_wire() {
    let (producer, consumer) = pair_with(with_lz4(1024)).await;
    let disk = Disk::new(&producer);
    let records = produce(&disk, &producer).await;
    let size = std::fs::metadata(&disk.files()[0]).unwrap().len();
    assert!((300_000..400_000).contains(&size), "{size} bytes on disk");
    let far = consumer.consume(vec![producer.remote(0, 0)]).await;
    let near = producer.consume(vec![local(0, 0)]).await;
    let (far, near) = tokio::join!(read(far), read(near));
    assert!(far == records && near == records);
    let (smaller, raw) = frames(&producer, &consumer, 1000).await;
    assert!(smaller > 200 && raw > 200, "{smaller} and {raw}");
    until("all comes back", || producer.used() + consumer.used() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_consumer_with_smaller_buffers_gets_them_decompressed_and_cut() {
    let network = MemNetwork::new();
    let producer = Worker::start(&network, "producer", with_lz4(4096)).await;
    let consumer = Worker::start(&network, "consumer", with_lz4(1024)).await;
    let disk = Disk::new(&producer);
    let records = produce(&disk, &producer).await;
    let far = consumer.consume(vec![producer.remote(0, 0)]).await;
    assert!(read(far).await == records);
    let (smaller, raw) = frames(&producer, &consumer, 1000).await;
    assert!(smaller == 0 && raw > 600, "{smaller} and {raw}");
}

#[tokio::test(start_paused = true)]
async fn a_consumer_with_larger_buffers_takes_them_as_they_are() {
    let network = MemNetwork::new();
    let producer = Worker::start(&network, "producer", with_lz4(1024)).await;
    let consumer = Worker::start(&network, "consumer", with_lz4(4096)).await;
    let disk = Disk::new(&producer);
    let records = produce(&disk, &producer).await;
    let far = consumer.consume(vec![producer.remote(0, 0)]).await;
    assert!(read(far).await == records);
    assert!(frames(&producer, &consumer, 4000).await.0 > 200);
}
