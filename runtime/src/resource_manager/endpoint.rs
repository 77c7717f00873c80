//! The ResourceManager: its state, and what it does by itself.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};

use thalweg_transport::{ResourceId, now};

use super::{
    report::{check_report, reported},
    slot_manager::{SlotAction, SlotManager},
};
use crate::{
    gateways::{
        DisconnectReason, RegistrationResponse, ResourceManagerAccepted, TaskExecutorClient,
        TaskExecutorRegistration, TaskManagerReport, TaskManagerStatus,
    },
    heartbeat::MonitorId,
    ids::{FencingToken, InstanceId, SessionId},
    job::{FailureCause, FailureKind},
    job_manager::{JobManagerConfig, Watch},
    rpc::{Answer, Context, Endpoint, HandlerError, RpcError},
    slots::SlotState,
};

/// The endpoint behind the [`ResourceManagerGateway`](crate::gateways::ResourceManagerGateway).
///
/// It connects to each TaskExecutor that registers, asks it regularly whether it lives, and gives it up at once when
/// that connection ends.
pub struct ResourceManager {
    pub(super) node: ResourceId,
    pub(super) token: FencingToken,
    pub(super) slots: SlotManager,
    pub(super) registered: BTreeMap<ResourceId, Registered>,
    /// The latest connection under way to each TaskExecutor that registers.
    pub(super) connecting: BTreeMap<ResourceId, u64>,
    pub(super) last_connect: u64,
    watch: Watch,
}

/// A TaskExecutor that is registered.
pub(super) struct Registered {
    pub(super) instance: InstanceId,
    pub(super) session: SessionId,
    pub(super) gateway: TaskExecutorClient,
    pub(super) data_address: String,
    /// `None` until it has reported its slots.
    report: Option<TaskManagerReport>,
    since: Instant,
}

impl ResourceManager {
    /// A ResourceManager of this node without TaskManagers, with a new session.
    #[must_use]
    pub fn new(node: ResourceId, config: &JobManagerConfig) -> Self {
        Self {
            node,
            token: FencingToken::random(),
            slots: SlotManager::default(),
            registered: BTreeMap::new(),
            connecting: BTreeMap::new(),
            last_connect: 0,
            watch: Watch::new(now(), config),
        }
    }

    /// The answer to a registration whose TaskExecutor was reached, or not.
    pub(super) fn on_connected(
        &mut self,
        cx: &mut Context<Self>,
        registration: TaskExecutorRegistration,
        connect: u64,
        result: Result<TaskExecutorClient, RpcError>,
    ) -> RegistrationResponse<ResourceManagerAccepted> {
        let id = registration.id.clone();
        if self.connecting.get(&id) != Some(&connect) {
            let reason = format!("a later registration of {id} came in between");
            return RegistrationResponse::Refused { reason };
        }
        self.connecting.remove(&id);
        let gateway = match result {
            Ok(gateway) => gateway,
            Err(error) => {
                tracing::warn!(task_manager = %id, %error, "cannot connect to a TaskExecutor that registers");
                let reason = format!("cannot connect back to {}: {error}", registration.address);
                return RegistrationResponse::Refused { reason };
            }
        };
        let instance = InstanceId::random();
        self.give_up_old(&registration);
        tracing::info!(task_manager = %id, instance = %instance, address = %registration.data_address, "TaskManager registered");
        let ended = gateway.wait_closed();
        let lost = id.clone();
        cx.spawn(ended, move |this, cx, error| {
            this.on_lost(cx, &lost, instance, &error.to_string());
        });
        self.watch.begin(now(), &id);
        self.registered.insert(
            id.clone(),
            Registered {
                instance,
                session: registration.session,
                gateway,
                data_address: registration.data_address,
                report: None,
                since: now(),
            },
        );
        // It does not know yet that it is registered: its slots come with its first report.
        let actions = self.slots.on_registered(now(), &id, instance, &[]);
        self.perform(cx, actions);
        RegistrationResponse::Accepted(self.welcome(instance))
    }

