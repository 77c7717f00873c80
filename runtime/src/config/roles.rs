//! Sections of the cluster's components: `[jobmanager]` to `[metrics]`.

use std::{path::PathBuf, time::Duration};

use thalweg_transport::BindAddr;

use super::{
    choices::{RestartStrategy, TaskPlacement},
    section::section,
    units::ByteSize,
    url::Url,
};

section! {
    /// The JobManager, and how others find it.
    JobManagerSection = "jobmanager" {
        /// `host:port` where TaskManagers and clients find it, unless `ha.mode` finds the leader for them. Default
        /// port 6120 of this machine.
        address: String = "127.0.0.1:6120".to_owned(),
        /// A job that gets no slots in time fails and says what was asked and what exists. Default 30 s.
        slot_request_timeout: Duration = Duration::from_secs(30),
        /// How long finished jobs stay listed. Default 1 h.
        finished_job_retention: Duration = Duration::from_secs(3600),
        /// When a failed job starts again. Default fixed-delay.
        restart_strategy: RestartStrategy = RestartStrategy::FixedDelay,
        /// Restarts before the job fails for good. Default 3.
        restart_attempts: u32 = 3,
        /// Pause before a restart; the first one of the exponential strategy. Default 1 s.
        restart_delay: Duration = Duration::from_secs(1),
    }
}

section! {
    /// The TaskManager.
    TaskManagerSection = "taskmanager" {
        /// Slots, each for one pipeline of tasks of one job. Default 2.
        slots: u32 = 2,
        /// Folders for spilled data, used in turn. Default `/var/tmp`: unlike `/tmp` it is on disk.
        temp_dirs: Vec<PathBuf> = vec![PathBuf::from("/var/tmp")],
        /// A TaskManager that finds no ResourceManager for so long stops. Default 5 min.
        registration_timeout: Duration = Duration::from_secs(300),
        /// A slot that its job does not take into use in time is free again. Default 10 s, an ask time-out.
        slot_timeout: Duration = Duration::from_secs(10),
        /// Memory that tasks of this node may reserve, split over its slots. Default 256 MiB.
        memory: ByteSize = ByteSize::mib(256),
        /// On which threads tasks run. Default own-thread: user code then cannot hold up the connections of its node.
        task_placement: TaskPlacement = TaskPlacement::OwnThread,
    }
}

section! {
    /// Running tasks.
    TaskSection = "task" {
        /// How often a cancelled task that does not stop is told again. Default 30 s.
        cancellation_interval: Duration = Duration::from_secs(30),
        /// A cancelled task that does not stop in time is a fatal error of its node. Default 3 min.
        cancellation_timeout: Duration = Duration::from_secs(180),
    }
}

section! {
    /// Remote calls.
    RpcSection = "rpc" {
        /// Deadline of a call that states none. Default 10 s.
        ask_timeout: Duration = Duration::from_secs(10),
        /// Largest request or answer. Default 10 MiB; checked before anything is sent.
        max_frame_size: ByteSize = ByteSize::mib(10),
        /// Calls of one peer without an answer; over it: Overloaded. Default 10,000.
        max_pending_calls: u32 = 10_000,
        /// Bytes of one peer's calls without an answer. Default 64 MiB.
        max_pending_bytes: ByteSize = ByteSize::mib(64),
        /// Whether a time-out names the line of the call. Default true: it costs a pointer a call.
        capture_caller: bool = true,
    }
}

section! {
    /// Heartbeats between the components.
    HeartbeatSection = "heartbeat" {
        /// How often a target is asked. Default 10 s.
        interval: Duration = Duration::from_secs(10),
        /// A target that was silent for so long is dead. Default 50 s.
        timeout: Duration = Duration::from_secs(50),
        /// Requests in a row that cannot reach a target before it counts as unreachable; 0 switches that off.
        /// Default 2: one alone may be a connection that was just replaced.
        failure_threshold: u32 = 2,
    }
}

section! {
    /// Leader services.
    HaSection = "ha" {
        /// `standalone` (one JobManager at a fixed address) or `etcd` (leader election; needs the cargo feature).
        mode: String = "standalone".to_owned(),
        /// Servers of etcd.
        etcd_endpoints: Vec<Url> = Vec::new(),
        /// A leader that cannot renew for so long is none any more. Default 10 s.
        lease: Duration = Duration::from_secs(10),
        /// CA of the etcd servers, PEM.
        etcd_ca: Option<PathBuf> = None,
        /// Certificate for etcd, PEM; together with `etcd_key`.
        etcd_cert: Option<PathBuf> = None,
        /// Key for etcd, PEM; together with `etcd_cert`.
        etcd_key: Option<PathBuf> = None,
    }
}

section! {
    /// Blob storage.
    BlobSection = "blob" {
        /// URL of an object store. Default: a temporary folder, gone with the JobManager.
        store: Option<Url> = None,
    }
}

section! {
    /// The metrics page.
    MetricsSection = "metrics" {
        /// Where `/metrics`, `/livez` and `/readyz` are served. Default: nowhere.
        listen: Option<BindAddr> = None,
    }
}
