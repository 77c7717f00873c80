//! What the figures depend on beside the code.

use std::{collections::BTreeMap, fs, net::IpAddr};

use nix::{
    ifaddrs::getifaddrs,
    sys::socket::{
        AddressFamily, SockFlag, SockType, setsockopt, socket,
        sockopt::{UdpGroSegment, UdpGsoSegment},
    },
};
use serde::{Deserialize, Serialize};

/// One host. What the system does not say is `None`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) kernel: Option<String>,
    /// Of the interface with the address that is used.
    pub(crate) mtu: Option<u32>,
    /// Whether UDP segmentation offload can be switched on.
    pub(crate) gso: bool,
    /// The same for receiving.
    pub(crate) gro: bool,
    /// Most bytes that a socket's receive buffer may have.
    pub(crate) rmem_max: Option<u64>,
    pub(crate) cpu: Option<String>,
}

impl Machine {
    /// This one, which uses that address.
    pub(crate) fn here(address: IpAddr) -> Self {
        let trimmed = |path: &str| {
            let text = fs::read_to_string(path).ok()?;
            Some(text.trim().to_owned())
        };
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: trimmed("/proc/sys/kernel/osrelease"),
            mtu: mtu_of(address),
            gso: offloads().0,
            gro: offloads().1,
            rmem_max: trimmed("/proc/sys/net/core/rmem_max").and_then(|text| text.parse().ok()),
            cpu: model_in(&cpus),
        }
    }
}

/// Segmentation offload for sending and for receiving.
fn offloads() -> (bool, bool) {
    let flags = SockFlag::SOCK_CLOEXEC;
    let Ok(socket) = socket(AddressFamily::Inet, SockType::Datagram, flags, None) else {
        return (false, false);
    };
    (
        setsockopt(&socket, UdpGsoSegment, &1_200).is_ok(),
        setsockopt(&socket, UdpGroSegment, &true).is_ok(),
    )
}

fn mtu_of(address: IpAddr) -> Option<u32> {
    let interface = getifaddrs().ok()?.find(|interface| {
        let storage = interface.address.as_ref();
        storage.is_some_and(|storage| {
            let v4 = storage.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            let v6 = storage.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip()));
            v4.or(v6) == Some(address)
        })
    })?;
    let path = format!("/sys/class/net/{}/mtu", interface.interface_name);
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn model_in(cpus: &str) -> Option<String> {
    let line = cpus.lines().find(|line| line.starts_with("model name"))?;
    let (_, model) = line.split_once(':')?;
    Some(model.trim().to_owned())
}

/// Versions of ours and of what the figures depend on, as they were built.
pub(crate) fn versions() -> BTreeMap<&'static str, String> {
    let mut versions = BTreeMap::from([("thalweg", env!("CARGO_PKG_VERSION").to_owned())]);
    let peers: &[&str] = if cfg!(feature = "peers") { &PEERS } else { &[] };
    for &name in MEASURED.iter().chain(peers) {
        if let Some(version) = version_in(LOCK, name) {
            versions.insert(name, version.to_owned());
        }
    }
    versions
}

fn version_in<'a>(lock: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = lock.lines();
    let wanted = format!("name = \"{name}\"");
    lines.find(|line| **line == wanted)?;
    let version = lines.next()?.strip_prefix("version = \"")?;
    version.strip_suffix('"')
}

const LOCK: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock"));

const MEASURED: [&str; 7] = [
    "aws-lc-rs",
    "quinn",
    "quinn-proto",
    "quinn-udp",
    "rustls",
    "tokio",
    "tokio-rustls",
];

const PEERS: [&str; 4] = ["arrow-flight", "h2", "hyper", "tonic"];

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn this_machine_is_described() {
        let machine = Machine::here(Ipv4Addr::LOCALHOST.into());
        assert!(machine.cores > 0);
        assert!(machine.kernel.is_some_and(|kernel| !kernel.is_empty()));
        assert!(machine.mtu.is_some_and(|mtu| mtu >= 1_280));
    }

    #[test]
    fn every_measured_library_has_a_version() {
        let versions = versions();
        for name in MEASURED {
            assert!(versions[name].split('.').count() == 3, "{name}");
        }
    }
}
