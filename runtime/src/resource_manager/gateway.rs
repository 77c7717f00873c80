//! What others ask of the ResourceManager.

use thalweg_transport::{ResourceId, now};

use super::{endpoint::ResourceManager, report::check_text};
use crate::{
    gateways::{
        RegistrationResponse, ResourceManagerAccepted, ResourceManagerGateway, SlotsRequest,
        TaskExecutorRegistration, TaskManagerReport, TaskManagerStatus,
    },
    ids::{AllocationId, InstanceId, JobId},
    rpc::{Answer, Context, HandlerError},
};

impl ResourceManagerGateway for ResourceManager {
    fn register_task_executor(
        &mut self,
        cx: &mut Context<Self>,
        registration: TaskExecutorRegistration,
    ) -> Answer<RegistrationResponse<ResourceManagerAccepted>> {
        let id = registration.id.clone();
        let checked = cx
            .check_registration(&id, &registration.address)
            .and_then(|()| check_text("data_address", Some(&registration.data_address)));
        if let Err(error) = checked {
            let reason = error.to_string();
            return Answer::ok(RegistrationResponse::Rejected { reason });
        }
        if let Some(known) = self.registered.get(&id)
            && known.session == registration.session
            && known.gateway.closed().is_none()
        {
            let welcome = self.welcome(known.instance);
            return Answer::ok(RegistrationResponse::Accepted(welcome));
        }
        let is_new = !self.registered.contains_key(&id) && !self.connecting.contains_key(&id);
        if is_new && self.registered.len() + self.connecting.len() >= MAX_TASK_MANAGERS {
            let reason =
                format!("{MAX_TASK_MANAGERS} TaskManagers are registered: no more are taken");
            return Answer::ok(RegistrationResponse::Refused { reason });
        }
        self.last_connect += 1;
        let connect = self.last_connect;
        self.connecting.insert(id, connect);
        let address = registration.address.clone();
        cx.connect_back(&address, move |this: &mut Self, cx, result| {
            this.on_connected(cx, registration, connect, result)
        })
    }

    fn report_slots(
        &mut self,
        cx: &mut Context<Self>,
        instance: InstanceId,
        report: TaskManagerReport,
    ) -> Answer<()> {
        let Some(id) = self.calling(cx, instance) else {
            let message = format!("there is no registration {instance}");
            let error = HandlerError::new("resource_manager.not_registered", message);
            return Answer::err(error);
        };
        self.on_report(cx, &id, instance, report).into()
    }

    fn disconnect_task_executor(
        &mut self,
        cx: &mut Context<Self>,
        instance: InstanceId,
        reason: String,
    ) {
        if let Some(id) = self.calling(cx, instance) {
            self.on_left(cx, &id, instance, &reason);
        }
    }

    fn notify_slot_available(
        &mut self,
        cx: &mut Context<Self>,
        instance: InstanceId,
        slot: u32,
        allocation: AllocationId,
    ) {
        if self.calling(cx, instance).is_some() {
            let actions = self.slots.on_slot_available(instance, slot, allocation);
            self.perform(cx, actions);
        }
    }

    fn request_slots(&mut self, cx: &mut Context<Self>, request: SlotsRequest) -> Answer<()> {
        tracing::debug!(job = %request.job, slots = request.slots.len(), "slots requested");
        let actions = self.slots.on_request(now(), request);
        self.perform(cx, actions);
        Answer::ok(())
    }

    fn release_job(&mut self, cx: &mut Context<Self>, job: JobId) {
        let actions = self.slots.release_job(job);
        self.perform(cx, actions);
    }

    fn overview(&mut self, _cx: &mut Context<Self>) -> Answer<Vec<TaskManagerStatus>> {
        Answer::ok(self.statuses())
    }
}

impl ResourceManager {
    /// The TaskManager of a registration, if the caller may speak for it.
    fn calling(&self, cx: &Context<Self>, instance: InstanceId) -> Option<ResourceId> {
        let mut registered = self.registered.iter();
        let (id, _) = registered.find(|(_, registered)| registered.instance == instance)?;
        cx.check_caller(id).is_ok().then(|| id.clone())
    }
}

/// Far more nodes than one JobManager has been made for; bounds what registrations can make it hold.
const MAX_TASK_MANAGERS: usize = 10_000;
