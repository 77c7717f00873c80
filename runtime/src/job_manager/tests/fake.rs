//! A TaskExecutor that does what a test says.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use bytes::Bytes;

use super::*;
use crate::rpc::tests::serve;

/// What becomes of a submitted task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behaviour {
    /// It gives its vertex and subtask as a result, and finishes.
    Finish,
    /// It runs until it is cancelled.
    Run,
    /// It fails.
    Fail,
    /// It is not accepted.
    Refuse,
}

/// Decides by vertex name, subtask and attempt.
pub(super) type Script = Arc<dyn Fn(&TaskDeployment) -> Behaviour + Send + Sync>;

/// What a test sees of, and changes at, a fake.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) log: Mutex<Vec<String>>,
    pub(super) refuse_slots: Mutex<bool>,
    pub(super) silent: Mutex<bool>,
    /// Heartbeats are answered with slots that cannot be.
    pub(super) lies: Mutex<bool>,
    pub(super) job_master: Mutex<Option<JobMasterAddress>>,
    pub(super) masters: Mutex<BTreeMap<JobId, JobMasterAddress>>,
    pub(super) accepted: Mutex<Vec<AllocationId>>,
}

impl Shared {
    fn note(&self, line: String) {
        self.log.lock().unwrap().push(line);
    }

    pub(super) fn saw(&self, part: &str) -> usize {
        let log = self.log.lock().unwrap();
        log.iter().filter(|line| line.contains(part)).count()
    }
}

pub(super) struct FakeTaskExecutor {
    id: ResourceId,
    session: SessionId,
    instance: Option<InstanceId>,
    slots: Vec<Option<(JobId, AllocationId)>>,
    tasks: BTreeMap<ExecutionId, JobId>,
    resource_manager: ResourceManagerClient,
    script: Script,
    shared: Arc<Shared>,
}

/// A fake that runs.
pub(super) struct Fake {
    pub(super) handle: EndpointHandle<FakeTaskExecutor>,
    pub(super) shared: Arc<Shared>,
    pub(super) id: ResourceId,
    pub(super) session: SessionId,
    service: RpcService,
    resource_manager: ResourceManagerClient,
}

impl Fake {
    pub(super) async fn start(
        service: &RpcService,
        resource_manager: ResourceManagerClient,
        (name, endpoint): (&str, &str),
        slots: usize,
        script: Script,
    ) -> Self {
        let shared = Arc::new(Shared::default());
        let fake = FakeTaskExecutor {
            id: id(name),
            session: SessionId::random(),
            instance: None,
            slots: vec![None; slots],
            tasks: BTreeMap::new(),
            resource_manager: resource_manager.clone(),
            script,
            shared: Arc::clone(&shared),
        };
        let session = fake.session;
        let handle = serve::<TaskExecutorClient, _>(service, endpoint, fake);
        let fake = Self {
            handle,
            shared,
            id: id(name),
            session,
            service: service.clone(),
            resource_manager,
        };
        fake.come().await;
        fake
    }

    /// Registers and reports its slots.
    pub(super) async fn come(&self) -> InstanceId {
        let instance = accepted(self.register().await);
        let main = self.handle.main_thread();
        main.run_async(move |fake, _| fake.instance = Some(instance))
            .unwrap();
        let report = self.report().await;
        let manager = &self.resource_manager;
        manager.report_slots(instance, report).await.unwrap();
        instance
    }

    /// What it has to report.
    pub(super) async fn report(&self) -> TaskManagerReport {
        let main = self.handle.main_thread();
        let report = main.call_async(Deadline::Never, |fake, _| fake.report());
        report.await.unwrap()
    }

    pub(super) fn registration(&self) -> TaskExecutorRegistration {
        TaskExecutorRegistration {
            id: self.id.clone(),
            session: self.session,
            address: self.handle.address().clone(),
            data_address: format!("{}:1", self.handle.name()),
        }
    }

    pub(super) async fn register(&self) -> RegistrationResponse<ResourceManagerAccepted> {
        let answer = self
            .resource_manager
            .register_task_executor(self.registration());
        answer.await.unwrap()
    }

    /// The process dies.
    pub(super) async fn kill(&self) {
        self.handle.terminate().await.unwrap();
    }

