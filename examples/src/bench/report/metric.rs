//! The figures by name.

use crate::bench::figures::{CallTimes, Figures};

/// A figure by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Metric {
    Throughput,
    Cpu,
    Rss,
    Calls,
    P50,
    P90,
    P99,
    P999,
    Max,
    CpuPerCall,
}

impl Metric {
    /// Those with rows of their own.
    pub(super) const ROWS: [Self; 8] = [
        Self::Throughput,
        Self::Calls,
        Self::P50,
        Self::P90,
        Self::P99,
        Self::P999,
        Self::Max,
        Self::CpuPerCall,
    ];
    /// Those that are compared.
    pub(super) const RATIOS: [Self; 6] = [
        Self::Throughput,
        Self::Cpu,
        Self::P99,
        Self::P50,
        Self::Calls,
        Self::CpuPerCall,
    ];

    pub(super) fn of(self, figures: &Figures) -> Option<f64> {
        let of_calls = |figure: fn(&CallTimes) -> f64| figures.calls.as_ref().map(figure);
        match self {
            Self::Throughput => figures.throughput,
            Self::Cpu => figures.cpu_seconds_per_gb,
            Self::Rss => figures.rss_peak_mib,
            Self::Calls => of_calls(|calls| calls.rate),
            Self::P50 => of_calls(|calls| calls.p50),
            Self::P90 => of_calls(|calls| calls.p90),
            Self::P99 => of_calls(|calls| calls.p99),
            Self::P999 => of_calls(|calls| calls.p999),
            Self::Max => of_calls(|calls| calls.max),
            Self::CpuPerCall => figures.cpu_per_call,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Cpu => "cpu_seconds_per_gb",
            Self::Rss => "rss_peak_mib",
            Self::Calls => "calls",
            Self::P50 => "latency_p50",
            Self::P90 => "latency_p90",
            Self::P99 => "latency_p99",
            Self::P999 => "latency_p999",
            Self::Max => "latency_max",
            Self::CpuPerCall => "cpu_per_call",
        }
    }

    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Throughput => "MB/s",
            Self::Cpu => "s/GB",
            Self::Rss => "MiB",
            Self::Calls => "calls/s",
            _ => "us",
        }
    }
}
