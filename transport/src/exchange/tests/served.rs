//! What a producer serves to a consumer that the test plays.

use bytes::BytesMut;

use super::*;
use crate::{
    ErrorCode, PeerStream, RecvStream, SendStream, StreamKind,
    proto::{DataType, Frame, HeaderDecoder, PartitionRequest},
};

/// One stream, seen from the consumer.
struct Client {
    stream: PeerStream,
    unread: BytesMut,
}

impl Client {
    async fn request(consumer: &Worker, producer: &Worker, credit: u32) -> Self {
        let lease = consumer.node.acquire(producer.address()).await.unwrap();
        let mut client = Self {
            stream: lease.open(StreamKind::PARTITION).await.unwrap(),
            unread: BytesMut::new(),
        };
        let request = PartitionRequest {
            partition: id(0),
            subpartition: SubpartitionIndex(0),
            initial_credit: credit,
            buffer_size: 1000,
            producer: PRODUCER,
            consumer: CONSUMER,
        };
        client.send(request.encode()).await;
        settle().await;
        client
    }

    async fn send(&mut self, bytes: Bytes) {
        self.stream.send.write(&mut [bytes]).await.unwrap();
    }

    async fn credit(&mut self, credit: u32) {
        self.send(Frame::AddCredit { credit }.to_bytes()).await;
    }

    async fn resume(&mut self) {
        self.send(Frame::ResumeConsumption.to_bytes()).await;
    }

    /// What has been sent by now: data type and backlog of each item, `None` for an announcement.
    async fn received(&mut self) -> Vec<(Option<DataType>, u32)> {
        let quiet = Duration::from_millis(50);
        while let Ok(read) = tokio::time::timeout(quiet, self.stream.recv.read(65_536)).await {
            match read.unwrap() {
                Some(bytes) => self.unread.extend_from_slice(&bytes),
                None => break,
            }
        }
        let (mut unread, mut frames) = (self.unread.split().freeze(), Vec::new());
        while let Some(frame) = HeaderDecoder::default().decode(&mut unread).unwrap() {
            match frame {
                Frame::Buffer {
                    data_type,
                    length,
                    backlog,
                    ..
                } => {
                    drop(unread.split_to(length as usize));
                    frames.push((Some(data_type), backlog));
                }
                Frame::BacklogAnnouncement { backlog } => frames.push((None, backlog)),
                frame => panic!("{frame:?}"),
            }
        }
        frames
    }
}

const DATA: Option<DataType> = Some(DataType::Data);
const EVENT: Option<DataType> = Some(DataType::Event);
const BARRIER: Option<DataType> = Some(DataType::AlignedBarrier);
const END: Option<DataType> = Some(DataType::EndOfPartition);

async fn data(writer: &mut PartitionWriter, count: usize) {
    for _ in 0..count {
        writer.emit(0, &[7; 996]).await.unwrap();
    }
}

fn event(writer: &mut PartitionWriter) {
    let event = Event::User(Bytes::from_static(b"event"));
    writer.broadcast_event(event).unwrap();
}

fn barrier(writer: &mut PartitionWriter) {
    let barrier = Event::Barrier(Bytes::from_static(b"1"));
    writer.broadcast_event(barrier).unwrap();
}

