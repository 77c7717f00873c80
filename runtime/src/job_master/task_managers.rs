//! The TaskManagers that serve a job: registration, heartbeats, loss.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use thalweg_transport::{ResourceId, now};
use tokio::task::JoinSet;

use super::{endpoint::JobMaster, execution_graph::GraphEvent};
use crate::{
    gateways::{
        ExecutionReport, JobMasterAccepted, RegistrationResponse, TaskExecutorClient,
        TaskManagerRegistration,
    },
    heartbeat::MonitorId,
    ids::SessionId,
    job::{FailureCause, FailureKind},
    job_manager::{JobManagerConfig, Watch},
    rpc::{Context, RpcError},
};

/// The connected TaskManagers of a job.
#[derive(Debug)]
pub(super) struct TaskManagers {
    connected: BTreeMap<ResourceId, Connected>,
    /// The latest connection under way to each TaskManager that registers.
    connecting: BTreeMap<ResourceId, u64>,
    last_connect: u64,
    /// Connections that each node has dialled to others; kept after a loss until the node comes back.
    connections: BTreeMap<ResourceId, u64>,
    watch: Watch,
}

#[derive(Debug)]
struct Connected {
    session: SessionId,
    /// Tells this connection from others of the same TaskManager.
    connect: u64,
    gateway: TaskExecutorClient,
    data_address: String,
    since: Instant,
}

impl TaskManagers {
    pub(super) fn new(now: Instant, config: &JobManagerConfig) -> Self {
        Self {
            connected: BTreeMap::new(),
            connecting: BTreeMap::new(),
            last_connect: 0,
            connections: BTreeMap::new(),
            watch: Watch::new(now, config),
        }
    }

    pub(super) fn gateway(&self, id: &ResourceId) -> Option<&TaskExecutorClient> {
        self.connected.get(id).map(|connected| &connected.gateway)
    }

    pub(super) fn gateways(&self) -> impl Iterator<Item = (&ResourceId, &TaskExecutorClient)> {
        self.connected.iter().map(|(id, c)| (id, &c.gateway))
    }

    pub(super) fn data_address(&self, id: &ResourceId) -> Option<String> {
        self.connected.get(id).map(|c| c.data_address.clone())
    }

    pub(super) fn is_connected(&self, id: &ResourceId) -> bool {
        self.connected.contains_key(id)
    }

    /// Whether this process is registered and can be reached.
    pub(super) fn is_registered(&self, id: &ResourceId, session: SessionId) -> bool {
        self.connected
            .get(id)
            .is_some_and(|c| c.session == session && c.gateway.closed().is_none())
    }

    /// Begins to connect; only the latest attempt for each TaskManager counts. `None` if there are too many.
    pub(super) fn begin_connect(&mut self, id: &ResourceId) -> Option<u64> {
        if self.connecting.len() >= MAX_CONNECTING && !self.connecting.contains_key(id) {
            return None;
        }
        self.last_connect += 1;
        self.connecting.insert(id.clone(), self.last_connect);
        Some(self.last_connect)
    }

    pub(super) fn set_connections(&mut self, id: &ResourceId, connections: u64) {
        if self.connected.contains_key(id) {
            self.connections.insert(id.clone(), connections);
        }
    }

    pub(super) fn connections(&self) -> u64 {
        self.connections.values().sum()
    }
}

impl JobMaster {
    /// The answer to a registration whose TaskManager was reached, or not.
    pub(super) fn on_connected(
        &mut self,
        cx: &mut Context<Self>,
        registration: TaskManagerRegistration,
        connect: u64,
        result: Result<TaskExecutorClient, RpcError>,
    ) -> RegistrationResponse<JobMasterAccepted> {
        let id = registration.id;
        if self.task_managers.connecting.get(&id) != Some(&connect) {
            let reason = format!("a later registration of {id} came in between");
            return RegistrationResponse::Refused { reason };
        }
        self.task_managers.connecting.remove(&id);
        if self.graph.state().is_terminal() {
            let reason = format!("job {} has ended", self.job);
            return RegistrationResponse::Rejected { reason };
        }
        let gateway = match result {
            Ok(gateway) => gateway,
            Err(error) => {
                let reason = format!("cannot connect back to {}: {error}", registration.address);
                return RegistrationResponse::Refused { reason };
            }
        };
        if let Some(old) = self.task_managers.connected.get(&id) {
            let reason = if old.session == registration.session {
                "it connected anew"
            } else {
                "it was replaced by another process with the same id"
            };
            self.disconnect(cx, &id, reason);
        }
        let (ended, lost) = (gateway.wait_closed(), id.clone());
        cx.spawn(ended, move |this, cx, error| {
            let current = this.task_managers.connected.get(&lost);
            if current.is_some_and(|current| current.connect == connect) {
                this.on_lost(cx, &lost, &error.to_string());
            }
        });
        tracing::debug!(job = %self.job, task_manager = %id, "TaskManager registered at its JobMaster");
        self.pool.on_task_manager_registered(&id);
        self.task_managers.watch.begin(now(), &id);
        self.task_managers.connected.insert(
            id,
            Connected {
                session: registration.session,
                connect,
                gateway,
                data_address: registration.data_address,
                since: now(),
            },
        );
        RegistrationResponse::Accepted(self.welcome())
    }

