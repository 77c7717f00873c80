//! The sockets of a process, as the kernel lists them.

use std::{fs, net::SocketAddr};

/// The internet sockets that one process has open.
#[derive(Debug, Clone, Default)]
pub struct Sockets {
    /// Addresses of its UDP sockets.
    pub udp: Vec<SocketAddr>,
    /// Addresses on which it takes TCP connections.
    pub listening: Vec<SocketAddr>,
    /// Its TCP connections: own address, the other's.
    pub established: Vec<(SocketAddr, SocketAddr)>,
}

impl Sockets {
    /// Those of a process of this network namespace.
    ///
    /// # Panics
    /// If the process is gone, or the kernel's lists have another form.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        let inodes = socket_inodes(pid);
        let mut found = Self::default();
        for row in rows("/proc/net/udp", &inodes) {
            found.udp.push(row.local);
        }
        for row in rows("/proc/net/tcp", &inodes) {
            match row.state.as_str() {
                ESTABLISHED => found.established.push((row.local, row.remote)),
                LISTEN => found.listening.push(row.local),
                _ => {}
            }
        }
        found
    }

    /// The connections whose other end is `remote`.
    #[must_use]
    pub fn dialled(&self, remote: SocketAddr) -> Vec<SocketAddr> {
        let to = self.established.iter().filter(|(_, to)| *to == remote);
        to.map(|(own, _)| *own).collect()
    }
}

struct Row {
    local: SocketAddr,
    remote: SocketAddr,
    state: String,
}

fn rows(list: &str, inodes: &[String]) -> Vec<Row> {
    let text = fs::read_to_string(list).expect("the kernel lists its sockets");
    text.lines()
        .skip(1)
        .filter_map(|line| {
            // sl local remote state tx:rx tr:tm retransmits uid timeout inode …
            let fields: Vec<&str> = line.split_whitespace().collect();
            inodes.iter().any(|inode| inode == fields[9]).then(|| Row {
                local: address(fields[1]),
                remote: address(fields[2]),
                state: fields[3].to_owned(),
            })
        })
        .collect()
}

/// `0100007F:1F90`: an IPv4 address in the byte order of the machine, and a port.
fn address(text: &str) -> SocketAddr {
    let (ip, port) = text.split_once(':').expect("address:port");
    let ip = u32::from_str_radix(ip, 16).expect("an IPv4 address in hexadecimal");
    let port = u16::from_str_radix(port, 16).expect("a port in hexadecimal");
    SocketAddr::from((ip.to_ne_bytes(), port))
}

fn socket_inodes(pid: u32) -> Vec<String> {
    fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("the process lives")
        .flatten()
        .filter_map(|entry| {
            let target = fs::read_link(entry.path()).ok()?;
            let inode = target.to_str()?.strip_prefix("socket:[")?;
            Some(inode.trim_end_matches(']').to_owned())
        })
        .collect()
}

const ESTABLISHED: &str = "01";
const LISTEN: &str = "0A";
