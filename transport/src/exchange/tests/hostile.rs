//! Peers that break the protocol lose their stream, not the connection.

use std::sync::Mutex;

use bytes::BytesMut;

use super::*;
use crate::{
    ErrorCode, Lease, PeerStream, RecvStream, SendStream, StreamError, StreamHandler, StreamKind,
    proto::{DataType, Frame, PartitionRequest},
    stream::BoxFuture,
};

/// A producer that answers each request with bytes of the test's choice.
#[derive(Debug, Default)]
struct Forged {
    answer: Mutex<Bytes>,
    finish: Mutex<bool>,
    heard: Arc<Mutex<Option<ErrorCode>>>,
}

impl StreamHandler for Forged {
    fn handle(&self, mut stream: PeerStream) -> BoxFuture<'static, ()> {
        let answer = self.answer.lock().unwrap().clone();
        let finish = *self.finish.lock().unwrap();
        let heard = self.heard.clone();
        Box::pin(async move {
            let _ = stream.send.write(&mut [answer]).await;
            if finish {
                let _ = stream.send.finish();
            }
            while let Ok(Some(_)) = stream.recv.read(4096).await {}
            if let Ok(Some(code)) = stream.send.stopped().await {
                *heard.lock().unwrap() = Some(code);
            }
        })
    }
}

fn buffer(sequence: u32, payload: &[u8]) -> Vec<u8> {
    item(DataType::Data, sequence, payload)
}

fn item(data_type: DataType, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    Frame::Buffer {
        data_type,
        length: u32::try_from(payload.len()).unwrap(),
        sequence,
        backlog: u32::MAX,
    }
    .encode(&mut out);
    out.extend_from_slice(payload);
    out.to_vec()
}

fn compressed(payload: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    Frame::CompressedBuffer {
        length: u32::try_from(payload.len()).unwrap(),
        sequence: 0,
        backlog: 0,
    }
    .encode(&mut out);
    out.extend_from_slice(payload);
    out.to_vec()
}

/// An LZ4 block of some hundred bytes that makes 200,000.
fn bomb() -> Vec<u8> {
    let mut block = vec![0x1f, b'x', 1, 0];
    block.extend([255; 800]);
    block.extend([0, 0x50]);
    block.extend(b"xxxxx");
    block
}

#[tokio::test(start_paused = true)]
async fn a_producer_that_breaks_the_protocol_fails_that_channel_with_a_code() {
    use ErrorCode as Code;
    let (producer, consumer) = pair().await;
    let forged = Arc::new(Forged::default());
    producer
        .node
        .register(StreamKind::PARTITION, forged.clone());
    let lease = consumer.node.acquire(producer.address()).await.unwrap();
    let end = item(DataType::EndOfPartition, 0, b"");
    let mut context = consumer.context();
    (context.exclusive_buffers, context.floating_buffers) = (2, 1);
    let cases: Vec<(&str, Vec<u8>, Code)> = vec![
        (
            "without credit",
            (0..4).flat_map(|n| buffer(n, b"xx")).collect(),
            Code::CREDIT_VIOLATION,
        ),
        ("skipped number", buffer(1, b"xx"), Code::STREAM_PROTOCOL),
        (
            "repeated number",
            [buffer(0, b"x"), buffer(0, b"x")].concat(),
            Code::STREAM_PROTOCOL,
        ),
        ("too long", buffer(0, &[0; 1001]), Code::STREAM_PROTOCOL),
        ("a bomb", compressed(&bomb()), Code::STREAM_PROTOCOL),
        (
            "compressed garbage",
            compressed(&[0xff; 300]),
            Code::STREAM_PROTOCOL,
        ),
        (
            "too long, compressed",
            compressed(&[0; 1001]),
            Code::STREAM_PROTOCOL,
        ),
        (
            "nothing, compressed",
            compressed(b""),
            Code::STREAM_PROTOCOL,
        ),
        ("unknown kind", vec![9; 16], Code::STREAM_PROTOCOL),
        (
            "a consumer's frame",
            Frame::ResumeConsumption.to_bytes().to_vec(),
            Code::STREAM_PROTOCOL,
        ),
        (
            "data after the end",
            [end, buffer(1, b"xx")].concat(),
            Code::STREAM_PROTOCOL,
        ),
        (
            "data after a barrier",
            [item(DataType::AlignedBarrier, 0, b""), buffer(1, b"xx")].concat(),
            Code::STREAM_PROTOCOL,
        ),
        (
            "event of an unknown type",
            [&[64, 7][..], &[0; 14]].concat(),
            Code::STREAM_PROTOCOL,
        ),
    ];
    for (what, bytes, code) in cases {
        *forged.answer.lock().unwrap() = bytes.into();
        *forged.heard.lock().unwrap() = None;
        // The second channel waits for ever: the gate must not end before it has failed.
        let channels = vec![producer.remote(0, 0), ChannelSource::Unknown];
        let mut gate = consumer.consume_with(context.clone(), channels).await;
        let error = failure(&mut gate).await;
        assert_eq!(error.code(), code, "{what}: {error}");
        until(what, || forged.heard.lock().unwrap().is_some()).await;
        assert_eq!(*forged.heard.lock().unwrap(), Some(code), "{what}");
        drop(gate);
        until("all comes back", || consumer.used() == 0).await;
    }
    assert!(lease.close_reason().is_none(), "the connection lives");
}

