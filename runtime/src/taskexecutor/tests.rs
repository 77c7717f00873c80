//! Behaviour of the TaskExecutor against a scripted ResourceManager and scripted JobMasters on one local RPC service.

pub(crate) mod fakes;
mod graph;
mod links;
mod placement;
mod reports;
mod slots;
mod tasks;
mod user_code;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use fakes::{FakeJobMaster, FakeResourceManager, Offers, Seen, Told};
use thalweg_transport::{ResourceId, TransportConfig};
use tokio::sync::mpsc;

use super::*;
use crate::{
    config::Config,
    gateways::{
        JobMasterAddress, JobMasterClient, ResourceManagerClient, SlotAssignment, TaskDeployment,
        TaskExecutorClient, TaskManagerReport,
    },
    ids::{AllocationId, ExecutionId, FencingToken, JobId, VertexId},
    rpc::{Deadline, EndpointHandle, RpcAddress, RpcConfig, RpcService, tests::serve},
    shuffle::ShuffleEnvironment,
    slots::{SlotState, SlotStatus},
};

/// A TaskExecutor with its surroundings.
struct World {
    service: RpcService,
    executor: EndpointHandle<TaskExecutor>,
    gateway: TaskExecutorClient,
    status: TaskExecutorStatus,
    shuffle: ShuffleEnvironment,
}

/// A scripted peer and what it saw.
struct Peer<E> {
    handle: EndpointHandle<E>,
    token: FencingToken,
    seen: mpsc::Receiver<Seen>,
}

impl World {
    fn start() -> Self {
        Self::with(|_| {})
    }

    /// Starts a TaskExecutor with two slots; `change` adapts its settings.
    fn with(change: impl FnOnce(&mut TaskExecutorConfig)) -> Self {
        let rpc = RpcConfig {
            ask_timeout: Duration::from_secs(5),
            ..RpcConfig::default()
        };
        let service = RpcService::builder(id("cluster"))
            .config(rpc)
            .build()
            .unwrap();
        let shuffle = ShuffleEnvironment::local(&TransportConfig::default()).unwrap();
        let address = RpcAddress::local("resourcemanager").unwrap();
        let mut config =
            TaskExecutorConfig::new(&Config::default(), id("tm-1"), "local".to_owned(), address);
        change(&mut config);
        let services = TaskExecutorServices::new(
            Arc::new(user_code::registry()),
            shuffle.clone(),
            Arc::new(describe),
        );
        let executor = TaskExecutor::new(config, services);
        let status = executor.status();
        let executor = serve::<TaskExecutorClient, _>(&service, "taskexecutor", executor);
        Self {
            gateway: executor.gateway(),
            service,
            executor,
            status,
            shuffle,
        }
    }

    /// A ResourceManager that accepts, unless its script says otherwise.
    fn resource_manager(&self, script: Vec<Told>) -> Peer<FakeResourceManager> {
        let (state, seen) = FakeResourceManager::new(script);
        let token = state.token;
        let handle = serve::<ResourceManagerClient, _>(&self.service, "resourcemanager", state);
        Peer {
            handle,
            token,
            seen,
        }
    }

    /// A ResourceManager at which the TaskExecutor is registered.
    async fn registered(&self) -> Peer<FakeResourceManager> {
        let mut peer = self.resource_manager(Vec::new());
        assert!(matches!(peer.next().await, Seen::TaskExecutor(_)));
        assert!(matches!(peer.next().await, Seen::Slots(_)));
        within(self.status.registered()).await.unwrap();
        peer
    }

    fn job_master(&self, job: JobId, offers: Offers) -> Peer<FakeJobMaster> {
        let (state, seen) = FakeJobMaster::new(job, offers);
        let token = FencingToken::random();
        let handle = self
            .service
            .endpoint(format!("jobmaster_{job}"), state)
            .serve::<JobMasterClient>()
            .fencing_token(token)
            .spawn()
            .unwrap();
        handle.start();
        Peer {
            handle,
            token,
            seen,
        }
    }

