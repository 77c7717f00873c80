//! The callee's end of a gateway stream.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use thalweg_transport::{
    BoxFuture, BoxRecvStream, BoxSendStream, ErrorCode, Peer, PeerStream, RecvStream, SendStream,
    StreamHandler, now,
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{
    budget::{Partial, PeerBudget, Permit},
    error::RpcError,
    frames::{FrameSink, Frames, NoFrames, take_frames},
    gateway::Method,
    handshake::{FLUSH, PRIORITY, READ_BYTES, Rejection, Welcome, encode_error, welcome},
    method_metrics::MethodMetrics,
    outbox::{Company, NotQueued, Outbox},
    pending::Crowd,
    responder::{BoxReply, ReplyPort},
    served::{RemoteCall, ServedGateway},
    service::{RpcService, WeakService},
    sync::lock,
    wire::{Decoder, Frame, Head},
};

/// Serves the gateway streams of peers.
#[derive(Debug)]
pub(super) struct RpcHandler(pub(super) WeakService);

impl StreamHandler for RpcHandler {
    fn handle(&self, stream: PeerStream) -> BoxFuture<'static, ()> {
        match self.0.upgrade() {
            Some(service) => Box::pin(serve(service, stream)),
            None => Box::pin(refuse_stream(stream)),
        }
    }
}

/// One stream, shared with the calls that it brought.
#[derive(Debug)]
struct Session {
    service: RpcService,
    peer: Arc<Peer>,
    address: String,
    metrics: Arc<MethodMetrics>,
    methods: &'static [Method],
    outbox: Outbox,
    calls: Mutex<Calls>,
    budget: Arc<PeerBudget>,
    /// The smaller of both sides' limits.
    max_frame: u32,
    /// The peer does not read its answers.
    overflow: CancellationToken,
}

/// Calls that are served, by their numbers.
#[derive(Debug, Default)]
struct Calls {
    cancelled: HashMap<u64, CancellationToken>,
    crowd: Crowd,
}

async fn refuse_stream(mut stream: PeerStream) {
    stream.send.reset(ErrorCode::SHUTTING_DOWN);
    stream.recv.stop(ErrorCode::SHUTTING_DOWN);
}

async fn serve(service: RpcService, stream: PeerStream) {
    let PeerStream {
        peer,
        mut send,
        mut recv,
        ..
    } = stream;
    send.set_priority(PRIORITY);
    let mut decoder = Decoder::new(service.config().max_frame_size);
    let hello = async {
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => return Ok(frame),
                Ok(None) => match recv.read(READ_BYTES).await {
                    Ok(Some(bytes)) => decoder.push(&bytes),
                    Ok(None) | Err(_) => return Err(ErrorCode::STREAM_PROTOCOL),
                },
                Err(error) => {
                    tracing::debug!(%error, "malformed rpc hello");
                    return Err(ErrorCode::STREAM_PROTOCOL);
                }
            }
        }
    };
    let hello = timeout(HELLO_TIMEOUT, hello)
        .await
        .unwrap_or(Err(ErrorCode::TIMED_OUT));
    let code = match hello {
        Err(code) => code,
        Ok(frame) => match welcome(&service, &frame) {
            Err(Rejection::Protocol) => ErrorCode::STREAM_PROTOCOL,
            Err(Rejection::Refused(error)) => {
                let outbox = Outbox::new(&service.incoming_budget(peer.id.as_str()));
                let _ = outbox.push(Head::Refuse, encode_error(error));
                outbox.close();
                let _ = timeout(FLUSH, outbox.write_to(&mut Some(send))).await;
                return;
            }
            Ok(welcome) => {
                let session = Session::new(service, peer, &welcome);
                let own_max = session.service.config().max_frame_size;
                let head = Head::Welcome {
                    version: welcome.version,
                    max_frame: own_max,
                };
                let _ = session.outbox.push(head, welcome.name.into_bytes());
                return run(&session, welcome.gateway, decoder, send, recv).await;
            }
        },
    };
    if code != ErrorCode::NO_ERROR {
        send.reset(code);
        recv.stop(code);
    }
}

async fn run(
    session: &Arc<Session>,
    gateway: ServedGateway,
    decoder: Decoder,
    send: BoxSendStream,
    mut recv: BoxRecvStream,
) {
    let _end = EndOnDrop(session);
    let mut send = Some(send);
    let code = transfer(session, gateway, decoder, &mut send, &mut recv).await;
    let send = session.outbox.reclaim(send);
    if code != ErrorCode::NO_ERROR {
        if let Some(mut send) = send {
            send.reset(code);
        }
        recv.stop(code);
    }
}

