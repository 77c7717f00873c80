//! Commands that ask a cluster, or only the configuration.

use std::time::Duration;

use thalweg_runtime::{config::Config, job::JobState};
use thalweg_transport::chain;

use crate::cli::{
    args::{CancelArgs, ConfigArgs, StatusArgs},
    backend::{JobClient, RemoteCluster},
    console, execute,
    failure::Failure,
    settings,
    status::StatusReport,
    stop::Signals,
};

pub(super) async fn status(args: &StatusArgs) -> Result<(), Failure> {
    let config = settings::from_file(Some(&args.config))?;
    let (cluster, _signals) = connect(&config).await?;
    let status = cluster.cluster().await;
    cluster.shutdown().await;
    let status = status.map_err(|error| {
        Failure::failed(format!(
            "the JobManager at {} did not tell its status: {}",
            config.jobmanager.address,
            chain(&error)
        ))
    })?;
    let report = StatusReport::new(&status);
    console::print(&if args.json {
        report.to_json()
    } else {
        report.to_text()
    })
}

pub(super) async fn cancel(args: &CancelArgs) -> Result<(), Failure> {
    let config = settings::from_file(Some(&args.config))?;
    let (cluster, _signals) = connect(&config).await?;
    let status = execute::cancel_by_request(&cluster, args.job).await;
    cluster.shutdown().await;
    let state = status?.state;
    if matches!(state, JobState::Finished | JobState::Failed) {
        console::warn(&format!("job {} was over already", args.job.to_hex()));
    }
    console::print(&format!("{} {state}\n", args.job.to_hex()))
}

pub(super) fn config(args: &ConfigArgs) -> Result<(), Failure> {
    let config = settings::from_file(args.config.as_deref())?;
    console::print(&config.to_toml())
}

/// A signal has nothing to undo here: it ends the process at once.
async fn connect(config: &Config) -> Result<(RemoteCluster, Signals), Failure> {
    let signals = Signals::listen(Some(Duration::ZERO))?;
    Ok((RemoteCluster::connect(config).await?, signals))
}
