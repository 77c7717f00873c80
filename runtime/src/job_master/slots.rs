//! How a job gets its slots.

use std::time::Duration;

use thalweg_transport::now;

use super::{endpoint::JobMaster, execution_graph::GraphEvent};
use crate::{
    gateways::{JobMasterAddress, SlotsRequest},
    ids::AllocationId,
    rpc::{Context, Deadline},
};

impl JobMaster {
    /// Asks for what is missing, or goes on if nothing is.
    pub(super) fn acquire_slots(&mut self, cx: &mut Context<Self>) {
        let deadline = now() + self.config.slot_request_timeout;
        let slots = self.pool.request(deadline, AllocationId::random);
        if slots.is_empty() {
            self.on_slots_complete(cx);
            return;
        }
        let request = SlotsRequest {
            job: self.job,
            job_master: JobMasterAddress {
                address: cx.address().clone(),
                token: self.token,
            },
            slots,
            placement: self.spec.placement,
            avoid: self.pool.avoid(now()),
        };
        let job = self.job;
        cx.spawn(
            self.resource_manager.request_slots(request),
            move |_, _, result| {
                if let Err(error) = result {
                    tracing::warn!(%job, %error, "slots cannot be requested: asked again soon");
                }
            },
        );
        self.schedule_slot_timer(cx);
    }

    /// Goes on if the job has waited for slots and every slot is there.
    pub(super) fn on_slots_complete(&mut self, cx: &mut Context<Self>) {
        if self.pool.is_complete() {
            if let Some(timer) = self.slot_timer.take() {
                timer.cancel();
            }
            self.on_event(cx, GraphEvent::SlotsReady(self.pool.owners()));
        }
    }

    fn schedule_slot_timer(&mut self, cx: &mut Context<Self>) {
        let Some(deadline) = self.pool.next_deadline() else {
            return;
        };
        let left = deadline.saturating_duration_since(now());
        let timer = cx.schedule(left.min(REQUEST_REPEAT), Self::on_slot_timer);
        if let Some(old) = self.slot_timer.replace(timer) {
            old.cancel();
        }
    }

    fn on_slot_timer(&mut self, cx: &mut Context<Self>) {
        match self.pool.next_deadline() {
            Some(deadline) if now() >= deadline => self.give_up_waiting(cx),
            Some(_) => self.acquire_slots(cx),
            None => {}
        }
    }

    /// The wait is over: asks what there is, for the error.
    fn give_up_waiting(&mut self, cx: &mut Context<Self>) {
        let overview = self
            .resource_manager
            .with_deadline(Deadline::After(OVERVIEW_TIMEOUT))
            .overview();
        cx.spawn(overview, |this, cx, overview| {
            // The slots may have come in the meantime, and another wait may have begun.
            if this
                .pool
                .next_deadline()
                .is_none_or(|deadline| now() < deadline)
            {
                return;
            }
            let text = overview.as_ref().map_err(ToString::to_string);
            let cause = this.pool.unavailable(
                &format!("{} ({})", this.spec.name, this.job),
                this.spec.placement,
                text.as_ref()
                    .map(|list| list.as_slice())
                    .map_err(String::as_str),
            );
            this.on_event(cx, GraphEvent::SlotsUnavailable(cause));
        });
    }
}

/// A waiting job repeats its request, in case the ResourceManager was restarted or a TaskManager did not offer what it
/// was asked for. The request says the same, so that a repetition costs little; waits of 30 s see it some times.
const REQUEST_REPEAT: Duration = Duration::from_secs(3);
/// The wait is over already: its error is not to be held up for long.
const OVERVIEW_TIMEOUT: Duration = Duration::from_secs(5);
