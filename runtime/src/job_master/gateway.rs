//! What others ask of a JobMaster.

use bytes::Bytes;
use thalweg_transport::ResourceId;

use super::{endpoint::JobMaster, execution_graph::GraphEvent};
use crate::{
    gateways::{
        JobMasterAccepted, JobMasterGateway, PartitionKey, RegistrationResponse, ResultChunk,
        SlotOffer, TaskManagerRegistration, TaskStateUpdate,
    },
    ids::{AllocationId, ExecutionId},
    job::{FailureCause, JobState, JobStatus, TaskMetrics, TaskState},
    rpc::{Answer, Context, HandlerError},
};

impl JobMasterGateway for JobMaster {
    fn register_task_manager(
        &mut self,
        cx: &mut Context<Self>,
        registration: TaskManagerRegistration,
    ) -> Answer<RegistrationResponse<JobMasterAccepted>> {
        let id = registration.id.clone();
        let rejected = if let Err(error) = cx.check_registration(&id, &registration.address) {
            Some(error.to_string())
        } else if registration.job != self.job {
            Some(format!(
                "this is the JobMaster of job {}, not of {}",
                self.job, registration.job
            ))
        } else if self.graph.state().is_terminal() {
            Some(format!("job {} has ended", self.job))
        } else {
            None
        };
        if let Some(reason) = rejected {
            return Answer::ok(RegistrationResponse::Rejected { reason });
        }
        if self.task_managers.is_registered(&id, registration.session) {
            self.on_registered_again(cx, id);
            return Answer::ok(RegistrationResponse::Accepted(self.welcome()));
        }
        let Some(connect) = self.task_managers.begin_connect(&id) else {
            let reason = "too many registrations are under way".to_owned();
            return Answer::ok(RegistrationResponse::Refused { reason });
        };
        let address = registration.address.clone();
        cx.connect_back(&address, move |this: &mut Self, cx, result| {
            this.on_connected(cx, registration, connect, result)
        })
    }

    fn offer_slots(
        &mut self,
        cx: &mut Context<Self>,
        task_manager: ResourceId,
        offers: Vec<SlotOffer>,
    ) -> Answer<Vec<AllocationId>> {
        if let Err(error) = cx.check_caller(&task_manager) {
            return Answer::err(error);
        }
        if !self.task_managers.is_connected(&task_manager) {
            let message = format!("TaskManager {task_manager} is not registered at this job");
            return Answer::err(HandlerError::new("job_master.not_registered", message));
        }
        let waiting = self.pool.is_waiting();
        let accepted = self.pool.offer(&task_manager, &offers);
        tracing::debug!(job = %self.job, %task_manager, offered = offers.len(), accepted = accepted.len(), "slots offered");
        if waiting {
            self.on_slots_complete(cx);
        }
        Answer::ok(accepted)
    }

    fn fail_slot(
        &mut self,
        cx: &mut Context<Self>,
        task_manager: ResourceId,
        allocation: AllocationId,
        cause: FailureCause,
    ) {
        if cx.check_caller(&task_manager).is_err() {
            return;
        }
        tracing::warn!(job = %self.job, %task_manager, %allocation, %cause, "slot failed");
        if self.pool.on_slot_failed(&task_manager, allocation) && self.pool.is_waiting() {
            self.acquire_slots(cx);
        }
    }

    fn update_task_state(&mut self, cx: &mut Context<Self>, update: TaskStateUpdate) -> Answer<()> {
        if let Err(error) = self.check_owner(cx, update.execution) {
            return Answer::err(error);
        }
        let event = GraphEvent::TaskUpdate {
            execution: update.execution,
            state: update.state,
            failure: update.failure,
            metrics: update.metrics,
        };
        self.on_event(cx, event);
        Answer::ok(())
    }

    fn add_task_result(
        &mut self,
        cx: &mut Context<Self>,
        execution: ExecutionId,
        sequence: u32,
        bytes: Bytes,
    ) -> Answer<()> {
        if let Err(error) = self.check_owner(cx, execution) {
            return Answer::err(error);
        }
        let runs = self.graph.state() == JobState::Running
            && self
                .graph
                .task_state(execution)
                .is_some_and(|state| !state.is_terminal());
        if !runs {
            return Answer::ok(());
        }
        match self.results.add(execution, sequence, bytes) {
            Ok(()) => Answer::ok(()),
            Err(error) => {
                self.fail(cx, error.cause());
                Answer::err(error.cause())
            }
        }
    }

    fn report_metrics(
        &mut self,
        cx: &mut Context<Self>,
        task_manager: ResourceId,
        connections: u64,
        metrics: Vec<(ExecutionId, TaskMetrics)>,
    ) {
        if cx.check_caller(&task_manager).is_err() {
            return;
        }
        self.task_managers
            .set_connections(&task_manager, connections);
        for (execution, metrics) in metrics {
            self.graph.on_metrics(&task_manager, execution, metrics);
        }
    }

    fn partition_producer_state(
        &mut self,
        _cx: &mut Context<Self>,
        partition: PartitionKey,
    ) -> Answer<TaskState> {
        match self.graph.task_state(partition.producer) {
            Some(state) => Answer::ok(state),
            None => {
                let message =
                    format!("the producer of partition {partition} is of another attempt");
                Answer::err(HandlerError::new("job_master.unknown_producer", message))
            }
        }
    }

    fn disconnect_task_manager(
        &mut self,
        cx: &mut Context<Self>,
        task_manager: ResourceId,
        cause: FailureCause,
    ) {
        if cx.check_caller(&task_manager).is_ok() {
            self.on_lost(cx, &task_manager, &format!("it disconnected: {cause}"));
        }
    }

    fn cancel(&mut self, cx: &mut Context<Self>) -> Answer<()> {
        self.on_event(cx, GraphEvent::Cancel);
        Answer::ok(())
    }

    fn status(&mut self, _cx: &mut Context<Self>) -> Answer<JobStatus> {
        Answer::ok(self.job_status())
    }

    fn result(&mut self, _cx: &mut Context<Self>, offset: u64, max: u32) -> Answer<ResultChunk> {
        let state = self.graph.state();
        if state != JobState::Finished {
            let message = format!(
                "job {} is {state}: only a finished job has a result",
                self.job
            );
            return Answer::err(HandlerError::new("job_master.no_result", message));
        }
        let (bytes, end) = self.published().read(offset, max);
        Answer::ok(ResultChunk { bytes, end })
    }
}

impl JobMaster {
    /// Checks that what is said of a task comes from the TaskManager that it was deployed to.
    fn check_owner(&self, cx: &Context<Self>, execution: ExecutionId) -> Result<(), HandlerError> {
        match self.graph.task_manager(execution) {
            Some(owner) => cx.check_caller(owner),
            None => Ok(()),
        }
    }
}
