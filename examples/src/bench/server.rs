//! `bench server`: the producing end.

use std::{io, net::SocketAddr, os::fd::AsFd, sync::Arc, time::Duration};

use thalweg_transport::{
    BindAddr, BoxFuture, Connections, Node, PeerStream, StreamHandler, TransportConfig, chain,
    tcp::TcpTransport,
};
use tokio::{io::AsyncReadExt, net::unix::pipe, sync::Mutex};

use super::{
    args::ServerArgs,
    control::{CONTROL, ControlStream, Request, Response},
    security::NodeCertificates,
    session,
};
use crate::cli::{
    console,
    failure::Failure,
    stop::{Signals, Stop},
};

/// Serves until a signal, or until standard input ends if it is a command's child.
pub(super) async fn run(args: &ServerArgs) -> Result<(), Failure> {
    let signals = Signals::listen(Some(LIMIT))?;
    let mut stop = signals.stop();
    let certificates = NodeCertificates::from_dir(&args.certs)?;
    let node = control_node(&certificates, args.bind, |address| {
        let handler = Sessions {
            certificates: certificates.clone(),
            bind: address,
            one: Arc::default(),
        };
        Some(Arc::new(handler))
    })
    .await?;
    console::print(&format!(
        "ready address={} id={} pid={}\n",
        node.advertised(),
        node.id(),
        std::process::id()
    ))?;
    wait_for_end(args.child, &mut stop).await;
    node.shutdown(GRACE)
        .await
        .map_err(|error| Failure::failed(chain(&error)))
}

/// The node of the control connection: TCP with TLS, whatever is measured, on a thread of its own.
pub(super) async fn control_node(
    certificates: &NodeCertificates,
    bind: BindAddr,
    handler: impl FnOnce(SocketAddr) -> Option<Arc<Sessions>>,
) -> Result<Node, Failure> {
    let config = TransportConfig::default();
    let transport = TcpTransport::new(&config, Some(certificates.security.clone()));
    let node = Node::builder(certificates.id.clone(), config)
        .bind(bind)
        .start(transport)
        .await
        .map_err(|error| Failure::failed(chain(&error)))?;
    let data = SocketAddr::new(node.local_addr().ip(), 0);
    if let Some(handler) = handler(data) {
        node.register(CONTROL, handler);
    }
    Ok(node)
}

async fn wait_for_end(child: bool, stop: &mut Stop) {
    let parent_gone = async {
        match child.then(standard_input).transpose() {
            Ok(Some(mut pipe)) => {
                let mut ignored = [0; 64];
                while pipe.read(&mut ignored).await.is_ok_and(|read| read > 0) {}
            }
            Ok(None) => std::future::pending().await,
            Err(error) => tracing::warn!(%error, "standard input is no pipe"),
        }
    };
    tokio::select! {
        _ = stop.requested() => {}
        () = parent_gone => {}
    }
}

/// Of a child: a pipe, whose other end the command holds as long as it lives.
fn standard_input() -> io::Result<pipe::Receiver> {
    let fd = io::stdin().as_fd().try_clone_to_owned()?;
    pipe::Receiver::from_owned_fd(fd)
}

/// Serves one command at a time: two would measure each other.
#[derive(Debug)]
pub(super) struct Sessions {
    certificates: NodeCertificates,
    bind: SocketAddr,
    one: Arc<Mutex<()>>,
}

impl StreamHandler for Sessions {
    fn handle(&self, stream: PeerStream) -> BoxFuture<'static, ()> {
        let (certificates, bind) = (self.certificates.clone(), self.bind);
        let turn = Arc::clone(&self.one).try_lock_owned();
        Box::pin(async move {
            let peer = stream.peer.to_string();
            let Ok(_turn) = turn else {
                return refuse(stream).await;
            };
            tracing::info!(%peer, "a bench begins");
            match session::serve(stream, &certificates, bind).await {
                Ok(()) => tracing::info!(%peer, "the bench is done"),
                Err(failure) => tracing::info!(%peer, %failure, "the bench went away"),
            }
        })
    }
}

async fn refuse(stream: PeerStream) {
    let mut control = ControlStream::new(stream);
    let reason = "another bench uses this server".to_owned();
    // Whoever does not ask gets no answer.
    if let Ok(Some(_)) = control.receive::<Request>().await
        && control.send(&Response::Failed { reason }).await.is_ok()
    {
        control.finish();
        // The stream stays until the other end has read it.
        let _ = control.receive::<Request>().await;
    }
}

/// Stopping may take so long after a signal.
const LIMIT: Duration = Duration::from_secs(5);

/// For the sessions to end.
const GRACE: Duration = Duration::from_secs(2);
