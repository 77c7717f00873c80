//! The file of `--json`.

use std::collections::BTreeMap;

use serde::Serialize;
use thalweg_transport::Profile;

use super::{Results, metric::Metric};
use crate::bench::{
    case::Case,
    machine::Machine,
    transport_kind::{Placement, TransportKind},
};

/// Everything, for other programs.
#[derive(Debug, Serialize)]
pub(crate) struct Document {
    machine: Machine,
    /// That of the other end, if it is another one.
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
    channels: Option<u32>,
    buffer: Option<u32>,
    outstanding: Option<u32>,
    payload: Option<u32>,
    profile: Option<&'static str>,
    network: Option<&'static str>,
    placement: Option<Placement>,
    slow_consumers: Option<u32>,
    /// That both processes were kept on.
    cores: Option<u32>,
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
    /// The transport below, a peer, or the same one while nobody stops.
    to: TransportKind,
    metric: &'static str,
    value: f64,
}

impl Results {
    pub(crate) fn document(
        &self,
        machine: Machine,
        peer: Option<Machine>,
        versions: BTreeMap<&'static str, String>,
    ) -> Document {
        let mut runs = Vec::new();
        let mut ratios = Vec::new();
        for (case, _) in &self.cases {
            runs.extend(self.runs_of(case));
            for reference in case.references() {
                ratios.extend(Metric::RATIOS.into_iter().filter_map(|metric| {
                    Some(Ratio {
                        about: self.about(case),
                        to: reference.transport,
                        metric: metric.name(),
                        value: self.ratio(case, &reference, metric)?,
                    })
                }));
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

    fn runs_of(&self, case: &Case) -> impl Iterator<Item = Run> {
        let median = |metric| self.spread(case, metric).map(|spread| spread.median);
        Metric::ROWS.into_iter().filter_map(move |metric| {
            let spread = self.spread(case, metric)?;
            Some(Run {
                about: self.about(case),
                metric: metric.name(),
                unit: metric.unit(),
                value: spread.median,
                min: spread.min,
                max: spread.max,
                cpu_seconds_per_gb: median(Metric::Cpu),
                rss_peak_mib: median(Metric::Rss),
            })
        })
    }

    fn about(&self, case: &Case) -> About {
        About {
            suite: case.suite(),
            transport: case.transport,
            channels: case.channels,
            buffer: case.channels.map(|_| self.buffer),
            outstanding: case.calls.map(|calls| calls.outstanding),
            payload: case.calls.map(|calls| calls.payload),
            profile: case.profile.map(Profile::as_str),
            network: None,
            placement: case.placement,
            slow_consumers: case.stopped,
            cores: case.cores,
        }
    }
}
