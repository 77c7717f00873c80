//! The cluster at a glance: the object of `status --json`, and tables for people.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;
use thalweg_runtime::{
    gateways::{ClusterStatus, ConnectionReport, TaskManagerStatus},
    job::JobStatus,
};
use thalweg_transport::ResourceId;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{
    human,
    table::{Column, Table},
};

/// The object of `status --json`.
#[derive(Debug, Serialize)]
pub(crate) struct StatusReport {
    taskmanagers: Vec<TaskManagerRow>,
    jobs: Vec<JobRow>,
    connections: Vec<ConnectionRow>,
}

#[derive(Debug, Serialize)]
struct TaskManagerRow {
    id: String,
    address: String,
    slots_total: usize,
    slots_free: usize,
    last_heartbeat_ms: u64,
    identity: Option<String>,
    tls: String,
    /// RFC 3339, UTC.
    certificate_expires: Option<String>,
    certificate_fingerprint: Option<String>,
}

#[derive(Debug, Serialize)]
struct JobRow {
    id: String,
    name: String,
    state: &'static str,
    restarts: u32,
    records: u64,
    bytes_remote: u64,
    tasks: Vec<TaskRow>,
}

#[derive(Debug, Serialize)]
struct TaskRow {
    name: String,
    index: u32,
    state: &'static str,
    taskmanager: Option<String>,
}

#[derive(Debug, Serialize)]
struct ConnectionRow {
    from: String,
    to: String,
    transport: String,
    tls: String,
    streams: u64,
    bytes_sent: u64,
    bytes_received: u64,
    rtt_us: Option<u64>,
}

impl StatusReport {
    pub(crate) fn new(cluster: &ClusterStatus) -> Self {
        Self {
            taskmanagers: cluster.task_managers.iter().map(task_manager).collect(),
            jobs: cluster.jobs.iter().map(job).collect(),
            connections: connections(cluster),
        }
    }

    /// One line.
    pub(crate) fn to_json(&self) -> String {
        let object = serde_json::to_string(self);
        object.expect("strings, numbers and lists of them always serialize") + "\n"
    }

    /// Three tables.
    pub(crate) fn to_text(&self) -> String {
        [
            section("TaskManagers", &self.task_manager_table()),
            section("Jobs", &self.job_table()),
            section("Connections", &self.connection_table()),
        ]
        .join("\n")
    }

    fn task_manager_table(&self) -> Table {
        use Column::{Left, Right};
        let mut table = Table::new([
            Left("ID"),
            Left("ADDRESS"),
            Right("FREE SLOTS"),
            Right("HEARD"),
            Left("TLS"),
            Left("IDENTITY"),
            Left("CERTIFICATE UNTIL"),
        ]);
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        for row in &self.taskmanagers {
            table.row([
                row.id.clone(),
                row.address.clone(),
                format!("{} of {}", row.slots_free, row.slots_total),
                format!(
                    "{} ago",
                    human::duration(Duration::from_millis(row.last_heartbeat_ms))
                ),
                row.tls.clone(),
                or_dash(&row.identity),
                or_dash(&row.certificate_expires),
            ]);
        }
        table
    }

    fn job_table(&self) -> Table {
        use Column::{Left, Right};
        let mut table = Table::new([
            Left("ID"),
            Left("NAME"),
            Left("STATE"),
            Right("RESTARTS"),
            Right("RECORDS"),
            Right("OVER THE NETWORK"),
            Left("TASKS"),
        ]);
        for row in &self.jobs {
            let mut states: BTreeMap<&str, u64> = BTreeMap::new();
            for task in &row.tasks {
                *states.entry(task.state).or_default() += 1;
            }
            let tasks: Vec<String> = states
                .iter()
                .map(|(state, count)| format!("{count} {state}"))
                .collect();
            table.row([
                row.id.clone(),
                row.name.clone(),
                row.state.to_owned(),
                human::count(row.restarts.into()),
                human::count(row.records),
                human::bytes(row.bytes_remote),
                tasks.join(", "),
            ]);
        }
        table
    }

