//! The TaskExecutor's connection to the ResourceManager.

use std::time::{Duration, Instant};

use thalweg_transport::now;
use tokio_util::sync::DropGuard;

use super::{
    config::TaskExecutorConfig,
    executor::TaskExecutor,
    scope::{attempt_error, spawn_scoped},
};
use crate::{
    gateways::{RegistrationResponse, ResourceManagerAccepted, ResourceManagerClient},
    heartbeat::HeartbeatMonitor,
    ids::FencingToken,
    job::FailureKind,
    registration::{self, Answer, Notice, Outcome, RegisteredConnection, RegistrationId, Target},
    rpc::{Context, HandlerError, RpcError, Scheduled},
};

/// What is known of the ResourceManager.
#[derive(Debug)]
pub(super) struct ResourceManagerLink {
    connection: RegisteredConnection<ResourceManagerClient>,
    /// What it answered to the registration that counts.
    accepted: Option<ResourceManagerAccepted>,
    monitor: HeartbeatMonitor,
    /// The registration, or the watch over its connection.
    scope: Option<DropGuard>,
    /// The first report of a registration.
    report: Option<DropGuard>,
    /// Registrations in a row that ended before the ResourceManager took a report.
    failures: u32,
    /// Since when there is no registration with a report.
    timeout: Option<Scheduled>,
}

impl ResourceManagerLink {
    pub(super) fn new(config: &TaskExecutorConfig) -> Self {
        Self {
            connection: RegisteredConnection::new(),
            accepted: None,
            monitor: HeartbeatMonitor::new(config.heartbeat),
            scope: None,
            report: None,
            failures: 0,
            timeout: None,
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.monitor.next_deadline()
    }

    /// Whether this is the session of the ResourceManager that the TaskExecutor is registered at.
    pub(super) fn is_session(&self, token: FencingToken) -> bool {
        self.accepted
            .as_ref()
            .is_some_and(|accepted| accepted.token == token)
    }

    /// A sign of life.
    pub(super) fn on_heartbeat(&mut self) {
        if let Some(accepted) = &self.accepted {
            self.monitor.on_heartbeat(now(), &accepted.resource_manager);
        }
    }

    /// The way to it, with its answer to the registration.
    pub(super) fn registered(&self) -> Option<(&ResourceManagerClient, &ResourceManagerAccepted)> {
        self.connection.gateway().zip(self.accepted.as_ref())
    }
}

type Ended = Outcome<ResourceManagerClient, ResourceManagerAccepted, String, RpcError>;

impl TaskExecutor {
    pub(super) fn start_resource_manager(
        &mut self,
        cx: &mut Context<Self>,
    ) -> Result<(), HandlerError> {
        let connection = &mut self.resource_manager.connection;
        let id = connection
            .start()
            .map_err(|error| HandlerError::from_error("resource_manager.start", &error))?;
        self.register_at_resource_manager(cx, id);
        Ok(())
    }

    fn register_at_resource_manager(&mut self, cx: &mut Context<Self>, id: RegistrationId) {
        self.start_registration_timeout(cx);
        let (service, registration) = (cx.service().clone(), self.registration(cx));
        let address = self.config.resource_manager.clone();
        let (config, failures) = (self.config.registration, self.resource_manager.failures);
        let register = async move {
            let connect = || {
                let (service, address) = (service.clone(), address.clone());
                async move {
                    let gateway = service.connect(&address, None).await;
                    gateway.map_err(attempt_error)
                }
            };
            let call = |gateway: ResourceManagerClient, _: Duration| {
                let answer = gateway.register_task_executor(registration.clone());
                async move {
                    Ok(match answer.await.map_err(attempt_error)? {
                        RegistrationResponse::Accepted(accepted) => Answer::Success(accepted),
                        RegistrationResponse::Refused { reason } => Answer::Refused(reason),
                        RegistrationResponse::Rejected { reason } => Answer::Rejected(reason),
                    })
                }
            };
            let target = Target {
                name: "ResourceManager",
                failures,
            };
            registration::run(target, config, connect, call, fastrand::f64).await
        };
        let guard = spawn_scoped(cx, register, move |this, cx, outcome| {
            this.on_resource_manager(cx, id, outcome);
        });
        self.resource_manager.scope = Some(guard);
    }

    fn on_resource_manager(&mut self, cx: &mut Context<Self>, id: RegistrationId, outcome: Ended) {
        match self.resource_manager.connection.on_outcome(id, outcome) {
            None => {}
            Some(Notice::Registered(accepted)) => self.on_registered(cx, accepted),
            Some(Notice::Rejected(reason)) => self.fatal(
                FailureKind::Cluster,
                format!("the ResourceManager rejected this TaskManager: {reason}"),
            ),
            Some(Notice::Failed(error)) => self.fatal(
                FailureKind::Cluster,
                format!("this TaskManager cannot register: {error}"),
            ),
        }
    }