    /// A gateway of the latest JobMaster that a slot was given to.
    pub(super) async fn job_master(&self) -> JobMasterClient {
        let address = self.shared.job_master.lock().unwrap().clone().unwrap();
        let connect = self.service.connect(&address.address, Some(address.token));
        connect.await.unwrap()
    }
}

pub(super) fn accepted(response: RegistrationResponse<ResourceManagerAccepted>) -> InstanceId {
    match response {
        RegistrationResponse::Accepted(accepted) => accepted.instance,
        other => panic!("{other:?}"),
    }
}

impl FakeTaskExecutor {
    fn report(&self) -> TaskManagerReport {
        let slots = (0..)
            .zip(&self.slots)
            .map(|(index, &allocation)| SlotStatus {
                index,
                state: if allocation.is_some() {
                    SlotState::Active
                } else {
                    SlotState::Free
                },
                profile: ResourceProfile { memory_bytes: 1 },
                allocation,
            })
            .collect();
        TaskManagerReport {
            slots: SlotReport { slots },
            identity: None,
            tls: "off".to_owned(),
            certificate_expires: None,
            certificate_fingerprint: None,
            connections: Vec::new(),
        }
    }

    /// Registers at a JobMaster and offers the slots of its job.
    fn offer(&self, cx: &mut Context<Self>, assignment: &SlotAssignment) {
        let (job, address) = (assignment.job, assignment.job_master.clone());
        let offers: Vec<_> = (0..)
            .zip(&self.slots)
            .filter_map(|(slot, owner)| {
                let (owner, allocation) = (*owner)?;
                (owner == job).then_some(SlotOffer { allocation, slot })
            })
            .collect();
        let registration = TaskManagerRegistration {
            job,
            id: self.id.clone(),
            session: self.session,
            address: cx.address().clone(),
            data_address: format!("{}:1", cx.name()),
        };
        let (service, id) = (cx.service().clone(), self.id.clone());
        let offer = async move {
            let master: JobMasterClient = service
                .connect(&address.address, Some(address.token))
                .await?;
            let answer = master.register_task_manager(registration).await?;
            assert!(
                matches!(answer, RegistrationResponse::Accepted(_)),
                "{answer:?}"
            );
            let accepted = master.offer_slots(id, offers).await?;
            Ok::<_, RpcError>(accepted)
        };
        cx.spawn(offer, move |this, _, result| match result {
            Ok(accepted) => this.shared.accepted.lock().unwrap().extend(accepted),
            Err(error) => this.shared.note(format!("offer failed: {error}")),
        });
    }

    fn update(
        &self,
        cx: &mut Context<Self>,
        execution: ExecutionId,
        steps: Vec<(TaskState, Option<Bytes>)>,
    ) {
        let (service, shared) = (cx.service().clone(), Arc::clone(&self.shared));
        let address = self.shared.masters.lock().unwrap()[&execution.job].clone();
        let report = async move {
            let master: JobMasterClient = service
                .connect(&address.address, Some(address.token))
                .await?;
            for (state, result) in steps {
                if let Some(bytes) = result {
                    master.add_task_result(execution, 0, bytes).await?;
                }
                let failure = (state == TaskState::Failed)
                    .then(|| FailureCause::new(FailureKind::User, "boom"));
                master
                    .update_task_state(TaskStateUpdate {
                        execution,
                        state,
                        failure,
                        metrics: TaskMetrics {
                            records_out: 5,
                            ..TaskMetrics::default()
                        },
                    })
                    .await?;
            }
            Ok::<_, RpcError>(())
        };
        cx.spawn(report, move |_, _, result| {
            if let Err(error) = result {
                shared.note(format!("update failed: {error}"));
            }
        });
    }
}

impl Endpoint for FakeTaskExecutor {}

impl TaskExecutorGateway for FakeTaskExecutor {
    fn request_slot(
        &mut self,
        cx: &mut Context<Self>,
        _resource_manager: FencingToken,
        assignment: SlotAssignment,
    ) -> Answer<()> {
        if *self.shared.refuse_slots.lock().unwrap() {
            self.shared.note("slot refused".to_owned());
            return Answer::err(HandlerError::new("slot.no_free_slot", "none"));
        }
        let slot = &mut self.slots[assignment.slot as usize];
        assert!(slot.is_none(), "a slot is given once");
        *slot = Some((assignment.job, assignment.allocation));
        let master = assignment.job_master.clone();
        *self.shared.job_master.lock().unwrap() = Some(master.clone());
        self.shared
            .masters
            .lock()
            .unwrap()
            .insert(assignment.job, master);
        self.offer(cx, &assignment);
        Answer::ok(())
    }

