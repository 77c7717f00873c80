//! What a consumer says on the wire, to a producer that the test plays, and what it makes of the answers.

use std::sync::atomic::{AtomicU32, Ordering};

use bytes::{Buf, BytesMut};
use tokio::sync::mpsc;

use super::*;
use crate::{
    ErrorCode, PeerStream, RecvStream, SendStream, StreamError, StreamHandler, StreamKind,
    proto::{DataType, ErrorKind, Frame, HeaderDecoder, PartitionRequest, REQUEST_BODY_BYTES},
    stream::BoxFuture,
};

/// Hands each stream to the test.
#[derive(Debug)]
struct Played(mpsc::Sender<PeerStream>);

impl StreamHandler for Played {
    fn handle(&self, stream: PeerStream) -> BoxFuture<'static, ()> {
        let streams = self.0.clone();
        Box::pin(async move {
            let _ = streams.send(stream).await;
        })
    }
}

fn play(producer: &Worker) -> mpsc::Receiver<PeerStream> {
    let (give, take) = mpsc::channel(8);
    let played = Arc::new(Played(give));
    producer.node.register(StreamKind::PARTITION, played);
    take
}

/// One stream, seen from the producer.
struct Script {
    stream: PeerStream,
    unread: BytesMut,
    sequence: u32,
}

impl Script {
    /// The next stream, with its request.
    async fn begin(streams: &mut mpsc::Receiver<PeerStream>) -> (Self, PartitionRequest) {
        let stream = within("stream", streams.recv()).await.unwrap();
        let mut script = Self {
            stream,
            unread: BytesMut::new(),
            sequence: 0,
        };
        let Frame::Request {
            initial_credit,
            buffer_size,
        } = script.frame().await
        else {
            panic!("the first frame is no request");
        };
        let body = script.take(REQUEST_BODY_BYTES).await;
        let body = body.as_ref().try_into().unwrap();
        let request = PartitionRequest::decode(initial_credit, buffer_size, body);
        (script, request)
    }

    async fn take(&mut self, count: usize) -> BytesMut {
        while self.unread.len() < count {
            let read = within("bytes", self.stream.recv.read(4096)).await.unwrap();
            self.unread.extend_from_slice(&read.unwrap());
        }
        self.unread.split_to(count)
    }

    async fn frame(&mut self) -> Frame {
        let mut header = self.take(16).await.freeze();
        let frame = HeaderDecoder::default().decode(&mut header).unwrap();
        assert!(!header.has_remaining());
        frame.unwrap()
    }

    /// Sums up credit until there are so many.
    async fn credit(&mut self, expected: u32) {
        let mut sum = 0;
        while sum < expected {
            match self.frame().await {
                Frame::AddCredit { credit } => sum += credit,
                frame => panic!("{frame:?}"),
            }
        }
        assert_eq!(sum, expected);
    }

    /// Nothing more is said.
    async fn silence(&mut self) {
        assert!(self.unread.is_empty());
        let read = tokio::time::timeout(Duration::from_secs(1), self.stream.recv.read(4096)).await;
        assert!(read.is_err(), "{read:?}");
    }

    fn item(&mut self, data_type: DataType, backlog: u32, payload: &[u8]) -> Vec<u8> {
        let mut out = BytesMut::new();
        Frame::Buffer {
            data_type,
            length: u32::try_from(payload.len()).unwrap(),
            sequence: self.sequence,
            backlog,
        }
        .encode(&mut out);
        self.sequence += 1;
        out.extend_from_slice(payload);
        out.to_vec()
    }

    async fn send(&mut self, bytes: impl Into<Bytes>) {
        self.stream.send.write(&mut [bytes.into()]).await.unwrap();
    }

    async fn send_item(&mut self, data_type: DataType, backlog: u32, payload: &[u8]) {
        let item = self.item(data_type, backlog, payload);
        self.send(item).await;
    }

    async fn fail(&mut self, kind: ErrorKind) {
        self.send(Frame::Error { kind, length: 0 }.to_bytes()).await;
    }

    /// The code with which the consumer has ended both halves.
    async fn end(mut self) -> ErrorCode {
        let reset = within("reset", async {
            loop {
                match self.stream.recv.read(4096).await {
                    Ok(Some(_)) => {}
                    Err(StreamError::Reset { code }) => return code,
                    other => panic!("{other:?}"),
                }
            }
        });
        let reset = reset.await;
        let stopped = within("stop", self.stream.send.stopped()).await.unwrap();
        assert_eq!(stopped, Some(reset));
        reset
    }
}

