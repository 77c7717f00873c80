//! Peers that do what a test says and tell what they see.

use std::collections::VecDeque;

use bytes::Bytes;
use thalweg_transport::ResourceId;
use tokio::sync::mpsc;

use super::id;
use crate::{
    gateways::*,
    ids::{AllocationId, ExecutionId, FencingToken, InstanceId, JobId},
    job::{FailureCause, JobStatus, TaskMetrics, TaskState},
    rpc::{Answer, Context, Endpoint, HandlerError, Reply},
};

/// What a peer was told or asked.
#[derive(Debug)]
pub(crate) enum Seen {
    TaskExecutor(TaskExecutorRegistration),
    Slots(TaskManagerReport),
    TaskExecutorLeft(String),
    SlotAvailable(u32, AllocationId),
    TaskManager(TaskManagerRegistration),
    TaskManagerLeft(FailureCause),
    Offered(Vec<SlotOffer>),
    SlotFailed(AllocationId),
    State(TaskStateUpdate),
    Result(ExecutionId, u32, Bytes),
    Metrics(Vec<(ExecutionId, TaskMetrics)>),
}

/// An answer to a registration.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Told {
    Accept,
    Refuse,
    Reject,
}

/// What a JobMaster does with slot offers.
#[derive(Debug)]
pub(crate) enum Offers {
    Accept,
    Reject,
    /// Answers when the test says so.
    Keep,
}

pub(crate) struct FakeResourceManager {
    pub(super) token: FencingToken,
    script: VecDeque<Told>,
    /// So many of the next slot reports are refused.
    pub(super) bad_reports: u32,
    instance: Option<InstanceId>,
    seen: mpsc::Sender<Seen>,
}

impl FakeResourceManager {
    pub(crate) fn new(script: Vec<Told>) -> (Self, mpsc::Receiver<Seen>) {
        let (seen, receiver) = mpsc::channel(1000);
        let state = Self {
            token: FencingToken::random(),
            script: script.into(),
            bad_reports: 0,
            instance: None,
            seen,
        };
        (state, receiver)
    }
}

impl Endpoint for FakeResourceManager {}

impl ResourceManagerGateway for FakeResourceManager {
    fn register_task_executor(
        &mut self,
        _cx: &mut Context<Self>,
        registration: TaskExecutorRegistration,
    ) -> Answer<RegistrationResponse<ResourceManagerAccepted>> {
        note(&self.seen, Seen::TaskExecutor(registration));
        let reason = "as the test wants".to_owned();
        Answer::ok(match self.script.pop_front().unwrap_or(Told::Accept) {
            Told::Accept => {
                let instance = InstanceId::random();
                self.instance = Some(instance);
                RegistrationResponse::Accepted(ResourceManagerAccepted {
                    instance,
                    token: self.token,
                    resource_manager: id("jm"),
                })
            }
            Told::Refuse => RegistrationResponse::Refused { reason },
            Told::Reject => RegistrationResponse::Rejected { reason },
        })
    }

    fn report_slots(
        &mut self,
        _cx: &mut Context<Self>,
        instance: InstanceId,
        report: TaskManagerReport,
    ) -> Answer<()> {
        assert_eq!(Some(instance), self.instance, "of the latest registration");
        note(&self.seen, Seen::Slots(report));
        if self.bad_reports > 0 {
            self.bad_reports -= 1;
            return Answer::err(HandlerError::new("report.invalid", "as the test wants"));
        }
        Answer::ok(())
    }

    fn disconnect_task_executor(
        &mut self,
        _cx: &mut Context<Self>,
        _instance: InstanceId,
        reason: String,
    ) {
        note(&self.seen, Seen::TaskExecutorLeft(reason));
    }

    fn notify_slot_available(
        &mut self,
        _cx: &mut Context<Self>,
        _instance: InstanceId,
        slot: u32,
        allocation: AllocationId,
    ) {
        note(&self.seen, Seen::SlotAvailable(slot, allocation));
    }

    fn request_slots(&mut self, _cx: &mut Context<Self>, _request: SlotsRequest) -> Answer<()> {
        Answer::err(unused())
    }

    fn release_job(&mut self, _cx: &mut Context<Self>, _job: JobId) {}

    fn overview(&mut self, _cx: &mut Context<Self>) -> Answer<Vec<TaskManagerStatus>> {
        Answer::err(unused())
    }
}

