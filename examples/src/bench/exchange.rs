//! `bench exchange`.

use std::{io, pin::pin, time::Duration};

use thalweg_transport::now;
use tokio::time::sleep;

use super::{
    args::ExchangeArgs,
    machine::{Machine, versions},
    measure::{Figures, measure},
    peer::Server,
    plan::{self, Case},
    report::Results,
    security::NodeCertificates,
};
use crate::cli::{
    console,
    failure::Failure,
    output,
    progress::{Progress, Snapshot},
    stop::Signals,
};

/// Measures everything, prints the tables and writes the file.
pub(super) async fn run(args: &ExchangeArgs, quiet: bool) -> Result<(), Failure> {
    check(args)?;
    let signals = Signals::listen(Some(STOP_LIMIT))?;
    let mut stop = signals.stop();
    tokio::select! {
        done = measure_all(args, quiet) => done,
        // What is dropped ends: nodes, threads and the child.
        signal = stop.requested() => {
            let text = format!("interrupted by {}", signal.as_str());
            Err(Failure::failed(text).with_code(signal.exit_code()))
        }
    }
}

/// What the parser cannot see.
fn check(args: &ExchangeArgs) -> Result<(), Failure> {
    if let Some(slow) = args.slow_consumers {
        if let Some(channels) = args.channels.iter().find(|channels| **channels <= slow) {
            return Err(Failure::usage(format!(
                "--slow-consumers {slow} is not allowed with --channels {channels}: less than the channels"
            )));
        }
        if args.ping.is_some() {
            return Err(Failure::usage(
                "--ping is not allowed with --slow-consumers: calls are measured beside consumers that read",
            ));
        }
    }
    if plan::cases(args).is_empty() {
        return Err(Failure::usage(
            "--slow-consumers needs one of ours in --transport: quic, tcp or tcp-plain",
        ));
    }
    let longest = args.buffer as usize - thalweg_transport::FRAME_OVERHEAD;
    if args.ping.is_some() && args.payload as usize > longest {
        return Err(Failure::usage(format!(
            "--payload {} is not allowed with this --buffer: at most {longest} bytes",
            args.payload
        )));
    }
    args.json.as_deref().map_or(Ok(()), output::check)
}

async fn measure_all(args: &ExchangeArgs, quiet: bool) -> Result<(), Failure> {
    let mut server = match (&args.peer, &args.certs) {
        (Some(address), Some(dir)) => Server::at(address, NodeCertificates::from_dir(dir)?).await?,
        _ => Server::start_here().await?,
    };
    let measured = rounds(args, quiet, &mut server).await;
    let peer = args.peer.is_some().then(|| server.machine.clone());
    let here = Machine::here(server.local_ip());
    server.end().await;
    let results = measured?;
    console::print(&results.tables())?;
    if let Some(path) = &args.json {
        let document = results.document(here, peer, versions());
        output::write_atomically(path, |out| {
            serde_json::to_writer_pretty(&mut *out, &document).map_err(io::Error::from)?;
            writeln!(out)
        })?;
    }
    Ok(())
}

/// A B C A B C: every round has every case.
async fn rounds(args: &ExchangeArgs, quiet: bool, server: &mut Server) -> Result<Results, Failure> {
    let cases = plan::cases(args);
    let mut results = Results::new(cases.clone(), args.buffer);
    let measurements = cases.len() * args.runs as usize;
    let planned = (args.warmup + args.duration).as_secs_f64() * measurements as f64;
    let mut told = Told::new(quiet || planned < PATIENCE.as_secs_f64(), measurements);
    for _ in 0..args.runs {
        for case in &cases {
            let figures = told.during(case, measure(case, args, server)).await;
            let figures = figures.map_err(|failure| in_case(case, &failure))?;
            told.end(case, &figures);
            results.add(case, figures);
        }
    }
    Ok(results)
}

fn in_case(case: &Case, failure: &Failure) -> Failure {
    Failure::failed(format!("{case}: {failure}")).with_code(failure.code())
}

/// What is told on standard error: a bar on a capable terminal, else a line for each measurement.
struct Told {
    quiet: bool,
    bar: Option<Progress>,
    done: usize,
    total: usize,
    last: String,
}

impl Told {
    fn new(quiet: bool, total: usize) -> Self {
        let bar = console::is_capable_terminal().then(|| Progress::new(quiet, now()));
        Self {
            quiet,
            bar,
            done: 0,
            total,
            last: String::new(),
        }
    }

    /// Waits for a measurement and keeps the bar, if there is one, moving meanwhile.
    async fn during<R>(&mut self, case: &Case, measurement: impl Future<Output = R>) -> R {
        let mut measurement = pin!(measurement);
        let snapshot = Snapshot {
            what: case.to_string(),
            fraction: Some(self.done as f64 / self.total as f64),
            details: self.last.clone(),
        };
        loop {
            if let Some(bar) = &mut self.bar {
                bar.update(now(), &snapshot);
            }
            tokio::select! {
                done = &mut measurement => return done,
                () = sleep(BAR_INTERVAL), if self.bar.is_some() => {}
            }
        }
    }

    fn end(&mut self, case: &Case, figures: &Figures) {
        self.done += 1;
        let mut line = format!(
            "{case}: {:.0} MB/s, {:.3} CPU s/GB",
            figures.throughput, figures.cpu_seconds_per_gb
        );
        if let Some(calls) = &figures.calls {
            line = format!("{line}, ping p50 {:.0} p99 {:.0} us", calls.p50, calls.p99);
        }
        if self.bar.is_none() && !self.quiet {
            console::tell(format_args!("{} of {}: {line}", self.done, self.total));
        }
        self.last = line;
    }
}

/// Between two pictures of the bar: rare enough to cost nothing beside what is measured.
const BAR_INTERVAL: Duration = Duration::from_millis(500);

/// What will end sooner tells nothing.
const PATIENCE: Duration = Duration::from_secs(2);

/// Stopping may take so long after a signal.
const STOP_LIMIT: Duration = Duration::from_secs(5);
