//! One stream of a gateway: what waits to be written on it, and the calls that were sent on it.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{
    budget::{PeerBudget, Permit},
    error::RpcError,
    handshake::read_error,
    outbox::{Company, NotQueued, Outbox},
    pending::PendingCalls,
    sync::lock,
    wire::{Frame, Head},
};

/// A stream as its callers see it. A gateway has one at a time to send on; older ones live on for the answers.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) outbox: Outbox,
    calls: Mutex<Calls>,
    /// Cancelled when the callee has handed on everything that was sent before the end of sending.
    pub(super) drained: CancellationToken,
    /// The smaller of both sides' limits.
    pub(super) max_frame: u32,
}

#[derive(Debug)]
struct Calls {
    pending: PendingCalls<Waiter>,
    /// New calls go to another stream.
    retired: bool,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) answer: oneshot::Sender<Result<Bytes, RpcError>>,
    pub(super) _permit: Permit,
}

/// What became of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    InTime,
    /// Nobody waited for it: its caller has given up, or it was never asked for.
    Late,
}

impl Lane {
    pub(super) fn new(budget: &Arc<PeerBudget>, max_frame: u32) -> Self {
        Self {
            outbox: Outbox::new(budget),
            calls: Mutex::new(Calls {
                pending: PendingCalls::new(),
                retired: false,
            }),
            drained: CancellationToken::new(),
            max_frame,
        }
    }

    /// Numbers a call, which is pending from now on, and says whether others are, too.
    pub(super) fn issue(&self, waiter: Waiter) -> (u64, Company) {
        let mut calls = lock(&self.calls);
        let call = calls.pending.issue(waiter);
        (call, Company::of(calls.pending.is_alone()))
    }

    /// A call is settled or given up; the waiter, if it was not before.
    pub(super) fn complete(&self, call: u64) -> Option<Waiter> {
        let (waiter, is_done) = {
            let mut calls = lock(&self.calls);
            let waiter = calls.pending.complete(call);
            (waiter, calls.retired && calls.pending.is_empty())
        };
        if is_done {
            self.outbox.close();
        }
        waiter
    }

    /// Gives a call up, and tells the callee.
    pub(super) fn cancel(&self, call: u64) {
        let waiter = lock(&self.calls).pending.complete(call);
        if waiter.is_some() {
            // A full outbox drops it: the callee then finds out at the deadline.
            let _ = self.outbox.push(Head::Cancel { call }, Vec::new());
        }
        drop(waiter);
        self.complete(call);
    }

    /// Takes a frame of the callee.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn on_frame(&self, frame: Frame) -> Result<Settled, String> {
        let (call, result) = match frame.head {
            Head::Answer { call } => (call, Ok(frame.body)),
            Head::Error { call } => (call, Err(read_error(&frame.body))),
            Head::Drained if lock(&self.calls).retired => {
                self.drained.cancel();
                return Ok(Settled::InTime);
            }
            other => return Err(format!("unexpected frame {other:?}")),
        };
        Ok(match self.complete(call) {
            Some(waiter) => {
                let _ = waiter.answer.send(result);
                Settled::InTime
            }
            None => Settled::Late,
        })
    }

    /// Asks the callee to say when it has handed on everything before this, which is the last but for cancels.
    ///
    /// # Errors
    /// [`NotQueued`]; the lane is as before then.
    pub(super) fn retire(&self) -> Result<(), NotQueued> {
        self.outbox.push(Head::Drain, Vec::new())?;
        let is_done = {
            let mut calls = lock(&self.calls);
            calls.retired = true;
            calls.pending.is_empty()
        };
        if is_done {
            self.outbox.close();
        }
        Ok(())
    }

    /// The stream has ended: fails every call that still waits.
    pub(super) fn end(&self, error: &RpcError) {
        self.outbox.close();
        let waiters = lock(&self.calls).pending.drain();
        for waiter in waiters {
            let _ = waiter.answer.send(Err(error.clone()));
        }
    }
}
