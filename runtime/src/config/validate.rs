//! Rules for values and between them.

use std::time::Duration;

use super::{
    Config, ConfigError,
    address::is_address,
    choices::{TlsMode, alternatives, one_of},
    error::{Problem, finish},
    units::format_duration,
    unsupported::UNSUPPORTED,
};

/// What this program has, for keys whose values are names of registered or compiled-in parts.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Known<'a> {
    /// Names of the transport backends.
    pub backends: &'a [&'a str],
    /// Names of the shuffle service factories.
    pub shuffle_services: &'a [&'a str],
    /// Names of the leader services.
    pub ha_modes: &'a [&'a str],
    /// Keys whose function the program does not have: setting one is an error.
    pub without: &'a [&'a str],
}

impl Default for Known<'_> {
    fn default() -> Self {
        Self {
            backends: &["quic", "tcp"],
            shuffle_services: &["network"],
            ha_modes: &["standalone"],
            without: UNSUPPORTED,
        }
    }
}

impl<'a> Known<'a> {
    /// The same with other backends.
    #[must_use]
    pub fn with_backends(mut self, names: &'a [&'a str]) -> Self {
        self.backends = names;
        self
    }

    /// The same with other shuffle services.
    #[must_use]
    pub fn with_shuffle_services(mut self, names: &'a [&'a str]) -> Self {
        self.shuffle_services = names;
        self
    }

    /// The same with other keys whose function the program does not have.
    #[must_use]
    pub fn without(mut self, keys: &'a [&'a str]) -> Self {
        self.without = keys;
        self
    }

    /// The same with other leader services.
    #[must_use]
    pub fn with_ha_modes(mut self, names: &'a [&'a str]) -> Self {
        self.ha_modes = names;
        self
    }
}

impl Config {
    /// Checks every value and the rules between them.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] with everything that is wrong.
    pub fn validate(&self, known: &Known<'_>) -> Result<(), ConfigError> {
        finish((), self.problems(known))
    }

    pub(super) fn problems(&self, known: &Known<'_>) -> Vec<Problem> {
        let mut check = Check {
            config: self,
            problems: Vec::new(),
        };
        check.names(known);
        check.ranges();
        check.addresses();
        check.transport();
        check.tls();
        check.relations();
        check.ha();
        check.problems.extend(self.unsupported(known.without));
        check.problems
    }
}

