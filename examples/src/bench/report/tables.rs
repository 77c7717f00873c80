//! The tables for people.

use thalweg_transport::Profile;

use super::{Results, metric::Metric};
use crate::{
    bench::{
        case::Case,
        transport_kind::{Placement, TransportKind},
    },
    cli::table::{Column, Table},
};

impl Results {
    /// Those that have rows: data, calls beside it, calls alone.
    pub(crate) fn tables(&self) -> String {
        let tables = [self.data(), self.calls_beside_data(), self.calls_alone()];
        let texts: Vec<String> = tables
            .iter()
            .filter(|table| !table.is_empty())
            .map(Table::render)
            .collect();
        texts.join("\n")
    }

    fn data(&self) -> Table {
        let to = self.peer([TransportKind::FlightTls, TransportKind::Flight]);
        let mut table = Table::new(with_peer(
            to,
            [
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
            ],
        ));
        for row in self.rows().filter(|row| row.case.channels.is_some()) {
            table.row(row.about().into_iter().chain([
                row.channels(),
                beside(row.case),
                row.figure(Metric::Throughput, 0),
                row.range(Metric::Throughput),
                row.ratio(Metric::Throughput),
                row.figure(Metric::Cpu, 3),
                row.ratio(Metric::Cpu),
                row.figure(Metric::Rss, 0),
                row.ratio_to(to, Metric::Throughput),
            ]));
        }
        table
    }

    fn calls_beside_data(&self) -> Table {
        let to = self.peer([TransportKind::TonicTls, TransportKind::Tonic]);
        let mut table = Table::new(with_peer(
            to,
            [
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
            ],
        ));
        for row in self.rows() {
            if row.case.calls.is_none() || row.case.channels.is_none() {
                continue;
            }
            table.row(row.about().into_iter().chain([
                row.channels(),
                row.figure(Metric::Calls, 0),
                row.figure(Metric::P50, 0),
                row.figure(Metric::P90, 0),
                row.figure(Metric::P99, 0),
                row.ratio(Metric::P99),
                row.figure(Metric::P999, 0),
                row.figure(Metric::Max, 0),
                row.figure(Metric::Throughput, 0),
                row.ratio(Metric::Throughput),
                row.ratio_to(to, Metric::P99),
            ]));
        }
        table
    }

    fn calls_alone(&self) -> Table {
        let to = self.peer([TransportKind::Tonic, TransportKind::TonicTls]);
        let mut table = Table::new(with_peer(
            to,
            [
                Column::Left("transport"),
                Column::Left("profile"),
                Column::Left("placement"),
                Column::Right("outstanding"),
                Column::Right("cores"),
                Column::Right("calls/s"),
                Column::Right("min..max"),
                Column::Right("ratio"),
                Column::Right("p50 us"),
                Column::Right("ratio"),
                Column::Right("p90"),
                Column::Right("p99"),
                Column::Right("ratio"),
                Column::Right("p99.9"),
                Column::Right("max"),
                Column::Right("CPU us/call"),
                Column::Right("ratio"),
            ],
        ));
        for row in self.rows() {
            let (Some(calls), None) = (row.case.calls, row.case.channels) else {
                continue;
            };
            let cores = row.case.cores;
            table.row(row.about().into_iter().chain([
                calls.outstanding.to_string(),
                cores.map_or_else(|| "all".to_owned(), |cores| cores.to_string()),
                row.figure(Metric::Calls, 0),
                row.range(Metric::Calls),
                row.ratio(Metric::Calls),
                row.figure(Metric::P50, 1),
                row.ratio(Metric::P50),
                row.figure(Metric::P90, 1),
                row.figure(Metric::P99, 1),
                row.ratio(Metric::P99),
                row.figure(Metric::P999, 0),
                row.figure(Metric::Max, 0),
                row.figure(Metric::CpuPerCall, 2),
                row.ratio(Metric::CpuPerCall),
                row.ratio_to(to, Metric::Calls),
            ]));
        }
        table
    }

    /// The first of these that was measured.
    fn peer(&self, kinds: [TransportKind; 2]) -> Option<TransportKind> {
        let measured = |kind: &TransportKind| self.rows().any(|row| row.case.transport == *kind);
        kinds.into_iter().find(measured)
    }

    /// Cases that were measured.
    fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let measured = self.cases.iter().filter(|(_, rounds)| !rounds.is_empty());
        measured.map(|(case, _)| Row {
            results: self,
            case,
        })
    }
}

/// The cells of one case.
struct Row<'a> {
    results: &'a Results,
    case: &'a Case,
}

impl Row<'_> {
    fn about(&self) -> [String; 3] {
        [
            self.case.transport.as_str().to_owned(),
            self.case.profile.map_or("", Profile::as_str).to_owned(),
            self.case.placement.map_or("", Placement::as_str).to_owned(),
        ]
    }

    fn channels(&self) -> String {
        let channels = self.case.channels;
        channels.map_or_else(String::new, |channels| channels.to_string())
    }

    fn figure(&self, metric: Metric, digits: usize) -> String {
        let spread = self.results.spread(self.case, metric);
        spread.map_or_else(String::new, |spread| format!("{:.digits$}", spread.median))
    }

    fn range(&self, metric: Metric) -> String {
        let spread = self.results.spread(self.case, metric);
        spread.map_or_else(String::new, |it| format!("{:.0}..{:.0}", it.min, it.max))
    }

    /// To the first of what the case is compared with: what lies below it, or itself while nobody stops.
    fn ratio(&self, metric: Metric) -> String {
        let references = self.case.references();
        self.shown_ratio(references.first(), metric)
    }

    /// To what others use for the same work.
    fn ratio_to(&self, to: Option<TransportKind>, metric: Metric) -> String {
        let references = self.case.references().into_iter();
        let reference = references.skip(1).find(|one| Some(one.transport) == to);
        self.shown_ratio(reference.as_ref(), metric)
    }

    fn shown_ratio(&self, to: Option<&Case>, metric: Metric) -> String {
        let ratio = to.and_then(|to| self.results.ratio(self.case, to, metric));
        ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"))
    }
}

/// One more column at the end if there is a peer: the ratio to that one, of the rate of data or of calls alone, or of the
/// 99th percentile of calls beside data.
fn with_peer<const N: usize>(to: Option<TransportKind>, columns: [Column; N]) -> Vec<Column> {
    let name = to.map(|to| match to {
        TransportKind::Tonic => "to tonic",
        TransportKind::TonicTls => "to tonic-tls",
        TransportKind::Flight => "to flight",
        _ => "to flight-tls",
    });
    columns.into_iter().chain(name.map(Column::Right)).collect()
}

fn beside(case: &Case) -> String {
    match (case.calls, case.stopped) {
        (Some(calls), _) if calls.gateway => "calls".to_owned(),
        (Some(_), _) => "ping".to_owned(),
        (None, Some(stopped)) => format!("{stopped} stopped"),
        (None, None) => String::new(),
    }
}
