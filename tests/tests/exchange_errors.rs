//! How the exchange fails over every backend: whose fault it is, who hears of it, and what goes on.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, which fail by panicking"
)]

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use thalweg_tests::{
    conformance::Backend,
    harness::{
        CONSUMER, DEADLINE, MemBackend, PRODUCER, QuicBackend, TcpBackend, Worker, in_time, until,
    },
    on_backends,
};
use thalweg_transport::{
    BoxFuture, ConnectionId, Connections, PeerStream, Profile, ResourceId, SendStream,
    StreamHandler, StreamKind, TransportConfig, TransportError,
    exchange::{
        BufferOrEvent, ChannelSource, ConnectionManager, Event, ExchangeError, InputGate,
        PartitionServer, TaskEvent, TaskEventListener,
    },
    proto::{PartitionRequest, SubpartitionIndex},
};
use tokio::net::{TcpListener, TcpStream};

/// A worker that gives a dial up at once.
async fn start<B: Backend>(backend: &B, id: &str) -> Worker {
    let mut config = TransportConfig::default();
    (config.connect_timeout, config.connect_retries) = (Duration::from_secs(1), 0);
    Worker::start(backend, id, &config).await
}

/// A gate of one channel, through a connection of any kind.
async fn consume(consumer: &Worker, connection: ConnectionId, number: u32) -> InputGate {
    let request = Worker::request(number, 0);
    let channel = ChannelSource::Remote {
        connection,
        request,
    };
    consumer.gate(vec![channel]).await
}

async fn failure(gate: &mut InputGate) -> ExchangeError {
    loop {
        match in_time("failure", gate.next()).await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the gate ended without an error"),
            Err(error) => return error,
        }
    }
}

async fn an_unreachable_peer_is_a_remote_error_that_names_it<B: Backend>(backend: B) {
    let consumer = start(&backend, "consumer").await;
    let nobody = ConnectionId::new(ResourceId::new("nobody").unwrap(), "127.0.0.1:1");
    let mut gate = consume(&consumer, nobody, 0).await;
    let error = failure(&mut gate).await;
    assert!(
        matches!(
            error,
            ExchangeError::Transport(TransportError::Remote { .. })
        ),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(
        text.contains("nobody") && text.contains("127.0.0.1:1"),
        "{text}"
    );
    let manager = consumer.exchange.connection_manager();
    assert_eq!(manager.number_of_active_connections(), 0);
}

/// Serves partitions, but answers the first request with nonsense.
#[derive(Debug)]
struct FirstIsNonsense {
    done: AtomicBool,
    server: PartitionServer,
}

impl StreamHandler for FirstIsNonsense {
    fn handle(&self, mut stream: PeerStream) -> BoxFuture<'static, ()> {
        if self.done.swap(true, Ordering::Relaxed) {
            return self.server.handle(stream);
        }
        Box::pin(async move {
            let nonsense = Bytes::from_static(&[0xff; 64]);
            let _ = stream.send.write(&mut [nonsense]).await;
            let _ = stream.send.stopped().await;
        })
    }
}

async fn a_channel_whose_producer_breaks_the_protocol_fails_alone<B: Backend>(backend: B) {
    let producer = start(&backend, "producer").await;
    let consumer = start(&backend, "consumer").await;
    let server = PartitionServer::new(
        Arc::new(producer.exchange.partitions().clone()),
        producer.exchange.task_events().clone(),
        &TransportConfig::default(),
    );
    let handler = FirstIsNonsense {
        done: AtomicBool::new(false),
        server,
    };
    producer
        .node
        .register(StreamKind::PARTITION, Arc::new(handler));
    let mut broken = consumer.gate(vec![producer.channel(0, 0)]).await;
    let error = failure(&mut broken).await;
    assert!(matches!(error, ExchangeError::Protocol { .. }), "{error:?}");
    let mut writer = producer.publish(1, 1);
    let mut other = consumer.gate(vec![producer.channel(1, 0)]).await;
    let mut bytes = Bytes::from(vec![7; 5_000_000]);
    let sent = tokio::spawn(async move {
        writer.emit_bytes(0, &mut bytes).await.unwrap();
        writer.finish().unwrap();
    });
    let mut received = 0;
    while let Some((_, item)) = in_time("item", other.next()).await.unwrap() {
        if let BufferOrEvent::Buffer(buffer) = item {
            received += buffer.len();
        }
    }
    assert_eq!(received, 5_000_000);
    in_time("writer", sent).await.unwrap();
    let manager = consumer.exchange.connection_manager();
    assert_eq!(manager.number_of_active_connections(), 1);
}

