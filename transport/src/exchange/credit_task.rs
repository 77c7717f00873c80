//! The one task of a gate that tells its producers of free buffers, resumes and whatever else it has for them.

use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinSet;

use super::{
    channel::{Close, Control},
    gate_core::GateCore,
    gate_state::GateState,
    outbox::Outbox,
};
use crate::{
    error::{ErrorCode, StreamError},
    stream::BoxSendStream,
    transport::SendStream,
};

/// Sends what channels have to say until the gate is cancelled, by its consumer or its node.
///
/// A write that has to wait is set aside, so that a producer that does not read delays no other.
pub(super) async fn send_credit(core: Arc<GateCore>) {
    let mut waiting = JoinSet::new();
    loop {
        while let Some((of, mut send, frames)) = next_message(&core) {
            let mut write = Box::pin(async move {
                let result = send.write(&mut [frames]).await;
                (of, send, result)
            });
            // A future that is ready wins; `yield_now` would give the thread away.
            tokio::select! {
                biased;
                (of, send, result) = &mut write => core.return_control(of, send, result),
                () = std::future::ready(()) => { waiting.spawn(write); }
            }
        }
        tokio::select! {
            biased;
            () = core.cancel.cancelled() => break,
            Some(done) = waiting.join_next() => {
                if let Ok((of, send, result)) = done {
                    core.return_control(of, send, result);
                }
            }
            () = core.credit_wake.notified() => {}
        }
    }
    // The node may have cancelled the gate: its consumer must hear of it.
    core.fail(core.cancelled());
    // Dropping the rest resets their streams; the reading halves are stopped by their own tasks.
    waiting.shutdown().await;
}

fn next_message(core: &GateCore) -> Option<(StreamOf, BoxSendStream, Bytes)> {
    let (of, send, mut outbox) = take_outbox(&mut core.lock())?;
    if outbox.credit > 0 {
        core.counters.on_credit_sent(outbox.credit);
    }
    // Outside the lock: a task event may be the last slice of one of the gate's own buffers.
    Some((of, send, outbox.take_frames()))
}

/// A channel, and which of its streams is meant.
#[derive(Debug, Clone, Copy)]
struct StreamOf {
    channel: usize,
    stream: u32,
}

fn take_outbox(state: &mut GateState) -> Option<(StreamOf, BoxSendStream, Outbox)> {
    state.due_credit = 0;
    while let Some(index) = state.dirty.pop() {
        let channel = &mut state.channels[index];
        channel.in_dirty = false;
        if channel.outbox.is_empty() {
            continue;
        }
        match std::mem::replace(&mut channel.control, Control::Busy) {
            Control::Idle(send) => {
                let of = StreamOf {
                    channel: index,
                    stream: channel.stream,
                };
                let message = std::mem::take(&mut channel.outbox);
                channel.told.remember(&message);
                return Some((of, send, message));
            }
            other => channel.control = other,
        }
    }
    None
}

impl GateCore {
    /// A remote channel's request is out: its sending half is ready for credit. What an earlier one still writes goes
    /// its own way.
    pub(super) fn attach_control(&self, index: usize, send: BoxSendStream) {
        let mut state = self.lock();
        if state.closed {
            drop(state);
            Close::Reset(ErrorCode::CANCELLED).apply(send);
            return;
        }
        let channel = &mut state.channels[index];
        channel.stream = channel.stream.wrapping_add(1);
        channel.control = Control::Idle(send);
        channel.told.repeat(&mut channel.outbox);
        let dirty = state.set_dirty(index);
        drop(state);
        self.wake_credit(dirty);
    }

    /// The stream is at its end.
    pub(super) fn detach_control(&self, index: usize, close: Close) {
        let mut state = self.lock();
        let control = &mut state.channels[index].control;
        let send = match std::mem::replace(control, Control::Detached) {
            Control::Idle(send) => Some(send),
            Control::Busy => {
                *control = Control::Closing(close);
                None
            }
            // The first end stays.
            Control::Closing(first) => {
                *control = Control::Closing(first);
                None
            }
            Control::Detached => None,
        };
        drop(state);
        if let Some(send) = send {
            close.apply(send);
        }
    }

    fn return_control(&self, of: StreamOf, send: BoxSendStream, result: Result<(), StreamError>) {
        let index = of.channel;
        let mut state = self.lock();
        if state.channels[index].stream != of.stream {
            // Its request was answered and repeated meanwhile: nobody listens at its other end.
            drop(state);
            drop(send);
            return;
        }
        let control = &mut state.channels[index].control;
        match std::mem::replace(control, Control::Detached) {
            Control::Closing(close) => {
                drop(state);
                close.apply(send);
            }
            // The reading half hears why and tells the gate.
            _ if result.is_err() => {
                drop(state);
                drop(send);
            }
            _ => {
                *control = Control::Idle(send);
                let dirty = state.set_dirty(index);
                drop(state);
                self.wake_credit(dirty);
            }
        }
    }
}
