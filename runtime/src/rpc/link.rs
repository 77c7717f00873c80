//! The caller's end of a gateway stream.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use thalweg_transport::{
    BoxFuture, ErrorCode, PeerStream, RecvStream, SendStream, StreamError, TransportError,
};
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    address::RpcAddress,
    budget::{PeerBudget, Permit},
    error::RpcError,
    gateway::Method,
    handshake::{FLUSH, Opened, READ_BYTES, read_error, shake_hands},
    outbox::{NotQueued, Outbox},
    pending::PendingCalls,
    service::RpcService,
    sync::lock,
    wire::{Frame, Head},
};
use crate::ids::FencingToken;

/// A gateway stream, held by its clients and their calls. The last one closes it; what was told before still goes out.
#[derive(Debug)]
pub(super) struct Link {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    address: Arc<RpcAddress>,
    service: RpcService,
    outbox: Outbox,
    calls: Mutex<Calls>,
    /// Cancelled when the stream has ended.
    gone: CancellationToken,
    budget: Arc<PeerBudget>,
    /// The smaller of both sides' limits.
    max_frame: u32,
}

#[derive(Debug)]
struct Calls {
    pending: PendingCalls<Waiter>,
    /// Why the stream ended.
    ended: Option<RpcError>,
}

#[derive(Debug)]
struct Waiter {
    answer: oneshot::Sender<Result<Bytes, RpcError>>,
    _permit: Permit,
}

impl Link {
    /// Opens a stream to a gateway of another node. Cancel-safe.
    pub(super) async fn open(
        service: &RpcService,
        address: &RpcAddress,
        gateway: &str,
    ) -> Result<(Self, Arc<RpcAddress>), RpcError> {
        let unreachable = || RpcError::RecipientUnreachable {
            address: address.to_string(),
            reason: "the service is local".to_owned(),
        };
        let connections = service.connections().ok_or_else(unreachable)?;
        let connection = address.connection().ok_or_else(unreachable)?;
        let lease = connections
            .acquire(connection)
            .await
            .map_err(|error| RpcError::connection(address, &error))?;
        let opened = shake_hands(service, lease, address, gateway).await?;
        let address = Arc::new(opened.address.clone());
        let budget = service.outgoing_budget(opened.lease.peer().id.as_str());
        let shared = Arc::new(Shared {
            address: Arc::clone(&address),
            service: service.clone(),
            outbox: Outbox::new(&budget),
            calls: Mutex::new(Calls {
                pending: PendingCalls::new(),
                ended: None,
            }),
            gone: CancellationToken::new(),
            budget,
            max_frame: opened.max_frame,
        });
        service.tasks().spawn_on(
            run(EndOnDrop(Arc::clone(&shared)), opened),
            connections.runtime(),
        );
        Ok((Self { shared }, address))
    }

    /// Why the stream ended, or `None` while it lives.
    pub(super) fn ended(&self) -> Option<RpcError> {
        lock(&self.shared.calls).ended.clone()
    }

    /// Waits for the stream's end without keeping it open.
    pub(super) fn until_ended(&self) -> BoxFuture<'static, RpcError> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            shared.gone.cancelled().await;
            shared.lost()
        })
    }

    /// Sends a request and waits for its answer. Dropping the future cancels the call.
    pub(super) async fn ask(
        self: Arc<Self>,
        method: &'static Method,
        token: Option<FencingToken>,
        deadline: Option<Duration>,
        body: Vec<u8>,
    ) -> Result<Bytes, RpcError> {
        let shared = &self.shared;
        shared.check_size(method, &body)?;
        let permit = shared.budget.take(body.len())?;
        let (answer, receiver) = oneshot::channel();
        let call = {
            let mut calls = lock(&shared.calls);
            if let Some(error) = &calls.ended {
                return Err(error.clone());
            }
            calls.pending.issue(Waiter {
                answer,
                _permit: permit,
            })
        };
        let guard = CancelOnDrop { shared, call };
        let head = Head::Request {
            call,
            method: method.id,
            token,
            deadline_ms: deadline.map_or(0, |deadline| {
                u32::try_from(deadline.as_millis().max(1)).unwrap_or(u32::MAX)
            }),
        };
        shared.push(head, body)?;
        let answer = receiver.await;
        drop(guard);
        answer.unwrap_or_else(|_| Err(shared.lost()))
    }

    /// Sends a message that is not answered.
    pub(super) fn tell(
        &self,
        method: &'static Method,
        token: Option<FencingToken>,
        body: Vec<u8>,
    ) -> Result<(), RpcError> {
        let shared = &self.shared;
        shared.check_size(method, &body)?;
        if let Some(error) = self.ended() {
            return Err(error);
        }
        let head = Head::Tell {
            method: method.id,
            token,
        };
        shared.push(head, body)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.outbox.close();
    }
}

impl Shared {
    fn check_size(&self, method: &'static Method, body: &[u8]) -> Result<(), RpcError> {
        if body.len() <= self.max_frame as usize {
            return Ok(());
        }
        Err(RpcError::TooLarge {
            what: format!("request of {method}"),
            size: body.len() as u64,
            limit: u64::from(self.max_frame),
        })
    }

