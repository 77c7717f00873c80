//! The TaskExecutor's connections to JobMasters.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use thalweg_transport::now;
use tokio_util::sync::DropGuard;

use super::{
    executor::TaskExecutor,
    scope::{attempt_error, spawn_scoped},
};
use crate::{
    gateways::{
        JobMasterAccepted, JobMasterAddress, JobMasterClient, RegistrationResponse,
        TaskManagerRegistration,
    },
    heartbeat::HeartbeatMonitor,
    ids::{AllocationId, FencingToken, JobId},
    job::{FailureCause, FailureKind},
    registration::{self, Answer, Notice, Outcome, RegisteredConnection, RegistrationId, Target},
    rpc::{Context, RpcError},
    slots::SlotState,
};

/// What serves a job here, connected or not.
#[derive(Debug)]
pub(super) struct JobServices {
    pub(super) job_master: JobMasterAddress,
    registration: RegisteredConnection<JobMasterClient>,
    /// The registration that runs.
    scope: Option<DropGuard>,
    /// Connections in a row that ended before the JobMaster had used them.
    failures: u32,
    /// Numbers the slot offers: an answer to an older one is ignored.
    pub(super) offers: u64,
}

/// A live connection to a JobMaster.
#[derive(Debug)]
pub(super) struct JobMasterLink {
    /// Tells this connection from others of the same job.
    pub(super) number: u64,
    pub(super) client: JobMasterClient,
    pub(super) token: FencingToken,
    pub(super) monitor: HeartbeatMonitor,
    /// The JobMaster has answered an offer or sent a heartbeat.
    pub(super) is_used: bool,
    /// Active slots that the JobMaster did not list in its last heartbeat.
    pub(super) unlisted: BTreeSet<AllocationId>,
    _watch: DropGuard,
}

type Ended = Outcome<JobMasterClient, JobMasterAccepted, String, RpcError>;

impl JobServices {
    fn new(job_master: JobMasterAddress) -> Self {
        Self {
            job_master,
            registration: RegisteredConnection::new(),
            scope: None,
            failures: 0,
            offers: 0,
        }
    }
}

impl TaskExecutor {
    /// The job has a slot here: makes sure that its JobMaster is, or will be, connected. A new session of the JobMaster
    /// replaces the one before.
    pub(super) fn serve_job(
        &mut self,
        cx: &mut Context<Self>,
        job: JobId,
        job_master: &JobMasterAddress,
    ) {
        let known = self.jobs.get(job).map(|known| known.services());
        match known {
            Some(known) if known.job_master == *job_master => {
                if self.link(job).is_some() {
                    self.offer_slots(cx, job);
                    return;
                }
                if known.registration.registering().is_some() {
                    return;
                }
            }
            Some(_) => {
                let cause = FailureCause::new(FailureKind::Cluster, "the job has a new JobMaster");
                self.part_from_job_master(cx, job, &cause);
            }
            None => {}
        }
        let services = JobServices::new(job_master.clone());
        let Ok(entry) = self.jobs.get_or_create(job, || {
            Ok::<_, RpcError>(JobServices::new(job_master.clone()))
        }) else {
            return;
        };
        *entry.services_mut() = services;
        if let Ok(id) = entry.services_mut().registration.start() {
            self.register_at_job_master(cx, job, id);
        }
    }

    /// The connection to a job's master.
    pub(super) fn link(&self, job: JobId) -> Option<&JobMasterLink> {
        Some(self.jobs.get(job)?.connection()?.1)
    }

    fn register_at_job_master(&mut self, cx: &mut Context<Self>, job: JobId, id: RegistrationId) {
        let Some(entry) = self.jobs.get_mut(job) else {
            return;
        };
        let JobMasterAddress { address, token } = entry.services().job_master.clone();
        let failures = entry.services().failures;
        let (service, config) = (cx.service().clone(), self.config.registration);
        let registration = TaskManagerRegistration {
            job,
            id: self.config.id.clone(),
            session: self.session,
            address: cx.address().clone(),
            data_address: self.config.data_address.clone(),
        };
        let register = async move {
            let connect = || {
                let (service, address) = (service.clone(), address.clone());
                async move {
                    let gateway = service.connect(&address, Some(token)).await;
                    gateway.map_err(attempt_error)
                }
            };
            let call = |gateway: JobMasterClient, _: Duration| {
                let answer = gateway.register_task_manager(registration.clone());
                async move {
                    Ok(match answer.await.map_err(attempt_error)? {
                        RegistrationResponse::Accepted(accepted) => Answer::Success(accepted),
                        RegistrationResponse::Refused { reason } => Answer::Refused(reason),
                        RegistrationResponse::Rejected { reason } => Answer::Rejected(reason),
                    })
                }
            };
            let target = Target {
                name: "JobMaster",
                failures,
            };
            registration::run(target, config, connect, call, fastrand::f64).await
        };
        let guard = spawn_scoped(cx, register, move |this, cx, outcome| {
            this.on_job_master(cx, job, token, id, outcome);
        });
        entry.services_mut().scope = Some(guard);
    }

    fn on_job_master(
        &mut self,
        cx: &mut Context<Self>,
        job: JobId,
        token: FencingToken,
        id: RegistrationId,
        outcome: Ended,
    ) {
        let Some(entry) = self.jobs.get_mut(job) else {
            return;
        };
        let services = entry.services_mut();
        if services.job_master.token != token {
            return;
        }
        let reason = match services.registration.on_outcome(id, outcome) {
            None => return,
            Some(Notice::Registered(accepted)) => {
                self.on_job_master_registered(cx, job, token, accepted);
                return;
            }
            Some(Notice::Rejected(reason)) => {
                // The job has ended before this TaskManager came to it.
                tracing::info!(%job, %reason, "the JobMaster does not need this TaskManager");
                reason
            }
            Some(Notice::Failed(error)) => {
                tracing::warn!(%job, %error, "this TaskManager cannot register at the JobMaster");
                error.to_string()
            }
        };
        let text = format!("the JobMaster does not take this TaskManager: {reason}");
        self.release_job(cx, job, &FailureCause::new(FailureKind::Cluster, text));
    }

