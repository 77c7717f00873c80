//! What the commands that measure have in common: the server, the rounds, the results.

use std::{io, time::Duration};

use super::{
    args::RunArgs,
    case::Case,
    machine::{Machine, versions},
    measure::{Settings, measure},
    peer::Server,
    report::Results,
    security::NodeCertificates,
    told::Told,
};
use crate::cli::{console, failure::Failure, output, stop::Signals};

/// Measures every case as often as asked, prints the tables and writes the file, or ends at a signal.
pub(super) async fn run(
    args: &RunArgs,
    settings: &Settings,
    cases: Vec<Case>,
    quiet: bool,
) -> Result<(), Failure> {
    args.json.as_deref().map_or(Ok(()), output::check)?;
    let signals = Signals::listen(Some(STOP_LIMIT))?;
    let mut stop = signals.stop();
    tokio::select! {
        done = measure_all(args, settings, cases, quiet) => done,
        // What is dropped ends: nodes, threads and the child.
        signal = stop.requested() => {
            let text = format!("interrupted by {}", signal.as_str());
            Err(Failure::failed(text).with_code(signal.exit_code()))
        }
    }
}

async fn measure_all(
    args: &RunArgs,
    settings: &Settings,
    cases: Vec<Case>,
    quiet: bool,
) -> Result<(), Failure> {
    let mut server = match (&args.peer, &args.certs) {
        (Some(address), Some(dir)) => Server::at(address, NodeCertificates::from_dir(dir)?).await?,
        _ => Server::start_here().await?,
    };
    let measured = rounds(args.runs, settings, cases, quiet, &mut server).await;
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
async fn rounds(
    runs: u32,
    settings: &Settings,
    cases: Vec<Case>,
    quiet: bool,
    server: &mut Server,
) -> Result<Results, Failure> {
    let mut results = Results::new(cases.clone(), settings.buffer);
    let measurements = cases.len() * runs as usize;
    let one = (settings.warmup + settings.duration).as_secs_f64();
    let planned = one * measurements as f64;
    let mut told = Told::new(quiet || planned < PATIENCE.as_secs_f64(), measurements);
    for _ in 0..runs {
        for case in &cases {
            let figures = told.during(case, measure(case, settings, server)).await;
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

/// What will end sooner tells nothing.
const PATIENCE: Duration = Duration::from_secs(2);

/// Stopping may take so long after a signal.
const STOP_LIMIT: Duration = Duration::from_secs(5);
