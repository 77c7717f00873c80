//! One message of each kind that the parts of a cluster send each other, with different values in all fields.

use std::time::Duration;

use bytes::Bytes;

use super::super::id;
use crate::{
    gateways::*,
    ids::{AllocationId, ExecutionId, FencingToken, InstanceId, JobId, SessionId, VertexId},
    job::{
        Distribution, Edge, ExchangeMode, FailureCause, FailureKind, JobGraph, JobState, JobStatus,
        Placement, RestartStrategy, TaskMetrics, TaskState, TaskStatus, Vertex,
    },
    rpc::RpcAddress,
    slots::{ResourceProfile, SlotReport, SlotState, SlotStatus},
};

pub(super) const JOB: JobId = JobId::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
pub(super) const ALLOCATION: AllocationId = AllocationId::from_u128(0xa1);
pub(super) const TOKEN: FencingToken = FencingToken::from_u128(0xf0);
pub(super) const SESSION: SessionId = SessionId::from_u128(0x5e);
pub(super) const INSTANCE: InstanceId = InstanceId::from_u128(0x15);
pub(super) const EXECUTION: ExecutionId = ExecutionId {
    job: JOB,
    vertex: VertexId(1),
    subtask: 2,
    attempt: 300,
};
pub(super) const PARTITION: PartitionKey = PartitionKey {
    producer: EXECUTION,
    output: 3,
};

pub(super) fn address(endpoint: &str) -> RpcAddress {
    RpcAddress::remote(Some(id("jm")), "10.0.0.1:6123", endpoint).unwrap()
}

pub(super) fn cause() -> FailureCause {
    FailureCause::new(FailureKind::Partition, "gone")
}

pub(super) fn graph() -> JobGraph {
    let vertex = |name: &str, slot_group| Vertex {
        name: name.to_owned(),
        task: "t".to_owned(),
        parallelism: 200,
        config: vec![9, 8],
        slot_group,
    };
    JobGraph {
        name: "j".to_owned(),
        vertices: vec![vertex("a", 0), vertex("b", 1)],
        edges: vec![Edge {
            from: VertexId(0),
            to: VertexId(1),
            distribution: Distribution::Hash,
            exchange: ExchangeMode::Blocking,
        }],
        placement: Placement::SeparateGroups,
        restart: Some(RestartStrategy::FixedDelay {
            attempts: 3,
            delay: Duration::new(1, 500),
        }),
    }
}

pub(super) fn metrics() -> TaskMetrics {
    TaskMetrics {
        records_in: 1,
        records_out: 2,
        bytes_remote: 300,
        bytes_local: 4,
        streams: 5,
        progress: Some(10_000),
    }
}

pub(super) fn job_status() -> JobStatus {
    JobStatus {
        id: JOB,
        name: "j".to_owned(),
        state: JobState::Failed,
        restarts: 6,
        failure: Some(cause()),
        tasks: vec![TaskStatus {
            execution: EXECUTION,
            name: "a".to_owned(),
            state: TaskState::Canceled,
            task_manager: Some(id("tm")),
            metrics: metrics(),
        }],
        totals: metrics(),
        connections: 7,
        duration_ms: 800,
        result_bytes: 9,
    }
}

pub(super) fn connection() -> ConnectionReport {
    ConnectionReport {
        from: id("a"),
        to: id("b"),
        transport: "quic".to_owned(),
        tls: "mutual".to_owned(),
        streams: 1,
        bytes_sent: 200,
        bytes_received: 3,
        rtt_us: Some(400),
    }
}

pub(super) fn report() -> TaskManagerReport {
    let profile = ResourceProfile { memory_bytes: 300 };
    TaskManagerReport {
        slots: SlotReport {
            slots: vec![
                SlotStatus {
                    index: 0,
                    state: SlotState::Active,
                    profile,
                    allocation: Some((JOB, ALLOCATION)),
                },
                SlotStatus {
                    index: 1,
                    state: SlotState::Free,
                    profile,
                    allocation: None,
                },
            ],
        },
        identity: Some("spiffe://c/taskmanager/tm".to_owned()),
        tls: "mutual".to_owned(),
        certificate_expires: Some(1_800_000_000),
        certificate_fingerprint: Some("AA:BB".to_owned()),
        connections: vec![connection()],
    }
}

pub(super) fn task_manager() -> TaskManagerStatus {
    TaskManagerStatus {
        id: id("tm"),
        address: "h:1".to_owned(),
        last_heartbeat_ms: 700,
        report: report(),
    }
}

pub(super) fn cluster() -> ClusterStatus {
    ClusterStatus {
        task_managers: vec![task_manager()],
        jobs: vec![job_status()],
        connections: vec![connection()],
    }
}

pub(super) fn task_executor() -> TaskExecutorRegistration {
    TaskExecutorRegistration {
        id: id("tm"),
        session: SESSION,
        address: address("taskexecutor_0"),
        data_address: "10.0.0.2:6122".to_owned(),
    }
}

pub(super) fn job_master() -> JobMasterAddress {
    JobMasterAddress {
        address: address("jobmaster_1"),
        token: TOKEN,
    }
}

pub(super) fn slots_request() -> SlotsRequest {
    SlotsRequest {
        job: JOB,
        job_master: job_master(),
        slots: vec![SlotRequest {
            allocation: ALLOCATION,
            group: 4,
        }],
        placement: Placement::Spread,
        avoid: vec![LostTaskManager {
            id: id("tm-lost"),
            lost_ms_ago: 5000,
        }],
    }
}

pub(super) fn task_manager_registration() -> TaskManagerRegistration {
    TaskManagerRegistration {
        job: JOB,
        id: id("tm"),
        session: SESSION,
        address: address("taskexecutor_0"),
        data_address: "10.0.0.2:6122".to_owned(),
    }
}

pub(super) fn deployment() -> TaskDeployment {
    TaskDeployment {
        execution: EXECUTION,
        allocation: ALLOCATION,
        job_name: "j".to_owned(),
        vertex_name: "a".to_owned(),
        task: "t".to_owned(),
        config: Bytes::from_static(&[9, 8]),
        parallelism: 200,
        inputs: vec![InputDeployment {
            distribution: Distribution::Rebalance,
            channels: vec![ChannelDeployment {
                partition: PARTITION,
                subpartition: 6,
                task_manager: id("tm"),
                address: "h:1".to_owned(),
            }],
        }],
        outputs: vec![OutputDeployment {
            partition: PARTITION,
            subpartitions: 7,
            distribution: Distribution::Broadcast,
            exchange: ExchangeMode::Pipelined,
        }],
    }
}

pub(super) fn state_update() -> TaskStateUpdate {
    TaskStateUpdate {
        execution: EXECUTION,
        state: TaskState::Failed,
        failure: Some(cause()),
        metrics: metrics(),
    }
}
