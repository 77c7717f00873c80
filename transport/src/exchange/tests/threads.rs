//! Producers and consumers on threads of their own, nodes on theirs.

use super::*;

pub(super) fn on_a_thread<F>(task: F) -> std::thread::JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(task);
    })
}

#[tokio::test]
async fn tasks_work_from_any_thread_and_lose_nothing() {
    let network = MemNetwork::new();
    let config = small();
    let mut nodes = Vec::new();
    for name in ["a", "b"] {
        let dedicated = NetworkRuntime::Dedicated;
        nodes.push(Worker::start_on(&network, name, config.clone(), dedicated).await);
    }
    let mut threads = Vec::new();
    // Each node produces for both, so that every gate has a local and a remote channel.
    for (number, node) in (0u32..).zip(&nodes) {
        let writer = node.produce(number, 2);
        threads.push(on_a_thread(write(writer, 2, number * 10, 3000)));
    }
    for (subpartition, node) in (0u32..).zip(&nodes) {
        let channels = (0u32..)
            .zip(&nodes)
            .map(|(number, producer)| {
                if number == subpartition {
                    ChannelSource::Local(request(number, subpartition))
                } else {
                    producer.remote(number, subpartition)
                }
            })
            .collect();
        let context = node.context();
        threads.push(on_a_thread(async move {
            let gate = InputGate::setup("gate", CONSUMER, channels, context)
                .await
                .unwrap();
            gate.request_partitions();
            check(gate, &[subpartition, 10 + subpartition], 3000).await;
        }));
    }
    for thread in threads {
        tokio::task::spawn_blocking(|| thread.join().unwrap())
            .await
            .unwrap();
    }
    until("all comes back", || {
        nodes.iter().all(|node| node.used() == 0)
    })
    .await;
}

#[tokio::test]
async fn buffers_come_back_from_any_thread_while_gates_close() {
    let network = MemNetwork::new();
    let dedicated = NetworkRuntime::Dedicated;
    let producer = Worker::start_on(&network, "producer", small(), dedicated).await;
    let consumer = Worker::start_on(&network, "consumer", small(), dedicated).await;
    for round in 1..30 {
        let writer = producer.produce_with(round, 1, 6);
        let writing = on_a_thread(write(writer, 1, 0, 200));
        let mut gate = consumer.consume(vec![producer.remote(round, 0)]).await;
        let (give, take) = std::sync::mpsc::sync_channel::<BufferOrEvent>(4);
        let dropping = std::thread::spawn(move || while take.recv().is_ok() {});
        for _ in 0..round {
            if let Some((_, item)) = within("item", gate.next()).await.unwrap() {
                give.send(item).unwrap();
            }
        }
        drop(gate);
        drop(give);
        let joined = tokio::task::spawn_blocking(move || {
            dropping.join().unwrap();
            writing.join().unwrap();
        });
        within("the producer gets on", joined).await.unwrap();
    }
    until("all comes back", || producer.used() + consumer.used() == 0).await;
}

#[tokio::test]
async fn a_gate_whose_runtime_ends_first_is_cancelled_and_waits_for_nothing() {
    let network = MemNetwork::new();
    let node = Worker::start(&network, "node", small()).await;
    let sources = [
        node.remote(0, 0),
        ChannelSource::Local(request(0, 0)),
        ChannelSource::Unknown,
    ];
    for (source, ended_before) in sources.into_iter().zip([false, true, true]) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let mut context = node.context();
        context.runtime = runtime.handle().clone();
        let mut gate = InputGate::setup("gate", CONSUMER, vec![source], context)
            .await
            .unwrap();
        if ended_before {
            runtime.shutdown_background();
            gate.request_partitions();
        } else {
            gate.request_partitions();
            until("the request waits", || node.partitions.parked() == 1).await;
            runtime.shutdown_background();
        }
        let error = failure(&mut gate).await;
        assert!(matches!(error, ExchangeError::Cancelled { .. }), "{error}");
    }
}
