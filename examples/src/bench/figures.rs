//! The figures of one measurement, from what was read at its two ends.

use std::time::Instant;

use hdrhistogram::Histogram;

use super::usage::Usage;

/// The figures of one measurement; `None` for what was not measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Figures {
    /// 10^6 bytes of payload a second.
    pub(crate) throughput: Option<f64>,
    /// Of both processes, per 10^9 bytes.
    pub(crate) cpu_seconds_per_gb: Option<f64>,
    /// Of both processes, in microseconds; of calls that nothing is beside.
    pub(crate) cpu_per_call: Option<f64>,
    /// Of both processes.
    pub(crate) rss_peak_mib: Option<f64>,
    pub(crate) calls: Option<CallTimes>,
}

/// How many calls a second, and how long they took, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CallTimes {
    pub(crate) rate: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

/// What was read at one moment.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) at: Instant,
    /// Bytes of the channels that count for the rate.
    pub(super) counted: u64,
    pub(super) all: u64,
    pub(super) own: Usage,
    pub(super) server: Usage,
}

/// What happened between two moments; `times` are nanoseconds of the calls between them.
pub(super) fn figures(first: &Reading, last: &Reading, times: Option<&Histogram<u64>>) -> Figures {
    let seconds = last.at.saturating_duration_since(first.at).as_secs_f64();
    let (own, server) = (last.own - first.own, last.server - first.server);
    let cpu = (own.cpu + server.cpu).as_secs_f64();
    let peak = own.rss_peak_kib.zip(server.rss_peak_kib);
    let (counted, all) = (last.counted - first.counted, last.all - first.all);
    let calls = times.map_or(0, Histogram::len);
    Figures {
        throughput: (all > 0).then(|| counted as f64 / seconds / 1e6),
        cpu_seconds_per_gb: (all > 0).then(|| cpu / (all as f64 / 1e9)),
        cpu_per_call: (all == 0 && calls > 0).then(|| cpu * 1e6 / calls as f64),
        rss_peak_mib: peak.map(|(own, server)| (own + server) as f64 / 1024.0),
        calls: times.map(|times| call_times(times, seconds)),
    }
}

fn call_times(times: &Histogram<u64>, seconds: f64) -> CallTimes {
    let micros = |nanos: u64| nanos as f64 / 1e3;
    CallTimes {
        rate: times.len() as f64 / seconds,
        p50: micros(times.value_at_quantile(0.5)),
        p90: micros(times.value_at_quantile(0.9)),
        p99: micros(times.value_at_quantile(0.99)),
        p999: micros(times.value_at_quantile(0.999)),
        max: micros(times.max()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use thalweg_transport::now;

    use super::*;

    fn times() -> Histogram<u64> {
        let mut times = Histogram::new(3).unwrap();
        for micros in 1..=1000_u64 {
            times.record(micros * 1000).unwrap();
        }
        times
    }

    fn window(megabytes: u64) -> (Reading, Reading) {
        let start = now();
        let reading = |seconds: u64, moved: u64, cpu: u64, peak| Reading {
            at: start + Duration::from_secs(seconds),
            counted: moved * 1_000_000,
            all: 2 * moved * 1_000_000,
            own: Usage {
                cpu: Duration::from_secs(cpu),
                rss_peak_kib: Some(peak),
            },
            server: Usage {
                cpu: Duration::from_secs(10 + cpu),
                rss_peak_kib: Some(1024),
            },
        };
        (
            reading(0, 5, 1, 9_999_999),
            reading(2, 5 + megabytes, 2, 2048),
        )
    }

    #[test]
    fn call_times_become_a_rate_and_percentiles() {
        let calls = call_times(&times(), 2.0);
        assert_eq!(calls.rate, 500.0);
        for (shown, exact) in [(calls.p50, 500.0), (calls.p99, 990.0), (calls.max, 1000.0)] {
            assert!((shown / exact - 1.0).abs() < 0.002, "{shown} {exact}");
        }
    }

    #[test]
    fn figures_are_those_of_the_window() {
        let (first, last) = window(2000);
        assert_eq!(
            figures(&first, &last, None),
            Figures {
                throughput: Some(1000.0),
                cpu_seconds_per_gb: Some(0.5),
                cpu_per_call: None,
                rss_peak_mib: Some(3.0),
                calls: None
            }
        );
    }

    #[test]
    fn calls_alone_have_no_throughput_but_a_price() {
        let (first, last) = window(0);
        let figures = figures(&first, &last, Some(&times()));
        assert_eq!(
            (figures.throughput, figures.cpu_seconds_per_gb),
            (None, None)
        );
        assert_eq!(figures.cpu_per_call, Some(2000.0));
        assert_eq!(figures.calls.map(|calls| calls.rate), Some(500.0));
    }
}
