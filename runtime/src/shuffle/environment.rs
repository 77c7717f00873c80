//! Everything that the tasks of a node share to exchange data.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use thalweg_transport::{
    ConnectionId, Connections, ResourceId, Shutdown, TransportConfig,
    exchange::{
        BlockingContext, BufferPool, ChannelSource, ConnectionManager, ExchangeError, GateContext,
        InputGate, IoManager, IoStats, LocalConnectionManager, NetworkConnectionManager, PoolStats,
        ResultPartition, ResultPartitionManager, SpillError, SubpartitionRequest,
        TaskEventDispatcher,
    },
    proto::SubpartitionIndex,
};
use tokio::runtime::Handle;

use super::{
    check::{JobCheck, ProducerStates},
    names::{attempt_id, partition_id},
};
use crate::{
    gateways::{InputDeployment, OutputDeployment, PartitionKey, TaskDeployment},
    ids::{ExecutionId, JobId},
    job::{ExchangeMode, FailureKind},
    task::{ChannelName, Controls, Input, Output, TaskError, task_error},
};

/// The data exchange of a TaskManager, the counterpart of Flink's `ShuffleEnvironment`. Clones share it.
///
/// It owns the node's buffers, the disk of its blocking partitions, the registry of its result partitions, the dispatcher of task events and the connection
/// manager; the connections themselves are the node's. It ends with [`close`](Self::close).
#[derive(Debug, Clone)]
pub struct ShuffleEnvironment(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    partitions: ResultPartitionManager,
    events: Arc<TaskEventDispatcher>,
    gates: GateContext,
    /// The node's connections, if it has a network.
    network: Option<Arc<dyn Connections>>,
    /// For blocking partitions, if there is a disk for them.
    disk: OnceLock<BlockingContext>,
    streams: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What each attempt has produced here and nobody has released.
    produced: BTreeMap<ExecutionId, Vec<PartitionKey>>,
    /// The nodes that data was requested from.
    peers: BTreeSet<ResourceId>,
}

/// Gauges of a [`ShuffleEnvironment`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShuffleStats {
    /// Live connections that this node dialled to nodes that it took data from.
    pub connections: usize,
    /// Streams opened so far: one for each remote channel.
    pub streams: u64,
    /// The node's buffers.
    pub pool: PoolStats,
    /// Result partitions that are not consumed yet.
    pub partitions: usize,
    /// Requests that wait for a partition.
    pub waiting_requests: usize,
}

impl ShuffleEnvironment {
    /// The exchange over a node's connections. Begins to serve partitions: the node must not serve streams of kind
    /// `PARTITION` by itself.
    ///
    /// # Errors
    /// [`ExchangeError`] if the connection manager does not start.
    pub fn network(
        connections: Arc<dyn Connections>,
        config: &TransportConfig,
    ) -> Result<Self, ExchangeError> {
        let manager = NetworkConnectionManager::new(Arc::clone(&connections), config.clone());
        let (runtime, tasks) = (connections.runtime().clone(), connections.tasks().child());
        Self::start(config, Arc::new(manager), runtime, tasks, Some(connections))
    }

    /// The exchange inside one node, without a network: partitions of other nodes cannot be read.
    ///
    /// # Errors
    /// [`ExchangeError`] if the connection manager does not start.
    ///
    /// # Panics
    /// Outside a tokio runtime: the channels' tasks run on the current one.
    pub fn local(config: &TransportConfig) -> Result<Self, ExchangeError> {
        let manager = Arc::new(LocalConnectionManager);
        Self::start(config, manager, Handle::current(), Shutdown::new(), None)
    }

    fn start(
        config: &TransportConfig,
        manager: Arc<dyn ConnectionManager>,
        runtime: Handle,
        tasks: Shutdown,
        network: Option<Arc<dyn Connections>>,
    ) -> Result<Self, ExchangeError> {
        let partitions = ResultPartitionManager::new(config.partition_request_timeout);
        let events = Arc::new(TaskEventDispatcher::new());
        let provider = Arc::new(partitions.clone());
        manager.start(provider.clone(), Arc::clone(&events))?;
        let pool = BufferPool::new(config);
        let mut gates = GateContext::new(config, manager, provider, pool, runtime, tasks);
        gates.task_events = Arc::clone(&events);
        Ok(Self(Arc::new(Inner {
            gates,
            partitions,
            events,
            network,
            disk: OnceLock::new(),
            streams: AtomicU64::new(0),
            state: Mutex::default(),
        })))
    }

