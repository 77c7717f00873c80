//! What is said about a job at its end: the object of `--json`, and the summary for people.

use std::{collections::BTreeSet, time::Duration};

use serde::Serialize;
use thalweg_runtime::{
    config::Config,
    job::{JobState, JobStatus},
};

use super::{human, job::Evaluation, table::labelled};

/// The object of `--json`; the fields in the order in which they are printed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Report {
    pub(crate) job_id: String,
    pub(crate) job: &'static str,
    pub(crate) state: &'static str,
    pub(crate) error: Option<String>,
    pub(crate) transport: String,
    pub(crate) tls: &'static str,
    pub(crate) taskmanagers: u64,
    pub(crate) parallelism: u32,
    pub(crate) duration_ms: u64,
    pub(crate) records: u64,
    pub(crate) bytes_remote: u64,
    pub(crate) bytes_local: u64,
    pub(crate) connections: u64,
    pub(crate) streams: u64,
    pub(crate) restarts: u32,
}

impl Report {
    /// From the job's last known state; `registered` is the number of TaskManagers of the cluster, if it is known.
    pub(crate) fn new(
        config: &Config,
        job: &'static str,
        parallelism: u32,
        status: &JobStatus,
        registered: Option<usize>,
    ) -> Self {
        let used: BTreeSet<_> = status
            .tasks
            .iter()
            .filter_map(|task| task.task_manager.as_ref())
            .collect();
        let failure = status
            .failure
            .as_ref()
            .filter(|_| status.state == JobState::Failed);
        Self {
            job_id: status.id.to_hex(),
            job,
            state: status.state.as_str(),
            error: failure.map(ToString::to_string),
            transport: config.transport.backend.clone(),
            tls: config.tls.mode.as_str(),
            taskmanagers: registered.unwrap_or(used.len()) as u64,
            parallelism,
            duration_ms: status.duration_ms,
            records: status.totals.records_in,
            bytes_remote: status.totals.bytes_remote,
            bytes_local: status.totals.bytes_local,
            connections: status.connections,
            streams: status.totals.streams,
            restarts: status.restarts,
        }
    }

    /// One line.
    pub(crate) fn to_json(&self) -> String {
        let object = serde_json::to_string(self);
        object.expect("strings and numbers always serialize") + "\n"
    }

    /// Lines for people.
    pub(crate) fn summary(&self, evaluation: Option<&Evaluation>) -> String {
        let duration = Duration::from_millis(self.duration_ms);
        let bytes = self.bytes_remote.saturating_add(self.bytes_local);
        let tls = match self.tls {
            "mutual" => "with mutual TLS",
            "off" => "without TLS",
            other => other,
        };
        let mut time = human::duration(duration);
        if let Some(rate) = human::rate(bytes, duration) {
            time = format!("{time}, {rate}");
        }
        let mut lines = vec![
            (
                "job",
                format!("{} {} {}", self.job, self.job_id, self.state),
            ),
            (
                "cluster",
                format!(
                    "{} over {} {tls}, parallelism {}",
                    human::plural(self.taskmanagers, "TaskManager"),
                    self.transport,
                    self.parallelism
                ),
            ),
        ];
        lines.extend(
            evaluation
                .iter()
                .flat_map(|evaluation| evaluation.facts.iter().cloned()),
        );
        lines.extend([
            (
                "exchange",
                format!(
                    "{}: {} over the network, {} inside TaskManagers",
                    human::plural(self.records, "record"),
                    human::bytes(self.bytes_remote),
                    human::bytes(self.bytes_local)
                ),
            ),
            (
                "network",
                format!(
                    "{}, {}",
                    human::plural(self.connections, "connection"),
                    human::plural(self.streams, "stream")
                ),
            ),
            ("restarts", human::count(self.restarts.into())),
            ("time", time),
        ]);
        labelled(&lines)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use thalweg_runtime::{
        ids::JobId,
        job::{FailureCause, FailureKind, TaskMetrics},
    };

    use super::*;

    pub(crate) fn status(state: JobState) -> JobStatus {
        JobStatus {
            id: JobId::from_u128(0x2a),
            name: "shuffle".to_owned(),
            state,
            restarts: 1,
            failure: Some(FailureCause::new(FailureKind::User, "boom")),
            tasks: Vec::new(),
            totals: TaskMetrics {
                records_in: 1000,
                records_out: 1000,
                bytes_remote: 3_000_000,
                bytes_local: 1_000_000,
                streams: 8,
                progress: None,
            },
            connections: 2,
            duration_ms: 2_000,
            result_bytes: 0,
        }
    }

    fn report(state: JobState) -> Report {
        Report::new(&Config::default(), "shuffle", 4, &status(state), Some(2))
    }

    #[test]
    fn the_object_has_exactly_the_documented_fields() {
        assert_eq!(
            report(JobState::Finished).to_json(),
            "{\"job_id\":\"0000000000000000000000000000002a\",\"job\":\"shuffle\",\"state\":\"FINISHED\",\
             \"error\":null,\"transport\":\"quic\",\"tls\":\"mutual\",\"taskmanagers\":2,\"parallelism\":4,\
             \"duration_ms\":2000,\"records\":1000,\"bytes_remote\":3000000,\"bytes_local\":1000000,\
             \"connections\":2,\"streams\":8,\"restarts\":1}\n"
        );
    }

    #[test]
    fn only_a_failed_job_has_an_error() {
        assert_eq!(report(JobState::Failed).error.as_deref(), Some("boom"));
        assert_eq!(report(JobState::Canceled).error, None);
    }

    #[test]
    fn the_summary_says_what_ran_where_and_how_fast() {
        let summary = report(JobState::Finished).summary(None);
        for told in [
            "shuffle 0000000000000000000000000000002a FINISHED",
            "2 TaskManagers over quic with mutual TLS, parallelism 4",
            "1,000 records: 2.86 MiB over the network, 976.56 KiB inside TaskManagers",
            "2 connections, 8 streams",
            "2.0 s, 2.0 MB/s",
        ] {
            assert!(summary.contains(told), "{told}: {summary}");
        }
    }
}
