//! Slots of the TaskExecutor: given by the ResourceManager, offered to JobMasters, freed.

use thalweg_transport::now;

use super::{error, executor::TaskExecutor};
use crate::{
    gateways::{SlotAssignment, SlotOffer},
    ids::{AllocationId, ExecutionId, FencingToken, JobId},
    job::{FailureCause, FailureKind},
    rpc::{Context, HandlerError, RpcError},
    slots::{SlotAction, SlotRequest, SlotState},
};

impl TaskExecutor {
    /// The ResourceManager gives a slot to a job.
    pub(super) fn assign_slot(
        &mut self,
        cx: &mut Context<Self>,
        resource_manager: FencingToken,
        assignment: &SlotAssignment,
    ) -> Result<(), HandlerError> {
        if !self.resource_manager.is_session(resource_manager) {
            return Err(error::wrong_resource_manager());
        }
        let request = SlotRequest {
            index: Some(assignment.slot),
            job: assignment.job,
            allocation: assignment.allocation,
            profile: None,
        };
        let allocated = self
            .slots
            .allocate(now(), &request)
            .map_err(|error| error::slot(&error))?;
        tracing::info!(
            slot = allocated.index,
            new = allocated.new,
            job = %assignment.job,
            allocation = %assignment.allocation,
            "slot given to job"
        );
        self.serve_job(cx, assignment.job, &assignment.job_master);
        self.arm(cx);
        Ok(())
    }

    /// Offers the job's allocated slots to its JobMaster. A later offer outdates the answer to this one.
    pub(super) fn offer_slots(&mut self, cx: &mut Context<Self>, job: JobId) {
        let offers: Vec<SlotOffer> = self
            .slots
            .slots_of(job)
            .filter(|slot| slot.state == SlotState::Allocated)
            .filter_map(|slot| {
                let (_, allocation) = slot.allocation?;
                let slot = slot.index;
                Some(SlotOffer { allocation, slot })
            })
            .collect();
        if offers.is_empty() {
            return;
        }
        let Some(entry) = self.jobs.get_mut(job) else {
            return;
        };
        let Some((_, link)) = entry.connection() else {
            return;
        };
        let connection = link.number;
        let offered: Vec<AllocationId> = offers.iter().map(|offer| offer.allocation).collect();
        tracing::debug!(%job, slots = offered.len(), "offering slots");
        let answer = link.client.offer_slots(self.config.id.clone(), offers);
        entry.services_mut().offers += 1;
        let offer = entry.services().offers;
        cx.spawn(answer, move |this, cx, answer| {
            let current = this.jobs.get(job).is_some_and(|entry| {
                let same = entry
                    .connection()
                    .is_some_and(|(_, link)| link.number == connection);
                same && entry.services().offers == offer
            });
            if current {
                this.on_offer_answer(cx, job, &offered, answer);
            } else {
                tracing::debug!(%job, "answer to an outdated slot offer is ignored");
            }
        });
    }

    fn on_offer_answer(
        &mut self,
        cx: &mut Context<Self>,
        job: JobId,
        offered: &[AllocationId],
        answer: Result<Vec<AllocationId>, RpcError>,
    ) {
        if answer.is_ok()
            && let Some(link) = self.jobs.get_mut(job).and_then(|job| job.connection_mut())
        {
            link.is_used = true;
        }
        let (accepted, reason) = match answer {
            Ok(accepted) => (accepted, "the JobMaster rejected the slot".to_owned()),
            Err(RpcError::TimedOut { .. }) => {
                tracing::info!(%job, "the JobMaster did not answer the slot offer, offering again");
                self.offer_slots(cx, job);
                return;
            }
            Err(error) => (Vec::new(), format!("the slot offer failed: {error}")),
        };
        let cause = FailureCause::new(FailureKind::Resources, reason);
        for allocation in offered {
            let ours = self.slots.owner(*allocation) == Some(job);
            if !accepted.contains(allocation) {
                if ours {
                    self.free(cx, *allocation, &cause);
                }
                continue;
            }
            let active = ours && self.slots.mark_active(*allocation).is_ok();
            if !active && let Some(link) = self.link(job) {
                let text = "the slot was freed before the JobMaster accepted it";
                let cause = FailureCause::new(FailureKind::Resources, text);
                // If the JobMaster is gone it needs not know.
                let _ = link
                    .client
                    .fail_slot(self.config.id.clone(), *allocation, cause);
            }
        }
    }

