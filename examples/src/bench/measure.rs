//! One measurement: from a cold start to the figures, and everything gone again.

use std::{sync::Arc, time::Duration};

use thalweg_transport::{Profile, now};
use tokio::time::{sleep, timeout};

use super::{
    case::Case,
    client::Client,
    cores,
    counters::Counters,
    fault::Fault,
    figures::{Figures, Reading, figures},
    peer::Server,
    spec::Spec,
    transport_kind::Placement,
    usage::{self, Usage},
};
use crate::cli::failure::Failure;

/// What all measurements of a command have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// Bytes of a frame, header included.
    pub(crate) buffer: u32,
    /// Channels at the end whose bytes do not count, stopped or not.
    pub(crate) slow: u32,
    pub(crate) warmup: Duration,
    pub(crate) duration: Duration,
}

/// Measures a case.
pub(crate) async fn measure(
    case: &Case,
    settings: &Settings,
    server: &mut Server,
) -> Result<Figures, Failure> {
    let spec = Spec {
        transport: case.transport,
        channels: case.channels.unwrap_or(0),
        buffer: settings.buffer,
        profile: case.profile.unwrap_or(Profile::Loopback),
        placement: case.placement.unwrap_or(Placement::Network),
        separate: case.stopped.is_some(),
        calls: case.calls,
        cores: case.cores,
    };
    let stopped = case.stopped.unwrap_or(0);
    cores::keep_to(spec.cores)?;
    let peer = server.prepare(&spec).await?;
    let (counters, fault) = (Arc::new(Counters::new(spec.channels)), Fault::default());
    let client = Client::start(
        &spec,
        &server.certificates,
        &peer,
        stopped,
        &counters,
        &fault,
    )
    .await?;
    let watched = Watched {
        counters: &counters,
        counted: case.counted(settings.slow) as usize,
        data: case.channels.is_some(),
        calls: case.calls.is_some(),
    };
    let figures = tokio::select! {
        figures = watched.over(settings.warmup, settings.duration, server) => figures,
        fault = fault.happened() => Err(Failure::failed(fault)),
    };
    client.end().await;
    let figures = figures?;
    server.finish().await?;
    Ok(figures)
}

/// What is read while it runs.
struct Watched<'a> {
    counters: &'a Counters,
    /// The first so many channels count for the rate.
    counted: usize,
    data: bool,
    calls: bool,
}

impl Watched<'_> {
    async fn over(
        &self,
        warmup: Duration,
        duration: Duration,
        server: &mut Server,
    ) -> Result<Figures, Failure> {
        self.running().await?;
        sleep(warmup).await;
        usage::reset_peak();
        let first = self.read(server, true).await?;
        self.counters.reset_calls();
        sleep(duration).await;
        let last = self.read(server, false).await?;
        let times = self.calls.then(|| self.counters.call_times());
        let figures = figures(&first, &last, times.as_ref());
        if self.data && last.counted == first.counted {
            return Err(Failure::failed("no data came in the measured time"));
        }
        if times.is_some_and(|times| times.is_empty()) {
            return Err(Failure::failed("no call was answered in the measured time"));
        }
        Ok(figures)
    }

    /// Waits for the first bytes, or where there are none for the first answer.
    async fn running(&self) -> Result<(), Failure> {
        let (what, count): (_, fn(&Counters) -> u64) = if self.data {
            ("data", |counters| counters.bytes(usize::MAX))
        } else {
            ("answer", |counters| counters.call_times().len())
        };
        let running = async {
            while count(self.counters) == 0 {
                sleep(POLL).await;
            }
        };
        timeout(PATIENCE, running).await.map_err(|_| {
            let seconds = PATIENCE.as_secs();
            Failure::failed(format!("no {what} came within {seconds} s"))
        })
    }

    async fn read(&self, server: &mut Server, reset_peak: bool) -> Result<Reading, Failure> {
        // The answer takes its time beside the data; ours is read when it is here, at both ends of the window alike.
        let server = server.usage(reset_peak).await?;
        Ok(Reading {
            at: now(),
            counted: self.counters.bytes(self.counted),
            all: self.counters.bytes(usize::MAX),
            own: Usage::now(),
            server,
        })
    }
}

/// Between two looks for the first byte or answer; nothing is measured meanwhile.
const POLL: Duration = Duration::from_millis(2);

/// For the first of them: a connection that cannot be made fails sooner.
const PATIENCE: Duration = Duration::from_secs(15);
