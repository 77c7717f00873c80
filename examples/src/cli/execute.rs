//! The way of a job at its client: submitted, watched, its result fetched and checked.

use std::time::{Duration, Instant};

use thalweg_runtime::{
    ids::JobId,
    job::{JobState, JobStatus, TaskMetrics},
    rpc::RpcError,
};
use thalweg_transport::{chain, now};

use super::{
    backend::JobClient,
    failure::Failure,
    human,
    job::Job,
    progress::{Progress, Snapshot},
    stop::{Signal, Stop},
};

/// How a watched job ended.
#[derive(Debug)]
pub(crate) struct End {
    /// The last state that was seen.
    pub(crate) status: JobStatus,
    /// The signal because of which it was cancelled.
    pub(crate) interrupted: Option<Signal>,
    /// Why the job was watched no longer, although it may go on.
    pub(crate) problem: Option<Failure>,
}

/// Finds the parallelism that uses all slots of the cluster; waits for TaskManagers to register.
pub(crate) async fn all_slots<C: JobClient>(
    client: &C,
    job: &Job,
    patience: Duration,
    progress: &mut Progress,
    stop: &mut Stop,
) -> Result<u32, Failure> {
    let deadline = now() + patience;
    loop {
        let cluster = client
            .cluster()
            .await
            .map_err(|error| asked("for its TaskManagers", &error))?;
        let slots: Vec<u32> = cluster
            .task_managers
            .iter()
            .map(|manager| u32::try_from(manager.report.slots.slots.len()).unwrap_or(u32::MAX))
            .collect();
        let missing = match job.parallelism(&slots) {
            Ok(parallelism) => return Ok(parallelism),
            Err(missing) => missing,
        };
        if now() >= deadline {
            return Err(Failure::failed(format!(
                "{missing} (waited for {})",
                human::duration(patience)
            )));
        }
        progress.update(
            now(),
            &Snapshot::of_wait(format!("waiting for TaskManagers: {missing}")),
        );
        if let Some(signal) = pause(stop).await {
            return Err(interrupted(signal));
        }
    }
}

/// Submits a job.
pub(crate) async fn submit<C: JobClient>(
    client: &C,
    job: &Job,
    parallelism: u32,
) -> Result<JobId, Failure> {
    let graph = job
        .graph(parallelism)
        .map_err(|error| Failure::usage(format!("cannot submit {}: {error}", job.name())))?;
    client.submit(graph).await.map_err(|error| {
        Failure::failed(format!(
            "the cluster did not take {}: {}",
            job.name(),
            chain(&error)
        ))
    })
}

/// Watches a job to its end, or until the JobManager does not answer any more. After a signal it is cancelled, and the
/// time for its end is limited.
pub(crate) async fn watch<C: JobClient>(
    client: &C,
    id: JobId,
    progress: &mut Progress,
    stop: &mut Stop,
) -> End {
    let mut end = End {
        status: unseen(id),
        interrupted: None,
        problem: None,
    };
    let mut answered = now();
    loop {
        match client.status(id).await {
            Ok(status) => {
                answered = now();
                end.status = status;
                if end.status.state.is_terminal() {
                    break;
                }
                progress.update(answered, &Snapshot::of_job(&end.status));
            }
            Err(error) if error.is_retryable() && is_patient(answered) => {
                tracing::info!(%error, "the JobManager did not answer");
                progress.update(
                    now(),
                    &Snapshot::of_wait("waiting for an answer of the JobManager"),
                );
            }
            Err(error) => {
                end.problem = Some(asked(&format!("about job {}", id.to_hex()), &error));
                break;
            }
        }
        if let Some(signal) = pause(stop).await {
            progress.clear();
            return cancel(client, end, signal).await;
        }
    }
    progress.clear();
    end
}

