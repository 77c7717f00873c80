//! Every result as JSON, and the table for people.

use std::collections::BTreeMap;

use serde::Serialize;
use thalweg_transport::Profile;

use super::{
    machine::Machine,
    measure::Figures,
    plan::Case,
    statistics::{Spread, median_ratio},
    transport_kind::{Placement, TransportKind},
};
use crate::cli::table::{Column, Table};

/// All figures of one command, by case and round.
#[derive(Debug)]
pub(crate) struct Results {
    buffer: u32,
    cases: Vec<(Case, Vec<Figures>)>,
}

impl Results {
    pub(crate) fn new(cases: Vec<Case>, buffer: u32) -> Self {
        let cases = cases.into_iter().map(|case| (case, Vec::new())).collect();
        Self { buffer, cases }
    }

    /// Adds the next round of a case.
    pub(crate) fn add(&mut self, case: &Case, figures: Figures) {
        let found = self.cases.iter_mut().find(|(known, _)| known == case);
        if let Some((_, rounds)) = found {
            rounds.push(figures);
        }
    }

    fn rounds(&self, case: &Case) -> &[Figures] {
        let found = self.cases.iter().find(|(known, _)| known == case);
        found.map_or(&[], |(_, rounds)| rounds)
    }

    fn spread(&self, case: &Case, metric: Metric) -> Option<Spread> {
        Spread::of(self.rounds(case).iter().filter_map(|one| metric.of(one)))
    }

    /// To the reference of the case, within each round.
    fn ratio(&self, case: &Case, metric: Metric) -> Option<f64> {
        let reference = case.reference()?;
        let rounds = self.rounds(case).iter().zip(self.rounds(&reference));
        median_ratio(rounds.filter_map(|(one, other)| metric.of(one).zip(metric.of(other))))
    }
}

/// A figure by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Metric {
    Throughput,
    Cpu,
    Rss,
    Calls,
    P50,
    P90,
    P99,
    P999,
    Max,
}

impl Metric {
    /// Those with rows of their own.
    const ROWS: [Self; 7] = [
        Self::Throughput,
        Self::Calls,
        Self::P50,
        Self::P90,
        Self::P99,
        Self::P999,
        Self::Max,
    ];
    /// Those that are compared.
    const RATIOS: [Self; 3] = [Self::Throughput, Self::Cpu, Self::P99];

    fn of(self, figures: &Figures) -> Option<f64> {
        let calls = figures.calls;
        match self {
            Self::Throughput => Some(figures.throughput),
            Self::Cpu => Some(figures.cpu_seconds_per_gb),
            Self::Rss => figures.rss_peak_mib,
            Self::Calls => calls.map(|it| it.rate),
            Self::P50 => calls.map(|it| it.p50),
            Self::P90 => calls.map(|it| it.p90),
            Self::P99 => calls.map(|it| it.p99),
            Self::P999 => calls.map(|it| it.p999),
            Self::Max => calls.map(|it| it.max),
        }
    }

    fn name(self) -> &'static str {
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
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Throughput => "MB/s",
            Self::Cpu => "s/GB",
            Self::Rss => "MiB",
            Self::Calls => "calls/s",
            _ => "us",
        }
    }
}

/// The file of `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct Document {
    machine: Machine,
    /// The producer's, if it is another one.
    peer: Option<Machine>,
    versions: BTreeMap<&'static str, String>,
    runs: Vec<Run>,
    ratios: Vec<Ratio>,
}

/// What a row is about; what does not apply is null.
#[derive(Debug, Clone, Serialize)]
struct About {
    suite: &'static str,
    transport: TransportKind,
    channels: u32,
    buffer: u32,
    outstanding: Option<u32>,
    payload: Option<u32>,
    profile: Option<&'static str>,
    network: Option<&'static str>,
    placement: Option<Placement>,
    slow_consumers: Option<u32>,
}