#[tokio::test(start_paused = true)]
async fn data_is_sent_when_there_are_both_a_buffer_and_credit() {
    let (producer, consumer) = pair().await;
    let mut writer = producer.produce(0, 1);
    let mut client = Client::request(&consumer, &producer, 1).await;
    assert_eq!(client.received().await, []);
    data(&mut writer, 4).await;
    assert_eq!(client.received().await, [(DATA, 3)]);
    client.credit(2).await;
    assert_eq!(client.received().await, [(DATA, 2), (DATA, 1)]);
    client.credit(5).await;
    assert_eq!(client.received().await, [(DATA, 0)]);
    data(&mut writer, 5).await;
    assert_eq!(client.received().await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn events_need_no_credit_but_wait_for_the_data_before_them() {
    let (producer, consumer) = pair().await;
    let mut writer = producer.produce(0, 1);
    let mut client = Client::request(&consumer, &producer, 0).await;
    event(&mut writer);
    assert_eq!(client.received().await, [(EVENT, 0)]);
    data(&mut writer, 1).await;
    event(&mut writer);
    assert_eq!(client.received().await, [(None, 1)]);
    client.credit(1).await;
    assert_eq!(client.received().await, [(DATA, 0), (EVENT, 0)]);
}

#[tokio::test(start_paused = true)]
async fn a_backlog_is_announced_once_where_neither_initial_nor_other_credit_is_left() {
    let (producer, consumer) = pair().await;
    let mut writer = producer.produce(0, 1);
    let mut client = Client::request(&consumer, &producer, 0).await;
    data(&mut writer, 2).await;
    // The first one alone is announced: it was all that there was.
    let announced = client.received().await;
    assert!(matches!(announced[..], [(None, 1..=2)]), "{announced:?}");
    data(&mut writer, 3).await;
    assert_eq!(client.received().await, [], "once until credit comes");
    client.credit(2).await;
    let expected = [(DATA, 4), (DATA, 3), (None, 3)];
    assert_eq!(client.received().await, expected);
}

#[tokio::test(start_paused = true)]
async fn empty_data_buffers_of_a_provider_use_credit_and_count() {
    let (producer, consumer) = pair().await;
    let writer = producer.produce(0, 1);
    let partition = writer.partition().clone();
    let mut client = Client::request(&consumer, &producer, 1).await;
    let subpartition = partition.subpartition(0).unwrap();
    subpartition.push(DataType::Data, Bytes::new());
    subpartition.push(DataType::Data, Bytes::from_static(b"x"));
    assert_eq!(client.received().await, [(DATA, 1)]);
    client.credit(1).await;
    assert_eq!(client.received().await, [(DATA, 0)]);
}

/// What a blocked stream does after its resume, by what there is to send.
#[tokio::test(start_paused = true)]
async fn a_resumed_stream_goes_on_with_what_there_is() {
    for initial in [0, 2] {
        let (producer, consumer) = pair().await;
        let mut writer = producer.produce(0, 1);
        let mut client = Client::request(&consumer, &producer, initial).await;
        barrier(&mut writer);
        assert_eq!(client.received().await, [(BARRIER, 0)]);
        client.resume().await;
        assert_eq!(client.received().await, [], "nothing is there");
        barrier(&mut writer);
        assert_eq!(client.received().await, [(BARRIER, 0)]);
        data(&mut writer, 1).await;
        event(&mut writer);
        assert_eq!(client.received().await, [], "it is blocked");
        client.credit(1).await;
        assert_eq!(client.received().await, [], "credit does not unblock");
        client.resume().await;
        if initial == 0 {
            assert_eq!(client.received().await, [(None, 1)], "that credit is void");
            client.credit(1).await;
        }
        assert_eq!(client.received().await, [(DATA, 0), (EVENT, 0)]);
        barrier(&mut writer);
        writer.finish().unwrap();
        assert_eq!(client.received().await, [(BARRIER, 0)]);
        client.resume().await;
        assert_eq!(client.received().await, [(END, 0)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_blocked_stream_tells_of_no_backlog() {
    let (producer, consumer) = pair().await;
    let mut writer = producer.produce(0, 1);
    data(&mut writer, 1).await;
    barrier(&mut writer);
    data(&mut writer, 2).await;
    let mut client = Client::request(&consumer, &producer, 9).await;
    assert_eq!(client.received().await, [(DATA, 2), (BARRIER, 0)]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_stream_releases_its_view_once_whether_it_could_send_or_not() {
    let (producer, consumer) = pair().await;
    for (credit, halves) in [
        (0, "both"),
        (0, "reset"),
        (0, "stop"),
        (9, "both"),
        (9, "stop"),
    ] {
        let mut writer = producer.produce_with(0, 2, 8);
        let partition = writer.partition().clone();
        data(&mut writer, 3).await;
        let mut client = Client::request(&consumer, &producer, credit).await;
        if credit == 0 {
            assert_eq!(client.received().await.len(), 1);
        }
        for _ in 0..2 {
            if halves != "stop" {
                client.stream.send.reset(ErrorCode::CANCELLED);
            }
            if halves != "reset" {
                client.stream.recv.stop(ErrorCode::CANCELLED);
            }
        }
        data(&mut writer, 1).await;
        until("the view is released", || partition.inflight(0).is_empty()).await;
        settle().await;
        assert!(!partition.is_released(), "the other one was not requested");
        assert_eq!(producer.partitions.registered(), 1);
        drop(writer);
        assert_eq!(producer.partitions.registered(), 0);
        producer.partitions.release_partition(id(0), PRODUCER);
        until("all comes back", || producer.used() == 0).await;
        assert_eq!(producer.connections.server_stats().streams, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_open_buffer_behind_a_finished_one_waits_for_its_flush() {
    let (producer, consumer) = pair().await;
    let mut writer = producer.produce(0, 1);
    let mut client = Client::request(&consumer, &producer, 9).await;
    writer.emit(0, &[7; 1500]).await.unwrap();
    assert_eq!(client.received().await, [(DATA, 0)], "it does not count");
    assert_eq!(writer.partition().stats().backlog, 0);
    writer.flush();
    assert_eq!(client.received().await, [(DATA, 0)]);
    writer.flush();
    assert_eq!(client.received().await, [], "a flush of nothing is nothing");
    writer.emit(0, b"x").await.unwrap();
    event(&mut writer);
    assert_eq!(client.received().await, [(DATA, 0), (EVENT, 0)]);
}
