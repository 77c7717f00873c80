//! What the system refuses, in words that say what to change.

use std::{
    fs::File,
    io::{self, Read, Seek},
    sync::{Mutex, OnceLock, PoisonError},
};

use crate::{
    addr::BindAddr,
    error::{Cause, ConnectError},
};

/// Opens what [`explain`] reads: when no file can be opened any more, it is too late.
pub(crate) fn prepare() {
    LIMITS.get_or_init(|| File::open("/proc/self/limits").ok().map(Mutex::new));
}

/// The system's words, and what they mean here. `connections` are those of this node, where that is known.
pub(crate) fn explain(error: &io::Error, connections: Option<usize>) -> String {
    let why = match (error.kind(), error.raw_os_error()) {
        (_, Some(EMFILE)) => {
            let limit = open_file_limit().map_or_else(String::new, |limit| format!(" of {limit}"));
            let own = connections.map_or_else(String::new, |count| {
                format!(", {count} of them connections of this node")
            });
            format!(
                "the process is at its limit{limit} open files{own}; raise it with `ulimit -n` or the LimitNOFILE of its \
                 service"
            )
        }
        (_, Some(ENFILE)) => {
            "the whole machine is at its limit of open files, fs.file-max".to_owned()
        }
        (io::ErrorKind::AddrNotAvailable, _) => {
            "no interface of this machine has the address, or no local port is free (net.ipv4.ip_local_port_range)"
                .to_owned()
        }
        (io::ErrorKind::PermissionDenied, _) => {
            "ports below 1024 take a privilege, and a sandbox may forbid sockets".to_owned()
        }
        _ => return error.to_string(),
    };
    format!("{error}: {why}")
}

/// Why a dial failed, if the system names a reason of this side that an operator can change.
pub(crate) fn refused(
    address: impl ToString,
    error: &io::Error,
    connections: Option<usize>,
) -> Option<ConnectError> {
    let address = address.to_string();
    let is_used_up = matches!(
        error.raw_os_error(),
        Some(EMFILE | ENFILE | ENOBUFS | ENOMEM)
    ) || error.kind() == io::ErrorKind::AddrNotAvailable;
    if is_used_up {
        return Some(ConnectError::Exhausted {
            address,
            reason: explain(error, connections),
        });
    }
    (error.kind() == io::ErrorKind::PermissionDenied).then(|| ConnectError::Forbidden {
        address,
        reason: format!(
            "{error}: a rule of a firewall here rejects it, a sandbox or security module (SELinux, seccomp) forbids \
             sockets, or it is a broadcast address"
        ),
    })
}

/// A dial whose socket failed on this side.
pub(crate) fn failed(address: impl ToString, cause: Cause) -> ConnectError {
    let named = cause.downcast_ref::<io::Error>();
    named
        .and_then(|error| refused(address.to_string(), error, None))
        .unwrap_or_else(|| ConnectError::Local {
            address: address.to_string(),
            source: cause,
        })
}

/// The ports of a range that could not be bound.
#[derive(Debug)]
pub(crate) struct BindFailures<'a> {
    bind: &'a BindAddr,
    last: Option<io::Error>,
}

impl<'a> BindFailures<'a> {
    pub(crate) fn new(bind: &'a BindAddr) -> Self {
        Self { bind, last: None }
    }

    /// Another port may be tried after one that is taken or privileged; anything else would be the same for all of them.
    ///
    /// # Errors
    /// The end of the attempts.
    pub(crate) fn add(&mut self, error: io::Error) -> Result<(), ConnectError> {
        let is_of_port = matches!(
            error.kind(),
            io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied
        );
        if is_of_port {
            self.last = Some(error);
            return Ok(());
        }
        Err(ConnectError::Bind {
            address: self.bind.to_string(),
            reason: explain(&error, None),
        })
    }

    /// No port is left.
    pub(crate) fn exhausted(self) -> ConnectError {
        let address = self.bind.to_string();
        let reason = match self.last {
            Some(error) if self.bind.is_range() => format!(
                "no port of the range is free, the last one said: {}",
                explain(&error, None)
            ),
            Some(error) if error.kind() == io::ErrorKind::AddrInUse => {
                return ConnectError::AddressInUse { address };
            }
            Some(error) => explain(&error, None),
            None => "the range is empty".to_owned(),
        };
        ConnectError::Bind { address, reason }
    }
}

