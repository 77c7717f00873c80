//! Jobs that have ended, kept for a while. Pure.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::{
    ids::JobId,
    job::{JobState, JobStatus},
    job_master::{FinishedJob, PublishedResult},
    rpc::HandlerError,
};

/// The finished jobs, the oldest first. The number of jobs and the bytes of their results are bounded: the oldest go
/// first, a result before its job.
#[derive(Debug)]
pub(super) struct FinishedJobs {
    retention: Duration,
    max_result_bytes: u64,
    jobs: VecDeque<Kept>,
}

#[derive(Debug)]
struct Kept {
    until: Instant,
    /// Position in the order of submission.
    number: u64,
    status: JobStatus,
    /// `None` if it was dropped to make room.
    result: Option<PublishedResult>,
}

impl FinishedJobs {
    pub(super) fn new(retention: Duration) -> Self {
        Self {
            retention,
            max_result_bytes: MAX_KEPT_RESULT_BYTES,
            jobs: VecDeque::new(),
        }
    }

    pub(super) fn add(&mut self, now: Instant, number: u64, job: FinishedJob) {
        self.jobs.push_back(Kept {
            until: now + self.retention,
            number,
            status: job.status,
            result: Some(job.result),
        });
        while self.jobs.len() > MAX_FINISHED_JOBS {
            self.jobs.pop_front();
        }
        let mut bytes = 0_u64;
        for kept in self.jobs.iter_mut().rev() {
            bytes = bytes.saturating_add(kept.result.as_ref().map_or(0, PublishedResult::len));
            if bytes > self.max_result_bytes {
                kept.result = None;
            }
        }
    }

    /// Drops what was kept long enough.
    pub(super) fn on_tick(&mut self, now: Instant) {
        while self.jobs.front().is_some_and(|kept| kept.until <= now) {
            self.jobs.pop_front();
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.jobs.front().map(|kept| kept.until)
    }

    pub(super) fn status(&self, job: JobId) -> Option<&JobStatus> {
        self.find(job).map(|kept| &kept.status)
    }

    /// Every kept job with its position in the order of submission.
    pub(super) fn statuses(&self) -> impl Iterator<Item = (u64, &JobStatus)> {
        self.jobs.iter().map(|kept| (kept.number, &kept.status))
    }

    /// A piece of a job's result, and whether it is the last; `None` for an unknown job.
    pub(super) fn read(
        &self,
        job: JobId,
        offset: u64,
        max: u32,
    ) -> Option<Result<(Bytes, bool), HandlerError>> {
        let kept = self.find(job)?;
        if kept.status.state != JobState::Finished {
            let cause = kept.status.failure.as_ref();
            let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
            let message = format!("job {job} is {}{cause}", kept.status.state);
            return Some(Err(HandlerError::new("dispatcher.no_result", message)));
        }
        Some(
            kept.result
                .as_ref()
                .map(|r| r.read(offset, max))
                .ok_or_else(|| {
                    let message =
                        format!("the result of job {job} was dropped to make room for later ones");
                    HandlerError::new("dispatcher.no_result", message)
                }),
        )
    }

    fn find(&self, job: JobId) -> Option<&Kept> {
        self.jobs.iter().find(|kept| kept.status.id == job)
    }
}

/// Jobs that are listed; a status page with more is of no use.
const MAX_FINISHED_JOBS: usize = 1000;
/// Results of finished jobs are in the memory of the JobManager: room for two of the largest.
const MAX_KEPT_RESULT_BYTES: u64 = 2 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ids::{ExecutionId, VertexId},
        job::TaskMetrics,
        job_master::Results,
    };

    fn job(id: u128, state: JobState, result: &'static [u8]) -> FinishedJob {
        let mut results = Results::new();
        let execution = ExecutionId {
            job: JobId::from_u128(id),
            vertex: VertexId(0),
            subtask: 0,
            attempt: 0,
        };
        results
            .add(execution, 0, Bytes::from_static(result))
            .unwrap();
        FinishedJob {
            status: JobStatus {
                id: JobId::from_u128(id),
                name: "j".to_owned(),
                state,
                restarts: 0,
                failure: None,
                tasks: Vec::new(),
                totals: TaskMetrics::default(),
                connections: 0,
                duration_ms: 1,
                result_bytes: result.len() as u64,
            },
            result: results.publish(),
        }
    }

    #[test]
    fn jobs_are_kept_for_the_retention() {
        let now = thalweg_transport::now();
        let mut jobs = FinishedJobs::new(Duration::from_secs(10));
        jobs.add(now, 1, job(1, JobState::Finished, b"abc"));
        jobs.add(
            now + Duration::from_secs(1),
            2,
            job(2, JobState::Failed, b""),
        );
        assert_eq!(jobs.next_deadline(), Some(now + Duration::from_secs(10)));
        let read = jobs.read(JobId::from_u128(1), 1, 9).unwrap().unwrap();
        assert_eq!(read, (Bytes::from_static(b"bc"), true));
        jobs.on_tick(now + Duration::from_secs(10));
        assert!(jobs.status(JobId::from_u128(1)).is_none());
        assert!(jobs.read(JobId::from_u128(1), 0, 9).is_none());
        let error = jobs.read(JobId::from_u128(2), 0, 9).unwrap().unwrap_err();
        assert!(error.message.contains("is FAILED"), "{error}");
    }

    #[test]
    fn old_results_make_room_for_new_ones() {
        let now = thalweg_transport::now();
        let mut jobs = FinishedJobs::new(Duration::from_secs(10));
        jobs.max_result_bytes = 5;
        for id in 1..=3 {
            jobs.add(now, 0, job(id, JobState::Finished, b"abc"));
        }
        let error = jobs.read(JobId::from_u128(2), 0, 9).unwrap().unwrap_err();
        assert!(error.message.contains("to make room"), "{error}");
        assert!(jobs.read(JobId::from_u128(3), 0, 9).unwrap().is_ok());
        assert_eq!(jobs.statuses().count(), 3);
    }

    #[test]
    fn the_number_of_jobs_is_bounded() {
        let now = thalweg_transport::now();
        let mut jobs = FinishedJobs::new(Duration::from_secs(10));
        for id in 0..=MAX_FINISHED_JOBS {
            jobs.add(now, 0, job(id as u128, JobState::Canceled, b""));
        }
        assert_eq!(jobs.statuses().count(), MAX_FINISHED_JOBS);
        assert!(jobs.status(JobId::from_u128(0)).is_none());
    }
}