    /// Takes a slot back; an unknown one is fine.
    pub(super) fn free(
        &mut self,
        cx: &mut Context<Self>,
        allocation: AllocationId,
        cause: &FailureCause,
    ) {
        if let Ok(actions) = self.slots.free(allocation, &cause.message) {
            self.apply(cx, actions, cause);
        }
    }

    /// Takes all slots of a job back.
    pub(super) fn free_all(&mut self, cx: &mut Context<Self>, job: JobId, cause: &FailureCause) {
        let allocations: Vec<AllocationId> = self
            .slots
            .slots_of(job)
            .filter_map(|slot| slot.allocation)
            .map(|(_, allocation)| allocation)
            .collect();
        for allocation in allocations {
            self.free(cx, allocation, cause);
        }
    }

    /// Does what the slot table asks for.
    pub(super) fn apply(
        &mut self,
        cx: &mut Context<Self>,
        actions: Vec<SlotAction>,
        cause: &FailureCause,
    ) {
        for action in actions {
            match action {
                SlotAction::FailTask { task, reason } => {
                    self.fail_task(cx, task, &FailureCause::new(cause.kind, reason));
                }
                SlotAction::SlotFreed {
                    index,
                    job,
                    allocation,
                    reason,
                } => self.on_slot_freed(index, job, allocation, cause.kind, reason),
                SlotAction::Closed => {}
            }
        }
    }

    fn on_slot_freed(
        &mut self,
        index: u32,
        job: JobId,
        allocation: AllocationId,
        kind: FailureKind,
        reason: String,
    ) {
        tracing::info!(slot = index, %job, %allocation, reason, "slot is free");
        if let Some((client, accepted)) = self.resource_manager.registered() {
            // If the ResourceManager is gone, the next registration says so.
            let _ = client.notify_slot_available(accepted.instance, index, allocation);
        }
        if self.slots.slots_of(job).next().is_none() {
            self.forget_job(job, &FailureCause::new(kind, reason));
        }
    }

    /// Compares the slots that a JobMaster counts on with those that are here.
    ///
    /// A slot that it does not list is freed at the second time: its heartbeat may have been on its way when it
    /// accepted the slot.
    pub(super) fn reconcile_slots(
        &mut self,
        cx: &mut Context<Self>,
        job: JobId,
        listed: &[AllocationId],
    ) {
        let active: Vec<_> = self.slots.allocations_of(job, SlotState::Active).collect();
        let unlisted = active.into_iter().filter(|active| !listed.contains(active));
        let unlisted: std::collections::BTreeSet<_> = unlisted.collect();
        let missing: Vec<_> = listed
            .iter()
            .filter(|listed| self.slots.owner(**listed) != Some(job))
            .copied()
            .collect();
        let id = self.config.id.clone();
        let link = self.jobs.get_mut(job).and_then(|job| job.connection_mut());
        let Some(link) = link else {
            return;
        };
        let before = std::mem::replace(&mut link.unlisted, unlisted.clone());
        for allocation in missing {
            let text = format!("TaskManager {id} does not have the slot");
            let cause = FailureCause::new(FailureKind::Resources, text);
            // If the JobMaster is gone it needs not know.
            let _ = link.client.fail_slot(id.clone(), allocation, cause);
        }
        let cause = FailureCause::new(
            FailureKind::Resources,
            "the JobMaster does not count on the slot any more",
        );
        for allocation in unlisted.intersection(&before) {
            self.free(cx, *allocation, &cause);
        }
    }

    /// Fails all tasks of a job.
    pub(super) fn fail_tasks(&mut self, cx: &mut Context<Self>, job: JobId, cause: &FailureCause) {
        let tasks: Vec<ExecutionId> = self.slots.tasks_of(job).collect();
        for task in tasks {
            self.fail_task(cx, task, cause);
        }
    }
}
