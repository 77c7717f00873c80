//! The JobManager's endpoints on a local service, with scripted TaskExecutors.

mod backends;
mod fake;
mod hostile;
mod jobs;
mod liveness;
mod network;
mod registration;

use std::{sync::Arc, time::Duration};

use thalweg_transport::ResourceId;

use self::fake::{Behaviour, Fake, Script, accepted};
use super::*;
use crate::{
    gateways::*,
    ids::*,
    job::*,
    rpc::{Answer, Context, Deadline, Endpoint, EndpointHandle, HandlerError, RpcError},
    slots::{ResourceProfile, SlotReport, SlotState, SlotStatus},
};

struct Cluster {
    service: RpcService,
    manager: JobManager,
}

impl Cluster {
    fn start() -> Self {
        Self::on(RpcService::builder(id("jm")).build().unwrap())
    }

    fn on(service: RpcService) -> Self {
        Self::with(service, JobManagerConfig::default())
    }

    fn with(service: RpcService, config: JobManagerConfig) -> Self {
        let config = config.with_task_types(["source", "sink"]);
        let manager = JobManager::start(&service, config, Arc::new(Vec::new)).unwrap();
        Self { service, manager }
    }

    /// TaskManagers `tm-1`, `tm-2`, … with so many slots, which all do the same.
    async fn of<const N: usize>(slots: [usize; N], script: Script) -> (Self, [Fake; N]) {
        let cluster = Self::start();
        let mut fakes = Vec::with_capacity(N);
        for (number, slots) in (1..).zip(slots) {
            let name = format!("tm-{number}");
            fakes.push(cluster.task_manager(&name, slots, script.clone()).await);
        }
        let fakes = fakes.try_into().ok();
        (cluster, fakes.expect("as many as slot counts"))
    }

    async fn task_manager(&self, name: &str, slots: usize, script: Script) -> Fake {
        self.replacement(name, name, slots, script).await
    }

    /// A TaskManager of this id whose endpoint has another name.
    async fn replacement(&self, name: &str, endpoint: &str, slots: usize, script: Script) -> Fake {
        let manager = self.manager.resource_manager();
        Fake::start(&self.service, manager, (name, endpoint), slots, script).await
    }

    async fn submit(&self, graph: JobGraph) -> JobId {
        self.manager.dispatcher().submit_job(graph).await.unwrap()
    }

    async fn status(&self, job: JobId) -> JobStatus {
        self.manager.dispatcher().job_status(job).await.unwrap()
    }

    /// Waits, in paused time, until the job's status is so.
    async fn wait(&self, job: JobId, until: impl Fn(&JobStatus) -> bool) -> JobStatus {
        let wait = async {
            loop {
                let status = self.status(job).await;
                if until(&status) {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(600), wait)
            .await
            .expect("the job gets there within ten minutes")
    }

    async fn end(&self, job: JobId) -> JobStatus {
        self.wait(job, |status| status.state.is_terminal()).await
    }

    async fn running(&self, job: JobId) -> JobStatus {
        self.wait(job, |status| {
            let tasks = &status.tasks;
            tasks.iter().all(|task| task.state == TaskState::Running)
        })
        .await
    }

    async fn free_slots(&self) -> usize {
        let overview = self.manager.resource_manager().overview().await.unwrap();
        overview.iter().map(|tm| tm.report.slots.free()).sum()
    }

    /// How many TaskManagers are registered.
    async fn registered(&self) -> usize {
        let overview = self.manager.resource_manager().overview().await;
        overview.unwrap().len()
    }

    /// Waits until so many TaskManagers are registered.
    async fn until_registered(&self, count: usize) {
        let wait = async {
            while self.registered().await != count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(100), wait)
            .await
            .expect("as many as expected")
    }

    async fn result(&self, job: JobId) -> String {
        let client = self.manager.dispatcher();
        let chunk = client.job_result(job, 0, 1000).await.unwrap();
        assert!(chunk.end);
        String::from_utf8(chunk.bytes.to_vec()).unwrap()
    }
}

fn id(name: &str) -> ResourceId {
    ResourceId::new(name).unwrap()
}

/// `source` and `sink` with this parallelism, all to all, in shared slots.
fn graph(parallelism: u32) -> JobGraph {
    let mut graph = JobGraph::new("words");
    let source = graph
        .vertex("source", "source")
        .parallelism(parallelism)
        .id();
    let sink = graph.vertex("sink", "sink").parallelism(parallelism).id();
    graph.connect(source, sink, Distribution::Hash);
    graph
}

fn always(behaviour: Behaviour) -> Script {
    Arc::new(move |_| behaviour)
}

/// One behaviour in the first attempt, another one in all later ones.
fn first(first: Behaviour, later: Behaviour) -> Script {
    Arc::new(move |task| {
        if task.execution.attempt == 0 {
            first
        } else {
            later
        }
    })
}