#[derive(Debug, Serialize)]
struct Run {
    #[serde(flatten)]
    about: About,
    metric: &'static str,
    unit: &'static str,
    value: f64,
    min: f64,
    max: f64,
    cpu_seconds_per_gb: Option<f64>,
    rss_peak_mib: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Ratio {
    #[serde(flatten)]
    about: About,
    /// The transport below, or the same one while nobody stops.
    to: TransportKind,
    metric: &'static str,
    value: f64,
}

impl Results {
    /// Everything, for other programs.
    pub(crate) fn document(
        &self,
        machine: Machine,
        peer: Option<Machine>,
        versions: BTreeMap<&'static str, String>,
    ) -> Document {
        let mut runs = Vec::new();
        let mut ratios = Vec::new();
        for (case, _) in &self.cases {
            let median = |metric| self.spread(case, metric).map(|spread| spread.median);
            for metric in Metric::ROWS {
                let Some(spread) = self.spread(case, metric) else {
                    continue;
                };
                runs.push(Run {
                    about: self.about(case),
                    metric: metric.name(),
                    unit: metric.unit(),
                    value: spread.median,
                    min: spread.min,
                    max: spread.max,
                    cpu_seconds_per_gb: median(Metric::Cpu),
                    rss_peak_mib: median(Metric::Rss),
                });
            }
            for metric in Metric::RATIOS {
                if let Some(value) = self.ratio(case, metric)
                    && let Some(reference) = case.reference()
                {
                    ratios.push(Ratio {
                        about: self.about(case),
                        to: reference.transport,
                        metric: metric.name(),
                        value,
                    });
                }
            }
        }
        Document {
            machine,
            peer,
            versions,
            runs,
            ratios,
        }
    }

    fn about(&self, case: &Case) -> About {
        About {
            suite: case.suite(),
            transport: case.transport,
            channels: case.channels,
            buffer: self.buffer,
            outstanding: case.ping.map(|_| 1),
            payload: case.ping,
            profile: case.profile.map(Profile::as_str),
            network: None,
            placement: case.placement,
            slow_consumers: case.stopped,
        }
    }

    /// The tables for people.
    pub(crate) fn tables(&self) -> String {
        let mut rates = Table::new([
            Column::Left("transport"),
            Column::Left("profile"),
            Column::Left("placement"),
            Column::Right("channels"),
            Column::Left("beside"),
            Column::Right("MB/s"),
            Column::Right("min..max"),
            Column::Right("ratio"),
            Column::Right("CPU s/GB"),
            Column::Right("ratio"),
            Column::Right("RSS MiB"),
        ]);
        let mut calls = Table::new([
            Column::Left("transport"),
            Column::Left("profile"),
            Column::Left("placement"),
            Column::Right("channels"),
            Column::Right("calls/s"),
            Column::Right("p50 us"),
            Column::Right("p90"),
            Column::Right("p99"),
            Column::Right("ratio"),
            Column::Right("p99.9"),
            Column::Right("max"),
            Column::Right("MB/s beside"),
            Column::Right("ratio"),
        ]);
        for (case, _) in &self.cases {
            let Some(rate) = self.spread(case, Metric::Throughput) else {
                continue;
            };
            let figure = |metric, digits| {
                let spread = self.spread(case, metric);
                shown(spread.map(|spread| spread.median), digits)
            };
            let ratio = |metric| shown(self.ratio(case, metric), 2);
            let about = [
                case.transport.as_str().to_owned(),
                case.profile.map_or("", Profile::as_str).to_owned(),
                case.placement.map_or("", Placement::as_str).to_owned(),
                case.channels.to_string(),
            ];
            rates.row(about.iter().cloned().chain([
                beside(case),
                format!("{:.0}", rate.median),
                format!("{:.0}..{:.0}", rate.min, rate.max),
                ratio(Metric::Throughput),
                figure(Metric::Cpu, 3),
                ratio(Metric::Cpu),
                figure(Metric::Rss, 0),
            ]));
            if case.ping.is_some() {
                calls.row(about.into_iter().chain([
                    figure(Metric::Calls, 0),
                    figure(Metric::P50, 0),
                    figure(Metric::P90, 0),
                    figure(Metric::P99, 0),
                    ratio(Metric::P99),
                    figure(Metric::P999, 0),
                    figure(Metric::Max, 0),
                    format!("{:.0}", rate.median),
                    ratio(Metric::Throughput),
                ]));
            }
        }
        let mut text = rates.render();
        if !calls.is_empty() {
            text.push('\n');
            text.push_str(&calls.render());
        }
        text
    }
}

fn beside(case: &Case) -> String {
    match (case.ping, case.stopped) {
        (Some(_), _) => "ping".to_owned(),
        (None, Some(stopped)) => format!("{stopped} stopped"),
        (None, None) => String::new(),
    }
}

fn shown(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(String::new, |figure| format!("{figure:.digits$}"))
}

#[cfg(test)]
mod tests;