async fn a_lost_consumer_releases_every_view<B: Backend>(backend: B) {
    let producer = start(&backend, "producer").await;
    let consumer = start(&backend, "consumer").await;
    let mut gates = Vec::new();
    let mut writing = tokio::task::JoinSet::new();
    for number in 0..10 {
        let mut writer = producer.publish(number, 1);
        let mut gate = consumer.gate(vec![producer.channel(number, 0)]).await;
        writing.spawn(async move {
            let mut bytes = Bytes::from(vec![7; 20_000_000]);
            writer.emit_bytes(0, &mut bytes).await.unwrap();
            writer.finish().unwrap();
        });
        in_time("buffer", gate.next()).await.unwrap().unwrap();
        gates.push(gate);
    }
    in_time("shutdown", consumer.node.shutdown(DEADLINE))
        .await
        .unwrap();
    // Nobody reads any more, and the writers get on.
    while let Some(done) = in_time("writer", writing.join_next()).await {
        done.unwrap();
    }
    drop(gates);
    until("all comes back", || {
        producer.exchange.partitions().registered() == 0 && producer.used() + consumer.used() == 0
    })
    .await;
}

async fn a_failed_connection_refuses_requests_with_its_reason<B: Backend>(backend: B) {
    let request = PartitionRequest {
        partition: Worker::partition(0),
        subpartition: SubpartitionIndex(0),
        initial_credit: 0,
        buffer_size: 1000,
        producer: PRODUCER,
        consumer: CONSUMER,
    };
    for own in [false, true] {
        let producer = start(&backend, "producer").await;
        let consumer = start(&backend, "consumer").await;
        let manager = consumer.exchange.connection_manager();
        let client = manager
            .create_partition_request_client(producer.address())
            .await
            .unwrap();
        client.request_subpartition(&request).await.unwrap();
        let node = if own { &consumer.node } else { &producer.node };
        in_time("shutdown", node.shutdown(DEADLINE)).await.unwrap();
        until("the end is heard", || client.close_reason().is_some()).await;
        let mut errors = Vec::new();
        for _ in 0..2 {
            let error = client.request_subpartition(&request).await.unwrap_err();
            let expected = match &error {
                ExchangeError::Transport(TransportError::Local { .. }) => own,
                ExchangeError::Transport(TransportError::Remote { .. }) => !own,
                _ => false,
            };
            assert!(expected, "{error:?}");
            errors.push(error.to_string());
        }
        assert_eq!(errors[0], errors[1]);
        assert!(errors[0].contains("producer"), "{}", errors[0]);
    }
}

#[derive(Debug, Default)]
struct Heard(Mutex<Vec<TaskEvent>>);

impl TaskEventListener for Heard {
    fn on_task_event(&self, event: &TaskEvent) {
        self.0.lock().unwrap().push(event.clone());
    }
}