    /// The same process registers again: it has lost its connection to this JobMaster, and with it its tasks.
    pub(super) fn on_registered_again(&mut self, cx: &mut Context<Self>, id: ResourceId) {
        let event = GraphEvent::TaskManagerLost {
            task_manager: id,
            reason: "it had lost its connection to the JobMaster".to_owned(),
        };
        self.on_event(cx, event);
    }

    /// Begins the next attempt at this time, but not before every TaskManager has shown that it lives.
    ///
    /// A task may notice a dead TaskManager before the JobMaster does; without the question the next attempt would be
    /// sent there. One that does not answer, which a submission would not be either, is given up.
    pub(super) fn restart_at(&mut self, cx: &mut Context<Self>, at: Instant) {
        let calls: Vec<_> = self
            .task_managers
            .connected
            .iter()
            .map(|(id, connected)| {
                let call = connected.gateway.heartbeat_from_job_master(
                    self.job,
                    self.token,
                    self.pool.allocations_at(id),
                );
                let (id, connect) = (id.clone(), connected.connect);
                async move { (id, connect, call.await) }
            })
            .collect();
        let asked = async move {
            let answers = JoinSet::from_iter(calls).join_all().await;
            tokio::time::sleep_until(at.into()).await;
            answers
        };
        cx.spawn(asked, move |this, cx, answers| {
            for (id, connect, answer) in answers {
                let current = this.task_managers.connected.get(&id);
                if let Err(error) = answer
                    && current.is_some_and(|current| current.connect == connect)
                {
                    this.disconnect(cx, &id, &error.to_string());
                }
            }
            this.on_event(cx, GraphEvent::RestartDue);
        });
    }

    pub(super) fn welcome(&self) -> JobMasterAccepted {
        JobMasterAccepted {
            job_master: self.node.clone(),
        }
    }

    /// Gives a TaskManager up and tells it so, if it can hear it.
    fn disconnect(&mut self, cx: &mut Context<Self>, id: &ResourceId, reason: &str) {
        if let Some(gateway) = self.task_managers.gateway(id) {
            let cause = FailureCause::new(
                FailureKind::TaskManagerLost,
                format!("the JobMaster gave TaskManager {id} up: {reason}"),
            );
            if let Err(error) = gateway.disconnect_job_master(self.job, self.token, cause) {
                tracing::debug!(task_manager = %id, %error, "the lost TaskManager cannot be told");
            }
        }
        self.on_lost(cx, id, reason);
    }

    /// A TaskManager is gone: its tasks have failed, its slots are missing.
    pub(super) fn on_lost(&mut self, cx: &mut Context<Self>, id: &ResourceId, reason: &str) {
        let Some(lost) = self.task_managers.connected.remove(id) else {
            return;
        };
        if self.graph.state().is_terminal() {
            tracing::debug!(job = %self.job, task_manager = %id, reason, "TaskManager leaves a job that has ended");
        } else {
            tracing::warn!(job = %self.job, task_manager = %id, reason, "TaskManager of a job lost");
        }
        // Its process may have started again, and registered, before the loss of the old one was noticed here.
        let heard = self.task_managers.watch.last_heard(id);
        self.task_managers.watch.end(id);
        self.pool
            .on_task_manager_lost(heard.unwrap_or(lost.since), id, reason);
        let event = GraphEvent::TaskManagerLost {
            task_manager: id.clone(),
            reason: reason.to_owned(),
        };
        self.on_event(cx, event);
        if self.pool.is_waiting() {
            self.acquire_slots(cx);
        }
    }

    /// Looks for silent TaskManagers and asks the others, again and again.
    pub(super) fn tick(&mut self, cx: &mut Context<Self>) {
        let tick = self.task_managers.watch.on_tick(now());
        for (id, reason) in tick.lost {
            self.disconnect(cx, &id, &reason);
        }
        for (id, monitor) in tick.ask {
            self.ask(cx, id, monitor);
        }
        cx.schedule(tick.next.max(SHORTEST_TICK), Self::tick);
    }

    fn ask(&mut self, cx: &mut Context<Self>, id: ResourceId, monitor: MonitorId) {
        let Some(connected) = self.task_managers.connected.get(&id) else {
            return;
        };
        let connect = connected.connect;
        let allocations = self.pool.allocations_at(&id);
        let call = connected
            .gateway
            .heartbeat_from_job_master(self.job, self.token, allocations);
        cx.spawn(call, move |this, cx, result| {
            let watch = &mut this.task_managers.watch;
            if let Some(reason) = watch.on_answer(now(), &id, monitor, &result) {
                this.disconnect(cx, &id, &reason);
                return;
            }
            let current = this.task_managers.connected.get(&id);
            if let Ok(report) = result
                && current.is_some_and(|current| current.connect == connect)
            {
                this.on_report(cx, id, report);
            }
        });
    }

    fn on_report(&mut self, cx: &mut Context<Self>, id: ResourceId, report: ExecutionReport) {
        self.task_managers.set_connections(&id, report.connections);
        let event = GraphEvent::Report {
            task_manager: id,
            tasks: report.tasks,
        };
        self.on_event(cx, event);
    }
}

/// Registrations under way at once; more than the TaskManagers of any job.
const MAX_CONNECTING: usize = 10_000;
/// Timers have a resolution of 1 ms: a shorter pause would only repeat the tick.
const SHORTEST_TICK: Duration = Duration::from_millis(1);
