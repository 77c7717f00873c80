//! A relay between two nodes that keeps what passes.

use std::{
    collections::HashMap,
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// Forwards TCP connections or UDP datagrams to one address, both ways, and records their bytes. Dropping it ends the
/// forwarding within a moment.
#[derive(Debug)]
pub struct Forwarder {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    stopped: AtomicBool,
    /// What passed in each direction of each connection, in the order of its passing.
    flows: Mutex<Vec<Vec<u8>>>,
}

impl Forwarder {
    /// A forwarder for this transport (`quic`: UDP, else TCP) on a free port.
    ///
    /// # Panics
    /// If there is no free port.
    #[must_use]
    pub fn start(transport: &str, target: SocketAddr) -> Self {
        let shared = Arc::new(Shared {
            target,
            stopped: AtomicBool::new(false),
            flows: Mutex::default(),
        });
        let ours = Arc::clone(&shared);
        let address = if transport == "quic" {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
            let address = socket.local_addr().expect("a bound socket has an address");
            thread::spawn(move || relay_datagrams(&Arc::new(socket), &ours));
            address
        } else {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let address = listener
                .local_addr()
                .expect("a bound socket has an address");
            thread::spawn(move || relay_connections(&listener, &ours));
            address
        };
        Self { address, shared }
    }

    /// What others dial.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Bytes that have passed, both ways.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.shared.flows().iter().map(Vec::len).sum()
    }

    /// Whether this text has passed.
    #[must_use]
    pub fn saw(&self, text: &str) -> bool {
        let text = text.as_bytes();
        let flows = self.shared.flows();
        flows
            .iter()
            .any(|flow| flow.windows(text.len()).any(|window| window == text))
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        // Wakes a listener that waits for a connection.
        drop(TcpStream::connect_timeout(&self.address, TICK));
    }
}

impl Shared {
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    fn flows(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_flow(&self) -> usize {
        let mut flows = self.flows();
        flows.push(Vec::new());
        flows.len() - 1
    }

    fn record(&self, flow: usize, bytes: &[u8]) {
        self.flows()[flow].extend_from_slice(bytes);
    }
}

fn relay_connections(listener: &TcpListener, shared: &Arc<Shared>) {
    for accepted in listener.incoming() {
        if shared.is_stopped() {
            return;
        }
        let Ok(from) = accepted else { continue };
        let Ok(to) = TcpStream::connect(shared.target) else {
            continue;
        };
        for (from, to) in [(&from, &to), (&to, &from)] {
            let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else {
                continue;
            };
            let shared = Arc::clone(shared);
            thread::spawn(move || relay_bytes(from, to, &shared));
        }
    }
}

fn relay_bytes(mut from: TcpStream, mut to: TcpStream, shared: &Shared) {
    let flow = shared.new_flow();
    let mut buffer = vec![0; 64 * 1024];
    let _ = from.set_read_timeout(Some(TICK));
    while !shared.is_stopped() {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => {
                shared.record(flow, &buffer[..read]);
                if to.write_all(&buffer[..read]).is_err() {
                    break;
                }
            }
            Err(error) if is_timeout(error.kind()) => {}
            Err(_) => break,
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// One socket to the target for each dialler, so that answers find their way back.
fn relay_datagrams(socket: &Arc<UdpSocket>, shared: &Arc<Shared>) {
    let mut diallers: HashMap<SocketAddr, (Arc<UdpSocket>, usize)> = HashMap::new();
    let mut buffer = vec![0; 64 * 1024];
    let _ = socket.set_read_timeout(Some(TICK));
    while !shared.is_stopped() {
        let Ok((read, from)) = socket.recv_from(&mut buffer) else {
            continue;
        };
        let (onward, flow) = diallers.entry(from).or_insert_with(|| {
            let onward = UdpSocket::bind("127.0.0.1:0").expect("a free port");
            onward.connect(shared.target).expect("an IP address");
            let onward = Arc::new(onward);
            let (back, answers) = (Arc::clone(socket), Arc::clone(&onward));
            let ours = Arc::clone(shared);
            thread::spawn(move || relay_answers(&answers, &back, from, &ours));
            (onward, shared.new_flow())
        });
        shared.record(*flow, &buffer[..read]);
        // A lost datagram is sent again by QUIC.
        let _ = onward.send(&buffer[..read]);
    }
}

fn relay_answers(answers: &UdpSocket, back: &UdpSocket, dialler: SocketAddr, shared: &Shared) {
    let flow = shared.new_flow();
    let mut buffer = vec![0; 64 * 1024];
    let _ = answers.set_read_timeout(Some(TICK));
    while !shared.is_stopped() {
        if let Ok(read) = answers.recv(&mut buffer) {
            shared.record(flow, &buffer[..read]);
            let _ = back.send_to(&buffer[..read], dialler);
        }
    }
}

fn is_timeout(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// How soon a thread notices that it is no longer needed.
const TICK: Duration = Duration::from_millis(100);