    fn on_registered(&mut self, cx: &mut Context<Self>, accepted: ResourceManagerAccepted) {
        let link = &mut self.resource_manager;
        let Some(client) = link.connection.gateway().cloned() else {
            return;
        };
        tracing::info!(resource_manager = %accepted.resource_manager, instance = %accepted.instance, "registered at the ResourceManager");
        link.monitor.stop();
        let _ = link
            .monitor
            .monitor(now(), accepted.resource_manager.clone());
        link.accepted = Some(accepted);
        let guard = spawn_scoped(cx, client.wait_closed(), |this: &mut Self, cx, error| {
            this.lose_resource_manager(cx, &error.to_string())
        });
        self.resource_manager.scope = Some(guard);
        self.report_slots(cx);
        self.arm(cx);
    }

    /// Tells the slots, now that slot requests of this ResourceManager are known to come from it.
    fn report_slots(&mut self, cx: &mut Context<Self>) {
        let Some((client, accepted)) = self.resource_manager.registered() else {
            return;
        };
        let report = client.report_slots(accepted.instance, self.report());
        let guard = spawn_scoped(cx, report, |this: &mut Self, cx, result| match result {
            Ok(()) => this.on_slots_reported(),
            Err(error) => {
                this.lose_resource_manager(
                    cx,
                    &format!("it did not take the slot report: {error}"),
                );
            }
        });
        self.resource_manager.report = Some(guard);
    }

    fn on_slots_reported(&mut self) {
        let link = &mut self.resource_manager;
        link.report = None;
        link.failures = 0;
        if let Some(timeout) = link.timeout.take() {
            timeout.cancel();
        }
        self.status.set_registered(true);
    }

    /// The connection is of no use any more: registers anew.
    pub(super) fn lose_resource_manager(&mut self, cx: &mut Context<Self>, reason: &str) {
        if self.resource_manager.accepted.is_none() || self.closing {
            return;
        }
        tracing::warn!(reason, "lost the ResourceManager, registering again");
        self.seek_resource_manager(cx, reason);
    }

    /// It said goodbye: another one is expected in its place.
    pub(super) fn leave_resource_manager(&mut self, cx: &mut Context<Self>) {
        if self.resource_manager.accepted.is_none() || self.closing {
            return;
        }
        tracing::info!("the ResourceManager stops, registering again");
        self.seek_resource_manager(cx, "it stops");
    }

    fn seek_resource_manager(&mut self, cx: &mut Context<Self>, reason: &str) {
        if self.resource_manager.report.is_some() {
            // Without a delay, a ResourceManager that takes registrations but no reports would be asked without end.
            let failures = &mut self.resource_manager.failures;
            *failures = failures.saturating_add(1);
        }
        self.part_from_resource_manager(reason);
        if let Ok(id) = self.resource_manager.connection.reconnect() {
            self.register_at_resource_manager(cx, id);
        }
    }

    pub(super) fn check_resource_manager(&mut self, cx: &mut Context<Self>, now: Instant) {
        if !self.resource_manager.monitor.on_tick(now).is_empty() {
            self.lose_resource_manager(cx, "it sent no heartbeat in time");
        }
    }

    /// Ends the connection for good, and says so.
    pub(super) fn close_resource_manager(&mut self, reason: &str) {
        self.part_from_resource_manager(reason);
        let link = &mut self.resource_manager;
        link.connection.close();
        link.scope = None;
        if let Some(timeout) = link.timeout.take() {
            timeout.cancel();
        }
    }

    /// Tells it goodbye, if it was there, and forgets its session.
    fn part_from_resource_manager(&mut self, reason: &str) {
        let link = &mut self.resource_manager;
        if let Some((client, accepted)) = link.registered() {
            // It may be gone; then there is nobody to be told.
            let _ = client.disconnect_task_executor(accepted.instance, reason.to_owned());
        }
        link.accepted = None;
        link.report = None;
        link.monitor.stop();
        self.status.set_registered(false);
    }

    /// Begins to wait for a registration, unless that was begun before.
    fn start_registration_timeout(&mut self, cx: &mut Context<Self>) {
        if self.resource_manager.timeout.is_some() {
            return;
        }
        let after = self.config.registration_timeout;
        let timeout = cx.schedule(after, move |this, _| {
            let address = &this.config.resource_manager;
            let text = format!(
                "no ResourceManager registered this TaskManager within {after:?} at {address}"
            );
            this.fatal(FailureKind::Cluster, text);
        });
        self.resource_manager.timeout = Some(timeout);
    }
}
