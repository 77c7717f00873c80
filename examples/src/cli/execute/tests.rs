use std::{cell::RefCell, collections::VecDeque};

use bytes::Bytes;
use thalweg_runtime::{
    gateways::{ClusterStatus, ResultChunk},
    job::JobGraph,
};

use super::*;
use crate::{cli::report::tests::status, jobs::wordcount::WordCount};

/// Answers from a script; the last state stays.
#[derive(Default)]
struct Script {
    states: RefCell<VecDeque<Result<JobState, RpcError>>>,
    result: Vec<u8>,
    claimed: u64,
    chunk: usize,
    cancelled: RefCell<bool>,
}

impl Script {
    fn new(states: impl IntoIterator<Item = Result<JobState, RpcError>>) -> Self {
        Self {
            states: RefCell::new(states.into_iter().collect()),
            ..Self::default()
        }
    }

    fn with_result(result: &[u8], chunk: usize, claimed: usize) -> Self {
        Self {
            result: result.to_vec(),
            claimed: claimed as u64,
            chunk,
            ..Self::default()
        }
    }

    fn finished(&self) -> JobStatus {
        JobStatus {
            result_bytes: self.claimed,
            ..status(JobState::Finished)
        }
    }
}

impl JobClient for Script {
    async fn submit(&self, _graph: JobGraph) -> Result<JobId, RpcError> {
        Ok(JobId::from_u128(1))
    }

    async fn cancel(&self, _job: JobId) -> Result<(), RpcError> {
        *self.cancelled.borrow_mut() = true;
        Ok(())
    }

    async fn status(&self, _job: JobId) -> Result<JobStatus, RpcError> {
        let mut states = self.states.borrow_mut();
        let state = if states.len() > 1 {
            states.pop_front()
        } else {
            states.front().cloned()
        };
        state.unwrap_or(Ok(JobState::Running)).map(status)
    }

    async fn result(&self, _job: JobId, offset: u64, max: u32) -> Result<ResultChunk, RpcError> {
        let start = usize::try_from(offset).unwrap();
        let end = self.result.len().min(start + self.chunk.min(max as usize));
        Ok(ResultChunk {
            bytes: Bytes::copy_from_slice(&self.result[start..end]),
            end: end == self.result.len() && self.chunk > 0,
        })
    }

    async fn cluster(&self) -> Result<ClusterStatus, RpcError> {
        Ok(ClusterStatus {
            task_managers: Vec::new(),
            jobs: Vec::new(),
            connections: Vec::new(),
        })
    }
}

fn lost() -> RpcError {
    RpcError::Connection {
        address: "127.0.0.1:6120".to_owned(),
        message: "reset".to_owned(),
        retryable: true,
    }
}

fn quiet() -> Progress {
    Progress::new(true, now())
}

#[tokio::test(start_paused = true)]
async fn a_job_is_watched_to_its_end_over_a_short_silence() {
    let script = Script::new([
        Ok(JobState::Created),
        Ok(JobState::Running),
        Err(lost()),
        Ok(JobState::Restarting),
        Ok(JobState::Finished),
    ]);
    let (_sender, mut stop) = Stop::by_hand();
    let end = watch(&script, JobId::from_u128(1), &mut quiet(), &mut stop).await;
    assert_eq!(
        (end.status.state, end.interrupted),
        (JobState::Finished, None)
    );
    assert!(!*script.cancelled.borrow());
}

#[tokio::test(start_paused = true)]
async fn a_job_manager_that_stays_silent_is_given_up_by_name() {
    let script = Script::new([Ok(JobState::Running), Err(lost())]);
    let (_sender, mut stop) = Stop::by_hand();
    let end = watch(&script, JobId::from_u128(1), &mut quiet(), &mut stop).await;
    assert_eq!(
        end.status.state,
        JobState::Running,
        "the last state that was seen"
    );
    let failure = end.problem.unwrap();
    assert_eq!(failure.code(), 1);
    assert!(failure.to_string().contains("127.0.0.1:6120"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_signal_cancels_the_job() {
    let script = Script::new([
        Ok(JobState::Running),
        Ok(JobState::Canceling),
        Ok(JobState::Canceled),
    ]);
    let (sender, mut stop) = Stop::by_hand();
    sender.send_replace(Some(Signal::Terminate));
    let end = watch(&script, JobId::from_u128(1), &mut quiet(), &mut stop).await;
    assert!(*script.cancelled.borrow());
    assert_eq!(end.status.state, JobState::Canceled);
    assert_eq!(end.interrupted.map(Signal::exit_code), Some(143));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_does_not_stop_does_not_hold_the_command_for_long() {
    let script = Script::new([Ok(JobState::Running)]);
    let (sender, mut stop) = Stop::by_hand();
    sender.send_replace(Some(Signal::Interrupt));
    let begin = now();
    let end = watch(&script, JobId::from_u128(1), &mut quiet(), &mut stop).await;
    assert_eq!(end.problem.unwrap().code(), 130);
    assert!(now() - begin < Duration::from_secs(4));
}

#[tokio::test(start_paused = true)]
async fn results_come_in_pieces_and_must_be_whole() {
    let (_sender, stop) = Stop::by_hand();
    let script = Script::with_result(b"0123456789", 3, 10);
    let result = fetch(&script, &script.finished(), &mut quiet(), &stop)
        .await
        .unwrap();
    assert_eq!(result, b"0123456789");
    for (script, told) in [
        (Script::with_result(b"0123", 3, 10), "the job published 10"),
        (Script::with_result(b"0123", 0, 4), "without saying so"),
    ] {
        let failure = fetch(&script, &script.finished(), &mut quiet(), &stop)
            .await
            .unwrap_err();
        assert!(failure.to_string().contains(told), "{failure}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_task_managers_is_waited_for_and_then_named() {
    let (_sender, mut stop) = Stop::by_hand();
    let job = Job::WordCount(WordCount::of_generated_text());
    let (patience, begin) = (Duration::from_secs(30), now());
    let failure = all_slots(&Script::default(), &job, patience, &mut quiet(), &mut stop)
        .await
        .unwrap_err();
    assert!(now() - begin >= patience);
    assert!(
        failure.to_string().contains("no slots (waited for 30.0 s)"),
        "{failure}"
    );
}
