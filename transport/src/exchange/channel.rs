//! One channel of a gate: where it gets its items, what is queued, and its credit.

use std::{sync::Arc, task::Waker};

use bytes::Bytes;

use super::{
    buffer::BufferMut,
    channel_queue::ChannelQueue,
    compression::decompress,
    gate_core::GateCore,
    outbox::Outbox,
    told::Told,
    view::{Item, SubpartitionRequest, SubpartitionView},
};
use crate::{
    addr::ConnectionId, error::ErrorCode, proto::ReceiverCredit, stream::BoxSendStream,
    transport::SendStream,
};

/// Where the items of a channel come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelSource {
    /// Not known yet; [`GateHandle::update_channel`](super::GateHandle::update_channel) says it later.
    Unknown,
    /// A partition of this node, read without the network.
    Local(SubpartitionRequest),
    /// A partition of another node.
    Remote {
        /// How that node is reached.
        connection: ConnectionId,
        /// What to request there.
        request: SubpartitionRequest,
    },
}

/// The state of a channel, under the gate's lock.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) source: ChannelSource,
    pub(super) queue: ChannelQueue,
    /// The task of a remote channel, while it waits for the consumer to take events.
    pub(super) receiver: Option<Waker>,
    pub(super) credit: ReceiverCredit,
    /// A local channel's view; absent while the consumer uses it outside the lock.
    pub(super) view: Option<Box<dyn SubpartitionView>>,
    /// The view has priority events, which overtake what is queued here.
    pub(super) overtaken: bool,
    pub(super) in_urgent: bool,
    pub(super) in_ready: bool,
    pub(super) in_waiting: bool,
    pub(super) in_dirty: bool,
    /// Counted among the channels that share the floating buffers.
    pub(super) shares: bool,
    /// A local channel behind a barrier.
    pub(super) blocked: bool,
    /// The credit accounts are closed: buffers go straight back to the pool.
    pub(super) credit_ended: bool,
    /// The consumer has taken the end of the partition.
    pub(super) ended: bool,
    pub(super) control: Control,
    /// Counts the streams that the channel has had: `control` is of the last one.
    pub(super) stream: u32,
    pub(super) outbox: Outbox,
    pub(super) told: Told,
    /// The view of a local channel was opened.
    pub(super) opened: bool,
    /// The consumer has taken the end of data.
    pub(super) end_of_data: bool,
    /// The consumer has acknowledged all records.
    pub(super) acknowledged: bool,
}

impl Channel {
    pub(super) fn new(source: ChannelSource, exclusive: u32, ready: u32) -> Self {
        Self {
            source,
            queue: ChannelQueue::default(),
            receiver: None,
            credit: ReceiverCredit::new(exclusive).with_ready(ready),
            view: None,
            overtaken: false,
            in_urgent: false,
            in_ready: false,
            in_waiting: false,
            in_dirty: false,
            shares: false,
            blocked: false,
            credit_ended: false,
            ended: false,
            control: Control::Detached,
            stream: 0,
            outbox: Outbox::default(),
            told: Told::default(),
            opened: false,
            end_of_data: false,
            acknowledged: false,
        }
    }

    /// Takes items of a local view into the queue. Empty buffers say nothing.
    pub(super) fn extend(&mut self, items: impl IntoIterator<Item = Item>) {
        for item in items {
            if !item.data_type.is_data() || !item.payload.is_empty() {
                self.queue.push(item.data_type, item.payload);
            }
        }
    }
}

/// The sending half of a remote channel's stream.
#[derive(Debug)]
pub(super) enum Control {
    /// There is none: not connected, or ended.
    Detached,
    /// Ready for the next credit.
    Idle(BoxSendStream),
    /// The credit task writes to it.
    Busy,
    /// The credit task writes to it and ends it then.
    Closing(Close),
}

/// How the sending half ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum Close {
    Finish,
    Reset(ErrorCode),
}

impl Close {
    pub(super) fn apply(self, mut send: BoxSendStream) {
        match self {
            // A producer that has stopped reading needs no end.
            Self::Finish => drop(send.finish()),
            Self::Reset(code) => send.reset(code),
        }
    }
}

/// A buffer of a channel on its way from the network through the queue to the consumer and back to the channel.
#[derive(Debug)]
pub(super) struct CreditBuffer {
    buffer: Option<BufferMut>,
    core: Arc<GateCore>,
    channel: usize,
}

impl CreditBuffer {
    pub(super) fn new(buffer: BufferMut, core: Arc<GateCore>, channel: usize) -> Self {
        Self {
            buffer: Some(buffer),
            core,
            channel,
        }
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> usize {
        self.buffer
            .as_mut()
            .map_or(0, |buffer| buffer.append(bytes))
    }

    /// Puts what its bytes decompress to in their place, if they do and it fits. The memory is exchanged for one of the
    /// gate, so that it stays within its account.
    pub(super) fn decompress(&mut self) -> bool {
        let Some(buffer) = &mut self.buffer else {
            return false;
        };
        let mut scratch = self.core.scratch();
        buffer.replace_with(&mut scratch, decompress)
    }

    pub(super) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for CreditBuffer {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], AsRef::as_ref)
    }
}

impl Drop for CreditBuffer {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.core.recycle(self.channel, buffer);
        }
    }
}