async fn consumers_speak_to_their_producers<B: Backend>(backend: B) {
    let producer = start(&backend, "producer").await;
    let consumer = start(&backend, "consumer").await;
    let (heard, events) = (Arc::new(Heard::default()), producer.exchange.task_events());
    let partition = Worker::partition(0);
    events.register(partition, PRODUCER).unwrap();
    events
        .subscribe(partition, PRODUCER, heard.clone())
        .unwrap();
    let mut writer = producer.publish(0, 1);
    let mut gate = consumer.gate(vec![producer.channel(0, 0)]).await;
    writer
        .broadcast_event(Event::Barrier(Bytes::new()))
        .unwrap();
    let (_, item) = in_time("barrier", gate.next()).await.unwrap().unwrap();
    assert_eq!(item, BufferOrEvent::Event(Event::Barrier(Bytes::new())));
    let handle = gate.handle();
    handle.announce_buffer_size(0, 300).unwrap();
    let event = TaskEvent(Bytes::from(vec![3; 64 * 1024]));
    handle.send_task_event(&event).unwrap();
    until("the event", || *heard.0.lock().unwrap() == [event.clone()]).await;
    let mut bytes = Bytes::from(vec![7; 900]);
    writer.emit_bytes(0, &mut bytes).await.unwrap();
    let priority = Event::Priority(Bytes::from_static(b"now"));
    writer.broadcast_event(priority.clone()).unwrap();
    writer.broadcast_event(Event::EndOfData).unwrap();
    gate.resume_consumption(0).unwrap();
    let (_, first) = in_time("priority", gate.next()).await.unwrap().unwrap();
    assert_eq!(first, BufferOrEvent::Event(priority));
    let partition = writer.partition().clone();
    let acknowledged = tokio::spawn(async move { partition.all_records_acknowledged().await });
    for _ in 0..3 {
        let (_, item) = in_time("buffer", gate.next()).await.unwrap().unwrap();
        assert!(matches!(item, BufferOrEvent::Buffer(buffer) if buffer.len() == 300));
    }
    let (_, end) = in_time("end of data", gate.next()).await.unwrap().unwrap();
    assert_eq!(end, BufferOrEvent::Event(Event::EndOfData));
    assert!(!acknowledged.is_finished());
    gate.acknowledge_all_records(0).unwrap();
    let acknowledged = in_time("acknowledgement", acknowledged).await.unwrap();
    acknowledged.unwrap();
    writer.finish().unwrap();
}

/// Passes bytes between the one who dials and `target` until it is told to reset both.
async fn relay(
    listener: TcpListener,
    target: std::net::SocketAddr,
    reset: Arc<tokio::sync::Notify>,
) {
    let (mut near, _) = listener.accept().await.unwrap();
    let mut far = TcpStream::connect(target).await.unwrap();
    for socket in [&near, &far] {
        socket.set_zero_linger().unwrap();
    }
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
        () = reset.notified() => {}
    }
}

#[tokio::test]
async fn a_reset_connection_is_a_remote_error_of_every_channel() {
    for backend in [TcpBackend::plaintext(), TcpBackend::tls()] {
        let producer = start(&backend, "producer").await;
        let consumer = start(&backend, "consumer").await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let through = listener.local_addr().unwrap();
        let reset = Arc::new(tokio::sync::Notify::new());
        let relay = tokio::spawn(relay(listener, producer.node.local_addr(), reset.clone()));
        let address = ConnectionId::new(producer.node.id().clone(), through.to_string());
        let mut gates = Vec::new();
        let mut writers = Vec::new();
        for number in 0..5 {
            let mut writer = producer.publish(number, 1);
            writer.emit(0, b"x").await.unwrap();
            writer.flush();
            let mut gate = consume(&consumer, address.clone(), number).await;
            in_time("buffer", gate.next()).await.unwrap().unwrap();
            writers.push(writer);
            gates.push(gate);
        }
        reset.notify_one();
        in_time("relay", relay).await.unwrap();
        for gate in &mut gates {
            let error = failure(gate).await;
            let ExchangeError::Transport(TransportError::Remote { peer, message, .. }) = &error
            else {
                panic!("{error:?}");
            };
            assert!(peer.contains("producer") && peer.contains(&through.to_string()));
            assert!(message.contains("lost"), "{message}");
        }
        drop((gates, writers));
        until("all comes back", || producer.used() + consumer.used() == 0).await;
    }
}

on_backends! {
    [
        an_unreachable_peer_is_a_remote_error_that_names_it,
        a_channel_whose_producer_breaks_the_protocol_fails_alone,
        a_lost_consumer_releases_every_view,
        a_failed_connection_refuses_requests_with_its_reason,
        consumers_speak_to_their_producers,
    ]:
    mem = MemBackend::new(),
    quic = QuicBackend::new(Profile::Lan),
    tcp = TcpBackend::plaintext(),
    tls = TcpBackend::tls(),
}