/// Takes requests and sends answers until the stream is of no further use; the code to end it with.
async fn transfer(
    session: &Arc<Session>,
    gateway: ServedGateway,
    decoder: Decoder,
    send: &mut Option<BoxSendStream>,
    recv: &mut BoxRecvStream,
) -> ErrorCode {
    let requests = Requests {
        partial: session.budget.partial(),
        session: Arc::clone(session),
        gateway,
    };
    let requests = Frames::new(requests, decoder);
    let read = async {
        match take_frames(recv, &requests).await {
            NoFrames::Finished => ErrorCode::NO_ERROR,
            NoFrames::Broken(reason) => session.broken(&reason),
            NoFrames::TooManyBegun => {
                tracing::warn!(peer = %session.peer, "peer begins more frames than it may");
                ErrorCode::LIMIT_EXCEEDED
            }
            NoFrames::Failed(_) | NoFrames::Closed => ErrorCode::CANCELLED,
        }
    };
    let write = async {
        match session.outbox.write_to(send).await {
            Ok(()) => ErrorCode::NO_ERROR,
            Err(_) => ErrorCode::CANCELLED,
        }
    };
    tokio::pin!(read, write);
    let code = tokio::select! {
        code = &mut read => code,
        code = &mut write => code,
        () = session.overflow.cancelled() => {
            tracing::warn!(peer = %session.peer, "peer does not read its answers: rpc stream reset");
            ErrorCode::LIMIT_EXCEEDED
        }
        () = session.service.tasks().cancelled() => ErrorCode::SHUTTING_DOWN,
    };
    lock(&requests).close();
    session.end_calls(code == ErrorCode::SHUTTING_DOWN);
    session.outbox.close();
    let gone = matches!(code, ErrorCode::NO_ERROR | ErrorCode::SHUTTING_DOWN);
    if gone && timeout(FLUSH, write).await == Ok(ErrorCode::NO_ERROR) {
        return ErrorCode::NO_ERROR;
    }
    code
}

/// Takes what the caller says.
struct Requests {
    session: Arc<Session>,
    gateway: ServedGateway,
    partial: Partial,
}

impl FrameSink for Requests {
    fn on_frame(&mut self, frame: Frame) -> Result<(), String> {
        self.session.on_frame(&self.gateway, frame)
    }

    fn may_hold(&mut self, bytes: usize) -> bool {
        self.partial.hold(bytes)
    }
}

/// However the task of a stream ends, also dropped with its connection: its calls are given up, and what they still hold
/// of the session keeps no stream.
struct EndOnDrop<'a>(&'a Session);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end_calls(false);
        drop(self.0.outbox.reclaim(None));
    }
}

impl Session {
    fn new(service: RpcService, peer: Peer, welcome: &Welcome) -> Arc<Self> {
        let config = service.config();
        let budget = service.incoming_budget(peer.id.as_str());
        Arc::new(Self {
            outbox: Outbox::new(&budget),
            budget,
            max_frame: welcome.max_frame.min(config.max_frame_size),
            address: welcome.address.clone(),
            metrics: Arc::clone(&welcome.gateway.metrics),
            methods: welcome.gateway.methods,
            calls: Mutex::default(),
            overflow: CancellationToken::new(),
            peer: Arc::new(peer),
            service,
        })
    }

    fn on_frame(self: &Arc<Self>, gateway: &ServedGateway, frame: Frame) -> Result<(), String> {
        match frame.head {
            Head::Request {
                call,
                method,
                context,
                deadline_ms,
            } => {
                let cancelled = CancellationToken::new();
                {
                    let mut calls = lock(&self.calls);
                    if calls.cancelled.insert(call, cancelled.clone()).is_some() {
                        return Err(format!("call {call} is already under way"));
                    }
                    let all = calls.cancelled.len();
                    calls.crowd.joined(all);
                }
                let permit = self.budget.take(frame.body.len());
                let (permit, refused) = match permit {
                    Ok(permit) => (Some(permit), None),
                    Err(error) => (None, Some(error)),
                };
                let started = now();
                let deadline = (deadline_ms > 0)
                    .then(|| started.checked_add(Duration::from_millis(deadline_ms.into())))
                    .flatten();
                let reply: BoxReply = Box::new(RemoteReply {
                    session: Arc::clone(self),
                    call,
                    method,
                    cancelled,
                    started,
                    deadline,
                    answered: false,
                    _permit: permit,
                });
                if let Some(error) = refused {
                    self.service.counters().overloaded.add();
                    reply.answer(Err(error));
                    return Ok(());
                }
                self.service.counters().calls_served.add();
                let _ = gateway.remote().dispatch(RemoteCall {
                    peer: &self.peer,
                    method,
                    context,
                    body: &frame.body,
                    reply: Some(reply),
                });
            }
            Head::Tell { method, context } => {
                let told = gateway.remote().dispatch(RemoteCall {
                    peer: &self.peer,
                    method,
                    context,
                    body: &frame.body,
                    reply: None,
                });
                if let Err(error) = told {
                    self.service.counters().dropped_tells.add();
                    tracing::debug!(peer = %self.peer, %error, "message dropped");
                }
            }
            Head::Cancel { call } => {
                if let Some(cancelled) = lock(&self.calls).cancelled.remove(&call) {
                    cancelled.cancel();
                }
            }
            // Everything before it was handed on by the time this is reached.
            Head::Drain => {
                if self.outbox.push(Head::Drained, Vec::new()) == Err(NotQueued::Full) {
                    self.overflow.cancel();
                }
            }
            other => return Err(format!("unexpected frame {other:?}")),
        }
        Ok(())
    }

