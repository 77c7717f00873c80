//! Accepted connections: hello, then each stream to the code that serves its kind.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::Semaphore, task::JoinError, task::JoinSet, time::timeout};

use super::{
    HELLO_LIMIT, Local,
    introduce::{IntroduceError, introduce_accepted},
    live::{Live, LiveConnection, refuse},
    shares::{Share, Shares, Who},
    stream::{STREAM_VERSION, priority, read_header},
};
use crate::{
    clock::now,
    connections::ConnectionSnapshot,
    error::{ConnectionError, ErrorCode, StreamError},
    handler::{Peer, PeerStream, StreamKind, chain},
    shutdown::Shutdown,
    stream::{BoxRecvStream, BoxSendStream},
    transport::{Connection, Listener, SendStream},
    warnings::FailureClass,
};

/// The accepted connections whose hello is done.
#[derive(Debug, Default)]
pub(crate) struct Accepted(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    live: BTreeMap<u64, Arc<dyn LiveConnection>>,
}

impl Accepted {
    pub(crate) fn snapshot(&self) -> Vec<ConnectionSnapshot> {
        let live: Vec<_> = self.lock().live.values().cloned().collect();
        live.iter()
            .map(|connection| ConnectionSnapshot {
                peer: connection.peer().clone(),
                dialled: false,
                draining: false,
                stats: connection.stats(),
            })
            .collect()
    }