    /// Gives it folders for what blocking partitions spill, and so many operations on them at the same time; without
    /// them such partitions are refused. Blocks on the disk, for a start-up. A second call changes nothing.
    ///
    /// # Errors
    /// [`SpillError`] naming the folder that cannot be used.
    pub fn open_disk(
        &self,
        config: &TransportConfig,
        dirs: &[PathBuf],
        node: &ResourceId,
        operations: usize,
    ) -> Result<(), SpillError> {
        let gates = &self.0.gates;
        let (runtime, tasks) = (gates.runtime.clone(), gates.tasks.child());
        let io = IoManager::start(dirs, node, operations, runtime, tasks)?;
        let context = BlockingContext::new(config, io, gates.pool.clone());
        let _ = self.0.disk.set(context);
        Ok(())
    }

    /// The gauges of the disk; `None` without one.
    #[must_use]
    pub fn disk(&self) -> Option<IoStats> {
        self.0.disk.get().map(|disk| disk.io().stats())
    }

    /// The node's connections; `None` inside one node without a network.
    pub(crate) fn connections(&self) -> Option<&Arc<dyn Connections>> {
        self.0.network.as_ref()
    }

    /// The dispatcher of task events.
    #[must_use]
    pub fn task_events(&self) -> &Arc<TaskEventDispatcher> {
        &self.0.events
    }

    /// The registry of result partitions.
    #[must_use]
    pub fn partitions(&self) -> &ResultPartitionManager {
        &self.0.partitions
    }

    /// The gauges.
    #[must_use]
    pub fn stats(&self) -> ShuffleStats {
        let inner = &self.0;
        let snapshot = inner.network.as_ref().map(|network| network.snapshot());
        let connections = {
            let state = inner.lock();
            let live = snapshot.iter().flatten();
            live.filter(|c| c.dialled && state.peers.contains(&c.peer.id))
                .count()
        };
        ShuffleStats {
            connections,
            streams: inner.streams.load(Ordering::Relaxed),
            pool: inner.gates.pool.stats(),
            partitions: inner.partitions.registered(),
            waiting_requests: inner.partitions.parked(),
        }
    }

    /// Makes and registers the result partitions of a task. From then on consumers find them.
    ///
    /// # Errors
    /// Kind [`Resources`](FailureKind::Resources) if buffers are short, [`Partition`](FailureKind::Partition) if the
    /// same attempt's partitions are there already. What was made before the failure is released.
    pub(crate) fn create_partitions(
        &self,
        deployment: &TaskDeployment,
        controls: &Controls,
    ) -> Result<Vec<Output>, TaskError> {
        let execution = deployment.execution;
        let mut outputs = Vec::with_capacity(deployment.outputs.len());
        for output in &deployment.outputs {
            if output.exchange == ExchangeMode::Blocking && self.0.disk.get().is_none() {
                self.release_execution(execution);
                return Err(TaskError::of_kind(
                    FailureKind::InvalidJob,
                    format!(
                        "output {} asks for a blocking exchange, this TaskManager has no disk for it",
                        output.partition.output
                    ),
                ));
            }
            match self.create_partition(execution, output) {
                Ok(partition) => {
                    let writer = partition.writer();
                    controls.counters.add_partition(partition);
                    let writer = writer.map_err(|error| task_error(&error, "output"))?;
                    let made = Output::new(writer, output.partition, output.distribution, controls);
                    outputs.push(made);
                }
                Err(error) => {
                    self.release_execution(execution);
                    let whose = format!(
                        "output {}, partition {}",
                        output.partition.output, output.partition
                    );
                    return Err(task_error(&error, &whose));
                }
            }
        }
        Ok(outputs)
    }

    fn create_partition(
        &self,
        execution: ExecutionId,
        output: &OutputDeployment,
    ) -> Result<Arc<ResultPartition>, ExchangeError> {
        let key = output.partition;
        let (id, attempt) = (partition_id(key), attempt_id(execution));
        let subpartitions = output.subpartitions as usize;
        let partition = match (output.exchange, self.0.disk.get()) {
            (ExchangeMode::Blocking, Some(disk)) => {
                ResultPartition::blocking(id, attempt, subpartitions, disk)?
            }
            _ => {
                let pool = &self.0.gates.pool;
                ResultPartition::pipelined_bounded(id, attempt, subpartitions, pool)?
            }
        };
        // Before the partition, whose consumers may send events as soon as they find it.
        self.0.events.register(id, attempt)?;
        if let Err(error) = self.0.partitions.register(partition.clone()) {
            self.0.events.unregister(id, attempt);
            return Err(error);
        }
        self.0
            .lock()
            .produced
            .entry(execution)
            .or_default()
            .push(key);
        Ok(partition)
    }