/// Cancels a job and waits for a moment until it is over.
async fn cancel<C: JobClient>(client: &C, mut end: End, signal: Signal) -> End {
    let id = end.status.id;
    end.interrupted = Some(signal);
    let last = &mut end.status;
    let cancelled = async {
        client.cancel(id).await?;
        loop {
            *last = client.status(id).await?;
            if last.state.is_terminal() {
                return Ok::<(), RpcError>(());
            }
            tokio::time::sleep(CANCEL_POLL).await;
        }
    };
    let what = match tokio::time::timeout(CANCEL_TIME, cancelled).await {
        Ok(Ok(())) => return end,
        Ok(Err(error)) => format!("could not be cancelled: {}", chain(&error)),
        Err(_) => format!(
            "is being cancelled, but was not over after {}",
            human::duration(CANCEL_TIME)
        ),
    };
    let text = format!("{}: job {} {what}", signal.as_str(), id.to_hex());
    end.problem = Some(Failure::failed(text).with_code(signal.exit_code()));
    end
}

/// A job of which nothing is known but that it was submitted.
fn unseen(id: JobId) -> JobStatus {
    JobStatus {
        id,
        name: String::new(),
        state: JobState::Created,
        restarts: 0,
        failure: None,
        tasks: Vec::new(),
        totals: TaskMetrics::default(),
        connections: 0,
        duration_ms: 0,
        result_bytes: 0,
    }
}

/// Asks a job to stop without a signal, and watches it for a moment; the last state that was seen.
pub(crate) async fn cancel_by_request<C: JobClient>(
    client: &C,
    id: JobId,
) -> Result<JobStatus, Failure> {
    let about = |error: &RpcError| asked(&format!("to cancel job {}", id.to_hex()), error);
    client.cancel(id).await.map_err(|error| about(&error))?;
    let deadline = now() + CANCEL_TIME;
    loop {
        let status = client.status(id).await.map_err(|error| about(&error))?;
        if status.state.is_terminal() || now() >= deadline {
            return Ok(status);
        }
        tokio::time::sleep(CANCEL_POLL).await;
    }
}

/// Fetches the result of a finished job, piece by piece.
pub(crate) async fn fetch<C: JobClient>(
    client: &C,
    status: &JobStatus,
    progress: &mut Progress,
    stop: &Stop,
) -> Result<Vec<u8>, Failure> {
    debug_assert_eq!(status.state, JobState::Finished);
    let mut result = Vec::new();
    loop {
        if let Some(signal) = stop.signal() {
            return Err(interrupted(signal));
        }
        let chunk = client
            .result(status.id, result.len() as u64, RESULT_CHUNK)
            .await
            .map_err(|error| asked("for the result", &error))?;
        result.extend_from_slice(&chunk.bytes);
        if chunk.end {
            break;
        }
        if chunk.bytes.is_empty() {
            return Err(Failure::failed(format!(
                "the result ends after {} bytes without saying so",
                result.len()
            )));
        }
        let mut snapshot = Snapshot::of_wait("fetching the result");
        snapshot.details = human::bytes(result.len() as u64);
        progress.update(now(), &snapshot);
    }
    progress.clear();
    if result.len() as u64 != status.result_bytes {
        return Err(Failure::failed(format!(
            "the result has {} bytes: the job published {}",
            result.len(),
            status.result_bytes
        )));
    }
    Ok(result)
}

/// The end of a command that a signal stopped before there was a job.
pub(crate) fn interrupted(signal: Signal) -> Failure {
    Failure::failed(format!("interrupted by {}", signal.as_str())).with_code(signal.exit_code())
}

fn asked(what: &str, error: &RpcError) -> Failure {
    Failure::failed(format!("asked the JobManager {what}: {}", chain(error)))
}

fn is_patient(answered: Instant) -> bool {
    now().saturating_duration_since(answered) < SILENCE
}

async fn pause(stop: &mut Stop) -> Option<Signal> {
    tokio::time::timeout(POLL, stop.requested()).await.ok()
}

/// Between two looks at a job.
const POLL: Duration = Duration::from_millis(250);
/// Between two looks at a job that is being cancelled.
const CANCEL_POLL: Duration = Duration::from_millis(50);
/// What remains of the five seconds of an interrupted command for closing the connection.
const CANCEL_TIME: Duration = Duration::from_secs(3);
/// A JobManager that does not answer for longer is given up.
const SILENCE: Duration = Duration::from_secs(15);
/// Bytes of one piece of a result: an answer of that size waits for nobody.
const RESULT_CHUNK: u32 = 1024 * 1024;

#[cfg(test)]
mod tests;