    fn answer(&self, reply: &RemoteReply, result: Result<Vec<u8>, RpcError>) {
        let call = reply.call;
        let company = {
            let mut calls = lock(&self.calls);
            if calls.cancelled.remove(&call).is_none() {
                return;
            }
            Company::of(calls.crowd.is_alone())
        };
        let result = result.and_then(|body| {
            if body.len() <= self.max_frame as usize {
                return Ok(body);
            }
            Err(RpcError::TooLarge {
                what: format!("answer of {}", self.method_name(reply.method)),
                size: body.len() as u64,
                limit: u64::from(self.max_frame),
            })
        });
        let result = result.and_then(|body| {
            match self.outbox.push_in(company, Head::Answer { call }, body) {
                Err(NotQueued::Full) => {
                    self.service.counters().overloaded.add();
                    Err(RpcError::Overloaded {
                        what: format!("answers that {} did not read", self.peer.id),
                        limit: self.service.config().max_pending_bytes,
                    })
                }
                Ok(()) | Err(NotQueued::Closed) => Ok(()),
            }
        });
        let took = now().duration_since(reply.started);
        self.metrics
            .ended(reply.method, took, result.as_ref().err());
        if let Err(error) = result
            && self.outbox.push(Head::Error { call }, encode_error(error)) == Err(NotQueued::Full)
        {
            self.overflow.cancel();
        }
    }

    fn method_name(&self, id: u32) -> String {
        self.methods
            .iter()
            .find(|method| method.id == id)
            .map_or_else(|| format!("method {id:#010x}"), ToString::to_string)
    }

    /// Gives the calls up. The callers of a service that closes are told what they would else guess from the end of the
    /// stream: their endpoints have ended, and who drops the last answers may come later than this.
    fn end_calls(&self, tell: bool) {
        let calls = std::mem::take(&mut *lock(&self.calls));
        let mut calls: Vec<_> = calls.cancelled.into_iter().collect();
        calls.sort_unstable_by_key(|(call, _)| *call);
        for (call, cancelled) in calls {
            if tell {
                let error = RpcError::RecipientUnreachable {
                    address: self.address.clone(),
                    reason: format!("the rpc service of node {} is stopped", self.service.id()),
                };
                // A peer that has not read so many answers loses these.
                let _ = self.outbox.push(Head::Error { call }, encode_error(error));
            }
            cancelled.cancel();
        }
    }

    fn broken(&self, reason: &str) -> ErrorCode {
        tracing::warn!(peer = %self.peer, reason, "rpc stream broken by its peer");
        ErrorCode::STREAM_PROTOCOL
    }
}

/// The way back to the caller of one request.
#[derive(Debug)]
struct RemoteReply {
    session: Arc<Session>,
    call: u64,
    method: u32,
    cancelled: CancellationToken,
    started: Instant,
    deadline: Option<Instant>,
    answered: bool,
    _permit: Option<Permit>,
}

impl ReplyPort for RemoteReply {
    fn answer(mut self: Box<Self>, result: Result<Vec<u8>, RpcError>) {
        self.answered = true;
        self.session.answer(&self, result);
    }

    fn cancelled(&self) -> &CancellationToken {
        &self.cancelled
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

impl Drop for RemoteReply {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let late = self.deadline.is_some_and(|deadline| deadline <= now());
        let error = if late {
            RpcError::TimedOut {
                method: self.session.method_name(self.method),
                address: self.session.address.clone(),
                after: Duration::ZERO,
                caller: None,
            }
        } else {
            RpcError::RecipientUnreachable {
                address: self.session.address.clone(),
                reason: "the endpoint terminated before it answered".to_owned(),
            }
        };
        self.session.answer(self, Err(error));
    }
}

/// As for the hello of a connection.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
