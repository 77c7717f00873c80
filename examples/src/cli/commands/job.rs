//! `run` and `submit`: a job from its arguments to its result.

use std::time::Duration;

use thalweg_runtime::{
    config::Config,
    ids::JobId,
    job::{JobState, JobStatus},
};
use thalweg_transport::now;

use crate::cli::{
    args::{JobOptions, RunArgs, SubmitArgs},
    backend::{JobClient, LocalCluster, RemoteCluster},
    console,
    execute::{self, End},
    failure::Failure,
    job::{Evaluation, Job},
    output,
    progress::Progress,
    report::Report,
    settings,
    stop::{Signals, Stop},
};

pub(super) async fn run(args: RunArgs, quiet: bool) -> Result<(), Failure> {
    let config = settings::for_run(&args)?;
    let job = prepare(&args.job.clone().unwrap_or_default(), &args.options)?;
    let slots = config.taskmanager.slots;
    let all = vec![slots; args.taskmanagers as usize];
    let parallelism = match args.options.parallelism {
        Some(parallelism) => parallelism,
        None => job.parallelism(&all).map_err(Failure::usage)?,
    };
    if let Some(misfit) = job.misfit(parallelism, args.taskmanagers, slots) {
        return Err(Failure::usage(misfit));
    }
    let signals = Signals::listen(Some(STOP_LIMIT))?;
    let mut stop = signals.stop();
    let cluster = tokio::select! {
        cluster = LocalCluster::start(&config, args.taskmanagers, args.rpc) => cluster?,
        signal = stop.requested() => return Err(execute::interrupted(signal)),
    };
    let mut session = Session {
        config: &config,
        job: &job,
        options: &args.options,
        quiet,
        progress: Progress::new(quiet, now()),
        stop,
    };
    let dispatcher = cluster.dispatcher();
    let result = session.attend(&dispatcher, parallelism).await;
    let limit = if session.stop.signal().is_some() {
        HURRY
    } else {
        CLOSE
    };
    cluster.shutdown(limit).await;
    result
}

pub(super) async fn submit(args: SubmitArgs, quiet: bool) -> Result<(), Failure> {
    let Some(path) = &args.config else {
        return Err(Failure::usage(
            "--config FILE is required: cluster submit --config FILE [OPTIONS] JOB [ARGS]",
        ));
    };
    let config = settings::from_file(Some(path))?;
    let job = prepare(&args.job, &args.options)?;
    let signals = Signals::listen(Some(STOP_LIMIT))?;
    let mut stop = signals.stop();
    let cluster = tokio::select! {
        cluster = RemoteCluster::connect(&config) => cluster?,
        signal = stop.requested() => return Err(execute::interrupted(signal)),
    };
    let mut session = Session {
        config: &config,
        job: &job,
        options: &args.options,
        quiet,
        progress: Progress::new(quiet, now()),
        stop,
    };
    let result = session.submit(&cluster, args.detach).await;
    cluster.shutdown().await;
    result
}

fn prepare(job: &crate::cli::args::JobArgs, options: &JobOptions) -> Result<Job, Failure> {
    if let Some(path) = &options.output {
        output::check(path)?;
    }
    Job::prepare(job)
}

/// One job of one command.
struct Session<'a> {
    config: &'a Config,
    job: &'a Job,
    options: &'a JobOptions,
    quiet: bool,
    progress: Progress,
    stop: Stop,
}

