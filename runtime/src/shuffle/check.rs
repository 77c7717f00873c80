//! Asking about the producer of a partition that is not there.

use std::{collections::BTreeMap, fmt, sync::Arc};

use thalweg_transport::{
    BoxFuture,
    exchange::{ProducerCheck, SubpartitionRequest, Verdict},
    proto::PartitionId,
};

use crate::{gateways::PartitionKey, job::TaskState};

/// Asks for the state of a partition's producer; `None` if nobody knows.
pub(crate) type ProducerStates =
    Arc<dyn Fn(PartitionKey) -> BoxFuture<'static, Option<TaskState>> + Send + Sync>;

/// The exchange's question, answered by a job's master.
pub(super) struct JobCheck {
    pub(super) keys: BTreeMap<PartitionId, PartitionKey>,
    pub(super) states: ProducerStates,
}

impl ProducerCheck for JobCheck {
    fn on_partition_not_found(&self, request: SubpartitionRequest) -> BoxFuture<'static, Verdict> {
        let Some(key) = self.keys.get(&request.partition).copied() else {
            return Box::pin(std::future::ready(Verdict::Fail));
        };
        let state = (self.states)(key);
        Box::pin(async move {
            let state = state.await;
            tracing::debug!(partition = %key, ?state, "partition not found, producer's state asked");
            if state.is_some_and(may_still_come) {
                Verdict::RequestAgain
            } else {
                Verdict::Fail
            }
        })
    }
}

impl fmt::Debug for JobCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobCheck")
            .field("partitions", &self.keys.len())
            .finish_non_exhaustive()
    }
}

/// Whether a partition whose producer is in this state may be there at the next request.
fn may_still_come(state: TaskState) -> bool {
    match state {
        TaskState::Created
        | TaskState::Scheduled
        | TaskState::Deploying
        | TaskState::Initializing
        | TaskState::Running
        | TaskState::Finished => true,
        TaskState::Canceling | TaskState::Canceled | TaskState::Failed => false,
    }
}