    fn push(&self, head: Head, body: Vec<u8>) -> Result<(), RpcError> {
        self.outbox.push(head, body).map_err(|reason| match reason {
            NotQueued::Full => RpcError::Overloaded {
                what: format!("bytes to send to {}", self.address),
                limit: self.service.config().max_pending_bytes,
            },
            NotQueued::Closed => self.lost(),
        })
    }

    fn lost(&self) -> RpcError {
        lock(&self.calls)
            .ended
            .clone()
            .unwrap_or_else(|| self.service.stopped())
    }

    /// Settles an answer. One that nobody waits for is ignored: its caller has given up, or it was never asked for.
    fn on_frame(&self, frame: Frame) -> Result<(), String> {
        let (call, result) = match frame.head {
            Head::Answer { call } => (call, Ok(frame.body)),
            Head::Error { call } => (call, Err(read_error(&frame.body))),
            other => return Err(format!("unexpected frame {other:?}")),
        };
        let waiter = lock(&self.calls).pending.complete(call);
        match waiter {
            Some(waiter) => {
                let _ = waiter.answer.send(result);
            }
            None => self.service.counters().late_answers.add(),
        }
        Ok(())
    }

    fn end(&self, error: &RpcError) {
        let waiters = {
            let mut calls = lock(&self.calls);
            calls.ended.get_or_insert_with(|| error.clone());
            calls.pending.drain()
        };
        self.gone.cancel();
        self.outbox.close();
        for waiter in waiters {
            let _ = waiter.answer.send(Err(error.clone()));
        }
    }
}

/// Fails the calls also when the task is dropped with its runtime, even before it began.
struct EndOnDrop(Arc<Shared>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        if lock(&self.0.calls).ended.is_none() {
            self.0.end(&RpcError::Connection {
                address: self.0.address.to_string(),
                message: "this node's network has shut down".to_owned(),
                retryable: false,
            });
        }
    }
}

/// Gives a call up when its future is dropped before the answer.
struct CancelOnDrop<'a> {
    shared: &'a Shared,
    call: u64,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let waiter = lock(&self.shared.calls).pending.complete(self.call);
        if waiter.is_some() {
            // A full outbox drops it: the callee then finds out at the deadline.
            let _ = self
                .shared
                .outbox
                .push(Head::Cancel { call: self.call }, Vec::new());
        }
    }
}

/// Reads and writes the stream to its end, then fails every call that still waits.
async fn run(guard: EndOnDrop, opened: Opened) {
    let shared = Arc::clone(&guard.0);
    let Opened {
        lease,
        stream,
        mut decoder,
        ..
    } = opened;
    let PeerStream {
        peer,
        mut send,
        mut recv,
    } = stream;
    let failed = |error: &StreamError| {
        RpcError::connection(&shared.address, &TransportError::from_stream(&peer, error))
    };
    let mut code = ErrorCode::NO_ERROR;
    let error = {
        let read = async {
            loop {
                match decoder.next_frame() {
                    Ok(Some(frame)) => {
                        if let Err(reason) = shared.on_frame(frame) {
                            return broken(&shared, reason);
                        }
                    }
                    Ok(None) => match recv.read(READ_BYTES).await {
                        Ok(Some(bytes)) => decoder.push(&bytes),
                        Ok(None) => return ended_by_peer(&shared),
                        Err(error) => return failed(&error),
                    },
                    Err(error) => return broken(&shared, error.to_string()),
                }
                tokio::task::coop::consume_budget().await;
            }
        };
        let write = async {
            match shared.outbox.write_to(&mut send).await {
                // Nobody calls any more: the callee reads what was told, and then ends the stream.
                Ok(()) => {
                    sleep(LINGER).await;
                    ended_by_peer(&shared)
                }
                Err(error) => failed(&error),
            }
        };
        tokio::pin!(read, write);
        let stopped = shared.service.tasks().cancelled();
        tokio::select! {
            error = &mut read => error,
            error = &mut write => error,
            () = stopped => {
                let error = shared.service.stopped();
                shared.end(&error);
                // What was told before goes out, if the peer reads it soon.
                let _ = timeout(FLUSH, async { tokio::select! { _ = read => {}, _ = write => {} } }).await;
                code = ErrorCode::SHUTTING_DOWN;
                error
            }
        }
    };
    if let RpcError::Decode { .. } = &error {
        tracing::warn!(peer = %peer, %error, "rpc stream broken by its peer");
        code = ErrorCode::STREAM_PROTOCOL;
    }
    shared.end(&error);
    send.reset(code);
    recv.stop(code);
    drop(lease);
}

fn broken(shared: &Shared, reason: String) -> RpcError {
    RpcError::Decode {
        what: format!("stream from {}", shared.address),
        reason,
    }
}

fn ended_by_peer(shared: &Shared) -> RpcError {
    RpcError::Connection {
        address: shared.address.to_string(),
        message: "the peer ended the stream".to_owned(),
        retryable: true,
    }
}

/// How long the callee may take to read what was told last. Then the stream is given up.
const LINGER: Duration = Duration::from_secs(30);