pub(super) struct FakeJobMaster {
    job: JobId,
    pub(super) offers: Offers,
    /// Registrations are rejected.
    pub(super) rejects: bool,
    pub(super) kept: Vec<Reply<Vec<AllocationId>>>,
    seen: mpsc::Sender<Seen>,
}

impl FakeJobMaster {
    pub(super) fn new(job: JobId, offers: Offers) -> (Self, mpsc::Receiver<Seen>) {
        let (seen, receiver) = mpsc::channel(1000);
        let state = Self {
            job,
            offers,
            rejects: false,
            kept: Vec::new(),
            seen,
        };
        (state, receiver)
    }
}

impl Endpoint for FakeJobMaster {}

impl JobMasterGateway for FakeJobMaster {
    fn register_task_manager(
        &mut self,
        _cx: &mut Context<Self>,
        registration: TaskManagerRegistration,
    ) -> Answer<RegistrationResponse<JobMasterAccepted>> {
        let rejected = self.rejects || registration.job != self.job;
        note(&self.seen, Seen::TaskManager(registration));
        Answer::ok(if rejected {
            let reason = "not this job".to_owned();
            RegistrationResponse::Rejected { reason }
        } else {
            RegistrationResponse::Accepted(JobMasterAccepted {
                job_master: id("jm"),
            })
        })
    }

    fn offer_slots(
        &mut self,
        _cx: &mut Context<Self>,
        _task_manager: ResourceId,
        offers: Vec<SlotOffer>,
    ) -> Answer<Vec<AllocationId>> {
        let all = offers.iter().map(|offer| offer.allocation).collect();
        note(&self.seen, Seen::Offered(offers));
        match self.offers {
            Offers::Accept => Answer::ok(all),
            Offers::Reject => Answer::ok(Vec::new()),
            Offers::Keep => {
                let (reply, answer) = Answer::deferred();
                self.kept.push(reply);
                answer
            }
        }
    }

    fn fail_slot(
        &mut self,
        _cx: &mut Context<Self>,
        _task_manager: ResourceId,
        allocation: AllocationId,
        _cause: FailureCause,
    ) {
        note(&self.seen, Seen::SlotFailed(allocation));
    }

    fn update_task_state(
        &mut self,
        _cx: &mut Context<Self>,
        update: TaskStateUpdate,
    ) -> Answer<()> {
        note(&self.seen, Seen::State(update));
        Answer::ok(())
    }

    fn add_task_result(
        &mut self,
        _cx: &mut Context<Self>,
        execution: ExecutionId,
        sequence: u32,
        bytes: Bytes,
    ) -> Answer<()> {
        note(&self.seen, Seen::Result(execution, sequence, bytes));
        Answer::ok(())
    }

    fn report_metrics(
        &mut self,
        _cx: &mut Context<Self>,
        _task_manager: ResourceId,
        _connections: u64,
        metrics: Vec<(ExecutionId, TaskMetrics)>,
    ) {
        // With the end of a task come connections alone.
        if !metrics.is_empty() {
            note(&self.seen, Seen::Metrics(metrics));
        }
    }

    fn partition_producer_state(
        &mut self,
        _cx: &mut Context<Self>,
        _partition: PartitionKey,
    ) -> Answer<TaskState> {
        Answer::ok(TaskState::Failed)
    }

    fn disconnect_task_manager(
        &mut self,
        _cx: &mut Context<Self>,
        _task_manager: ResourceId,
        cause: FailureCause,
    ) {
        note(&self.seen, Seen::TaskManagerLeft(cause));
    }

    fn cancel(&mut self, _cx: &mut Context<Self>) -> Answer<()> {
        Answer::err(unused())
    }

    fn status(&mut self, _cx: &mut Context<Self>) -> Answer<JobStatus> {
        Answer::err(unused())
    }

    fn result(&mut self, _cx: &mut Context<Self>, _offset: u64, _max: u32) -> Answer<ResultChunk> {
        Answer::err(unused())
    }
}

/// A test that lets more come together than the channel holds does not look at it.
fn note(seen: &mpsc::Sender<Seen>, what: Seen) {
    let _ = seen.try_send(what);
}

fn unused() -> HandlerError {
    HandlerError::new("fake.unused", "no TaskExecutor asks this")
}