/// The soft limit of this moment, if the system tells.
fn open_file_limit() -> Option<u64> {
    prepare();
    let file = LIMITS.get()?.as_ref()?;
    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    soft_limit(&text)
}

/// From a line like `Max open files            1024                 1048576              files`.
fn soft_limit(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// One descriptor, kept for the moment when there are no others.
static LIMITS: OnceLock<Option<Mutex<File>>> = OnceLock::new();

// The same on Linux and the BSDs, but for the last one, which only Linux has so.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOMEM: i32 = 12;
const ENOBUFS: i32 = 105;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn too_many_open_files_names_the_limit_and_what_to_change() {
        let error = io::Error::from_raw_os_error(EMFILE);
        let text = explain(&error, Some(900));
        assert!(text.contains("900 of them connections"), "{text}");
        assert!(text.contains("ulimit -n"), "{text}");
        if cfg!(target_os = "linux") {
            let limit = open_file_limit().unwrap();
            assert!(
                text.contains(&format!("limit of {limit} open files")),
                "{text}"
            );
        }
        let dial = refused("h:1", &error, None).unwrap();
        assert!(dial.is_retryable());
    }

    #[test]
    fn a_dial_that_this_machine_forbids_says_who_may_forbid_it_and_is_not_tried_again() {
        for errno in [1, 13] {
            let error = io::Error::from_raw_os_error(errno);
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            let dial = refused("10.0.0.7:6121", &error, None).unwrap();
            assert!(!dial.is_retryable());
            let text = dial.to_string();
            for words in ["10.0.0.7:6121", "firewall", "SELinux", "broadcast"] {
                assert!(text.contains(words), "{words:?} is not in {text}");
            }
            assert!(!text.contains("ports below"), "{text}");
        }
    }

    #[test]
    fn a_socket_that_fails_here_is_tried_again_unless_it_can_never_work() {
        let failed = |error: io::Error| failed("h:1", Arc::new(error));
        for errno in [EMFILE, ENOBUFS, ENOMEM] {
            let error = failed(io::Error::from_raw_os_error(errno));
            assert!(matches!(error, ConnectError::Exhausted { .. }), "{error}");
        }
        let other = failed(io::Error::other("out of luck"));
        assert!(matches!(other, ConnectError::Local { .. }) && other.is_retryable());
        let never = failed(io::ErrorKind::Unsupported.into());
        assert!(matches!(never, ConnectError::Local { .. }) && !never.is_retryable());
        let forbidden = failed(io::ErrorKind::PermissionDenied.into());
        assert!(matches!(forbidden, ConnectError::Forbidden { .. }));
    }

    #[test]
    fn the_soft_limit_is_read_from_its_line() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max processes             63704                63704                processes\n\
                      Max open files            1024                 524288               files\n";
        assert_eq!(soft_limit(limits), Some(1024));
        assert_eq!(soft_limit("Max open files            unlimited"), None);
        assert_eq!(soft_limit(""), None);
    }

    #[test]
    fn only_taken_and_privileged_ports_let_the_range_go_on() {
        let range: BindAddr = "127.0.0.1:80-81".parse().unwrap();
        let mut failures = BindFailures::new(&range);
        failures.add(io::ErrorKind::AddrInUse.into()).unwrap();
        failures
            .add(io::ErrorKind::PermissionDenied.into())
            .unwrap();
        let text = failures.exhausted().to_string();
        assert!(
            text.contains("127.0.0.1:80-81: no port of the range is free"),
            "{text}"
        );
        assert!(text.contains("ports below 1024"), "{text}");
        let other = BindFailures::new(&range).add(io::ErrorKind::AddrNotAvailable.into());
        let text = other.unwrap_err().to_string();
        assert!(text.contains("no interface of this machine"), "{text}");
        let one: BindAddr = "127.0.0.1:80".parse().unwrap();
        let mut failures = BindFailures::new(&one);
        failures.add(io::ErrorKind::AddrInUse.into()).unwrap();
        assert!(matches!(
            failures.exhausted(),
            ConnectError::AddressInUse { .. }
        ));
    }
}