    fn on_job_master_registered(
        &mut self,
        cx: &mut Context<Self>,
        job: JobId,
        token: FencingToken,
        accepted: JobMasterAccepted,
    ) {
        let registered = self.jobs.get(job).and_then(|entry| {
            let gateway = entry.services().registration.gateway();
            gateway.cloned()
        });
        let Some(client) = registered else {
            return;
        };
        self.links += 1;
        let number = self.links;
        let mut monitor = HeartbeatMonitor::new(self.config.heartbeat);
        let _ = monitor.monitor(now(), accepted.job_master.clone());
        let guard = spawn_scoped(
            cx,
            client.wait_closed(),
            move |this: &mut Self, cx, error| {
                let text = format!("the connection to the JobMaster ended: {error}");
                this.lose_job_master(cx, job, number, &text);
            },
        );
        let link = JobMasterLink {
            number,
            client,
            token,
            monitor,
            is_used: false,
            unlisted: BTreeSet::new(),
            _watch: guard,
        };
        if let Err((error, _)) = self.jobs.connect(job, accepted.job_master, link) {
            tracing::warn!(%job, %error, "a second connection to a JobMaster is dropped");
            return;
        }
        tracing::info!(%job, "registered at the JobMaster");
        self.offer_slots(cx, job);
        self.arm(cx);
    }

    /// A connection is of no use any more: the job's tasks fail, its slots wait for a JobMaster again.
    pub(super) fn lose_job_master(
        &mut self,
        cx: &mut Context<Self>,
        job: JobId,
        number: u64,
        reason: &str,
    ) {
        if self.closing || self.link(job).is_none_or(|link| link.number != number) {
            return;
        }
        tracing::warn!(%job, reason, "lost the JobMaster, registering again");
        let text = format!(
            "TaskManager {} lost the JobMaster: {reason}",
            self.config.id
        );
        // Not of kind Cluster: a JobMaster that is still there may start the job again.
        let cause = FailureCause::new(FailureKind::Transport, text);
        let is_used = self.link(job).is_some_and(|link| link.is_used);
        self.part_from_job_master(cx, job, &cause);
        let again = self.jobs.get_mut(job).and_then(|entry| {
            let services = entry.services_mut();
            services.failures = if is_used {
                0
            } else {
                services.failures.saturating_add(1)
            };
            services.registration.reconnect().ok()
        });
        if let Some(id) = again {
            self.register_at_job_master(cx, job, id);
        }
        self.arm(cx);
    }

    pub(super) fn check_job_masters(&mut self, cx: &mut Context<Self>, now: Instant) {
        let jobs: Vec<JobId> = self.jobs.jobs().map(|(job, _)| job).collect();
        for job in jobs {
            let link = self.jobs.get_mut(job).and_then(|job| job.connection_mut());
            if let Some(link) = link
                && !link.monitor.on_tick(now).is_empty()
            {
                let number = link.number;
                self.lose_job_master(cx, job, number, "it sent no heartbeat in time");
            }
        }
    }

    /// Takes a connection down: tells the JobMaster, fails the job's tasks, and lets its slots time out.
    fn part_from_job_master(&mut self, cx: &mut Context<Self>, job: JobId, cause: &FailureCause) {
        let Ok((_, link)) = self.jobs.disconnect(job) else {
            return;
        };
        // It may be gone; then there is nobody to be told.
        let _ = link
            .client
            .disconnect_task_manager(self.config.id.clone(), cause.clone());
        self.fail_tasks(cx, job, cause);
        let active: Vec<_> = self.slots.allocations_of(job, SlotState::Active).collect();
        for allocation in active {
            // The slot is there and active, so it can be made inactive.
            let _ = self.slots.mark_inactive(now(), allocation);
        }
        self.services.shuffle.release_job(job);
    }

    /// Frees all slots of a job; with the last one the job itself goes.
    pub(super) fn release_job(&mut self, cx: &mut Context<Self>, job: JobId, cause: &FailureCause) {
        let allocations: Vec<_> = self
            .slots
            .slots_of(job)
            .filter_map(|slot| Some(slot.allocation?.1))
            .collect();
        for allocation in allocations {
            self.free(cx, allocation, cause);
        }
        if self.slots.slots_of(job).next().is_none() {
            self.forget_job(job, cause);
        }
    }

    /// A job without slots has nothing here any more.
    pub(super) fn forget_job(&mut self, job: JobId, cause: &FailureCause) {
        let Ok(closed) = self.jobs.close(job) else {
            return;
        };
        tracing::info!(%job, %cause, "job has no slot here any more");
        if let Some((_, link)) = closed.connection {
            // It may be gone; then there is nobody to be told.
            let _ = link
                .client
                .disconnect_task_manager(self.config.id.clone(), cause.clone());
        }
        self.services.shuffle.release_job(job);
    }

    /// Takes leave of all JobMasters.
    pub(super) fn close_jobs(&mut self, cause: &FailureCause) {
        let jobs: Vec<JobId> = self.jobs.jobs().map(|(job, _)| job).collect();
        for job in jobs {
            self.forget_job(job, cause);
        }
    }
}
