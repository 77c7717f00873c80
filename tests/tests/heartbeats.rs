//! Heartbeats beside everything else that a node does, over every backend.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, which fail by panicking"
)]

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use thalweg_runtime::{
    heartbeat::{HeartbeatConfig, HeartbeatMonitor, HeartbeatSchedule},
    rpc::{Answer, Context, Endpoint, EndpointHandle, RpcError, RpcService, gateway},
};
use thalweg_tests::{
    conformance::Backend,
    harness::{MemBackend, QuicBackend, TcpBackend, Worker, accepted, in_time, start_node},
    on_backends,
};
use thalweg_transport::{
    Connections, Node, Profile, TransportConfig,
    exchange::{ConnectionManager, Input, RecordReader},
    now,
};
use tokio::{runtime::Handle, task::JoinSet};

/// Says that it lives.
#[gateway(name = "Pulse", callers = ["taskmanager"])]
trait PulseGateway {
    /// How often it was asked.
    async fn beat(&self) -> u64;
    /// The same, for those who may not ask often.
    #[rpc(max_per_second = 1000)]
    async fn rare_beat(&self) -> u64;
}

#[derive(Debug, Default)]
struct Pulse(u64);

impl Endpoint for Pulse {}

impl PulseGateway for Pulse {
    fn beat(&mut self, _cx: &mut Context<Self>) -> Answer<u64> {
        self.0 += 1;
        Answer::ok(self.0)
    }

    fn rare_beat(&mut self, cx: &mut Context<Self>) -> Answer<u64> {
        self.beat(cx)
    }
}

fn service(node: &Node) -> RpcService {
    let builder = RpcService::builder(node.id().clone());
    let service = builder.connections(Arc::new(node.clone())).build();
    service.unwrap()
}

fn pulse(service: &RpcService) -> EndpointHandle<Pulse> {
    let endpoint = service.endpoint("pulse", Pulse::default());
    let pulse = endpoint.serve::<PulseClient>().spawn().unwrap();
    pulse.start();
    pulse
}

/// Calls and a saturating partition share one connection, whose answers go the way of the data.
async fn bulk_data_starves_no_heartbeats<B: Backend>(backend: B) {
    let config = TransportConfig::default();
    let producer = Worker::start(&backend, "producer", &config).await;
    let consumer = Worker::start(&backend, "consumer", &config).await;
    let (callee, caller) = (service(&producer.node), service(&consumer.node));
    let pulse = pulse(&callee);
    let connect = caller.connect(pulse.address(), None);
    let client: PulseClient = in_time("connect", connect).await.unwrap();

    let (stop, moved) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let mut writer = producer.publish(0, 1);
    let stopped = Arc::clone(&stop);
    // As tasks of a job have it: a thread each, away from that of the node and that of the heartbeats.
    let writing = beside(async move {
        let record = vec![7; 64 << 10];
        while !stopped.load(Ordering::Relaxed) {
            writer.emit(0, &record).await.unwrap();
        }
        writer.finish().unwrap();
    });
    let gate = consumer.gate(vec![producer.channel(0, 0)]).await;
    let count: Arc<AtomicU64> = Arc::clone(&moved);
    let reading = beside(async move {
        let mut reader = RecordReader::new(gate);
        while let Some((_, input)) = reader.next().await.unwrap() {
            if let Input::Record(record) = input {
                count.fetch_add(record.len() as u64, Ordering::Relaxed);
            }
        }
    });

    let mut limits = HeartbeatConfig::default();
    limits.timeout = TIMEOUT;
    let mut monitor = HeartbeatMonitor::new(limits);
    let target = producer.node.id().clone();
    let begin = now();
    monitor.monitor(begin, target.clone()).unwrap();
    let mut schedule = HeartbeatSchedule::new(begin, INTERVAL);
    let mut calls = JoinSet::new();
    let mut beats = 0_u32;
    let beating = async {
        while moved.load(Ordering::Relaxed) < BYTES || begin.elapsed() < 3 * TIMEOUT {
            if schedule.on_tick(now()) {
                calls.spawn(client.beat());
            }
            let tick = schedule.next_deadline();
            tokio::select! {
                Some(answer) = calls.join_next() => {
                    answer.unwrap().unwrap();
                    assert!(monitor.on_heartbeat(now(), &target));
                    beats += 1;
                }
                () = tokio::time::sleep_until(tick.into()) => {}
            }
            let lost = monitor.on_tick(now());
            let bytes = moved.load(Ordering::Relaxed);
            assert!(
                lost.is_empty(),
                "{lost:?} after {bytes} bytes and {beats} beats"
            );
        }
    };
    in_time("bytes and beats", beating).await;
    assert!(beats > 3, "{beats}");
    let own = consumer.exchange.connection_manager();
    assert_eq!(own.number_of_active_connections(), 1, "one for both");
    assert_eq!(accepted(&producer.node), 1);
    stop.store(true, Ordering::Relaxed);
    in_time("the writer", writing).await.unwrap();
    in_time("the reader", reading).await.unwrap();
}

/// Runs a future on a thread of its own.
fn beside(future: impl Future<Output = ()> + Send + 'static) -> tokio::task::JoinHandle<()> {
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || runtime.block_on(future))
}

async fn a_flood_of_calls_is_served_at_the_allowed_rate_only<B: Backend>(backend: B) {
    let config = TransportConfig::default();
    let node = start_node(&backend, "callee", &config).await;
    let callee = service(&node);
    let pulse = pulse(&callee);
    let connect = async |name: &str| {
        let node = start_node(&backend, name, &config).await;
        let service = service(&node);
        let connect = service.connect(pulse.address(), None);
        let client: PulseClient = in_time("connect", connect).await.unwrap();
        (client, service, node)
    };
    let (hostile, ..) = &connect("hostile").await;
    let (good, ..) = &connect("good").await;
    let begin = now();
    let mut flood = JoinSet::new();
    for _ in 0..FLOOD {
        flood.spawn(hostile.rare_beat());
    }
    let mut answers = BTreeSet::new();
    let mut refused = 0;
    let answered = async {
        while let Some(result) = flood.join_next().await {
            match result.unwrap() {
                Ok(number) => assert!(answers.insert(number), "{number} twice"),
                Err(RpcError::Overloaded { limit: 1000, .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
            if answers.len() % 100 == 0 {
                good.rare_beat().await.unwrap();
            }
        }
    };
    in_time("answers", answered).await;
    // A second's worth at once, then a thousandth of a second for each.
    let most = 1001 + begin.elapsed().as_millis();
    assert!(answers.len() as u128 <= most, "{} of {most}", answers.len());
    assert!(answers.len() >= 1000, "{}", answers.len());
    assert_eq!(callee.stats().rate_limited, refused);
}

const INTERVAL: Duration = Duration::from_millis(100);
/// Small beside the defaults; a busy machine may let a whole process stand still for a part of it.
const TIMEOUT: Duration = Duration::from_secs(2);
const BYTES: u64 = 128 << 20;
const FLOOD: u32 = 10_000;

on_backends! {
    [
        bulk_data_starves_no_heartbeats,
        a_flood_of_calls_is_served_at_the_allowed_rate_only,
    ]:
    mem = MemBackend::new(),
    quic = QuicBackend::new(Profile::Lan),
    tcp = TcpBackend::plaintext(),
    tls = TcpBackend::tls(),
}
