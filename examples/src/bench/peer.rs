//! The command's side of the server: a child of this process or a server on another host.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    path::Path,
    process::Stdio,
    time::Duration,
};

use thalweg_transport::{
    BindAddr, ConnectionId, Connections, Lease, Node, ResourceId, chain, resolve,
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

use super::{
    control::{CONTROL, ControlStream, Request, Response, VERSION},
    machine::Machine,
    security::NodeCertificates,
    server::control_node,
    spec::Spec,
    usage::Usage,
};
use crate::cli::failure::Failure;

/// Where the producer is.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// Its name, which its certificate has to say.
    pub(crate) id: ResourceId,
    pub(crate) address: SocketAddr,
}

/// A server that this command has for itself. Dropped, the child is killed.
#[derive(Debug)]
pub(crate) struct Server {
    control: ControlStream,
    lease: Lease,
    address: SocketAddr,
    node: Node,
    child: Option<LocalServer>,
    pub(crate) certificates: NodeCertificates,
    /// The machine of the producing end.
    pub(crate) machine: Machine,
}

impl Server {
    /// Starts a child with throw-away certificates.
    pub(crate) async fn start_here() -> Result<Self, Failure> {
        let (certificates, dir) = NodeCertificates::throw_away()?;
        let (child, address) = LocalServer::start(dir.path()).await?;
        // The server has read them: from here on nothing is left behind, whatever happens to this process.
        drop(dir);
        Self::connect(&address, certificates, Some(child)).await
    }

    /// Uses one that runs at `address`, `host:port`.
    pub(crate) async fn at(address: &str, certificates: NodeCertificates) -> Result<Self, Failure> {
        Self::connect(address, certificates, None).await
    }

    async fn connect(
        address: &str,
        certificates: NodeCertificates,
        child: Option<LocalServer>,
    ) -> Result<Self, Failure> {
        let failed = |error: &(dyn std::error::Error + 'static)| {
            Failure::failed(format!("no server at {address}: {}", chain(error)))
        };
        let resolved = resolve(address).await.map_err(|error| failed(&error))?;
        let bind = BindAddr::single((Ipv4Addr::LOCALHOST, 0).into());
        let node = control_node(&certificates, bind, |_| None).await?;
        let lease = node
            .acquire(ConnectionId::to_address(resolved.to_string()))
            .await
            .map_err(|error| failed(&error))?;
        let stream = lease.open(CONTROL).await.map_err(|error| failed(&error))?;
        let mut server = Self {
            control: ControlStream::new(stream),
            lease,
            address: resolved,
            node,
            child,
            certificates,
            machine: Machine::default(),
        };
        let version = VERSION.to_owned();
        match server.ask(Request::Hello { version }).await? {
            Response::Hello { machine } => server.machine = machine,
            other => return Err(unexpected(&other)),
        }
        Ok(server)
    }

    /// The address of this end.
    pub(crate) fn local_ip(&self) -> IpAddr {
        // A connected UDP socket has the address of the interface that reaches the peer, and sends nothing.
        let local = UdpSocket::bind((any_of(self.address.ip()), 0)).and_then(|socket| {
            socket.connect(self.address)?;
            socket.local_addr()
        });
        local.map_or_else(|_| self.node.local_addr().ip(), |address| address.ip())
    }

    /// Makes it ready to produce.
    pub(crate) async fn prepare(&mut self, spec: &Spec) -> Result<Peer, Failure> {
        let spec = spec.clone();
        match self.ask(Request::Prepare { spec }).await? {
            Response::Ready { port } => Ok(Peer {
                id: self.lease.peer().id.clone(),
                address: SocketAddr::new(self.address.ip(), port),
            }),
            other => Err(unexpected(&other)),
        }
    }

    /// What its process has used so far.
    pub(crate) async fn usage(&mut self, reset_peak: bool) -> Result<Usage, Failure> {
        match self.ask(Request::Usage { reset_peak }).await? {
            Response::Usage { usage } => Ok(usage),
            other => Err(unexpected(&other)),
        }
    }

    /// Ends the producer.
    pub(crate) async fn finish(&mut self) -> Result<(), Failure> {
        match self.ask(Request::Finish).await? {
            Response::Finished => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Leaves nothing behind.
    pub(crate) async fn end(mut self) {
        self.control.finish();
        drop(self.lease);
        if let Err(error) = self.node.shutdown(GRACE).await {
            tracing::warn!(%error, "the control node does not end");
        }
        if let Some(child) = self.child {
            child.end().await;
        }
    }

    async fn ask(&mut self, request: Request) -> Result<Response, Failure> {
        let answered = timeout(PATIENCE, async {
            self.control.send(&request).await?;
            self.control.receive::<Response>().await
        });
        match answered.await {
            Ok(Ok(Some(Response::Failed { reason }))) => {
                Err(Failure::failed(format!("the server failed: {reason}")))
            }
            Ok(Ok(Some(response))) => Ok(response),
            Ok(Ok(None)) => Err(Failure::failed("the server has ended")),
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(Failure::failed(format!(
                "the server did not answer within {} s",
                PATIENCE.as_secs()
            ))),
        }
    }
}

/// The wildcard of the same family.
pub(crate) fn any_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

fn unexpected(response: &Response) -> Failure {
    Failure::failed(format!(
        "the server gave an answer to something else: {response:?}"
    ))
}

/// `bench server` as a child.
#[derive(Debug)]
struct LocalServer {
    process: Child,
}

impl LocalServer {
    /// Gives the address too, once it is ready.
    async fn start(certificates: &Path) -> Result<(Self, String), Failure> {
        let failed = |reason: String| Failure::failed(format!("cannot start the server: {reason}"));
        let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
        let mut process = Command::new(program)
            .args(["server", "--child", "--certs"])
            .arg(certificates)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for the command alone, which then ends the server.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let stdout = process.stdout.take().map(BufReader::new);
        let mut lines = stdout
            .ok_or_else(|| failed("it has no standard output".to_owned()))?
            .lines();
        let line = timeout(PATIENCE, lines.next_line())
            .await
            .map_err(|_| failed(format!("not ready within {} s", PATIENCE.as_secs())))?
            .map_err(|error| failed(error.to_string()))?;
        let address = line.as_deref().and_then(address_in);
        let address = address.ok_or_else(|| failed("it ended at once".to_owned()))?;
        Ok((Self { process }, address.to_owned()))
    }

    /// It ends with its standard input.
    async fn end(mut self) {
        drop(self.process.stdin.take());
        if timeout(GRACE, self.process.wait()).await.is_err() {
            tracing::warn!("the server does not end by itself and is killed");
            // An error means that it has just ended.
            let _ = self.process.kill().await;
        }
    }
}

fn address_in(ready: &str) -> Option<&str> {
    let words = ready.strip_prefix("ready ")?.split(' ');
    words
        .filter_map(|word| word.strip_prefix("address="))
        .next()
}

/// For an answer: longer than any start or end of a node takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// For an orderly end.
const GRACE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_from_the_ready_line() {
        let line = "ready address=127.0.0.1:6190 id=bench-server pid=7";
        assert_eq!(address_in(line), Some("127.0.0.1:6190"));
        assert_eq!(address_in("error: no"), None);
    }
}
