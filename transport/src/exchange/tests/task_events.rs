//! Events from consumers to the tasks that produce their input.

use std::sync::Mutex;

use super::{lookup::Asks, *};
use crate::proto::MAX_EVENT_BYTES;

#[derive(Debug, Default)]
struct Heard(Mutex<Vec<Bytes>>);

impl TaskEventListener for Heard {
    fn on_task_event(&self, event: &TaskEvent) {
        self.0.lock().unwrap().push(event.0.clone());
    }
}

impl Heard {
    fn on(worker: &Worker, number: u32) -> Arc<Self> {
        let heard = Arc::new(Self::default());
        let (partition, events) = (id(number), &worker.events);
        events.register(partition, PRODUCER).unwrap();
        events
            .subscribe(partition, PRODUCER, heard.clone())
            .unwrap();
        heard
    }

    fn is(&self, expected: &[u8]) -> bool {
        let heard = self.0.lock().unwrap();
        let heard: Vec<_> = heard.iter().flatten().copied().collect();
        heard == expected
    }
}

fn event(n: u8) -> TaskEvent {
    TaskEvent(Bytes::copy_from_slice(&[n]))
}

#[tokio::test(start_paused = true)]
async fn events_reach_near_far_and_later_known_producers_in_order() {
    let (producer, consumer) = pair().await;
    let channels = vec![
        producer.remote(0, 0),
        ChannelSource::Local(request(1, 0)),
        ChannelSource::Unknown,
        ChannelSource::Unknown,
    ];
    let gate = InputGate::setup("gate", CONSUMER, channels, consumer.context())
        .await
        .unwrap();
    let handle = gate.handle();
    handle.send_task_event(&event(1)).unwrap();
    gate.request_partitions();
    handle.send_task_event(&event(2)).unwrap();
    until("one waits", || producer.partitions.parked() == 1).await;
    handle.send_task_event(&event(3)).unwrap();
    settle().await;
    let heard: Vec<_> = [
        (&producer, 0),
        (&consumer, 1),
        (&producer, 2),
        (&consumer, 3),
    ]
    .map(|(worker, number)| (Heard::on(worker, number), worker.produce(number, 1)))
    .into();
    handle.update_channel(2, producer.remote(2, 0)).unwrap();
    let local = ChannelSource::Local(request(3, 0));
    handle.update_channel(3, local).unwrap();
    for (channel, (heard, _)) in heard.iter().enumerate() {
        until("events", || heard.is(&[1, 2, 3])).await;
        assert!(heard.is(&[1, 2, 3]), "channel {channel}");
    }
    handle.send_task_event(&event(4)).unwrap();
    for (heard, _) in &heard {
        until("the last", || heard.is(&[1, 2, 3, 4])).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_receiver_fails_that_channel_alone() {
    let (producer, consumer) = pair().await;
    let mut gate = consumer.consume(vec![producer.remote(0, 0)]).await;
    let other = consumer.consume(vec![producer.remote(1, 0)]).await;
    let _writer = producer.produce(0, 1);
    settle().await;
    gate.handle().send_task_event(&event(1)).unwrap();
    let error = failure(&mut gate).await.to_string();
    assert!(error.contains("task event receiver not found"), "{error}");
    let task = tokio::spawn(write(producer.produce(1, 1), 1, 3, 100));
    check(other, &[3], 100).await;
    task.await.unwrap();
    assert_eq!(consumer.connections.number_of_active_connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_missing_receiver_of_this_node_is_an_error_of_the_call() {
    let (producer, consumer) = pair().await;
    let heard = Heard::on(&producer, 0);
    let channels = vec![producer.remote(0, 0), ChannelSource::Local(request(1, 0))];
    let _writers = [producer.produce(0, 1), consumer.produce(1, 1)];
    let gate = consumer.consume(channels).await;
    settle().await;
    let error = gate.handle().send_task_event(&event(1)).unwrap_err();
    assert!(error.to_string().contains("receiver not found"), "{error}");
    until("the other one has it", || heard.is(&[1])).await;
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_is_still_missing_when_its_partition_comes_fails_the_gate() {
    let (producer, consumer) = pair().await;
    for source in [producer.remote(0, 0), ChannelSource::Local(request(0, 0))] {
        let mut gate = consumer.consume(vec![source]).await;
        settle().await;
        gate.handle().send_task_event(&event(1)).unwrap();
        settle().await;
        let writers = [producer.produce(0, 1), consumer.produce(0, 1)];
        let error = failure(&mut gate).await.to_string();
        assert!(error.contains("task event receiver not found"), "{error}");
        drop((gate, writers));
        for worker in [&producer, &consumer] {
            worker.partitions.release_partition(id(0), PRODUCER);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn unsent_events_are_bounded_and_channels_that_have_ended_want_none() {
    let (producer, consumer) = pair().await;
    let channels = vec![ChannelSource::Unknown, producer.remote(0, 0)];
    let mut gate = consumer.consume(channels).await;
    let heard = Heard::on(&producer, 0);
    let writer = producer.produce(0, 1);
    settle().await;
    let handle = gate.handle();
    let big = TaskEvent(vec![0; MAX_EVENT_BYTES].into());
    for _ in 0..4 {
        handle.send_task_event(&big).unwrap();
        settle().await;
    }
    let error = handle.send_task_event(&event(5)).unwrap_err();
    assert!(matches!(error, ExchangeError::TooLarge { .. }), "{error}");
    let longer = TaskEvent(vec![0; MAX_EVENT_BYTES + 1].into());
    assert!(handle.send_task_event(&longer).is_err());
    let all = 4 * MAX_EVENT_BYTES + 1;
    let count = || {
        heard
            .0
            .lock()
            .unwrap()
            .iter()
            .map(Bytes::len)
            .sum::<usize>()
    };
    until("the far producer has all", || count() == all).await;
    writer.finish().unwrap();
    within("end", gate.next()).await.unwrap().unwrap();
    drop(handle.send_task_event(&event(6)));
    settle().await;
    assert_eq!(count(), all);
    gate.close();
    let closed = handle.send_task_event(&event(7));
    assert!(matches!(closed, Err(ExchangeError::Cancelled { .. })));
}

#[tokio::test(start_paused = true)]
async fn events_pass_while_the_consumer_takes_no_data() {
    let (producer, consumer) = pair().await;
    let heard = Heard::on(&producer, 0);
    let gate = consumer.consume(vec![producer.remote(0, 0)]).await;
    let task = tokio::spawn(write(producer.produce_with(0, 1, 4), 1, 0, 500));
    settle().await;
    assert!(!task.is_finished());
    gate.handle().send_task_event(&event(9)).unwrap();
    until("event", || heard.is(&[9])).await;
    check(gate, &[0], 500).await;
    task.await.unwrap();
}

fn asks_again(context: &mut GateContext) -> Arc<Asks> {
    let asks = Arc::new(Asks::new(Verdict::RequestAgain));
    context.producer_check = Some(asks.clone());
    asks
}

#[tokio::test(start_paused = true)]
async fn events_reach_the_producer_once_and_in_order_although_its_request_is_repeated() {
    let (producer, consumer) = pair().await;
    let sources = [
        (&producer, producer.remote(0, 0)),
        (&consumer, ChannelSource::Local(request(0, 0))),
    ];
    for (worker, source) in sources {
        let mut context = consumer.context();
        let asks = asks_again(&mut context);
        let gate = consumer.consume_with(context, vec![source]).await;
        until("the request waits", || worker.partitions.parked() == 1).await;
        let handle = gate.handle();
        handle.send_task_event(&event(1)).unwrap();
        settle().await;
        handle.send_task_event(&event(2)).unwrap();
        until("the question", || asks.count() == 1).await;
        handle.send_task_event(&event(3)).unwrap();
        settle().await;
        handle.send_task_event(&event(4)).unwrap();
        settle().await;
        let heard = Heard::on(worker, 0);
        let writer = worker.produce(0, 1);
        until("events", || heard.is(&[1, 2, 3, 4])).await;
        handle.send_task_event(&event(5)).unwrap();
        until("the last", || heard.is(&[1, 2, 3, 4, 5])).await;
        let task = tokio::spawn(write(writer, 1, 5, 100));
        check(gate, &[5], 100).await;
        task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn more_events_than_a_producer_without_its_partition_holds_are_an_error_of_the_call_alone() {
    let (producer, consumer) = pair().await;
    let gate = consumer.consume(vec![producer.remote(0, 0)]).await;
    until("the request waits", || producer.partitions.parked() == 1).await;
    let (handle, big) = (gate.handle(), vec![7; MAX_EVENT_BYTES]);
    for _ in 0..4 {
        handle
            .send_task_event(&TaskEvent(big.clone().into()))
            .unwrap();
        settle().await;
    }
    let error = handle.send_task_event(&event(5)).unwrap_err();
    assert!(matches!(error, ExchangeError::TooLarge { .. }), "{error}");
    let heard = Heard::on(&producer, 0);
    let task = tokio::spawn(write(producer.produce(0, 1), 1, 5, 100));
    until("events", || heard.is(&big.repeat(4))).await;
    check(gate, &[5], 100).await;
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_producer_that_listens_hears_any_number_of_events_before_it_produces() {
    let (producer, consumer) = pair().await;
    let heard = Heard::on(&producer, 0);
    let _writer = producer.produce(0, 1);
    let gate = consumer.consume(vec![producer.remote(0, 0)]).await;
    let big = vec![7; MAX_EVENT_BYTES];
    for count in 1..20 {
        gate.handle()
            .send_task_event(&TaskEvent(big.clone().into()))
            .unwrap();
        until("event", || heard.0.lock().unwrap().len() == count).await;
        settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_for_an_attempt_that_is_gone_does_not_reach_the_next_one() {
    let (producer, consumer) = pair().await;
    let sources = [
        (&producer, producer.remote(0, 0)),
        (&consumer, ChannelSource::Local(request(0, 0))),
    ];
    for (worker, source) in sources {
        let _writer = worker.produce(0, 1);
        let mut gate = consumer.consume(vec![source]).await;
        settle().await;
        let (next, heard) = (ExecutionAttemptId(99), Arc::new(Heard::default()));
        worker.events.register(id(0), next).unwrap();
        worker.events.subscribe(id(0), next, heard.clone()).unwrap();
        let sent = gate.handle().send_task_event(&event(1));
        let error = match sent {
            Ok(()) => failure(&mut gate).await,
            Err(error) => error,
        };
        assert!(error.to_string().contains("receiver not found"), "{error}");
        assert!(heard.is(&[]));
    }
}