    /// Gives a slot to a job.
    async fn assign(
        &self,
        resource_manager: &Peer<FakeResourceManager>,
        job: JobId,
        job_master: JobMasterAddress,
        slot: u32,
    ) {
        let assignment = SlotAssignment {
            slot,
            job,
            allocation: allocation(slot),
            job_master,
        };
        let token = resource_manager.token;
        within(self.gateway.request_slot(token, assignment))
            .await
            .unwrap();
    }

    /// A job with slot 0, registered and offered.
    async fn job(&self, offers: Offers) -> (Peer<FakeResourceManager>, Peer<FakeJobMaster>) {
        let resource_manager = self.registered().await;
        let mut job_master = self.job_master(JOB, offers);
        let address = job_master.address();
        self.assign(&resource_manager, JOB, address, 0).await;
        let Seen::TaskManager(registration) = job_master.next().await else {
            panic!("a registration comes first");
        };
        assert_eq!((registration.job, registration.id), (JOB, id("tm-1")));
        assert!(matches!(job_master.next().await, Seen::Offered(_)));
        (resource_manager, job_master)
    }

    async fn submit(&self, job_master: &Peer<FakeJobMaster>, deployment: TaskDeployment) {
        within(self.gateway.submit_task(job_master.token, deployment))
            .await
            .unwrap();
    }

    async fn slot(&self, index: usize) -> SlotStatus {
        self.ask(move |executor| executor.slots.report().slots[index])
            .await
    }

    /// Looks at the TaskExecutor from its main thread.
    async fn ask<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut TaskExecutor) -> T + Send + 'static,
    ) -> T {
        let main = self.executor.main_thread();
        let call = main.call_async(Deadline::Never, move |executor, _| look(executor));
        within(call).await.unwrap()
    }

    /// Waits until nothing runs and nothing is held.
    async fn is_idle(&self) {
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        within(async {
            loop {
                let tasks = self.ask(|executor| executor.tasks.len()).await;
                let stats = self.shuffle.stats();
                if tasks == 0 && stats.pool.used == 0 && stats.partitions == 0 {
                    return;
                }
                ticks.tick().await;
            }
        })
        .await;
        assert_eq!(self.shuffle.stats().pool.guaranteed, 0);
    }
}

impl<E: crate::rpc::Endpoint> Peer<E> {
    async fn next(&mut self) -> Seen {
        within(self.seen.recv()).await.expect("the peer lives")
    }

    /// The first thing that `pick` wants; what comes before is skipped.
    async fn first<T>(&mut self, mut pick: impl FnMut(Seen) -> Option<T>) -> T {
        loop {
            if let Some(found) = pick(self.next().await) {
                return found;
            }
        }
    }
}

impl Peer<FakeJobMaster> {
    fn address(&self) -> JobMasterAddress {
        JobMasterAddress {
            address: self.handle.address().clone(),
            token: self.token,
        }
    }
}

const JOB: JobId = JobId::from_u128(7);

fn id(name: &str) -> ResourceId {
    ResourceId::new(name).unwrap()
}

fn allocation(slot: u32) -> AllocationId {
    AllocationId::from_u128(u128::from(slot) + 100)
}

fn execution(vertex: u32, subtask: u32) -> ExecutionId {
    ExecutionId {
        job: JOB,
        vertex: VertexId(vertex),
        subtask,
        attempt: 0,
    }
}

/// A task of vertex 0 without inputs and outputs, in slot 0.
fn deployment(task: &str) -> TaskDeployment {
    TaskDeployment {
        execution: execution(0, 0),
        allocation: allocation(0),
        job_name: "job".to_owned(),
        vertex_name: task.to_owned(),
        task: task.to_owned(),
        config: Bytes::new(),
        parallelism: 1,
        inputs: Vec::new(),
        outputs: Vec::new(),
    }
}

fn describe(slots: crate::slots::SlotReport) -> TaskManagerReport {
    TaskManagerReport {
        slots,
        identity: None,
        tls: "off".to_owned(),
        certificate_expires: None,
        certificate_fingerprint: None,
        connections: Vec::new(),
    }
}

/// Every wait of these tests ends; far above what a loaded machine needs.
async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(1000), future)
        .await
        .expect("in time")
}

fn is(status: SlotStatus, state: SlotState) {
    assert_eq!(status.state, state);
}
