//! `jobmanager` and `taskmanager`: processes that run until they are told to stop.

use std::{future::Future, time::Duration};

use thalweg_runtime::NodeDescription;

use crate::cli::{
    args::NodeArgs,
    backend::{JobManager, TaskManager},
    console,
    failure::Failure,
    human, settings,
    stop::{Signals, Stop},
};

pub(super) async fn job_manager(args: &NodeArgs) -> Result<(), Failure> {
    let config = settings::from_file(Some(&args.config))?;
    let signals = Signals::listen(None)?;
    let mut stop = signals.stop();
    let started = tokio::select! {
        started = JobManager::start(&config) => started?,
        _ = stop.requested() => return Ok(()),
    };
    console::print(&ready_line(
        "jobmanager",
        &started.ready(),
        std::process::id(),
    ))?;
    let ended = tokio::select! {
        cause = started.failed() => Err(Failure::failed(format!("the JobManager ended: {cause}"))),
        _ = stop.requested() => Ok(()),
    };
    let limit = config.node.drain_timeout;
    drain("JobManager", limit, &stop, started.shutdown(limit)).await;
    ended
}

pub(super) async fn task_manager(args: &NodeArgs) -> Result<(), Failure> {
    let config = settings::from_file(Some(&args.config))?;
    let signals = Signals::listen(None)?;
    let mut stop = signals.stop();
    let started = tokio::select! {
        started = TaskManager::start(&config) => started?,
        _ = stop.requested() => return Ok(()),
    };
    let limit = config.node.drain_timeout;
    let ended = live(&started, &mut stop).await;
    drain("TaskManager", limit, &stop, started.shutdown(limit)).await;
    ended
}

/// Until a signal, or an end that nobody asked for.
async fn live(started: &TaskManager, stop: &mut Stop) -> Result<(), Failure> {
    tokio::select! {
        registered = started.registered() => {
            let node = registered.map_err(|cause| ended(&cause))?;
            console::print(&ready_line("taskmanager", &node, std::process::id()))?;
        }
        cause = started.terminated() => return Err(ended(&cause)),
        _ = stop.requested() => return Ok(()),
    }
    tokio::select! {
        cause = started.terminated() => Err(ended(&cause)),
        _ = stop.requested() => Ok(()),
    }
}

fn ended(cause: &str) -> Failure {
    Failure::failed(format!("the TaskManager ended: {cause}"))
}

/// Waits for the parts to end, a little longer than they are allowed to take themselves.
async fn drain(what: &str, limit: Duration, stop: &Stop, shutdown: impl Future<Output = ()>) {
    if let Some(signal) = stop.signal() {
        tracing::info!(
            "{}: the {what} drains for up to {}",
            signal.as_str(),
            human::duration(limit)
        );
    }
    if tokio::time::timeout(limit + GRACE, shutdown).await.is_err() {
        tracing::warn!("the {what} did not end in time");
    }
}

fn ready_line(role: &str, node: &NodeDescription, pid: u32) -> String {
    let NodeDescription {
        id,
        address,
        transport,
        tls,
        ..
    } = node;
    format!(
        "ready role={role} id={id} address={address} transport={transport} tls={tls} pid={pid}\n"
    )
}

/// Beyond `node.drain_timeout`: for parts that end because the time is over.
const GRACE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use thalweg_runtime::config::TlsMode;
    use thalweg_transport::ResourceId;

    use super::*;

    #[test]
    fn the_ready_line_is_as_documented() {
        let node = NodeDescription {
            id: ResourceId::new("tm-1").unwrap(),
            address: "10.0.0.7:6121".to_owned(),
            transport: "quic".into(),
            tls: TlsMode::Mutual,
            identity: None,
            certificate_expires: None,
            certificate_fingerprint: None,
        };
        assert_eq!(
            ready_line("taskmanager", &node, 42),
            "ready role=taskmanager id=tm-1 address=10.0.0.7:6121 transport=quic tls=mutual pid=42\n"
        );
    }
}
