//! What clients ask of the Dispatcher.

use std::collections::BTreeMap;

use tokio::task::JoinSet;

use super::endpoint::Dispatcher;
use crate::{
    gateways::{ClusterStatus, DispatcherGateway, ResultChunk},
    ids::JobId,
    job::{JobGraph, JobStatus},
    rpc::{Answer, Context, HandlerError},
};

impl DispatcherGateway for Dispatcher {
    fn submit_job(&mut self, cx: &mut Context<Self>, graph: JobGraph) -> Answer<JobId> {
        let name = graph.name.clone();
        match self.start_job(cx, graph) {
            Ok(job) => {
                tracing::info!(%job, name, "job submitted");
                Answer::ok(job)
            }
            Err(error) => {
                tracing::info!(name, %error, "job refused");
                Answer::err(error)
            }
        }
    }

    fn cancel_job(&mut self, cx: &mut Context<Self>, job: JobId) -> Answer<()> {
        if let Some(running) = self.running.get(&job) {
            let (reply, answer) = Answer::deferred();
            cx.spawn(running.gateway.cancel(), move |this, _, result| {
                // A JobMaster that has ended in between has left a finished job.
                let ended = this.finished.status(job).is_some();
                reply.send(result.or_else(|error| if ended { Ok(()) } else { Err(error.into()) }));
            });
            return answer;
        }
        match self.finished.status(job) {
            Some(_) => Answer::ok(()),
            None => Answer::err(unknown(job)),
        }
    }

    fn job_status(&mut self, cx: &mut Context<Self>, job: JobId) -> Answer<JobStatus> {
        if let Some(running) = self.running.get(&job) {
            let (reply, answer) = Answer::deferred();
            cx.spawn(running.gateway.status(), move |this, _, result| {
                let ended = this.finished.status(job).cloned();
                reply.send(ended.map_or_else(|| result.map_err(Into::into), Ok));
            });
            return answer;
        }
        let status = self.finished.status(job).cloned();
        status.ok_or_else(|| unknown(job)).into()
    }

    fn job_result(
        &mut self,
        cx: &mut Context<Self>,
        job: JobId,
        offset: u64,
        max: u32,
    ) -> Answer<ResultChunk> {
        if self.running.contains_key(&job) {
            let message = format!("job {job} has not ended: it has no result yet");
            let error = HandlerError::new("dispatcher.not_finished", message).retryable();
            return Answer::err(error);
        }
        // The answer has to fit into a frame, with the fields around the bytes.
        let frame = cx.service().config().max_frame_size;
        let max = max.min(frame.saturating_sub(CHUNK_OVERHEAD_BYTES));
        let read = self.finished.read(job, offset, max);
        read.unwrap_or_else(|| Err(unknown(job)))
            .map(|(bytes, end)| ResultChunk { bytes, end })
            .into()
    }

    fn cluster_status(&mut self, cx: &mut Context<Self>) -> Answer<ClusterStatus> {
        let overview = self.resource_manager.overview();
        let calls: Vec<_> = self
            .running
            .values()
            .map(|job| {
                let (number, call) = (job.number, job.gateway.status());
                async move { (number, call.await) }
            })
            .collect();
        let asked = async move { tokio::join!(overview, JoinSet::from_iter(calls).join_all()) };
        let (reply, answer) = Answer::deferred();
        cx.spawn(asked, move |this, _, (overview, running)| {
            let mut jobs: BTreeMap<u64, JobStatus> = running
                .into_iter()
                // A JobMaster that does not answer has just ended.
                .filter_map(|(number, status)| Some((number, status.ok()?)))
                .collect();
            let finished = this.finished.statuses();
            jobs.extend(finished.map(|(number, status)| (number, status.clone())));
            bound_tasks(&mut jobs, MAX_LISTED_TASKS);
            let connections = (this.connections)();
            reply.send(
                overview
                    .map_err(Into::into)
                    .map(|task_managers| ClusterStatus {
                        task_managers,
                        jobs: jobs.into_values().collect(),
                        connections,
                    }),
            );
        });
        answer
    }
}

/// Leaves out the tasks of the oldest jobs, whatever is beyond so many.
fn bound_tasks(jobs: &mut BTreeMap<u64, JobStatus>, mut left: usize) {
    for status in jobs.values_mut().rev() {
        match left.checked_sub(status.tasks.len()) {
            Some(rest) => left = rest,
            None => {
                left = 0;
                status.tasks = Vec::new();
            }
        }
    }
}

fn unknown(job: JobId) -> HandlerError {
    HandlerError::new(
        "dispatcher.unknown_job",
        format!(
            "there is no job {}: it never was, or has expired",
            job.to_hex()
        ),
    )
}

/// More than the encoding of a [`ResultChunk`] adds to its bytes.
const CHUNK_OVERHEAD_BYTES: u32 = 64;
/// Tasks in one [`ClusterStatus`]: at some 150 bytes each well below the default frame limit of 10 MiB.
const MAX_LISTED_TASKS: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ids::{ExecutionId, VertexId},
        job::{JobState, TaskMetrics, TaskState, TaskStatus},
    };

    fn job(tasks: u32) -> JobStatus {
        let id = JobId::from_u128(1);
        let task = |subtask| TaskStatus {
            execution: ExecutionId {
                job: id,
                vertex: VertexId(0),
                subtask,
                attempt: 0,
            },
            name: "v".to_owned(),
            state: TaskState::Running,
            task_manager: None,
            metrics: TaskMetrics::default(),
        };
        JobStatus {
            id,
            name: "j".to_owned(),
            state: JobState::Running,
            restarts: 0,
            failure: None,
            tasks: (0..tasks).map(task).collect(),
            totals: TaskMetrics::default(),
            connections: 0,
            duration_ms: 0,
            result_bytes: 0,
        }
    }

    #[test]
    fn the_tasks_of_the_oldest_jobs_are_left_out_where_there_are_too_many() {
        let mut jobs: BTreeMap<u64, JobStatus> = (1..).zip([1, 5, 2, 3].map(job)).collect();
        bound_tasks(&mut jobs, 6);
        let left: Vec<usize> = jobs.values().map(|status| status.tasks.len()).collect();
        assert_eq!(left, [0, 0, 2, 3]);
    }
}