    pub(super) fn welcome(&self, instance: InstanceId) -> ResourceManagerAccepted {
        ResourceManagerAccepted {
            instance,
            token: self.token,
            resource_manager: self.node.clone(),
        }
    }

    /// Tells another process that had this id that it was replaced.
    fn give_up_old(&mut self, registration: &TaskExecutorRegistration) {
        let Some(old) = self.registered.remove(&registration.id) else {
            return;
        };
        if old.session == registration.session {
            return;
        }
        tracing::warn!(task_manager = %registration.id, by = %registration.data_address, "TaskManager replaced by another process with the same id");
        let by = registration.data_address.clone();
        let reason = DisconnectReason::Replaced { by };
        if let Err(error) = old.gateway.disconnect_resource_manager(old.session, reason) {
            tracing::debug!(%error, "the replaced TaskManager cannot be told");
        }
    }

    /// A TaskManager is gone.
    pub(super) fn on_lost(
        &mut self,
        cx: &mut Context<Self>,
        id: &ResourceId,
        instance: InstanceId,
        reason: &str,
    ) {
        if self.registered.get(id).map(|tm| tm.instance) == Some(instance) {
            tracing::warn!(task_manager = %id, %instance, reason, "TaskManager lost");
            self.forget(cx, id, instance);
        }
    }

    /// A TaskManager said goodbye.
    pub(super) fn on_left(
        &mut self,
        cx: &mut Context<Self>,
        id: &ResourceId,
        instance: InstanceId,
        reason: &str,
    ) {
        tracing::info!(task_manager = %id, %instance, reason, "TaskManager left");
        self.forget(cx, id, instance);
    }

    fn forget(&mut self, cx: &mut Context<Self>, id: &ResourceId, instance: InstanceId) {
        self.registered.remove(id);
        self.watch.end(id);
        let actions = self.slots.on_unregistered(id, instance);
        self.perform(cx, actions);
    }

    /// Does what the slot manager wants done.
    pub(super) fn perform(&mut self, cx: &mut Context<Self>, actions: Vec<SlotAction>) {
        for action in actions {
            match action {
                SlotAction::Assign {
                    task_manager: id,
                    instance,
                    assignment,
                } => {
                    let Some(registered) = self.registered.get(&id) else {
                        continue;
                    };
                    let allocation = assignment.allocation;
                    let call = registered.gateway.request_slot(self.token, assignment);
                    cx.spawn(call, move |this, cx, result| match result {
                        Ok(()) => this.slots.on_confirmed(&id, instance, allocation),
                        Err(error) => {
                            tracing::warn!(task_manager = %id, %allocation, %error, "slot not given");
                            let actions = this.slots.on_refused(&id, instance, allocation);
                            this.perform(cx, actions);
                        }
                    });
                }
                SlotAction::Free {
                    task_manager: id,
                    allocation,
                } => {
                    let Some(registered) = self.registered.get(&id) else {
                        continue;
                    };
                    let cause =
                        FailureCause::new(FailureKind::Resources, "the slot was taken back");
                    let call = registered.gateway.free_slot(allocation, cause);
                    cx.spawn(call, move |_, _, result| {
                        if let Err(error) = result {
                            tracing::debug!(task_manager = %id, %allocation, %error, "slot not taken back");
                        }
                    });
                }
            }
        }
    }

    /// What is registered and has reported, by id, with the slots as they are known now.
    pub(super) fn statuses(&self) -> Vec<TaskManagerStatus> {
        self.registered
            .iter()
            .filter_map(|(id, registered)| {
                let mut report = registered.report.clone()?;
                for known in self.slots.slots_of(id) {
                    let slot = report
                        .slots
                        .slots
                        .iter_mut()
                        .find(|s| s.index == known.slot);
                    if let Some(slot) = slot {
                        slot.allocation = known.owner;
                        slot.state = match (known.owner, slot.state) {
                            (None, _) => SlotState::Free,
                            (Some(_), SlotState::Free) => SlotState::Allocated,
                            (Some(_), state) => state,
                        };
                    }
                }
                let heard = self.watch.last_heard(id).unwrap_or(registered.since);
                let silent = now().saturating_duration_since(heard);
                Some(TaskManagerStatus {
                    id: id.clone(),
                    address: registered.data_address.clone(),
                    last_heartbeat_ms: u64::try_from(silent.as_millis()).unwrap_or(u64::MAX),
                    report,
                })
            })
            .collect()
    }