async fn setup(
    exclusive: u32,
    floating: u32,
    channels: u32,
) -> (Worker, Worker, InputGate, Vec<(Script, PartitionRequest)>) {
    let (producer, consumer) = pair().await;
    let mut streams = play(&producer);
    let mut context = consumer.context();
    (context.exclusive_buffers, context.floating_buffers) = (exclusive, floating);
    context.ready_buffers = 0;
    let sources = (0..channels).map(|s| producer.remote(0, s)).collect();
    let gate = consumer.consume_with(context, sources).await;
    let mut scripts = Vec::new();
    for _ in 0..channels {
        scripts.push(Script::begin(&mut streams).await);
    }
    (producer, consumer, gate, scripts)
}

async fn take(gate: &mut InputGate) -> BufferOrEvent {
    within("item", gate.next()).await.unwrap().unwrap().1
}

#[tokio::test(start_paused = true)]
async fn the_request_carries_the_exclusive_buffers_and_a_backlog_yields_credit_for_the_rest() {
    let (_producer, _consumer, mut gate, mut scripts) = setup(2, 8, 2).await;
    for (script, request) in &mut scripts {
        assert_eq!((request.initial_credit, request.buffer_size), (2, 1000));
        assert_eq!((request.producer, request.consumer), (PRODUCER, CONSUMER));
        script.silence().await;
        // 2 exclusive ones are promised; with a backlog of 1 behind this one, 3 are wanted free.
        script.send_item(DataType::Data, 1, b"x").await;
        script.credit(2).await;
        script.silence().await;
    }
    drop((take(&mut gate).await, take(&mut gate).await));
    gate.close();
}