    /// Makes the input gates of a task and requests their partitions.
    ///
    /// # Errors
    /// Kind [`Resources`](FailureKind::Resources) if buffers are short.
    ///
    /// # Cancel safety
    /// Cancel-safe: buffers taken go back.
    pub(crate) async fn create_gates(
        &self,
        deployment: &TaskDeployment,
        own: &ResourceId,
        states: &ProducerStates,
        controls: &Controls,
    ) -> Result<Vec<Input>, TaskError> {
        let consumer = attempt_id(deployment.execution);
        let mut inputs = Vec::with_capacity(deployment.inputs.len());
        for (index, input) in deployment.inputs.iter().enumerate() {
            let name = format!("input {index} of {}", deployment.execution);
            let sources = self.sources(input, own, deployment.execution.subtask);
            let remote = sources
                .iter()
                .filter(|source| matches!(source, ChannelSource::Remote { .. }))
                .count() as u64;
            let mut context = self.0.gates.clone();
            context.producer_check = Some(Arc::new(JobCheck {
                keys: input
                    .channels
                    .iter()
                    .map(|channel| (partition_id(channel.partition), channel.partition))
                    .collect(),
                states: Arc::clone(states),
            }));
            let gate = InputGate::setup(name.clone(), consumer, sources, context)
                .await
                .map_err(|error| task_error(&error, &name))?;
            gate.request_partitions();
            self.0.streams.fetch_add(remote, Ordering::Relaxed);
            let records = controls.counters.add_gate(gate.handle(), remote);
            let names = channel_names(input);
            inputs.push(Input::new(gate, index, names, records, controls));
        }
        Ok(inputs)
    }

    fn sources(
        &self,
        input: &InputDeployment,
        own: &ResourceId,
        consumer: u32,
    ) -> Vec<ChannelSource> {
        let mut state = self.0.lock();
        let sources = input.channels.iter().map(|channel| {
            let request = SubpartitionRequest {
                partition: partition_id(channel.partition),
                producer: attempt_id(channel.partition.producer),
                subpartition: SubpartitionIndex(channel.subpartition),
            };
            if channel.task_manager == *own {
                return ChannelSource::Local(request);
            }
            state.peers.insert(channel.task_manager.clone());
            // Channels spread over the connections to the peer, if there are several.
            let index = consumer.wrapping_add(channel.partition.producer.subtask);
            ChannelSource::Remote {
                connection: ConnectionId::new(
                    channel.task_manager.clone(),
                    channel.address.as_str(),
                )
                .with_index(index),
                request,
            }
        });
        sources.collect()
    }

    /// Releases what one attempt has produced: its consumers hear that it is gone. Unknown ones are fine.
    pub fn release_execution(&self, execution: ExecutionId) {
        let keys = self.0.lock().produced.remove(&execution);
        let attempt = attempt_id(execution);
        for key in keys.into_iter().flatten() {
            let id = partition_id(key);
            self.0.events.unregister(id, attempt);
            self.0.partitions.release_partition(id, attempt);
        }
    }

    /// Releases everything that the tasks of a job have produced here.
    pub fn release_job(&self, job: JobId) {
        self.release_if(|execution| execution.job == job);
    }

    /// Releases what attempts of a job before this one have produced here: a task that had finished when its attempt
    /// failed has left its buffers to consumers that never come.
    pub(crate) fn release_attempts_before(&self, attempt: ExecutionId) {
        self.release_if(|execution| {
            execution.job == attempt.job && execution.attempt < attempt.attempt
        });
    }

    fn release_if(&self, released: impl Fn(&ExecutionId) -> bool) {
        let executions: Vec<_> = {
            let state = self.0.lock();
            let keys = state.produced.keys();
            keys.filter(|&execution| released(execution))
                .copied()
                .collect()
        };
        for execution in executions {
            self.release_execution(execution);
        }
    }

    /// Ends the exchange: no new connections, then the partitions, then the gates, waiting for their tasks until the
    /// deadline. The node stays.
    ///
    /// # Cancel safety
    /// What has begun to end goes on ending.
    pub async fn close(&self, deadline: Duration) {
        self.0.gates.connections.shutdown();
        self.0.partitions.shutdown();
        self.0.lock().produced.clear();
        if let Err(left) = self.0.gates.tasks.finish(deadline).await {
            tracing::warn!(left, "channels of input gates still run after closing");
        }
        if let Some(disk) = self.0.disk.get() {
            disk.io().close().await;
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn channel_names(input: &InputDeployment) -> Vec<ChannelName> {
    let channels = input.channels.iter().map(|channel| ChannelName {
        partition: partition_id(channel.partition),
        text: format!(
            "partition {} at {} ({})",
            channel.partition, channel.task_manager, channel.address
        ),
    });
    channels.collect()
}
