//! Threads that receive, take, give back and close at the same time. Every buffer comes back, and nobody waits for ever.

use std::sync::Barrier;

use super::{threads::on_a_thread, *};
use crate::{
    exchange::{
        gate_core::GateCore,
        local_input::LocalChannel,
        producer_check::{ProducerCheck, Verdict},
        requests::Requests,
    },
    proto::{CreditViolation, DataType},
    stream::BoxFuture,
};

const ROUNDS: usize = 400;

/// A gate whose channels nobody serves: the test does what the network would.
struct Unserved {
    gate: InputGate,
    pool: BufferPool,
}

impl Unserved {
    fn core(&self) -> Arc<GateCore> {
        self.gate.handle().core.clone()
    }
}

async fn unserved(channels: usize, exclusive: u32, floating: u32) -> Unserved {
    let pool = BufferPool::with_buffers(64, 100, Duration::from_secs(1));
    let config = TransportConfig {
        exclusive_buffers_per_channel: exclusive,
        floating_buffers_per_gate: floating,
        ..TransportConfig::default()
    };
    let partitions = ResultPartitionManager::new(Duration::from_secs(1));
    let context = GateContext::new(
        &config,
        Arc::new(LocalConnectionManager),
        Arc::new(partitions),
        pool.clone(),
        tokio::runtime::Handle::current(),
        crate::Shutdown::new(),
    );
    let sources = vec![ChannelSource::Unknown; channels];
    let gate = InputGate::setup("gate", CONSUMER, sources, context)
        .await
        .unwrap();
    Unserved { gate, pool }
}

/// Receives a buffer if there is credit for it; whether the channel goes on.
fn receive(core: &Arc<GateCore>, channel: usize, sequence: &mut u32, backlog: u32) -> bool {
    match core.on_data(channel, id(0), *sequence, backlog) {
        Ok(mut buffer) => {
            *sequence += 1;
            buffer.append(b"data");
            core.deliver(channel, &mut vec![(DataType::Data, buffer.freeze())]);
            true
        }
        Err(ExchangeError::Protocol { reason, .. }) => {
            let no_credit = CreditViolation::NoCredit {
                sequence: *sequence,
            };
            assert_eq!(reason, no_credit.to_string());
            std::thread::yield_now();
            true
        }
        Err(error) => {
            assert!(matches!(error, ExchangeError::Cancelled { .. }), "{error}");
            false
        }
    }
}

/// Runs both at the same time, each on a thread of its own, many times; then everything has to be as before.
async fn race<L, R>(channels: usize, exclusive: u32, floating: u32, left: L, right: R)
where
    L: Fn(&Arc<GateCore>) + Send + Clone + 'static,
    R: Fn(&mut InputGate) + Send + Clone + 'static,
{
    for round in 0..ROUNDS {
        let Unserved { mut gate, pool } = unserved(channels, exclusive, floating).await;
        let core = gate.handle().core.clone();
        let (left, right) = (left.clone(), right.clone());
        let start = Arc::new(Barrier::new(2));
        let started = start.clone();
        let first = tokio::task::spawn_blocking(move || {
            started.wait();
            left(&core);
        });
        let second = tokio::task::spawn_blocking(move || {
            start.wait();
            right(&mut gate);
            gate
        });
        within("left", first).await.unwrap();
        drop(within("right", second).await.unwrap());
        let stats = pool.stats();
        assert_eq!((stats.used, stats.guaranteed), (0, 0), "round {round}");
    }
}

fn close(gate: &mut InputGate) {
    gate.close();
}