    fn tick(&mut self, cx: &mut Context<Self>) {
        let tick = self.watch.on_tick(now());
        for (id, reason) in tick.lost {
            self.give_up(cx, &id, &reason);
        }
        for (id, monitor) in tick.ask {
            self.ask(cx, id, monitor);
        }
        cx.schedule(tick.next.max(SHORTEST_TICK), Self::tick);
    }

    fn ask(&mut self, cx: &mut Context<Self>, id: ResourceId, monitor: MonitorId) {
        let Some(registered) = self.registered.get(&id) else {
            return;
        };
        let instance = registered.instance;
        let call = registered
            .gateway
            .heartbeat_from_resource_manager(self.token);
        cx.spawn(call, move |this, cx, result| {
            if let Some(reason) = this.watch.on_answer(now(), &id, monitor, &result) {
                this.give_up(cx, &id, &reason);
            } else if let Ok(report) = result
                && let Err(error) = this.on_report(cx, &id, instance, report)
            {
                // It lives, and its slots stay as they were.
                tracing::warn!(task_manager = %id, %error, "report of a TaskManager ignored");
            }
        });
    }

    /// Takes a report; one of an earlier registration is ignored.
    ///
    /// # Errors
    /// What cannot be in it; nothing of it counts then.
    pub(super) fn on_report(
        &mut self,
        cx: &mut Context<Self>,
        id: &ResourceId,
        instance: InstanceId,
        report: TaskManagerReport,
    ) -> Result<(), HandlerError> {
        let found = self.registered.get_mut(id);
        let Some(registered) = found.filter(|registered| registered.instance == instance) else {
            return Ok(());
        };
        check_report(&report)?;
        let slots = reported(&report.slots);
        registered.report = Some(report);
        let actions = self.slots.on_report(id, instance, &slots);
        self.perform(cx, actions);
        Ok(())
    }

    /// A TaskManager that does not answer is told so, if it can hear it.
    fn give_up(&mut self, cx: &mut Context<Self>, id: &ResourceId, reason: &str) {
        let Some(registered) = self.registered.get(id) else {
            return;
        };
        let told = registered
            .gateway
            .disconnect_resource_manager(registered.session, DisconnectReason::HeartbeatTimeout);
        if let Err(error) = told {
            tracing::debug!(task_manager = %id, %error, "the lost TaskManager cannot be told");
        }
        let instance = registered.instance;
        self.on_lost(cx, id, instance, reason);
    }
}

impl Endpoint for ResourceManager {
    fn on_start(&mut self, cx: &mut Context<Self>) -> Result<(), HandlerError> {
        self.tick(cx);
        Ok(())
    }

    fn on_stop(&mut self, _cx: &mut Context<Self>) -> Answer<()> {
        for (id, registered) in &self.registered {
            let told = registered
                .gateway
                .disconnect_resource_manager(registered.session, DisconnectReason::Stopping);
            if let Err(error) = told {
                tracing::debug!(task_manager = %id, %error, "a TaskManager cannot be told of the stop");
            }
        }
        Answer::ok(())
    }
}

impl fmt::Debug for ResourceManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResourceManager")
            .field("node", &self.node)
            .field("registered", &self.registered.keys())
            .finish_non_exhaustive()
    }
}

/// Timers have a resolution of 1 ms: a shorter pause would only repeat the tick.
const SHORTEST_TICK: Duration = Duration::from_millis(1);
