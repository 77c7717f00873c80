//! What ResourceManager and JobMasters ask of a TaskExecutor.

use thalweg_transport::now;

use super::{error, executor::TaskExecutor};
use crate::{
    gateways::{
        DisconnectReason, ExecutionReport, SlotAssignment, TaskDeployment, TaskExecutorGateway,
        TaskManagerReport,
    },
    ids::{AllocationId, ExecutionId, FencingToken, JobId, SessionId},
    job::{FailureCause, FailureKind},
    rpc::{Answer, Context},
};

impl TaskExecutorGateway for TaskExecutor {
    fn request_slot(
        &mut self,
        cx: &mut Context<Self>,
        resource_manager: FencingToken,
        assignment: SlotAssignment,
    ) -> Answer<()> {
        self.assign_slot(cx, resource_manager, &assignment).into()
    }

    fn submit_task(
        &mut self,
        cx: &mut Context<Self>,
        job_master: FencingToken,
        deployment: TaskDeployment,
    ) -> Answer<()> {
        self.submit(cx, job_master, deployment).into()
    }

    fn cancel_task(&mut self, cx: &mut Context<Self>, execution: ExecutionId) -> Answer<()> {
        self.cancel(cx, execution);
        Answer::ok(())
    }

    fn free_slot(
        &mut self,
        cx: &mut Context<Self>,
        allocation: AllocationId,
        cause: FailureCause,
    ) -> Answer<()> {
        self.free(cx, allocation, &cause);
        Answer::ok(())
    }

    fn heartbeat_from_resource_manager(
        &mut self,
        _cx: &mut Context<Self>,
        resource_manager: FencingToken,
    ) -> Answer<TaskManagerReport> {
        if !self.resource_manager.is_session(resource_manager) {
            return Answer::err(error::wrong_resource_manager());
        }
        self.resource_manager.on_heartbeat();
        Answer::ok(self.report())
    }

    fn heartbeat_from_job_master(
        &mut self,
        cx: &mut Context<Self>,
        job: JobId,
        job_master: FencingToken,
        allocations: Vec<AllocationId>,
    ) -> Answer<ExecutionReport> {
        let connection = self.jobs.get_mut(job).and_then(|entry| {
            let peer = entry.connection()?.0.clone();
            let link = entry.connection_mut()?;
            (link.token == job_master).then(|| {
                link.is_used = true;
                link.monitor.on_heartbeat(now(), &peer);
            })
        });
        if connection.is_none() {
            let text = format!("no connection to this JobMaster of job {job}");
            return Answer::err(error::wrong_job_master(text));
        }
        self.reconcile_slots(cx, job, &allocations);
        Answer::ok(self.execution_report(job))
    }

    fn disconnect_resource_manager(
        &mut self,
        cx: &mut Context<Self>,
        session: SessionId,
        reason: DisconnectReason,
    ) {
        if session != self.session {
            tracing::debug!(%session, "the ResourceManager means another start of this TaskManager");
            return;
        }
        match reason {
            DisconnectReason::Replaced { by } => {
                let text = format!(
                    "this TaskManager was replaced by another one with the same id at {by}"
                );
                self.close_resource_manager("replaced");
                self.fatal(FailureKind::Cluster, text);
            }
            DisconnectReason::HeartbeatTimeout => {
                self.lose_resource_manager(cx, "it heard no heartbeat of this TaskManager");
            }
            DisconnectReason::Stopping => self.leave_resource_manager(cx),
        }
    }

    fn disconnect_job_master(
        &mut self,
        cx: &mut Context<Self>,
        job: JobId,
        job_master: FencingToken,
        cause: FailureCause,
    ) {
        let number = self
            .link(job)
            .filter(|link| link.token == job_master)
            .map(|link| link.number);
        match number {
            // It ends for good, with its job or with the cluster: nobody will ask for the slots again.
            Some(_) if cause.kind == FailureKind::Cluster => self.free_all(cx, job, &cause),
            Some(number) => self.lose_job_master(cx, job, number, &cause.message),
            None => {}
        }
    }
}
