//! One measurement: from a cold start to the figures, and everything gone again.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use thalweg_transport::{Profile, now};
use tokio::time::{sleep, timeout};

use super::{
    args::ExchangeArgs,
    counters::Counters,
    fault::Fault,
    ours::Consumer,
    peer::{Peer, Server},
    plan::Case,
    raw::{FramedConsumer, QuicConsumer},
    security::NodeCertificates,
    spec::Spec,
    transport_kind::{Placement, TransportKind},
    usage::{self, Usage},
};
use crate::cli::failure::Failure;

/// The figures of one measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Figures {
    /// 10^6 bytes of payload a second.
    pub(crate) throughput: f64,
    /// Of both processes, per 10^9 bytes.
    pub(crate) cpu_seconds_per_gb: f64,
    /// Of both processes.
    pub(crate) rss_peak_mib: Option<f64>,
    /// Of the calls beside the data.
    pub(crate) calls: Option<Calls>,
}

/// The calls beside the data: how many a second, and how long they took, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Calls {
    pub(crate) rate: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

/// Measures a case.
pub(crate) async fn measure(
    case: &Case,
    args: &ExchangeArgs,
    server: &mut Server,
) -> Result<Figures, Failure> {
    let spec = Spec {
        transport: case.transport,
        channels: case.channels,
        buffer: args.buffer,
        profile: case.profile.unwrap_or(Profile::Loopback),
        placement: case.placement.unwrap_or(Placement::Network),
        separate: case.stopped.is_some(),
        ping: case.ping.unwrap_or(0),
    };
    let stopped = case.stopped.unwrap_or(0);
    let peer = server.prepare(&spec).await?;
    let (counters, fault) = (Arc::new(Counters::new(spec.channels)), Fault::default());
    let consuming = Consuming::start(
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
        counted: case.counted(args.slow_consumers.unwrap_or(0)) as usize,
        calls: case.ping.is_some(),
    };
    let figures = tokio::select! {
        figures = watched.over(args.warmup, args.duration, server) => figures,
        fault = fault.happened() => Err(Failure::failed(fault)),
    };
    consuming.end().await;
    let figures = figures?;
    server.finish().await?;
    Ok(figures)
}

/// What is read while data flows.
struct Watched<'a> {
    counters: &'a Counters,
    /// The first so many channels count for the rate.
    counted: usize,
    calls: bool,
}

/// What was read at one moment.
struct Reading {
    at: Instant,
    counted: u64,
    all: u64,
    own: Usage,
    server: Usage,
}

impl Watched<'_> {
    async fn over(
        &self,
        warmup: Duration,
        duration: Duration,
        server: &mut Server,
    ) -> Result<Figures, Failure> {
        self.first_bytes().await?;
        sleep(warmup).await;
        usage::reset_peak();
        let first = self.read(server, true).await?;
        self.counters.reset_calls();
        sleep(duration).await;
        let last = self.read(server, false).await?;
        let seconds = last.at.saturating_duration_since(first.at).as_secs_f64();
        let calls = self
            .calls
            .then(|| calls(&self.counters.call_times(), seconds));
        let figures = figures(&first, &last, calls);
        if last.counted == first.counted {
            return Err(Failure::failed("no data came in the measured time"));
        }
        if calls.is_some_and(|calls| calls.rate == 0.0) {
            return Err(Failure::failed("no call was answered in the measured time"));
        }
        Ok(figures)
    }

    async fn first_bytes(&self) -> Result<(), Failure> {
        let flowing = async {
            while self.counters.bytes(usize::MAX) == 0 {
                sleep(POLL).await;
            }
        };
        timeout(PATIENCE, flowing).await.map_err(|_| {
            let seconds = PATIENCE.as_secs();
            Failure::failed(format!("no data came within {seconds} s"))
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

fn calls(times: &Histogram<u64>, seconds: f64) -> Calls {
    let micros = |nanos: u64| nanos as f64 / 1e3;
    Calls {
        rate: times.len() as f64 / seconds,
        p50: micros(times.value_at_quantile(0.5)),
        p90: micros(times.value_at_quantile(0.9)),
        p99: micros(times.value_at_quantile(0.99)),
        p999: micros(times.value_at_quantile(0.999)),
        max: micros(times.max()),
    }
}

fn figures(first: &Reading, last: &Reading, calls: Option<Calls>) -> Figures {
    let seconds = last.at.saturating_duration_since(first.at).as_secs_f64();
    let (own, server) = (last.own - first.own, last.server - first.server);
    let peak = own.rss_peak_kib.zip(server.rss_peak_kib);
    let moved = last.all - first.all;
    Figures {
        throughput: (last.counted - first.counted) as f64 / seconds / 1e6,
        cpu_seconds_per_gb: (own.cpu + server.cpu).as_secs_f64() / (moved as f64 / 1e9),
        rss_peak_mib: peak.map(|(own, server)| (own + server) as f64 / 1024.0),
        calls,
    }
}

/// What consumes now.
enum Consuming {
    Ours(Box<Consumer>),
    Quic(QuicConsumer),
    Framed(FramedConsumer),
}

impl Consuming {
    async fn start(
        spec: &Spec,
        certificates: &NodeCertificates,
        peer: &Peer,
        stopped: u32,
        counters: &Arc<Counters>,
        fault: &Fault,
    ) -> Result<Self, Failure> {
        Ok(match spec.transport {
            TransportKind::RawQuic => {
                Self::Quic(QuicConsumer::start(spec, certificates, peer, counters, fault).await?)
            }
            TransportKind::RawTls | TransportKind::RawTcp => Self::Framed(
                FramedConsumer::start(spec, certificates, peer, counters, fault).await?,
            ),
            _ => Self::Ours(Box::new(
                Consumer::start(spec, certificates, peer, stopped, counters, fault).await?,
            )),
        })
    }

    async fn end(self) {
        match self {
            Self::Ours(consumer) => consumer.end().await,
            Self::Quic(consumer) => consumer.end().await,
            Self::Framed(consumer) => consumer.end().await,
        }
    }
}

/// Between two looks for the first byte; nothing is measured meanwhile.
const POLL: Duration = Duration::from_millis(2);

/// For the first byte: a connection that cannot be made fails sooner.
const PATIENCE: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_times_become_a_rate_and_percentiles() {
        let mut times = Histogram::new(3).unwrap();
        for micros in 1..=1000_u64 {
            times.record(micros * 1000).unwrap();
        }
        let calls = calls(&times, 2.0);
        assert_eq!(calls.rate, 500.0);
        for (shown, exact) in [(calls.p50, 500.0), (calls.p99, 990.0), (calls.max, 1000.0)] {
            assert!((shown / exact - 1.0).abs() < 0.002, "{shown} {exact}");
        }
    }

    #[test]
    fn figures_are_those_of_the_window() {
        let start = now();
        let reading = |seconds: u64, counted, all, cpu: u64, peak| Reading {
            at: start + Duration::from_secs(seconds),
            counted,
            all,
            own: Usage {
                cpu: Duration::from_secs(cpu),
                rss_peak_kib: Some(peak),
            },
            server: Usage {
                cpu: Duration::from_secs(10 + cpu),
                rss_peak_kib: Some(1024),
            },
        };
        let first = reading(0, 5_000_000, 5_000_000, 1, 9_999_999);
        let last = reading(2, 2_005_000_000, 4_005_000_000, 2, 2048);
        assert_eq!(
            figures(&first, &last, None),
            Figures {
                throughput: 1000.0,
                cpu_seconds_per_gb: 0.5,
                rss_peak_mib: Some(3.0),
                calls: None
            }
        );
    }
}
