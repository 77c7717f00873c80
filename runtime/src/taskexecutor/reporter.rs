//! What a task tells and asks its job's master.

use bytes::Bytes;
use thalweg_transport::BoxFuture;

use super::error::job_master_failed;
use crate::{
    gateways::{JobMasterClient, PartitionKey, TaskStateUpdate},
    ids::ExecutionId,
    job::TaskState,
    rpc::RpcError,
    task::TaskError,
};

/// The way from a task to its job's master. May be used from any thread and runtime.
pub(super) trait TaskReporter: Send + Sync + 'static {
    /// Tells a new state; the answer says that the JobMaster knows it.
    fn report(&self, update: TaskStateUpdate) -> BoxFuture<'static, Result<(), RpcError>>;

    /// Hands over a piece of the result.
    fn add_result(
        &self,
        execution: ExecutionId,
        sequence: u32,
        piece: Bytes,
    ) -> BoxFuture<'static, Result<(), TaskError>>;

    /// Asks for the state of a partition's producer; `None` if there is no answer.
    fn producer_state(&self, partition: PartitionKey) -> BoxFuture<'static, Option<TaskState>>;
}

impl TaskReporter for JobMasterClient {
    fn report(&self, update: TaskStateUpdate) -> BoxFuture<'static, Result<(), RpcError>> {
        Box::pin(self.update_task_state(update))
    }

    fn add_result(
        &self,
        execution: ExecutionId,
        sequence: u32,
        piece: Bytes,
    ) -> BoxFuture<'static, Result<(), TaskError>> {
        let call = self.add_task_result(execution, sequence, piece);
        Box::pin(async move {
            call.await
                .map_err(|error| job_master_failed("the JobMaster did not take the result", &error))
        })
    }

    fn producer_state(&self, partition: PartitionKey) -> BoxFuture<'static, Option<TaskState>> {
        let call = self.partition_producer_state(partition);
        Box::pin(async move { call.await.ok() })
    }
}