impl Session<'_> {
    async fn submit<C: JobClient>(&mut self, client: &C, detach: bool) -> Result<(), Failure> {
        let parallelism = match self.options.parallelism {
            Some(parallelism) => parallelism,
            None => {
                let patience = self.config.jobmanager.slot_request_timeout;
                let (progress, stop) = (&mut self.progress, &mut self.stop);
                execute::all_slots(client, self.job, patience, progress, stop).await?
            }
        };
        if !detach {
            return self.attend(client, parallelism).await;
        }
        let id = execute::submit(client, self.job, parallelism).await?;
        if !self.options.json {
            return console::print(&format!("{}\n", id.to_hex()));
        }
        let status = client.status(id).await.map_err(|error| {
            Failure::failed(format!("job {} was submitted, but: {error}", id.to_hex()))
        })?;
        console::print(&self.report(client, parallelism, &status).await.to_json())
    }

    /// Submits the job, waits for its end, shows its result.
    async fn attend<C: JobClient>(&mut self, client: &C, parallelism: u32) -> Result<(), Failure> {
        let id = execute::submit(client, self.job, parallelism).await?;
        tracing::info!(job = %id.to_hex(), parallelism, "submitted {}", self.job.name());
        let end = execute::watch(client, id, &mut self.progress, &mut self.stop).await;
        let mut report = self.report(client, parallelism, &end.status).await;
        let result = match self.failure(id, &end) {
            Some(failure) => Err(failure),
            None => self.deliver(client, parallelism, &end.status).await,
        };
        if let (Err(failure), None) = (&result, &report.error)
            && (end.problem.is_some() || end.status.state == JobState::Finished)
        {
            report.error = Some(failure.to_string());
        }
        if let Ok(evaluation) = &result
            && !self.quiet
        {
            let summary = report.summary(Some(evaluation));
            if self.options.json {
                console::tell(summary.trim_end());
            } else {
                let gap = if self.shows_table(evaluation) {
                    "\n"
                } else {
                    ""
                };
                console::print(&format!("{gap}{summary}"))?;
            }
        }
        if self.options.json {
            console::print(&report.to_json())?;
        }
        result.map(drop)
    }

    /// What is wrong with the way in which a job ended.
    fn failure(&self, id: JobId, end: &End) -> Option<Failure> {
        let (name, id) = (self.job.name(), id.to_hex());
        if let Some(problem) = &end.problem {
            return Some(problem.clone());
        }
        if let Some(signal) = end.interrupted {
            let text = format!(
                "{}: job {name} {id} is {}",
                signal.as_str(),
                end.status.state
            );
            return Some(Failure::failed(text).with_code(signal.exit_code()));
        }
        match end.status.state {
            JobState::Finished => None,
            JobState::Canceled => Some(Failure::failed(format!("job {name} {id} was cancelled"))),
            _ => {
                let cause = end.status.failure.as_ref().map(ToString::to_string);
                let cause = cause.unwrap_or_else(|| "no cause is known".to_owned());
                Some(Failure::failed(format!("job {name} {id} failed: {cause}")))
            }
        }
    }

    /// Fetches and checks the result, and writes or prints it.
    async fn deliver<C: JobClient>(
        &mut self,
        client: &C,
        parallelism: u32,
        status: &JobStatus,
    ) -> Result<Evaluation, Failure> {
        let result = execute::fetch(client, status, &mut self.progress, &self.stop).await?;
        let evaluation = self.job.evaluate(parallelism, result).map_err(|wrong| {
            let id = status.id.to_hex();
            Failure::failed(format!(
                "job {} {id} returned a wrong result: {wrong}",
                self.job.name()
            ))
        })?;
        for warning in &evaluation.warnings {
            console::warn(warning);
        }
        if let Some(path) = &self.options.output {
            output::write_atomically(path, |out| evaluation.write_to(out))?;
        } else if let Some(table) = &evaluation.table {
            console::print(table)?;
        }
        Ok(evaluation)
    }

    async fn report<C: JobClient>(
        &self,
        client: &C,
        parallelism: u32,
        status: &JobStatus,
    ) -> Report {
        let asked = tokio::time::timeout(HURRY, client.cluster()).await;
        let registered = asked
            .ok()
            .and_then(Result::ok)
            .map(|cluster| cluster.task_managers.len());
        Report::new(
            self.config,
            self.job.name(),
            parallelism,
            status,
            registered,
        )
    }

    fn shows_table(&self, evaluation: &Evaluation) -> bool {
        self.options.output.is_none() && evaluation.table.is_some()
    }
}

/// An interrupted command is over after five seconds, whatever happens.
const STOP_LIMIT: Duration = Duration::from_millis(4800);
/// For the end of a cluster whose job is done.
const CLOSE: Duration = Duration::from_secs(5);
/// For the same after a signal, and for what is only nice to know.
const HURRY: Duration = Duration::from_secs(1);
