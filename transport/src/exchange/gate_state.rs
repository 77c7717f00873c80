//! The state of a gate under its lock: who is ready, who waits for floating buffers, who has credit to send.

use std::{collections::VecDeque, task::Waker};

use super::{
    buffer::BufferMut,
    channel::{Channel, Control},
    error::ExchangeError,
    gate_core::GateCore,
};
use crate::proto::{debloat::ThroughputMeter, floating_share};

/// What the lock guards.
#[derive(Debug, Default)]
pub(super) struct GateState {
    pub(super) channels: Vec<Channel>,
    /// Channels with a priority event, in turn, before the others. They may be in `ready` as well.
    pub(super) urgent: VecDeque<usize>,
    /// Channels with something to take, in turn.
    pub(super) ready: VecDeque<usize>,
    /// Channels that want floating buffers and got none, in turn.
    pub(super) waiting: VecDeque<usize>,
    /// Channels with something to send.
    pub(super) dirty: Vec<usize>,
    /// Credit that came due since the credit task last looked.
    pub(super) due_credit: u32,
    /// The credit task is woken for so much of it, and for less when the consumer waits: a wake-up and a packet for
    /// each single buffer cost a third of what the buffers themselves do.
    pub(super) credit_batch: u32,
    /// The free buffers of all channels together.
    pub(super) free: Vec<BufferMut>,
    /// One floating buffer that the gate keeps while nobody wants it: with it a gate gets on whatever the pool has left.
    pub(super) spare: Option<BufferMut>,
    /// Channels that hold or want floating buffers.
    pub(super) sharing: u32,
    pub(super) ended: usize,
    pub(super) waker: Option<Waker>,
    pub(super) error: Option<ExchangeError>,
    pub(super) closed: bool,
    pub(super) requested: bool,
    /// Measures the consumer, where the size of buffers follows it.
    pub(super) meter: Option<ThroughputMeter>,
}

impl GateState {
    /// The consumer found something, or nothing.
    pub(super) fn measure(&mut self, found: bool) {
        match &mut self.meter {
            Some(meter) if found => meter.on_busy(crate::now()),
            Some(meter) => meter.on_idle(crate::now()),
            None => {}
        }
    }

    /// Takes the channel whose turn it is.
    pub(super) fn next_ready(&mut self) -> Option<usize> {
        if let Some(index) = self.urgent.pop_front() {
            self.channels[index].in_urgent = false;
            return Some(index);
        }
        let index = self.ready.pop_front()?;
        self.channels[index].in_ready = false;
        Some(index)
    }

    /// Puts the channel in line, before others if it has a priority event. Whether it was not there before.
    pub(super) fn set_available(&mut self, index: usize) -> bool {
        let channel = &mut self.channels[index];
        let urgent = channel.queue.has_priority() || (channel.overtaken && !channel.blocked);
        if !urgent || channel.ended {
            return self.set_ready(index);
        }
        if channel.in_urgent {
            return false;
        }
        channel.in_urgent = true;
        self.urgent.push_back(index);
        true
    }

    /// Whether the channel was not in line before.
    fn set_ready(&mut self, index: usize) -> bool {
        let channel = &mut self.channels[index];
        if channel.in_ready || channel.ended {
            return false;
        }
        channel.in_ready = true;
        self.ready.push_back(index);
        true
    }

    /// Puts the channel in line for the credit task if it has something due. Whether that task must be woken.
    pub(super) fn announce(&mut self, index: usize) -> bool {
        let channel = &mut self.channels[index];
        let starved = channel.credit.outstanding() == 0;
        let credit = channel.credit.poll_announcement(channel.queue.is_empty());
        if let Some(credit) = credit {
            channel.outbox.credit += credit;
            self.due_credit += credit;
        }
        let queued = self.set_dirty(index);
        // A producer without credit may be what the consumer waits for elsewhere, so it is never kept waiting.
        let wake = self.waker.is_some() || self.due_credit >= self.credit_batch;
        !self.dirty.is_empty() && (wake || (queued && starved && credit.is_some()))
    }

