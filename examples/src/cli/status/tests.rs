use thalweg_runtime::{
    gateways::TaskManagerReport,
    ids::{ExecutionId, JobId, VertexId},
    job::{JobState, TaskMetrics, TaskState, TaskStatus},
    slots::{ResourceProfile, SlotReport, SlotState, SlotStatus},
};
use thalweg_transport::ResourceId;

use super::*;
use crate::cli::report::tests::status;

fn id(name: &str) -> ResourceId {
    ResourceId::new(name).unwrap()
}

fn link(from: &str, to: &str, sent: u64) -> ConnectionReport {
    ConnectionReport {
        from: id(from),
        to: id(to),
        transport: "quic".to_owned(),
        tls: "mutual".to_owned(),
        streams: 3,
        bytes_sent: sent,
        bytes_received: 1,
        rtt_us: Some(1250),
    }
}

fn manager(name: &str, connections: Vec<ConnectionReport>) -> TaskManagerStatus {
    let slot = |index, state| SlotStatus {
        index,
        state,
        profile: ResourceProfile { memory_bytes: 1 },
        allocation: None,
    };
    TaskManagerStatus {
        id: id(name),
        address: "127.0.0.1:50100".to_owned(),
        last_heartbeat_ms: 1500,
        report: TaskManagerReport {
            slots: SlotReport {
                slots: vec![slot(0, SlotState::Free), slot(1, SlotState::Active)],
            },
            identity: Some(format!("spiffe://demo/taskmanager/{name}")),
            tls: "mutual".to_owned(),
            certificate_expires: Some(1_800_000_000),
            certificate_fingerprint: Some("AB:CD".to_owned()),
            connections,
        },
    }
}

fn cluster() -> ClusterStatus {
    let mut job = status(JobState::Running);
    job.tasks.push(TaskStatus {
        execution: ExecutionId {
            job: JobId::from_u128(0x2a),
            vertex: VertexId(0),
            subtask: 1,
            attempt: 0,
        },
        name: "source".to_owned(),
        state: TaskState::Running,
        task_manager: Some(id("tm-1")),
        metrics: TaskMetrics::default(),
    });
    ClusterStatus {
        task_managers: vec![
            manager(
                "tm-1",
                vec![
                    link("tm-1", "tm-2", 10),
                    link("tm-1", "jm", 20),
                    link("jm", "tm-1", 99),
                ],
            ),
            manager(
                "tm-2",
                vec![link("tm-1", "tm-2", 99), link("tm-9", "tm-2", 40)],
            ),
        ],
        jobs: vec![job],
        connections: vec![
            link("tm-1", "jm", 99),
            link("jm", "tm-1", 30),
            link("client", "jm", 50),
        ],
    }
}

#[test]
fn the_object_has_the_documented_fields() {
    let object: serde_json::Value =
        serde_json::from_str(&StatusReport::new(&cluster()).to_json()).unwrap();
    assert_eq!(
        object["taskmanagers"][0],
        serde_json::json!({
            "id": "tm-1", "address": "127.0.0.1:50100", "slots_total": 2, "slots_free": 1,
            "last_heartbeat_ms": 1500, "identity": "spiffe://demo/taskmanager/tm-1", "tls": "mutual",
            "certificate_expires": "2027-01-15T08:00:00Z", "certificate_fingerprint": "AB:CD",
        })
    );
    assert_eq!(
        object["jobs"],
        serde_json::json!([{
            "id": "0000000000000000000000000000002a", "name": "shuffle", "state": "RUNNING", "restarts": 1,
            "records": 1000, "bytes_remote": 3_000_000,
            "tasks": [{"name": "source", "index": 1, "state": "RUNNING", "taskmanager": "tm-1"}],
        }])
    );
    assert_eq!(
        object["connections"][0],
        serde_json::json!({
            "from": "client", "to": "jm", "transport": "quic", "tls": "mutual", "streams": 3,
            "bytes_sent": 50, "bytes_received": 1, "rtt_us": 1250,
        })
    );
}

#[test]
fn a_connection_is_listed_once_in_the_words_of_its_dialler() {
    let listed: Vec<(String, String, u64)> = connections(&cluster())
        .into_iter()
        .map(|row| (row.from, row.to, row.bytes_sent))
        .collect();
    let expected = [
        ("client", "jm", 50),
        ("jm", "tm-1", 30),
        ("tm-1", "jm", 20),
        ("tm-1", "tm-2", 10),
        ("tm-9", "tm-2", 40),
    ];
    assert_eq!(
        listed,
        expected.map(|(from, to, sent)| (from.to_owned(), to.to_owned(), sent))
    );
}

#[test]
fn the_tables_show_the_same() {
    let text = StatusReport::new(&cluster()).to_text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "TaskManagers");
    assert_eq!(
        lines[2],
        "tm-1  127.0.0.1:50100      1 of 2  1.5 s ago  mutual  spiffe://demo/taskmanager/tm-1  2027-01-15T08:00:00Z"
    );
    assert!(
        text.contains("0000000000000000000000000000002a  shuffle  RUNNING"),
        "{text}"
    );
    assert!(text.contains("1 RUNNING"), "{text}");
    assert!(text.contains("1,250 us"), "{text}");
}

#[test]
fn an_empty_cluster_says_so() {
    let empty = ClusterStatus {
        task_managers: Vec::new(),
        jobs: Vec::new(),
        connections: Vec::new(),
    };
    let report = StatusReport::new(&empty);
    assert_eq!(
        report.to_text(),
        "TaskManagers: none\n\nJobs: none\n\nConnections: none\n"
    );
    assert_eq!(
        report.to_json(),
        "{\"taskmanagers\":[],\"jobs\":[],\"connections\":[]}\n"
    );
}