#[tokio::test(start_paused = true)]
async fn a_backlog_announcement_asks_for_floating_buffers() {
    let (_producer, consumer, gate, mut scripts) = setup(0, 8, 1).await;
    let (mut script, request) = scripts.pop().unwrap();
    assert_eq!(request.initial_credit, 0);
    script.silence().await;
    let frame = Frame::BacklogAnnouncement { backlog: 3 };
    script.send(frame.to_bytes()).await;
    script.credit(3).await;
    assert_eq!(consumer.used(), 3);
    drop(gate);
    assert_eq!(script.end().await, ErrorCode::CANCELLED);
    until("all comes back", || consumer.used() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_closed_channel_announces_no_credit_and_ends_its_stream() {
    let (_producer, consumer, mut gate, mut scripts) = setup(2, 8, 1).await;
    let (mut script, _) = scripts.pop().unwrap();
    script.send_item(DataType::Data, 0, b"x").await;
    let held = take(&mut gate).await;
    gate.close();
    assert!(matches!(
        gate.resume_consumption(0),
        Err(ExchangeError::Cancelled { .. })
    ));
    drop(held);
    assert_eq!(script.end().await, ErrorCode::CANCELLED);
    assert_eq!(consumer.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_channel_that_is_closed_inside_a_frame_gives_every_buffer_back_once() {
    for cut in [1, 16, 17, 500, 1015] {
        let (_producer, consumer, gate, mut scripts) = setup(2, 8, 1).await;
        let (mut script, _) = scripts.pop().unwrap();
        let mut bytes = script.item(DataType::Data, 5, &[7; 1000]);
        bytes.truncate(cut);
        script.send(bytes).await;
        settle().await;
        drop(gate);
        assert_eq!(script.end().await, ErrorCode::CANCELLED);
        assert_eq!(consumer.used(), 0, "cut at {cut}");
        assert_eq!(consumer.pool.stats().guaranteed, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn frames_may_come_in_any_pieces() {
    let (_producer, consumer, mut gate, mut scripts) = setup(2, 8, 1).await;
    let (mut script, _) = scripts.pop().unwrap();
    let mut bytes = script.item(DataType::Data, 4, b"first");
    bytes.extend(script.item(DataType::Data, 3, b""));
    bytes.extend(script.item(DataType::Event, 0, b"event"));
    bytes.extend(Frame::BacklogAnnouncement { backlog: 2 }.to_bytes());
    bytes.extend(script.item(DataType::PrioritizedEvent, 0, b""));
    bytes.extend(script.item(DataType::Data, 0, b"second"));
    bytes.extend(script.item(DataType::EndOfPartition, 0, b""));
    for byte in bytes {
        script.send(vec![byte]).await;
        tokio::task::yield_now().await;
    }
    script.stream.send.finish().unwrap();
    settle().await;
    let mut got = Vec::new();
    while let Some((_, item)) = within("item", gate.next()).await.unwrap() {
        got.push(item);
    }
    let expected = [
        BufferOrEvent::Event(Event::Priority(Bytes::new())),
        BufferOrEvent::Buffer(Bytes::from_static(b"first")),
        BufferOrEvent::Event(Event::User(Bytes::from_static(b"event"))),
        BufferOrEvent::Buffer(Bytes::from_static(b"second")),
        BufferOrEvent::Event(Event::EndOfPartition),
    ];
    assert_eq!(got, expected);
    drop((got, gate));
    until("all comes back", || consumer.used() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_buffer_brings_its_backlog_and_its_credit_back() {
    let (_producer, _consumer, _gate, mut scripts) = setup(1, 8, 1).await;
    let (mut script, _) = scripts.pop().unwrap();
    script.send_item(DataType::Data, 2, b"").await;
    // 1 exclusive one comes back, 2 floating ones come for the backlog.
    script.credit(3).await;
    script.silence().await;
}

#[tokio::test(start_paused = true)]
async fn a_channel_without_exclusive_buffers_gives_its_credit_up_at_a_barrier() {
    for (exclusive, used, again) in [(0, 1, 2), (2, 4, 0)] {
        let (_producer, consumer, mut gate, mut scripts) = setup(exclusive, 8, 1).await;
        let (mut script, _) = scripts.pop().unwrap();
        let frame = Frame::BacklogAnnouncement { backlog: 2 };
        script.send(frame.to_bytes()).await;
        script.credit(2).await;
        script.send_item(DataType::AlignedBarrier, 0, b"1").await;
        let barrier = take(&mut gate).await;
        assert!(matches!(barrier, BufferOrEvent::Event(Event::Barrier(_))));
        // Without exclusive ones nothing is left but the one that the gate keeps.
        assert_eq!(consumer.used(), used);
        gate.resume_consumption(0).unwrap();
        gate.resume_consumption(0).unwrap();
        assert_eq!(script.frame().await, Frame::ResumeConsumption);
        script.silence().await;
        script.send(frame.to_bytes()).await;
        if again > 0 {
            script.credit(again).await;
        }
        script.silence().await;
    }
}

#[tokio::test(start_paused = true)]
async fn sizes_acknowledgements_and_task_events_go_to_the_producer_of_their_channel() {
    let (_producer, _consumer, mut gate, mut scripts) = setup(2, 8, 2).await;
    let (mut second, mut first) = (scripts.pop().unwrap().0, scripts.pop().unwrap().0);
    let handle = gate.handle();
    handle.announce_buffer_size(1, 300).unwrap();
    assert_eq!(second.frame().await, Frame::NewBufferSize { bytes: 300 });
    first.silence().await;
    first.send_item(DataType::EndOfData, 0, b"").await;
    let end = take(&mut gate).await;
    assert_eq!(end, BufferOrEvent::Event(Event::EndOfData));
    gate.acknowledge_all_records(0).unwrap();
    gate.acknowledge_all_records(0).unwrap();
    assert!(gate.acknowledge_all_records(1).is_err());
    assert_eq!(first.frame().await, Frame::AllRecordsAcknowledged);
    let event = TaskEvent(Bytes::from_static(b"go"));
    handle.send_task_event(&event).unwrap();
    for script in [&mut first, &mut second] {
        assert_eq!(script.frame().await, Frame::TaskEvent { length: 2 });
        assert_eq!(script.take(2).await.as_ref(), b"go");
        script.silence().await;
    }
}

/// Asks for the partition again, after a while.
#[derive(Debug)]
struct Again(AtomicU32);

impl ProducerCheck for Again {
    fn on_partition_not_found(&self, _: SubpartitionRequest) -> BoxFuture<'static, Verdict> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async {
            tokio::time::sleep(Duration::from_secs(30)).await;
            Verdict::RequestAgain
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_made_once_and_repeated_as_it_was_after_not_found() {
    let (producer, consumer) = pair().await;
    let mut streams = play(&producer);
    let mut context = consumer.context();
    let check = Arc::new(Again(AtomicU32::new(0)));
    context.producer_check = Some(check.clone());
    let channels = vec![producer.remote(0, 0)];
    let mut gate = consumer.consume_with(context, channels).await;
    gate.request_partitions();
    let (mut script, request) = Script::begin(&mut streams).await;
    settle().await;
    assert!(streams.try_recv().is_err(), "one request");
    gate.handle().announce_buffer_size(0, 300).unwrap();
    script.fail(ErrorKind::PartitionNotFound).await;
    let (mut script, repeated) = Script::begin(&mut streams).await;
    assert_eq!(repeated, request);
    assert_eq!(script.frame().await, Frame::NewBufferSize { bytes: 300 });
    script.silence().await;
    script.fail(ErrorKind::PartitionNotFound).await;
    let error = failure(&mut gate).await;
    assert!(matches!(error, ExchangeError::PartitionNotFound { .. }));
    assert_eq!(check.0.load(Ordering::Relaxed), 1, "two requests are all");
}

#[tokio::test(start_paused = true)]
async fn a_slow_producer_check_holds_up_its_own_channel_only() {
    let (producer, consumer) = pair().await;
    let mut streams = play(&producer);
    let mut context = consumer.context();
    context.producer_check = Some(Arc::new(Again(AtomicU32::new(0))));
    let channels = vec![producer.remote(0, 0), producer.remote(0, 1)];
    let mut gate = consumer.consume_with(context, channels).await;
    let (mut missing, _) = Script::begin(&mut streams).await;
    let (mut other, _) = Script::begin(&mut streams).await;
    missing.fail(ErrorKind::PartitionNotFound).await;
    settle().await;
    for _ in 0..100 {
        other.send_item(DataType::Data, 0, b"x").await;
        let item = take(&mut gate).await;
        assert_eq!(item, BufferOrEvent::Buffer(Bytes::from_static(b"x")));
        drop(item);
        settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_frame_fails_its_channel_as_the_remote_side_says() {
    for (kind, code) in [
        (ErrorKind::PartitionNotFound, ErrorCode::PARTITION_NOT_FOUND),
        (ErrorKind::ProducerFailed, ErrorCode::PRODUCER_FAILED),
        (ErrorKind::Internal, ErrorCode::INTERNAL),
    ] {
        let (_producer, consumer, mut gate, mut scripts) = setup(2, 8, 1).await;
        let (mut script, _) = scripts.pop().unwrap();
        script.fail(kind).await;
        let error = failure(&mut gate).await;
        assert_eq!(error.code(), code, "{error}");
        assert_eq!(consumer.connections.number_of_active_connections(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_error_of_a_gate_stays() {
    let (_producer, _consumer, mut gate, mut scripts) = setup(2, 8, 2).await;
    let (mut second, mut first) = (scripts.pop().unwrap().0, scripts.pop().unwrap().0);
    second.fail(ErrorKind::ProducerFailed).await;
    settle().await;
    first.fail(ErrorKind::PartitionNotFound).await;
    settle().await;
    for _ in 0..2 {
        let error = failure(&mut gate).await;
        assert!(
            matches!(error, ExchangeError::ProducerFailed { .. }),
            "{error}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_producer_without_credit_hears_at_once_of_a_buffer_that_came_back() {
    let (_producer, _consumer, mut gate, mut scripts) = setup(1, 64, 1).await;
    let (mut script, _) = scripts.pop().unwrap();
    script.send_item(DataType::Data, 0, b"x").await;
    // The consumer does something else then: it neither waits at this gate nor has a batch of credit.
    drop(take(&mut gate).await);
    script.credit(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_event_may_be_the_last_slice_of_a_buffer_of_its_own_gate() {
    let (_producer, consumer, mut gate, mut scripts) = setup(2, 8, 1).await;
    let (mut script, _) = scripts.pop().unwrap();
    for sent in [true, false] {
        script.send_item(DataType::Data, 0, b"payload").await;
        let BufferOrEvent::Buffer(bytes) = take(&mut gate).await else {
            panic!("a buffer was sent");
        };
        let event = TaskEvent(bytes.slice(..3));
        drop(bytes);
        gate.handle().send_task_event(&event).unwrap();
        drop(event);
        if sent {
            while script.frame().await != (Frame::TaskEvent { length: 3 }) {}
            assert_eq!(script.take(3).await[..], *b"pay");
        }
    }
    gate.close();
    until("all comes back", || consumer.used() == 0).await;
}
