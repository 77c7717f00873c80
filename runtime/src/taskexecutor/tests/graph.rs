//! Tasks of two TaskManagers that exchange data over nodes of the in-memory backend, wherever the tasks run.

use std::sync::Mutex;

use thalweg_transport::{
    BoxFuture, Connections, Node,
    mem::{MemNetwork, MemTransport},
};

use super::{
    super::{
        place::Place,
        reporter::TaskReporter,
        task::{RunningTask, TaskSetup},
    },
    *,
};
use crate::{
    config::TaskPlacement,
    gateways::{
        ChannelDeployment, InputDeployment, OutputDeployment, PartitionKey, TaskStateUpdate,
    },
    job::{Distribution, ExchangeMode, FailureKind, TaskState},
    rpc::RpcError,
    task::TaskError,
};

/// A JobMaster that only listens.
#[derive(Default)]
pub(super) struct Listener {
    pub(super) results: Mutex<Vec<Bytes>>,
}

impl Listener {
    fn sum(&self) -> u64 {
        let results = self.results.lock().unwrap();
        let sums = results.iter().map(|sum| sum.as_ref().try_into().unwrap());
        sums.map(u64::from_le_bytes).sum()
    }
}

impl TaskReporter for Listener {
    fn report(&self, _: TaskStateUpdate) -> BoxFuture<'static, Result<(), RpcError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn add_result(
        &self,
        _: ExecutionId,
        _: u32,
        piece: Bytes,
    ) -> BoxFuture<'static, Result<(), TaskError>> {
        self.results.lock().unwrap().push(piece);
        Box::pin(std::future::ready(Ok(())))
    }

    fn producer_state(&self, _: PartitionKey) -> BoxFuture<'static, Option<TaskState>> {
        Box::pin(std::future::ready(Some(TaskState::Failed)))
    }
}

pub(super) struct TaskManager {
    pub(super) node: Node,
    shuffle: ShuffleEnvironment,
    placement: TaskPlacement,
}

impl TaskManager {
    pub(super) async fn start(network: &MemNetwork, name: &str, placement: TaskPlacement) -> Self {
        let config = TransportConfig::default();
        let node = Node::builder(id(name), config.clone())
            .start(MemTransport::new(network.clone(), None))
            .await
            .unwrap();
        let shuffle = ShuffleEnvironment::network(Arc::new(node.clone()), &config).unwrap();
        Self {
            node,
            shuffle,
            placement,
        }
    }

    /// Runs a task; the receiver hears how it ended.
    pub(super) fn run(
        &self,
        reporter: &Arc<Listener>,
        deployment: TaskDeployment,
    ) -> (RunningTask, tokio::sync::oneshot::Receiver<Ending>) {
        let (ended, ending) = tokio::sync::oneshot::channel();
        let registry = user_code::registry();
        let light = registry.is_light(&deployment.task);
        let setup = TaskSetup {
            place: Place::of(self.placement, &self.shuffle, light),
            deployment,
            registry: Arc::new(registry),
            shuffle: self.shuffle.clone(),
            task_manager: self.node.id().clone(),
            reporter: reporter.clone(),
        };
        let task = RunningTask::start(setup, move |ending| {
            let _ = ended.send(ending);
        });
        (task.unwrap(), ending)
    }

    pub(super) async fn close(self) {
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        within(async {
            while self.shuffle.stats().pool.used > 0 || self.shuffle.stats().partitions > 0 {
                ticks.tick().await;
            }
        })
        .await;
        self.shuffle.close(Duration::from_secs(10)).await;
        self.node.shutdown(Duration::from_secs(10)).await.unwrap();
    }
}

fn key(subtask: u32) -> PartitionKey {
    PartitionKey {
        producer: execution(0, subtask),
        output: 0,
    }
}

pub(super) fn producer(
    task: &str,
    subtask: u32,
    consumers: u32,
    distribution: Distribution,
) -> TaskDeployment {
    let mut producer = deployment(task);
    producer.execution = execution(0, subtask);
    producer.config = Bytes::copy_from_slice(&COUNT.to_le_bytes());
    producer.outputs.push(OutputDeployment {
        partition: key(subtask),
        subpartitions: consumers,
        distribution,
        exchange: ExchangeMode::Pipelined,
    });
    producer
}

pub(super) fn consumer(subtask: u32, producers: &[&TaskManager]) -> TaskDeployment {
    let mut consumer = deployment("sum");
    consumer.execution = execution(1, subtask);
    let channels = (0..)
        .zip(producers)
        .map(|(producer, at)| ChannelDeployment {
            partition: key(producer),
            subpartition: subtask,
            task_manager: at.node.id().clone(),
            address: at.node.advertised(),
        });
    consumer.inputs.push(InputDeployment {
        distribution: Distribution::Rebalance,
        channels: channels.collect(),
    });
    consumer
}

const COUNT: u64 = 50_000;

/// For what does not depend on it.
const PLACEMENT: TaskPlacement = TaskPlacement::OwnThread;