#[tokio::test(start_paused = true)]
async fn a_producer_of_events_alone_waits_for_its_consumer() {
    let (producer, consumer) = pair().await;
    let forged = Arc::new(Forged::default());
    let (count, event) = (100_u32, vec![7; 60_000]);
    let mut bytes: Vec<u8> = (0..count)
        .flat_map(|sequence| item(DataType::Event, sequence, &event))
        .collect();
    bytes.extend(item(DataType::EndOfPartition, count, b""));
    *forged.answer.lock().unwrap() = bytes.into();
    *forged.finish.lock().unwrap() = true;
    producer.node.register(StreamKind::PARTITION, forged);
    let mut gate = consumer.consume(vec![producer.remote(0, 0)]).await;
    settle().await;
    let queued = gate.stats().queued;
    assert!((1..50).contains(&queued), "{queued} events are queued");
    for _ in 0..=count {
        within("event", gate.next()).await.unwrap().unwrap();
    }
    assert_eq!(within("end", gate.next()).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_before_its_partition_is_an_error() {
    let (producer, consumer) = pair().await;
    let forged = Arc::new(Forged::default());
    *forged.finish.lock().unwrap() = true;
    producer
        .node
        .register(StreamKind::PARTITION, forged.clone());
    for bytes in [
        vec![0; 1],
        buffer(0, b"x"),
        buffer(0, b"xyz")[..17].to_vec(),
    ] {
        *forged.answer.lock().unwrap() = bytes.into();
        let mut gate = consumer.consume(vec![producer.remote(0, 0)]).await;
        assert!(matches!(
            failure(&mut gate).await,
            ExchangeError::Protocol { .. }
        ));
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_buffer_costs_credit_and_gives_it_back() {
    let (producer, consumer) = pair().await;
    let forged = Arc::new(Forged::default());
    let bytes = [
        buffer(0, b""),
        buffer(1, b"x"),
        item(DataType::EndOfPartition, 2, b""),
    ];
    *forged.answer.lock().unwrap() = bytes.concat().into();
    *forged.finish.lock().unwrap() = true;
    producer.node.register(StreamKind::PARTITION, forged);
    let mut gate = consumer.consume(vec![producer.remote(0, 0)]).await;
    let first = within("buffer", gate.next()).await.unwrap();
    let expected = BufferOrEvent::Buffer(Bytes::from_static(b"x"));
    assert_eq!(first.as_ref(), Some(&(0, expected)));
    within("end", gate.next()).await.unwrap().unwrap();
    assert_eq!(within("end", gate.next()).await.unwrap(), None);
    drop(first);
    assert_eq!(consumer.used(), 1, "the one that the gate keeps");
}

async fn open(lease: &Lease, bytes: Bytes) -> PeerStream {
    let mut stream = lease.open(StreamKind::PARTITION).await.unwrap();
    stream.send.write(&mut [bytes]).await.unwrap();
    stream
}

async fn end_of(mut stream: PeerStream) -> ErrorCode {
    within("end of the stream", async {
        loop {
            match stream.recv.read(4096).await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("a clean end"),
                Err(StreamError::Reset { code }) => return code,
                Err(error) => panic!("{error:?}"),
            }
        }
    })
    .await
}

fn valid_request(credit: u32, buffer_size: u32) -> Bytes {
    PartitionRequest {
        partition: id(0),
        subpartition: SubpartitionIndex(0),
        initial_credit: credit,
        buffer_size,
        producer: PRODUCER,
        consumer: CONSUMER,
    }
    .encode()
}

fn task_event(event: &[u8]) -> Vec<u8> {
    let length = u32::try_from(event.len()).unwrap();
    [&Frame::TaskEvent { length }.to_bytes(), event].concat()
}

#[tokio::test(start_paused = true)]
async fn a_repeated_acknowledgement_counts_once() {
    let (producer, consumer) = pair().await;
    let writer = producer.produce(0, 2);
    let lease = consumer.node.acquire(producer.address()).await.unwrap();
    let mut stream = open(&lease, valid_request(1, 100)).await;
    settle().await;
    let twice = Frame::AllRecordsAcknowledged.to_bytes().repeat(2);
    stream.send.write(&mut [twice.into()]).await.unwrap();
    settle().await;
    let partition = writer.partition().clone();
    let waiting = tokio::spawn(async move { partition.all_records_acknowledged().await });
    settle().await;
    assert!(!waiting.is_finished(), "the other one has said nothing");
    writer.fail("gave up");
    assert!(within("failure", waiting).await.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_breaks_the_protocol_loses_its_stream_and_frees_the_view() {
    let (producer, consumer) = pair().await;
    let lease = consumer.node.acquire(producer.address()).await.unwrap();
    let credit = |credit| Frame::AddCredit { credit }.to_bytes();
    let zero_credit = Bytes::from_static(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let zero_size = Bytes::from_static(&[5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let oversize_event = Bytes::from_static(&[6, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    let event_flood: Bytes = task_event(&[0; 65_536]).repeat(5).into();
    let protocol = ErrorCode::STREAM_PROTOCOL;
    for (number, (bytes, code)) in [
        (vec![credit(1)], protocol),
        (vec![Bytes::from_static(&[7; 16])], protocol),
        (vec![valid_request(1, 0)], protocol),
        (vec![valid_request(1, 100), valid_request(1, 100)], protocol),
        (vec![valid_request(1, 100), zero_credit], protocol),
        (
            vec![valid_request(u32::MAX, 100), credit(1)],
            ErrorCode::CREDIT_VIOLATION,
        ),
        // Before the request.
        (vec![Frame::AllRecordsAcknowledged.to_bytes()], protocol),
        (
            vec![Frame::NewBufferSize { bytes: 65 }.to_bytes()],
            protocol,
        ),
        (vec![Frame::TaskEvent { length: 0 }.to_bytes()], protocol),
        // Before the partition.
        (
            vec![
                valid_request(1, 100),
                Frame::AllRecordsAcknowledged.to_bytes(),
            ],
            protocol,
        ),
        (vec![valid_request(1, 100), zero_size], protocol),
        (vec![valid_request(1, 100), oversize_event], protocol),
        (vec![valid_request(1, 100), event_flood], protocol),
    ]
    .into_iter()
    .enumerate()
    {
        let stream = open(&lease, bytes.concat().into()).await;
        assert_eq!(end_of(stream).await, code, "case {number}");
        until("no request waits", || producer.partitions.parked() == 0).await;
    }
    assert!(lease.close_reason().is_none(), "the connection lives");
}

#[tokio::test(start_paused = true)]
async fn a_consumer_with_tiny_buffers_gets_parts_with_the_backlog_that_they_make() {
    let (producer, consumer) = pair().await;
    let mut writer = producer.produce(0, 1);
    writer.emit(0, &[7; 600]).await.unwrap();
    writer.flush();
    let lease = consumer.node.acquire(producer.address()).await.unwrap();
    let mut stream = open(&lease, valid_request(2, 1)).await;
    let mut got = Vec::new();
    while got.len() < 2 * 17 {
        let bytes = within("parts", stream.recv.read(4096)).await.unwrap();
        got.extend(bytes.unwrap());
    }
    let parts = [0, 603, 1, 602].map(u32::to_be_bytes);
    for (at, expected) in [8, 12, 25, 29].into_iter().zip(parts) {
        assert_eq!(got[at..at + 4], expected, "at {at}");
    }
    assert_eq!(got.len(), 2 * 17);
    assert_eq!(producer.used(), 1, "the rest is still queued as one buffer");
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_is_dropped_after_a_while() {
    let (producer, consumer) = pair().await;
    let lease = consumer.node.acquire(producer.address()).await.unwrap();
    let stream = open(&lease, Bytes::from_static(&[1])).await;
    assert_eq!(end_of(stream).await, ErrorCode::TIMED_OUT);
    drop(producer);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_credit_is_taken_in_stride() {
    let (producer, consumer) = pair().await;
    let mut writer = producer.produce(0, 1);
    let lease = consumer.node.acquire(producer.address()).await.unwrap();
    let mut stream = open(&lease, valid_request(0, 1000)).await;
    let flood: Vec<u8> = (0..10_000)
        .flat_map(|_| Frame::AddCredit { credit: 1 }.to_bytes())
        .collect();
    let mut flood = [flood.into()];
    let sent = within("flood", stream.send.write(&mut flood)).await;
    sent.unwrap();
    writer.emit(0, b"x").await.unwrap();
    writer.flush();
    let got = within("buffer", stream.recv.read(4096)).await.unwrap();
    assert!(got.is_some());
}
