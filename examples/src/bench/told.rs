//! What is told on standard error while a command measures.

use std::{pin::pin, time::Duration};

use thalweg_transport::now;
use tokio::time::sleep;

use super::{case::Case, figures::Figures};
use crate::cli::{
    console,
    progress::{Progress, Snapshot},
};

/// A bar on a capable terminal, else a line for each measurement.
pub(super) struct Told {
    quiet: bool,
    bar: Option<Progress>,
    done: usize,
    total: usize,
    last: String,
}

impl Told {
    pub(super) fn new(quiet: bool, total: usize) -> Self {
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
    pub(super) async fn during<R>(
        &mut self,
        case: &Case,
        measurement: impl Future<Output = R>,
    ) -> R {
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

    pub(super) fn end(&mut self, case: &Case, figures: &Figures) {
        self.done += 1;
        let line = format!("{case}: {}", shown(case, figures));
        if self.bar.is_none() && !self.quiet {
            console::tell(format_args!("{} of {}: {line}", self.done, self.total));
        }
        self.last = line;
    }
}

fn shown(case: &Case, figures: &Figures) -> String {
    let mut parts = Vec::new();
    if let Some((rate, cpu)) = figures.throughput.zip(figures.cpu_seconds_per_gb) {
        parts.push(format!("{rate:.0} MB/s, {cpu:.3} CPU s/GB"));
    }
    if let Some(calls) = &figures.calls {
        let what = match case.calls {
            Some(calls) if !calls.gateway => "ping ".to_owned(),
            _ => format!("{:.0} calls/s, ", calls.rate),
        };
        parts.push(format!(
            "{what}p50 {:.0} p99 {:.0} us",
            calls.p50, calls.p99
        ));
    }
    parts.join(", ")
}

/// Between two pictures of the bar: rare enough to cost nothing beside what is measured.
const BAR_INTERVAL: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{case::Calls, figures::CallTimes, transport_kind::TransportKind};

    #[test]
    fn a_line_says_what_was_measured_and_its_main_figures() {
        let case = Case {
            transport: TransportKind::Tcp,
            channels: None,
            profile: None,
            placement: None,
            calls: Some(Calls {
                payload: 64,
                outstanding: 64,
                gateway: true,
            }),
            stopped: None,
            cores: Some(2),
        };
        let figures = Figures {
            throughput: None,
            cpu_seconds_per_gb: None,
            cpu_per_call: Some(5.0),
            rss_peak_mib: None,
            calls: Some(CallTimes {
                rate: 98_765.4,
                p50: 321.4,
                p90: 400.0,
                p99: 512.3,
                p999: 600.0,
                max: 700.0,
            }),
        };
        assert_eq!(case.to_string(), "tcp, 64 calls outstanding, 2 cores");
        assert_eq!(shown(&case, &figures), "98765 calls/s, p50 321 p99 512 us");
        let beside = Figures {
            throughput: Some(812.0),
            cpu_seconds_per_gb: Some(1.5),
            ..figures
        };
        let ping = Case {
            channels: Some(8),
            calls: case.calls.map(|calls| Calls {
                gateway: false,
                ..calls
            }),
            ..case
        };
        assert_eq!(ping.to_string(), "tcp, 8 channels, ping, 2 cores");
        assert_eq!(
            shown(&ping, &beside),
            "812 MB/s, 1.500 CPU s/GB, ping p50 321 p99 512 us"
        );
    }
}