#[tokio::test]
async fn two_task_managers_exchange_all_to_all() {
    let distributions = [
        Distribution::Rebalance,
        Distribution::Hash,
        Distribution::Broadcast,
    ];
    let places = TaskPlacement::ALL.iter();
    for (&placement, distribution) in places.flat_map(|p| distributions.map(|d| (p, d))) {
        let network = MemNetwork::new();
        let one = TaskManager::start(&network, "tm-1", placement).await;
        let two = TaskManager::start(&network, "tm-2", placement).await;
        let reporter = Arc::new(Listener::default());
        let producers = [&one, &two];
        let mut tasks = Vec::new();
        for (subtask, at) in (0..).zip(producers) {
            tasks.push(at.run(&reporter, consumer(subtask, &producers)));
            tasks.push(at.run(&reporter, producer("count", subtask, 2, distribution)));
        }
        let (mut remote, mut local, mut streams) = (0, 0, 0);
        for (task, ending) in tasks {
            let ending = within(ending).await.unwrap();
            assert_eq!(ending.state, TaskState::Finished, "{ending:?}");
            let metrics = task.metrics();
            remote += metrics.bytes_remote;
            local += metrics.bytes_local;
            streams += metrics.streams;
        }
        let copies = if distribution == Distribution::Broadcast {
            2
        } else {
            1
        };
        assert_eq!(reporter.sum(), 2 * copies * (0..COUNT).sum::<u64>());
        assert_eq!(remote + local, 2 * copies * COUNT * 12);
        assert!(remote > 0 && local > 0);
        assert_eq!(streams, 2);
        for at in producers {
            assert_eq!(at.shuffle.stats().connections, 1);
        }
        one.close().await;
        two.close().await;
    }
}

#[tokio::test]
async fn a_stored_output_is_consumed_after_its_producer_has_finished() {
    let network = MemNetwork::new();
    let one = TaskManager::start(&network, "tm-1", PLACEMENT).await;
    let two = TaskManager::start(&network, "tm-2", PLACEMENT).await;
    let dir = tempfile::tempdir().unwrap();
    let producers = [&one, &two];
    for at in producers {
        let mut config = TransportConfig::default();
        config.blocking_compression = thalweg_transport::Compression::Lz4;
        let dirs = [dir.path().to_path_buf()];
        at.shuffle
            .open_disk(&config, &dirs, at.node.id(), 2)
            .unwrap();
    }
    let reporter = Arc::new(Listener::default());
    for (subtask, at) in (0..).zip(producers) {
        let mut stored = producer("count", subtask, 2, Distribution::Rebalance);
        stored.outputs[0].exchange = ExchangeMode::Blocking;
        let (_, ending) = at.run(&reporter, stored);
        let ending = within(ending).await.unwrap();
        assert_eq!(ending.state, TaskState::Finished, "{ending:?}");
        let disk = at.shuffle.disk().unwrap();
        assert!(disk.files == 1 && disk.bytes_written > COUNT, "{disk:?}");
    }
    for round in 1..=2 {
        for (subtask, at) in (0..).zip(producers) {
            let (_, ending) = at.run(&reporter, consumer(subtask, &producers));
            let ending = within(ending).await.unwrap();
            assert_eq!(ending.state, TaskState::Finished, "{ending:?}");
        }
        assert_eq!(reporter.sum(), round * 2 * (0..COUNT).sum::<u64>());
    }
    for (subtask, at) in (0..).zip(producers) {
        assert_eq!(at.shuffle.stats().partitions, 1, "its owner releases it");
        at.shuffle.release_execution(execution(0, subtask));
    }
    one.close().await;
    two.close().await;
    assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none());
}

#[tokio::test]
async fn a_remote_consumer_hears_that_its_producer_failed() {
    let network = MemNetwork::new();
    let one = TaskManager::start(&network, "tm-1", PLACEMENT).await;
    let two = TaskManager::start(&network, "tm-2", PLACEMENT).await;
    let reporter = Arc::new(Listener::default());
    let (_, consumed) = two.run(&reporter, consumer(0, &[&one]));
    let broken = producer("break-after-some", 0, 1, Distribution::Forward);
    let (_, produced) = one.run(&reporter, broken);
    let produced = within(produced).await.unwrap();
    assert_eq!(produced.failure.unwrap().kind, FailureKind::User);
    let heard = within(consumed).await.unwrap().failure.unwrap();
    assert_eq!(heard.kind, FailureKind::Partition);
    assert!(heard.message.contains("tm-1"), "{heard}");
    one.close().await;
    two.close().await;
}

#[tokio::test]
async fn a_lost_node_is_a_transport_failure() {
    let network = MemNetwork::new();
    let one = TaskManager::start(&network, "tm-1", PLACEMENT).await;
    let two = TaskManager::start(&network, "tm-2", PLACEMENT).await;
    let reporter = Arc::new(Listener::default());
    let (consumer, consumed) = two.run(&reporter, consumer(0, &[&one]));
    let (producer, produced) = one.run(&reporter, producer("endless", 0, 1, Distribution::Forward));
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    within(async {
        while consumer.metrics().records_in == 0 {
            ticks.tick().await;
        }
    })
    .await;
    one.node.shutdown(Duration::from_secs(10)).await.unwrap();
    let heard = within(consumed).await.unwrap().failure.unwrap();
    assert_eq!(heard.kind, FailureKind::Transport, "{heard}");
    assert!(producer.cancel());
    assert_eq!(within(produced).await.unwrap().state, TaskState::Canceled);
    two.close().await;
}