    fn submit_task(
        &mut self,
        cx: &mut Context<Self>,
        _job_master: FencingToken,
        deployment: TaskDeployment,
    ) -> Answer<()> {
        let execution = deployment.execution;
        let held = self.slots.iter().flatten();
        assert!(
            held.clone().any(|(_, id)| *id == deployment.allocation),
            "tasks come to slots that the job has"
        );
        self.shared.note(format!(
            "submit {}.{}#{}",
            deployment.vertex_name, execution.subtask, execution.attempt
        ));
        let result = format!("{}{} ", deployment.vertex_name, execution.subtask);
        let steps = match (self.script)(&deployment) {
            Behaviour::Finish => vec![
                (TaskState::Running, None),
                (TaskState::Finished, Some(Bytes::from(result))),
            ],
            Behaviour::Run => {
                self.tasks.insert(execution, execution.job);
                vec![(TaskState::Running, None)]
            }
            Behaviour::Fail => vec![(TaskState::Running, None), (TaskState::Failed, None)],
            Behaviour::Refuse => {
                let cause = FailureCause::new(FailureKind::InvalidJob, "bad configuration");
                return Answer::err(cause);
            }
        };
        self.update(cx, execution, steps);
        Answer::ok(())
    }

    fn cancel_task(&mut self, cx: &mut Context<Self>, execution: ExecutionId) -> Answer<()> {
        if self.tasks.remove(&execution).is_some() {
            self.shared.note("cancelled".to_owned());
            self.update(cx, execution, vec![(TaskState::Canceled, None)]);
        }
        Answer::ok(())
    }

    fn free_slot(
        &mut self,
        _cx: &mut Context<Self>,
        allocation: AllocationId,
        _cause: FailureCause,
    ) -> Answer<()> {
        for (index, slot) in (0..).zip(&mut self.slots) {
            if slot.is_some_and(|(_, id)| id == allocation) {
                *slot = None;
                let instance = self.instance.unwrap();
                self.resource_manager
                    .notify_slot_available(instance, index, allocation)
                    .unwrap();
            }
        }
        Answer::ok(())
    }

    fn heartbeat_from_resource_manager(
        &mut self,
        _cx: &mut Context<Self>,
        _resource_manager: FencingToken,
    ) -> Answer<TaskManagerReport> {
        if *self.shared.silent.lock().unwrap() {
            return Answer::future(std::future::pending());
        }
        let mut report = self.report();
        if *self.shared.lies.lock().unwrap() {
            self.shared.note("lied".to_owned());
            for slot in &mut report.slots.slots {
                slot.index |= 1 << 31;
            }
        }
        Answer::ok(report)
    }

    fn heartbeat_from_job_master(
        &mut self,
        _cx: &mut Context<Self>,
        job: JobId,
        _job_master: FencingToken,
        allocations: Vec<AllocationId>,
    ) -> Answer<ExecutionReport> {
        if *self.shared.silent.lock().unwrap() {
            return Answer::future(std::future::pending());
        }
        let running = self.tasks.iter().filter(|(_, owner)| **owner == job);
        Answer::ok(ExecutionReport {
            tasks: running
                .map(|(task, _)| (*task, TaskState::Running, TaskMetrics::default()))
                .collect(),
            allocations,
            connections: 1,
        })
    }

    fn disconnect_resource_manager(
        &mut self,
        _cx: &mut Context<Self>,
        session: SessionId,
        reason: DisconnectReason,
    ) {
        assert_eq!(session, self.session);
        self.shared.note(format!("disconnected: {reason:?}"));
    }

    fn disconnect_job_master(
        &mut self,
        _cx: &mut Context<Self>,
        _job: JobId,
        _job_master: FencingToken,
        cause: FailureCause,
    ) {
        self.shared.note(format!("job master gone: {cause}"));
    }
}
