//! The endpoint that runs tasks: its state, its life, its timer.

use std::{collections::BTreeMap, time::Instant};

use thalweg_transport::now;

use super::{
    config::{TaskExecutorConfig, TaskExecutorServices},
    job_master::{JobMasterLink, JobServices},
    resource_manager::ResourceManagerLink,
    status::TaskExecutorStatus,
    task::RunningTask,
};
use crate::{
    gateways::{TaskExecutorRegistration, TaskManagerReport},
    ids::{ExecutionId, SessionId},
    job::{FailureCause, FailureKind},
    rpc::{Answer, Context, Endpoint, HandlerError, Reply},
    slots::{JobTable, SlotTable},
};

/// Offers slots to jobs and runs their tasks, the counterpart of Flink's `TaskExecutor`.
///
/// Spawn it as an endpoint that serves [`TaskExecutorGateway`](crate::gateways::TaskExecutorGateway); from its start on
/// it registers at the ResourceManager, again whenever it loses it. When it is terminated it says goodbye to
/// ResourceManager and JobMasters, stops its tasks and waits for them.
pub struct TaskExecutor {
    pub(super) config: TaskExecutorConfig,
    pub(super) services: TaskExecutorServices,
    pub(super) session: SessionId,
    pub(super) status: TaskExecutorStatus,
    pub(super) slots: SlotTable,
    pub(super) jobs: JobTable<JobServices, JobMasterLink>,
    /// Attempts that run, and ended ones whose JobMaster does not know it yet.
    pub(super) tasks: BTreeMap<ExecutionId, RunningTask>,
    pub(super) resource_manager: ResourceManagerLink,
    /// Numbers the connections to JobMasters.
    pub(super) links: u64,
    /// Whether the next report of counters is scheduled.
    pub(super) reporting: bool,
    /// When the earliest scheduled look at the deadlines happens.
    timer: Option<Instant>,
    /// The TaskExecutor stops; answered when all tasks have ended.
    stopping: Option<Reply<()>>,
    pub(super) closing: bool,
}

impl TaskExecutor {
    /// A TaskExecutor with all slots free.
    #[must_use]
    pub fn new(config: TaskExecutorConfig, services: TaskExecutorServices) -> Self {
        Self {
            slots: SlotTable::new(config.slots),
            resource_manager: ResourceManagerLink::new(&config),
            config,
            services,
            session: SessionId::random(),
            status: TaskExecutorStatus::new(),
            jobs: JobTable::new(),
            tasks: BTreeMap::new(),
            links: 0,
            reporting: false,
            timer: None,
            stopping: None,
            closing: false,
        }
    }

    /// What its owner can wait for.
    #[must_use]
    pub fn status(&self) -> TaskExecutorStatus {
        self.status.clone()
    }

    pub(super) fn report(&self) -> TaskManagerReport {
        (self.services.describe)(self.slots.report())
    }

    pub(super) fn registration(&self, cx: &Context<Self>) -> TaskExecutorRegistration {
        TaskExecutorRegistration {
            id: self.config.id.clone(),
            session: self.session,
            address: cx.address().clone(),
            data_address: self.config.data_address.clone(),
        }
    }

    /// A failure that ends the TaskManager: its owner hears it.
    pub(super) fn fatal(&mut self, kind: FailureKind, message: impl Into<String>) {
        self.status.set_fatal(FailureCause::new(kind, message));
    }

    /// Makes sure that the deadlines are looked at when the first one passes.
    ///
    /// A deadline that moves back leaves the timer as it is: it fires, finds nothing, and is set anew. So there is about
    /// one timer, however often heartbeats come.
    pub(super) fn arm(&mut self, cx: &mut Context<Self>) {
        let links = self.jobs.jobs().filter_map(|(_, job)| job.connection());
        let deadlines = links
            .filter_map(|(_, link)| link.monitor.next_deadline())
            .chain(self.slots.next_deadline())
            .chain(self.resource_manager.next_deadline());
        let Some(next) = deadlines.min() else {
            return;
        };
        if self.timer.is_some_and(|armed| armed <= next) {
            return;
        }
        self.timer = Some(next);
        cx.schedule(next.saturating_duration_since(now()), move |this, cx| {
            if this.timer == Some(next) {
                this.timer = None;
                this.on_deadline(cx);
            }
        });
    }

    fn on_deadline(&mut self, cx: &mut Context<Self>) {
        let now = now();
        for ticket in self.slots.expired(now) {
            let cause = FailureCause::new(FailureKind::Resources, "the slot timed out");
            let actions = self.slots.on_timeout(&ticket);
            self.apply(cx, actions, &cause);
        }
        self.check_resource_manager(cx, now);
        self.check_job_masters(cx, now);
        self.arm(cx);
    }

    /// Answers the termination once nothing runs any more.
    pub(super) fn stop_if_idle(&mut self) {
        if self.tasks.is_empty()
            && let Some(reply) = self.stopping.take()
        {
            reply.send(Ok(()));
        }
    }
}

impl Endpoint for TaskExecutor {
    fn on_start(&mut self, cx: &mut Context<Self>) -> Result<(), HandlerError> {
        tracing::info!(id = %self.config.id, session = %self.session, address = %cx.address(), "TaskExecutor starts");
        self.start_resource_manager(cx)
    }

    fn on_stop(&mut self, cx: &mut Context<Self>) -> Answer<()> {
        self.closing = true;
        let text = format!("TaskManager {} is shutting down", self.config.id);
        let cause = FailureCause::new(FailureKind::Cluster, text.as_str());
        // First of all: what follows is no reason to register again, and no slot is offered as free.
        self.close_resource_manager(&text);
        self.close_jobs(&cause);
        let actions = self.slots.close(&text);
        self.apply(cx, actions, &cause);
        if self.tasks.is_empty() {
            return Answer::ok(());
        }
        tracing::info!(tasks = self.tasks.len(), "waiting for tasks to stop");
        let (reply, answer) = Answer::deferred();
        self.stopping = Some(reply);
        answer
    }
}

impl Drop for TaskExecutor {
    /// An endpoint that did not end well leaves no task behind that thinks it is wanted.
    fn drop(&mut self) {
        for task in self.tasks.values() {
            task.cancel();
        }
    }
}

impl std::fmt::Debug for TaskExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskExecutor")
            .field("id", &self.config.id)
            .field("session", &self.session)
            .field("tasks", &self.tasks.len())
            .finish_non_exhaustive()
    }
}