    fn connection_table(&self) -> Table {
        use Column::{Left, Right};
        let mut table = Table::new([
            Left("FROM"),
            Left("TO"),
            Left("TRANSPORT"),
            Left("TLS"),
            Right("STREAMS"),
            Right("SENT"),
            Right("RECEIVED"),
            Right("ROUND TRIP"),
        ]);
        for row in &self.connections {
            table.row([
                row.from.clone(),
                row.to.clone(),
                row.transport.clone(),
                row.tls.clone(),
                human::count(row.streams),
                human::bytes(row.bytes_sent),
                human::bytes(row.bytes_received),
                row.rtt_us
                    .map_or_else(|| "-".to_owned(), |rtt| format!("{} us", human::count(rtt))),
            ]);
        }
        table
    }
}

fn section(title: &str, table: &Table) -> String {
    if table.is_empty() {
        format!("{title}: none\n")
    } else {
        format!("{title}\n{}", table.render())
    }
}

fn task_manager(status: &TaskManagerStatus) -> TaskManagerRow {
    let report = &status.report;
    TaskManagerRow {
        id: status.id.to_string(),
        address: status.address.clone(),
        slots_total: report.slots.slots.len(),
        slots_free: report.slots.free(),
        last_heartbeat_ms: status.last_heartbeat_ms,
        identity: report.identity.clone(),
        tls: report.tls.clone(),
        certificate_expires: report.certificate_expires.map(date),
        certificate_fingerprint: report.certificate_fingerprint.clone(),
    }
}

fn job(status: &JobStatus) -> JobRow {
    JobRow {
        id: status.id.to_hex(),
        name: status.name.clone(),
        state: status.state.as_str(),
        restarts: status.restarts,
        records: status.totals.records_in,
        bytes_remote: status.totals.bytes_remote,
        tasks: status
            .tasks
            .iter()
            .map(|task| TaskRow {
                name: task.name.clone(),
                index: task.execution.subtask,
                state: task.state.as_str(),
                taskmanager: task.task_manager.as_ref().map(ToString::to_string),
            })
            .collect(),
    }
}

/// Each connection once, in the words of the node that dialled it; if that node is not asked (a client), in those of
/// the other end.
fn connections(cluster: &ClusterStatus) -> Vec<ConnectionRow> {
    let own = cluster.task_managers.iter().flat_map(|manager| {
        let reports = manager.report.connections.iter();
        reports.map(move |report| (report, report.from == manager.id))
    });
    let is_task_manager = |id: &ResourceId| {
        cluster
            .task_managers
            .iter()
            .any(|manager| manager.id == *id)
    };
    let of_job_manager = cluster.connections.iter().map(|report| {
        (
            report,
            is_task_manager(&report.to) && !is_task_manager(&report.from),
        )
    });
    let mut ends: BTreeMap<(&str, &str), [Vec<&ConnectionReport>; 2]> = BTreeMap::new();
    for (report, by_dialler) in of_job_manager.chain(own) {
        let pair = ends
            .entry((report.from.as_str(), report.to.as_str()))
            .or_default();
        pair[usize::from(!by_dialler)].push(report);
    }
    ends.into_values()
        .flat_map(|[dialler, other]| if dialler.is_empty() { other } else { dialler })
        .map(connection)
        .collect()
}

fn connection(report: &ConnectionReport) -> ConnectionRow {
    ConnectionRow {
        from: report.from.to_string(),
        to: report.to.to_string(),
        transport: report.transport.clone(),
        tls: report.tls.clone(),
        streams: report.streams,
        bytes_sent: report.bytes_sent,
        bytes_received: report.bytes_received,
        rtt_us: report.rtt_us,
    }
}

/// `2027-01-31T12:00:00Z`; a time that no calendar has as the number of seconds.
fn date(seconds: u64) -> String {
    i64::try_from(seconds)
        .ok()
        .and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok())
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_else(|| seconds.to_string())
}

#[cfg(test)]
mod tests;
