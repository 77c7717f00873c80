//! The task of one stream of a gateway, at the caller.

use std::{future::pending, sync::Arc, time::Duration};

use thalweg_transport::{
    ErrorCode, Lease, PeerStream, RecvStream, SendStream, StreamError, TransportError,
};
use tokio::time::{sleep, timeout};

use super::{
    error::RpcError,
    frames::{FrameSink, Frames, NoFrames, take_frames},
    handshake::{FLUSH, Opened},
    lane::{Lane, Settled},
    link::Shared,
    wire::Frame,
};

/// Fails the calls also when the task is dropped with its runtime, even before it began.
pub(super) struct EndOnDrop {
    shared: Arc<Shared>,
    lane: Arc<Lane>,
    ended: bool,
}

impl EndOnDrop {
    pub(super) fn new(shared: Arc<Shared>, lane: Arc<Lane>) -> Self {
        Self {
            shared,
            lane,
            ended: false,
        }
    }

    fn end(&mut self, error: &RpcError) {
        self.ended = true;
        self.shared.end(&self.lane, error);
    }
}

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        // Clients that live on keep the lane, but not its stream.
        drop(self.lane.outbox.reclaim(None));
        if !self.ended {
            let error = RpcError::Connection {
                address: self.shared.address.to_string(),
                message: "this node's network has shut down".to_owned(),
                retryable: false,
            };
            self.shared.end(&self.lane, &error);
        }
    }
}

/// Takes what the callee says.
struct Answers {
    shared: Arc<Shared>,
    lane: Arc<Lane>,
}

impl FrameSink for Answers {
    fn on_frame(&mut self, frame: Frame) -> Result<(), String> {
        if self.lane.on_frame(frame)? == Settled::Late {
            self.shared.service.counters().late_answers.add();
        }
        Ok(())
    }
}

/// Reads and writes the stream to its end, or for a moment longer than the gateway lives, then fails every call that
/// still waits. Moves the gateway to another connection when its own is drained. Writes nothing before the callee has
/// handed on what was sent on the lane that this one comes after.
pub(super) async fn run(mut guard: EndOnDrop, opened: Opened, after: Option<Arc<Lane>>) {
    let (shared, lane) = (Arc::clone(&guard.shared), Arc::clone(&guard.lane));
    let Opened {
        lease,
        stream,
        decoder,
        ..
    } = opened;
    let PeerStream {
        peer,
        send,
        mut recv,
        ..
    } = stream;
    let mut send = Some(send);
    let failed = |error: &StreamError| {
        RpcError::connection(&shared.address, &TransportError::from_stream(&peer, error))
    };
    let mut code = ErrorCode::NO_ERROR;
    let error = {
        let answers = Answers {
            shared: Arc::clone(&shared),
            lane: Arc::clone(&lane),
        };
        let answers = Frames::new(answers, decoder);
        let read = async {
            match take_frames(&mut recv, &answers).await {
                NoFrames::Broken(reason) => broken(&shared, reason),
                NoFrames::Failed(error) => failed(&error),
                NoFrames::Finished | NoFrames::TooManyBegun | NoFrames::Closed => {
                    ended_by_peer(&shared)
                }
            }
        };
        let write = async {
            if let Some(before) = &after {
                before.drained.cancelled().await;
            }
            match lane.outbox.write_to(&mut send).await {
                // Nobody calls any more: the callee reads what was told, and then ends the stream.
                Ok(()) => {
                    sleep(LINGER).await;
                    ended_by_peer(&shared)
                }
                Err(error) => failed(&error),
            }
        };
        tokio::pin!(read, write);
        tokio::select! {
            error = &mut read => error,
            error = &mut write => error,
            error = move_when_drained(&shared, &lane, &lease) => error,
            () = shared.gone.cancelled() => {
                // Another stream's end is the gateway's. What is under way on this one has a moment to arrive, unless it
                // would come after a gap.
                if after.as_ref().is_none_or(|before| before.drained.is_cancelled()) {
                    let _ = timeout(FLUSH, async { tokio::select! { _ = read => {}, _ = write => {} } }).await;
                }
                shared.lost()
            }
            () = shared.service.tasks().cancelled() => {
                let error = shared.service.stopped();
                guard.end(&error);
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
    guard.end(&error);
    let mut send = lane.outbox.reclaim(send);
    if let Some(send) = &mut send {
        send.reset(code);
    }
    recv.stop(code);
    // Before the lease: what is left of the stream must not keep the connection.
    drop((send, recv));
    drop(lease);
}

/// Waits until the connection is drained and moves the gateway to a new one. Comes back only if the callee does not
/// say in time that it has handed on what was sent before.
///
/// While no new connection can be made, the old one serves: until it ends, which ends the gateway. For a gateway that
/// nobody uses any more none is looked for.
async fn move_when_drained(shared: &Arc<Shared>, lane: &Arc<Lane>, lease: &Lease) -> RpcError {
    lease.draining().await;
    let moving = shared
        .released
        .run_until_cancelled(move_away(shared, lane, lease));
    if moving.await.is_none() {
        return pending().await;
    }
    shared.service.counters().gateways_moved.add();
    tracing::debug!(address = %shared.address, "moved a gateway to a new connection");
    if timeout(DRAIN_LIMIT, lane.drained.cancelled())
        .await
        .is_err()
    {
        return RpcError::Connection {
            address: shared.address.to_string(),
            message: format!(
                "the peer did not hand on what it was sent within {} s, while its connection was drained",
                DRAIN_LIMIT.as_secs()
            ),
            retryable: true,
        };
    }
    pending().await
}

/// Tries until the gateway sends on another connection.
async fn move_away(shared: &Arc<Shared>, lane: &Arc<Lane>, lease: &Lease) {
    let mut pause = FIRST_PAUSE;
    loop {
        let limit = shared.service.config().ask_timeout;
        let problem = match timeout(limit, shared.open_another()).await {
            // Where only the address is known, another node may listen there by now.
            Ok(Ok(opened)) if opened.lease.peer().id != lease.peer().id => {
                format!("{} listens there now", opened.lease.peer())
            }
            Ok(Ok(opened)) => {
                if shared.move_to(opened, lane) {
                    return;
                }
                "no room to say so, or nobody uses it".to_owned()
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {limit:?}"),
        };
        tracing::debug!(address = %shared.address, problem, "a gateway stays on its old connection");
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
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

/// How long the callee may take to read what was sent before a move; calls wait behind it meanwhile. A peer that reads at
/// all does so within a round trip. Less than `LINGER`, which would tell less.
const DRAIN_LIMIT: Duration = Duration::from_secs(20);

/// Pause before another attempt to reach the peer on a new connection; doubles up to the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The old connection serves meanwhile, for as long as connections live: there is no hurry.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