/// Takes buffers into hands that are full with three.
fn consume(gate: &mut InputGate, count: u32) {
    let mut held = std::collections::VecDeque::new();
    let mut taken = 0;
    while taken < count {
        match gate.try_next() {
            Some(Ok(Some((_, item)))) => {
                taken += 1;
                held.push_back(item);
                if held.len() > 3 {
                    held.pop_front();
                }
            }
            Some(_) => return,
            None => {
                held.pop_front();
                std::thread::yield_now();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn receiving_and_closing_at_once_lose_no_buffer() {
    let receive = |core: &Arc<GateCore>| {
        let mut sequence = 0;
        for _ in 0..50 {
            if !receive(core, 0, &mut sequence, 5) {
                return;
            }
        }
    };
    race(1, 2, 8, receive, close).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_that_comes_while_the_gate_closes_takes_no_buffer_along() {
    let backlog = |core: &Arc<GateCore>| {
        for backlog in 0..50 {
            core.on_backlog(0, backlog);
        }
    };
    race(1, 2, 8, backlog, close).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn buffers_offered_to_waiting_channels_while_the_gate_closes_come_back() {
    let receive = |core: &Arc<GateCore>| {
        let mut sequences = [0; 4];
        // Four channels want what one floating buffer gives.
        for channel in (0..4).cycle() {
            core.on_backlog(channel, 3);
            if !receive(core, channel, &mut sequences[channel], 3) {
                return;
            }
        }
    };
    let consume_and_close = |gate: &mut InputGate| {
        consume(gate, 10);
        gate.close();
    };
    race(4, 0, 1, receive, consume_and_close).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn backlogs_and_buffers_that_come_back_at_once_keep_the_accounts() {
    const COUNT: u32 = 100;
    for (exclusive, floating) in [(0, 1), (1, 2), (2, 8)] {
        let receive = |core: &Arc<GateCore>| {
            let mut sequence = 0;
            core.on_backlog(0, 7);
            while sequence < COUNT {
                let backlog = (COUNT - sequence) % 9;
                core.on_backlog(0, backlog + 1);
                assert!(receive(core, 0, &mut sequence, backlog));
            }
        };
        race(1, exclusive, floating, receive, |gate| consume(gate, COUNT)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn buffers_that_come_back_while_the_gate_closes_are_recycled_once() {
    for (exclusive, floating) in [(2, 8), (0, 4)] {
        for _ in 0..ROUNDS {
            let unserved = unserved(2, exclusive, floating).await;
            let core = unserved.core();
            let mut held = Vec::new();
            for channel in 0..2 {
                core.on_backlog(channel, 3);
                let mut sequence = 0;
                for _ in 0..2 {
                    receive(&core, channel, &mut sequence, 2);
                }
            }
            let mut gate = unserved.gate;
            while let Some(item) = gate.try_next() {
                held.push(item.unwrap());
            }
            assert!(held.len() >= 3);
            let start = Arc::new(Barrier::new(3));
            let (first, second) = (start.clone(), start.clone());
            let half = held.split_off(held.len() / 2);
            let tasks = [
                tokio::task::spawn_blocking(move || {
                    first.wait();
                    drop(held);
                }),
                tokio::task::spawn_blocking(move || {
                    second.wait();
                    drop(half);
                }),
                tokio::task::spawn_blocking(move || {
                    start.wait();
                    drop(gate);
                }),
            ];
            for task in tasks {
                within("give back", task).await.unwrap();
            }
            let stats = unserved.pool.stats();
            assert_eq!((stats.used, stats.guaranteed), (0, 0));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_takes_while_another_thread_closes_hears_only_of_the_end() {
    for _ in 0..ROUNDS {
        let Unserved { mut gate, pool } = unserved(1, 4, 8).await;
        let handle = gate.handle();
        let core = handle.core.clone();
        let mut sequence = 0;
        for _ in 0..4 {
            assert!(receive(&core, 0, &mut sequence, 0));
        }
        let taking = tokio::spawn(async move {
            loop {
                match gate.next().await {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("the gate ended"),
                    Err(error) => return error,
                }
            }
        });
        let closing = tokio::task::spawn_blocking(move || handle.close());
        let error = within("end", taking).await.unwrap();
        assert!(matches!(error, ExchangeError::Cancelled { .. }), "{error}");
        closing.await.unwrap();
        assert_eq!(pool.stats().used, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn barriers_and_resumes_at_once_keep_the_accounts() {
    let receive = |core: &Arc<GateCore>| {
        let mut sequence = 0;
        for _ in 0..30 {
            core.on_backlog(0, 2);
            let until = sequence + 2;
            while sequence < until {
                let backlog = until - sequence;
                assert!(receive(core, 0, &mut sequence, backlog));
            }
            let barrier = DataType::AlignedBarrier;
            core.on_event(0, id(0), barrier, sequence, 0).unwrap();
            sequence += 1;
            core.deliver(0, &mut vec![(barrier, Bytes::new())]);
            while core.lock().channels[0].credit.is_blocked() {
                std::thread::yield_now();
            }
        }
    };
    let consume = |gate: &mut InputGate| {
        let mut barriers = 0;
        while barriers < 30 {
            match gate.try_next() {
                Some(item) => {
                    let (_, item) = item.unwrap().unwrap();
                    if matches!(item, BufferOrEvent::Event(_)) {
                        barriers += 1;
                        gate.resume_consumption(0).unwrap();
                    }
                }
                None => std::thread::yield_now(),
            }
        }
    };
    race(1, 0, 4, receive, consume).await;
    race(1, 2, 4, receive, consume).await;
}

/// Asks again at once.
#[derive(Debug)]
struct Again;

impl ProducerCheck for Again {
    fn on_partition_not_found(&self, _: SubpartitionRequest) -> BoxFuture<'static, Verdict> {
        Box::pin(std::future::ready(Verdict::RequestAgain))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_a_gate_while_it_requests_again_ends_both() {
    let partitions = ResultPartitionManager::new(Duration::ZERO);
    for _ in 0..ROUNDS {
        let unserved = unserved(1, 0, 1).await;
        let channel = LocalChannel {
            core: unserved.core(),
            index: 0,
            partitions: Arc::new(partitions.clone()),
            requests: Requests::new(2, Some(Arc::new(Again))),
            events: Arc::default(),
            request: request(0, 0),
        };
        let requesting = tokio::spawn(channel.open());
        let handle = unserved.gate.handle();
        let closing = tokio::task::spawn_blocking(move || handle.close());
        within("request", requesting).await.unwrap();
        within("close", closing).await.unwrap();
        drop(unserved.gate);
        assert_eq!((unserved.pool.stats().used, partitions.parked()), (0, 0));
    }
}

#[tokio::test]
async fn many_near_producers_and_consumers_on_threads_lose_nothing() {
    let network = MemNetwork::new();
    let node = Worker::start_on(&network, "node", small(), NetworkRuntime::Dedicated).await;
    let mut threads = Vec::new();
    for number in 0..4 {
        let writer = node.produce(number, 4);
        threads.push(on_a_thread(write(writer, 4, number * 10, 800)));
    }
    for subpartition in 0..4 {
        let sources = (0..4).map(|number| ChannelSource::Local(request(number, subpartition)));
        let (channels, context) = (sources.collect(), node.context());
        threads.push(on_a_thread(async move {
            let gate = InputGate::setup("gate", CONSUMER, channels, context)
                .await
                .unwrap();
            gate.request_partitions();
            let tags: Vec<_> = (0..4).map(|number| number * 10 + subpartition).collect();
            check(gate, &tags, 800).await;
        }));
    }
    for thread in threads {
        let joined = tokio::task::spawn_blocking(|| thread.join().unwrap());
        within("thread", joined).await.unwrap();
    }
    until("all comes back", || node.used() == 0).await;
    assert_eq!(node.partitions.registered(), 0);
}

/// Each push is told, however it falls between two takes.
#[tokio::test(flavor = "multi_thread")]
async fn no_notification_is_lost_between_a_near_producer_and_its_consumer() {
    let network = MemNetwork::new();
    let node = Worker::start_on(&network, "node", small(), NetworkRuntime::Dedicated).await;
    for round in 0..40 {
        let mut writer = node.produce(round, 1);
        let source = ChannelSource::Local(request(round, 0));
        let gate = node.consume(vec![source]).await;
        let writing = on_a_thread(async move {
            for n in 0u32..300 {
                writer.emit(0, &record(0, n)).await.unwrap();
                if n % 3 == 0 {
                    writer.flush();
                }
                if n % 7 == 0 {
                    let event = Event::Priority(Bytes::new());
                    writer.broadcast_event(event).unwrap();
                }
            }
            writer.finish().unwrap();
        });
        let (mut reader, mut records, mut events) = (RecordReader::new(gate), 0, 0);
        while let Some((_, input)) = within("record", reader.next()).await.unwrap() {
            match input {
                Input::Record(bytes) => {
                    assert_eq!(bytes, record(0, records));
                    records += 1;
                }
                Input::Event(Event::Priority(_)) => events += 1,
                Input::Event(event) => assert_eq!(event, Event::EndOfPartition),
            }
        }
        assert_eq!((records, events), (300, 43));
        let joined = tokio::task::spawn_blocking(|| writing.join().unwrap());
        within("thread", joined).await.unwrap();
    }
}