    /// Puts the channel in line for the credit task. Whether it is there, so that the task has to be woken.
    pub(super) fn set_dirty(&mut self, index: usize) -> bool {
        let channel = &mut self.channels[index];
        if channel.outbox.is_empty() || !matches!(channel.control, Control::Idle(_)) {
            return false;
        }
        if !channel.in_dirty {
            channel.in_dirty = true;
            self.dirty.push(index);
        }
        true
    }

    /// Takes the floating buffers that the channel wants and that there are; puts it in line for the rest.
    pub(super) fn want_floating(&mut self, index: usize, core: &GateCore) -> bool {
        let share = self.share(index, core.floating);
        let mut wanted = self.channels[index].credit.wanted(share);
        let mut got = 0;
        while wanted > 0 {
            let taken = self.spare.take();
            let Some(buffer) = taken.or_else(|| core.pool.try_request().ok().flatten()) else {
                break;
            };
            self.free.push(buffer);
            (wanted, got) = (wanted - 1, got + 1);
        }
        let channel = &mut self.channels[index];
        channel.credit.on_floating(got);
        if wanted > 0 && !channel.in_waiting {
            channel.in_waiting = true;
            self.waiting.push_back(index);
        }
        self.update_sharing(index);
        let wake = self.announce(index);
        // The producer waits for these; only what the consumer gives back comes several at a time.
        wake || (got > 0 && self.set_dirty(index))
    }

    /// Gives a buffer to the channel that has waited longest, or back to the pool through `surplus` if none waits.
    pub(super) fn offer(&mut self, buffer: BufferMut, surplus: &mut Vec<BufferMut>) -> bool {
        while let Some(index) = self.waiting.pop_front() {
            let channel = &mut self.channels[index];
            channel.in_waiting = false;
            if channel.credit_ended || channel.credit.wanted(u32::MAX) == 0 {
                self.update_sharing(index);
                continue;
            }
            channel.credit.on_floating(1);
            self.free.push(buffer);
            if self.channels[index].credit.wanted(u32::MAX) > 0 {
                self.channels[index].in_waiting = true;
                self.waiting.push_back(index);
            }
            self.update_sharing(index);
            return self.announce(index);
        }
        if self.spare.is_none() {
            self.spare = Some(buffer);
        } else {
            surplus.push(buffer);
        }
        false
    }

    /// Closes the credit accounts of a channel; its free buffers go to channels that wait.
    pub(super) fn end_credit_and_offer(
        &mut self,
        index: usize,
        surplus: &mut Vec<BufferMut>,
    ) -> bool {
        let mut dirty = false;
        for buffer in self.end_credit(index) {
            dirty |= self.offer(buffer, surplus);
        }
        dirty
    }

    /// Closes the credit accounts of a channel; gives its free buffers.
    pub(super) fn end_credit(&mut self, index: usize) -> Vec<BufferMut> {
        let channel = &mut self.channels[index];
        if channel.credit_ended {
            return Vec::new();
        }
        channel.credit_ended = true;
        channel.outbox.credit = 0;
        let count = channel.credit.on_end() as usize;
        self.update_sharing(index);
        self.free.split_off(self.free.len().saturating_sub(count))
    }

    fn share(&self, index: usize, floating: u32) -> u32 {
        let joins = u32::from(!self.channels[index].shares);
        floating_share(floating, self.sharing + joins)
    }

    fn update_sharing(&mut self, index: usize) {
        let channel = &mut self.channels[index];
        let shares = !channel.credit_ended && (channel.in_waiting || channel.credit.floating() > 0);
        match (channel.shares, shares) {
            (false, true) => self.sharing += 1,
            (true, false) => self.sharing -= 1,
            _ => {}
        }
        channel.shares = shares;
    }
}