struct Check<'a> {
    config: &'a Config,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn names(&mut self, known: &Known<'_>) {
        let config = self.config;
        for (key, value, allowed) in [
            (
                "transport.backend",
                &config.transport.backend,
                known.backends,
            ),
            (
                "transport.shuffle_service",
                &config.transport.shuffle_service,
                known.shuffle_services,
            ),
        ] {
            if !allowed.contains(&value.as_str()) {
                self.refuse(key, alternatives(value, allowed));
            }
        }
        let mode = config.ha.mode.as_str();
        if known.ha_modes.contains(&mode) {
            return;
        }
        if mode == "etcd" {
            let have = one_of(known.ha_modes);
            self.refuse(
                "ha.mode",
                format!("this program was built without the cargo feature etcd, it has {have}"),
            );
        } else {
            self.refuse("ha.mode", alternatives(mode, known.ha_modes));
        }
    }

    fn ranges(&mut self) {
        let config = self.config;
        let instant = Duration::from_millis(1);
        let day = Duration::from_secs(24 * 3600);
        let month = 30 * day;
        for (key, value, least, most) in [
            (
                "node.drain_timeout",
                config.node.drain_timeout,
                Duration::ZERO,
                day,
            ),
            (
                "transport.max_connection_age",
                config.transport.max_connection_age,
                Duration::from_secs(1),
                10 * 365 * day,
            ),
            (
                "tls.reload_interval",
                config.tls.reload_interval,
                Duration::from_millis(100),
                Duration::from_secs(3600),
            ),
            (
                "jobmanager.slot_request_timeout",
                config.jobmanager.slot_request_timeout,
                instant,
                month,
            ),
            (
                "jobmanager.finished_job_retention",
                config.jobmanager.finished_job_retention,
                Duration::ZERO,
                month,
            ),
            (
                "jobmanager.restart_delay",
                config.jobmanager.restart_delay,
                Duration::ZERO,
                day,
            ),
            (
                "taskmanager.registration_timeout",
                config.taskmanager.registration_timeout,
                instant,
                month,
            ),
            (
                "taskmanager.slot_timeout",
                config.taskmanager.slot_timeout,
                instant,
                day,
            ),
            (
                "task.cancellation_interval",
                config.task.cancellation_interval,
                instant,
                day,
            ),
            (
                "task.cancellation_timeout",
                config.task.cancellation_timeout,
                instant,
                day,
            ),
            ("rpc.ask_timeout", config.rpc.ask_timeout, instant, month),
            (
                "heartbeat.interval",
                config.heartbeat.interval,
                instant,
                day,
            ),
            ("heartbeat.timeout", config.heartbeat.timeout, instant, day),
            (
                "ha.lease",
                config.ha.lease,
                Duration::from_secs(1),
                Duration::from_secs(3600),
            ),
        ] {
            if !(least..=most).contains(&value) {
                self.refuse(
                    key,
                    format!("{} to {}", format_duration(least), format_duration(most)),
                );
            }
        }
        for (key, value, least, most) in [
            ("node.io_threads", config.node.io_threads, 0, 1024),
            (
                "jobmanager.restart_attempts",
                config.jobmanager.restart_attempts,
                0,
                1_000_000,
            ),
            ("taskmanager.slots", config.taskmanager.slots, 1, 1024),
            (
                "rpc.max_pending_calls",
                config.rpc.max_pending_calls,
                1,
                1_000_000,
            ),
            (
                "heartbeat.failure_threshold",
                config.heartbeat.failure_threshold,
                0,
                1000,
            ),
        ] {
            if !(least..=most).contains(&value) {
                self.refuse(key, format!("{least} to {most}"));
            }
        }
        if !(1 << 10..=1 << 30).contains(&config.rpc.max_frame_size.as_u64()) {
            self.refuse("rpc.max_frame_size", "1KiB to 1GiB");
        }
        let least = u64::from(config.taskmanager.slots) * LEAST_SLOT_MEMORY;
        if !(least..=1 << 50).contains(&config.taskmanager.memory.as_u64()) {
            self.refuse("taskmanager.memory", "4KiB for each slot to 1024TiB");
        }
        if config.taskmanager.temp_dirs.is_empty() {
            self.refuse("taskmanager.temp_dirs", "at least one folder");
        }
    }

    fn addresses(&mut self) {
        let config = self.config;
        let id = config.cluster.id.as_str();
        let valid = (1..=MAX_CLUSTER_ID_BYTES).contains(&id.len())
            && id.bytes().all(|b| {
                b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'_')
            });
        if !valid {
            self.refuse("cluster.id", "1 to 128 characters of a-z 0-9 . _ -");
        }
        if !is_address(&config.jobmanager.address, true) {
            self.refuse(
                "jobmanager.address",
                "HOST:PORT or [IPv6]:PORT with a port from 1 to 65535",
            );
        }
        if let Some(address) = &config.transport.advertise
            && !is_address(address, false)
        {
            self.refuse(
                "transport.advertise",
                "HOST, HOST:PORT or [IPv6]:PORT with a port from 1 to 65535",
            );
        }
    }

    fn transport(&mut self) {
        if let Err(error) = self.config.transport_config().validate() {
            self.refuse(&format!("transport.{}", error.key), error.allowed);
        }
    }

    fn tls(&mut self) {
        let config = self.config;
        let tls = &config.tls;
        if tls.mode == TlsMode::Optional {
            self.problems.push(Problem::rule(
                "tls.mode",
                "tls.mode = \"optional\" is not supported by this version: mutual or off"
                    .to_owned(),
            ));
        }
        if tls.mode == TlsMode::Off && config.transport.backend == "quic" {
            self.problems.push(Problem::rule(
                "tls.mode",
                "transport.backend = \"quic\" needs tls.mode = \"mutual\": QUIC is always encrypted"
                    .to_owned(),
            ));
        }
        let files = [
            ("tls.cert", &tls.cert),
            ("tls.key", &tls.key),
            ("tls.ca", &tls.ca),
        ];
        if tls.dir.is_none()
            && let Some((given, _)) = files.iter().find(|(_, file)| file.is_some())
        {
            for (key, _) in files.iter().filter(|(_, file)| file.is_none()) {
                self.problems.push(Problem::rule(
                    key,
                    format!("{given} needs {key} too, or tls.dir to find it in"),
                ));
            }
        }
    }

    fn relations(&mut self) {
        let config = self.config;
        if config.heartbeat.interval > config.heartbeat.timeout {
            let timeout = format_duration(config.heartbeat.timeout);
            self.refuse(
                "heartbeat.interval",
                format!("at most heartbeat.timeout, which is {timeout}"),
            );
        }
        if config.task.cancellation_interval > config.task.cancellation_timeout {
            let timeout = format_duration(config.task.cancellation_timeout);
            self.refuse(
                "task.cancellation_interval",
                format!("at most task.cancellation_timeout, which is {timeout}"),
            );
        }
        if config.rpc.max_pending_bytes < config.rpc.max_frame_size {
            let frame = config.rpc.max_frame_size;
            self.refuse(
                "rpc.max_pending_bytes",
                format!("at least rpc.max_frame_size, which is {frame}"),
            );
        }
    }

    fn ha(&mut self) {
        let config = self.config;
        let ha = &config.ha;
        match (&ha.etcd_cert, &ha.etcd_key) {
            (Some(_), None) => self.problems.push(Problem::rule(
                "ha.etcd_cert",
                "ha.etcd_cert needs ha.etcd_key too".to_owned(),
            )),
            (None, Some(_)) => self.problems.push(Problem::rule(
                "ha.etcd_key",
                "ha.etcd_key needs ha.etcd_cert too".to_owned(),
            )),
            _ => {}
        }
        if ha.mode != "etcd" {
            return;
        }
        if ha.etcd_endpoints.is_empty() {
            self.problems.push(Problem::rule(
                "ha.mode",
                "ha.mode = \"etcd\" needs ha.etcd_endpoints, like [\"http://127.0.0.1:2379\"]"
                    .to_owned(),
            ));
        }
        if config.blob.store.is_none() {
            self.problems.push(Problem::rule(
                "ha.mode",
                "ha.mode = \"etcd\" needs blob.store: a temporary folder is gone with its JobManager"
                    .to_owned(),
            ));
        }
    }

    /// The value of a key is not allowed.
    fn refuse(&mut self, key: &str, allowed: impl std::fmt::Display) {
        let literal = self.config.literal(key).unwrap_or_default();
        self.problems.push(Problem::value(key, &literal, allowed));
    }
}

/// A page: less for a slot is a typing mistake.
const LEAST_SLOT_MEMORY: u64 = 4096;

/// Leaves room in the identity URI, whose certificates limit it to 255 bytes in places.
const MAX_CLUSTER_ID_BYTES: usize = 128;