    fn enter(self: &Arc<Self>, live: Arc<dyn LiveConnection>) -> Entry {
        let mut table = self.lock();
        let number = table.next;
        table.next += 1;
        table.live.insert(number, live);
        Entry {
            accepted: Arc::clone(self),
            number,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The entry of one connection; dropping it takes it out.
struct Entry {
    accepted: Arc<Accepted>,
    number: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let live = self.accepted.lock().live.remove(&self.number);
        drop(live);
    }
}

/// Accepts until the owner is cancelled; each connection is a task of the owner.
pub(crate) async fn accept_connections<L: Listener>(
    mut listener: L,
    local: Arc<Local>,
    accepted: Arc<Accepted>,
    tasks: Shutdown,
) {
    let max_hellos = local.config.max_handshakes;
    let hellos = Arc::new(Semaphore::new(max_hellos as usize));
    let hello_shares = Shares::new(max_hellos, max_hellos);
    let shares = Shares::new(local.config.max_connections, CONNECTIONS_OF_A_PEER);
    let places = Arc::new(Semaphore::new(local.config.max_connections as usize));
    loop {
        let connection = tokio::select! {
            biased;
            () = tasks.cancelled() => return,
            connection = listener.accept() => connection,
        };
        let connection = match connection {
            Ok(connection) => connection,
            Err(error) => {
                let error = chain(&error);
                tracing::error!(node = %local.id(), error, "accepting has ended");
                return;
            }
        };
        let address = connection.remote_addr();
        let place = Arc::clone(&places).try_acquire_owned();
        let hello = Arc::clone(&hellos).try_acquire_owned().ok();
        let hello = hello.zip(hello_shares.take(Who::of_connection(&connection)));
        let (place, hello) = match (place, hello) {
            (Ok(place), Some(hello)) => (place, hello),
            (place, _) => {
                let max = local.config.max_connections;
                let reason = match place {
                    Ok(_) => "too many connections wait for their hello".to_owned(),
                    Err(_) => format!("the node has {max} connections of peers, all it may have"),
                };
                connection.close(ErrorCode::LIMIT_EXCEEDED, &reason);
                if let Some(held_back) = local.warnings.due(now(), FailureClass::Overload) {
                    tracing::warn!(%address, held_back, reason, "refused a connection");
                }
                continue;
            }
        };
        let server = Server {
            local: Arc::clone(&local),
            accepted: Arc::clone(&accepted),
            shares: Arc::clone(&shares),
            tasks: tasks.clone(),
        };
        tasks.spawn(async move {
            let _place = place;
            let Some((live, _share)) = server.introduce(connection).await else {
                return;
            };
            drop(hello);
            server.serve(live).await;
        });
    }
}

/// Whether the peer went away without a complaint.
fn has_left(error: &StreamError) -> bool {
    let lost = matches!(error, StreamError::Connection(ConnectionError::Lost { .. }));
    lost || [ErrorCode::NO_ERROR, ErrorCode::SHUTTING_DOWN].contains(&error.code())
}

/// Serves one accepted connection.
struct Server {
    local: Arc<Local>,
    accepted: Arc<Accepted>,
    /// Who has how many connections.
    shares: Arc<Shares>,
    tasks: Shutdown,
}

impl Server {
    async fn introduce<C: Connection>(&self, connection: C) -> Option<(Live<C>, Share)> {
        let address = connection.remote_addr();
        let outcome = tokio::select! {
            biased;
            () = self.tasks.cancelled() => {
                connection.close(ErrorCode::SHUTTING_DOWN, &self.local.farewell());
                return None;
            }
            outcome = introduce_accepted(&self.local, &connection, |peer| self.admit(peer)) => outcome,
        };
        let (code, reason) = match outcome {
            Ok((peer, agreement, share)) => {
                tracing::debug!(%peer, ?agreement, "accepted a connection");
                return Some((Live::new(connection, peer, agreement), share));
            }
            Err(IntroduceError::Rejected { code, reason }) => (code, reason),
            // A dialler whose caller does not wait any longer leaves: nobody was refused, and nothing was lost.
            Err(IntroduceError::Stream(error)) if has_left(&error) => {
                tracing::debug!(%address, error = chain(&error), "a peer left before its hello");
                return None;
            }
            Err(IntroduceError::Stream(error)) => {
                let reason = "the hello failed";
                connection.close(ErrorCode::PROTOCOL, reason);
                (error.code(), chain(&error))
            }
        };
        if let Some(held_back) = self.local.warnings.due(now(), FailureClass::Hello) {
            tracing::warn!(%address, %code, reason, held_back, "refused a connection at its hello");
        } else {
            tracing::debug!(%address, %code, reason, "refused a connection at its hello");
        }
        None
    }

    /// A place for one more connection of the peer, or why it gets none.
    fn admit(&self, peer: &Peer) -> Result<Share, String> {
        self.shares.take(Who::of_peer(peer)).ok_or_else(|| {
            format!(
                "{} has {} connections to this node, all that one node may have",
                peer.id,
                self.shares.of_one()
            )
        })
    }

    /// Dispatches streams until the connection ends; their handlers are dropped then.
    async fn serve<C: Connection>(self, live: Live<C>) {
        let live = Arc::new(live);
        let connection = &live.connection;
        let shared: Arc<dyn LiveConnection> = Arc::<Live<C>>::clone(&live);
        let _entry = self.accepted.enter(shared);
        let mut limit = StreamLimit::new(self.local.config.max_streams_per_connection);
        connection.allow_streams(limit.allowed);
        let mut streams = JoinSet::new();
        let mut ended = std::pin::pin!(connection.closed());
        let reason = loop {
            tokio::select! {
                biased;
                () = self.tasks.cancelled() => {
                    connection.close(ErrorCode::SHUTTING_DOWN, &self.local.farewell());
                    break connection.closed().await;
                }
                reason = &mut ended => break reason,
                Some(done) = streams.join_next() => {
                    if let Some(panic) = done.err().and_then(panic_message) {
                        tracing::error!(peer = %live.peer(), panic, "a stream handler panicked");
                        connection.close(ErrorCode::INTERNAL, "a stream handler failed");
                        break connection.closed().await;
                    }
                }
                stream = connection.accept() => if let Ok((send, recv)) = stream {
                    streams.spawn(dispatch(
                        Arc::clone(&self.local),
                        connection.clone(),
                        live.peer().clone(),
                        live.agreement().features,
                        send,
                        recv,
                    ));
                    if let Some(allowed) = limit.on_open(streams.len()) {
                        connection.allow_streams(allowed);
                    }
                } else {
                    break connection.closed().await;
                },
            }
        };
        streams.shutdown().await;
        tracing::debug!(peer = %live.peer(), %reason, "accepted connection ended");
    }
}

/// How many streams the peer may have open: doubled when more than half of them are in use.
struct StreamLimit {
    allowed: u32,
    max: u32,
}

impl StreamLimit {
    fn new(max: u32) -> Self {
        Self {
            allowed: FIRST_STREAMS.min(max),
            max,
        }
    }

    /// The new limit if `open` streams ask for one.
    fn on_open(&mut self, open: usize) -> Option<u32> {
        if self.allowed >= self.max || open <= self.allowed as usize / 2 {
            return None;
        }
        self.allowed = self.allowed.saturating_mul(2).min(self.max);
        Some(self.allowed)
    }
}

/// Reads what a stream is for and serves it.
async fn dispatch<C: Connection>(
    local: Arc<Local>,
    connection: C,
    peer: Peer,
    features: u64,
    mut send: C::Send,
    mut recv: C::Recv,
) {
    let (kind, version) = match timeout(HELLO_LIMIT, read_header(&mut recv)).await {
        Ok(Ok(Some(header))) => header,
        Ok(Ok(None)) => return refuse(send, recv, ErrorCode::STREAM_PROTOCOL),
        Ok(Err(error)) => return tracing::debug!(%peer, %error, "a stream ended before its kind"),
        Err(_) => return refuse(send, recv, ErrorCode::TIMED_OUT),
    };
    if kind == StreamKind::HELLO {
        connection.close(ErrorCode::PROTOCOL, "a second hello on the connection");
        return;
    }
    let refusal = if version == STREAM_VERSION {
        ErrorCode::UNKNOWN_STREAM_KIND
    } else {
        ErrorCode::VERSION_MISMATCH
    };
    let handler = local.handlers.find(kind);
    let Some(handler) = handler.filter(|_| version == STREAM_VERSION) else {
        if let Some(held_back) = local.warnings.due(now(), FailureClass::StreamRefused) {
            tracing::warn!(%peer, %kind, version, held_back, code = %refusal, "refused a stream");
        }
        return refuse(send, recv, refusal);
    };
    send.set_priority(priority(kind));
    // Only the connection's own task keeps the connection; a handler keeps its stream.
    drop(connection);
    let stream = PeerStream {
        peer,
        features,
        send: BoxSendStream::new(send),
        recv: BoxRecvStream::new(recv),
    };
    handler.handle(stream).await;
}

fn panic_message(error: JoinError) -> Option<String> {
    let panic = error.try_into_panic().ok()?;
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    Some(text.unwrap_or_else(|| "no message".to_owned()))
}

/// Connections that one peer may have: as many as `connections_per_peer` allows at most, twice because a drained one
/// lives on beside its successor, and twice because a node may be dialled by name and by address alone.
const CONNECTIONS_OF_A_PEER: u32 = 64 * 2 * 2;

/// Streams that a peer may open at once at first: enough for a small job, 13 kB ahead in quinn.
const FIRST_STREAMS: u32 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_limit_doubles_when_half_is_used_up_to_its_maximum() {
        let mut limit = StreamLimit::new(300);
        assert_eq!(limit.allowed, 128);
        assert_eq!(limit.on_open(64), None);
        assert_eq!(limit.on_open(65), Some(256));
        assert_eq!(limit.on_open(66), None);
        assert_eq!(limit.on_open(200), Some(300));
        assert_eq!(limit.on_open(300), None);
        assert_eq!(StreamLimit::new(16).allowed, 16);
    }
}
