//! Credits: one data buffer may be sent for one buffer that the receiver already holds.
//!
//! The rules are those of Flink's credit-based flow control: only data costs credit, an event passes at zero credit
//! when it is next in order, every buffer tells how many data buffers wait behind it (the backlog), and a channel asks
//! for floating buffers until it holds the backlog plus its exclusive buffers.

use thiserror::Error;

use super::data_type::DataType;

/// The producer's side of one subpartition stream.
///
/// ```text
///             on_sent(blocking event)
///   Sending ─────────────────────────► Blocked
///      ▲                                  │
///      └──────────── on_resume ───────────┘
/// ```
#[derive(Debug, Clone)]
pub struct SenderCredit {
    initial: u32,
    credit: u32,
    sequence: u32,
    blocked: bool,
    announced: bool,
}

impl SenderCredit {
    /// Starts with the credit of the request.
    #[must_use]
    pub fn new(initial: u32) -> Self {
        Self {
            initial,
            credit: initial,
            sequence: 0,
            blocked: false,
            announced: false,
        }
    }

    /// Data buffers that may be sent now; 0 while blocked.
    #[must_use]
    pub fn available(&self) -> u32 {
        if self.blocked { 0 } else { self.credit }
    }

    /// Whether a blocking event was sent and no resume came since: then not even events may be sent.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Takes credit from the consumer.
    ///
    /// # Errors
    /// [`CreditViolation::Overflow`] if the sum leaves 32 bits.
    pub fn on_add_credit(&mut self, credit: u32) -> Result<(), CreditViolation> {
        self.credit = self
            .credit
            .checked_add(credit)
            .ok_or(CreditViolation::Overflow {
                held: self.credit,
                added: credit,
            })?;
        self.announced = false;
        Ok(())
    }

    /// Takes the consumer's resume. A resume of a stream that is not blocked changes nothing.
    ///
    /// Without exclusive buffers the consumer gave its buffers away when it was blocked, so no credit survives.
    pub fn on_resume(&mut self) {
        if self.blocked && self.initial == 0 {
            self.credit = 0;
        }
        self.blocked = false;
        self.announced = false;
    }

    /// Accounts an item that is sent now and gives its sequence number.
    ///
    /// # Errors
    /// [`CreditViolation::NoCredit`] for data without credit, and for anything while blocked: a mistake of the caller.
    pub fn on_sent(&mut self, data_type: DataType) -> Result<u32, CreditViolation> {
        let sequence = self.sequence;
        if self.blocked {
            return Err(CreditViolation::NoCredit { sequence });
        }
        if data_type.is_data() {
            self.credit = self
                .credit
                .checked_sub(1)
                .ok_or(CreditViolation::NoCredit { sequence })?;
        }
        self.blocked = data_type.is_blocking();
        self.sequence = sequence.wrapping_add(1);
        Ok(sequence)
    }

    /// The backlog as the consumer is to hear it: 0 while blocked.
    #[must_use]
    pub fn reported_backlog(&self, backlog: u32) -> u32 {
        if self.blocked { 0 } else { backlog }
    }

    /// Whether the consumer has to be told that data waits: it gave no initial credit, none is left, and it has not
    /// been told since it last gave some.
    pub fn poll_announcement(&mut self, backlog: u32) -> Option<u32> {
        let due = self.initial == 0
            && self.credit == 0
            && backlog > 0
            && !self.blocked
            && !self.announced;
        self.announced |= due;
        due.then_some(backlog)
    }
}

/// The consumer's side of one channel.
///
/// Its buffers are either *free* (promised to the sender or not yet announced) or *filled* (queued, or held by the
/// consumer): `unannounced + outstanding + filled = exclusive + floating` at all times.
#[derive(Debug, Clone)]
pub struct ReceiverCredit {
    exclusive: u32,
    floating: u32,
    free: u32,
    unannounced: u32,
    required: u32,
    /// What a channel in use holds at least, if the gate has it.
    ready: u32,
    sequence: u32,
    blocked: bool,
}

impl ReceiverCredit {
    /// A channel that holds its exclusive buffers and tells them to the sender in the request.
    #[must_use]
    pub fn new(exclusive: u32) -> Self {
        Self {
            exclusive,
            floating: 0,
            free: exclusive,
            unannounced: 0,
            required: exclusive,
            ready: 0,
            sequence: 0,
            blocked: false,
        }
    }

    /// From its first data on the channel wants so many free buffers, however short the backlog is.
    ///
    /// A sender that keeps up has no backlog, and so few buffers that each one has to be announced by itself. Enough of
    /// them let credit come, and data go, several at a time.
    #[must_use]
    pub fn with_ready(mut self, buffers: u32) -> Self {
        self.ready = buffers;
        self
    }

    /// Credit that the sender may still use.
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.free - self.unannounced
    }

    /// Free buffers that the sender has not been told of.
    #[must_use]
    pub fn unannounced(&self) -> u32 {
        self.unannounced
    }

    /// Free buffers that the channel holds.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Floating buffers that the channel holds, free or filled.
    #[must_use]
    pub fn floating(&self) -> u32 {
        self.floating
    }

    /// Data buffers that the sender has announced beyond the exclusive ones, and that have not come.
    #[must_use]
    pub fn expected(&self) -> u32 {
        self.required.saturating_sub(self.exclusive)
    }

    /// Buffers with data, queued or held by the consumer.
    #[must_use]
    pub fn filled(&self) -> u32 {
        self.exclusive + self.floating - self.free
    }

    /// Accounts the header of a data buffer; the channel's buffer is filled from now on.
    ///
    /// # Errors
    /// [`CreditViolation::Sequence`], [`CreditViolation::WhileBlocked`], or [`CreditViolation::NoCredit`]; nothing
    /// changes then.
    pub fn on_data(&mut self, sequence: u32, backlog: u32) -> Result<(), CreditViolation> {
        self.check(sequence)?;
        if self.outstanding() == 0 {
            return Err(CreditViolation::NoCredit { sequence });
        }
        self.sequence = sequence.wrapping_add(1);
        self.free -= 1;
        self.on_backlog(backlog);
        self.required = self.required.max(self.ready);
        Ok(())
    }

    /// Accounts the header of an event. Gives how many free floating buffers the channel no longer holds: all of them
    /// at a blocking event if it has no exclusive ones, because the producer forgets its credit then.
    ///
    /// # Errors
    /// As [`on_data`](Self::on_data), but for credit.
    pub fn on_event(
        &mut self,
        data_type: DataType,
        sequence: u32,
        backlog: u32,
    ) -> Result<u32, CreditViolation> {
        self.check(sequence)?;
        self.sequence = sequence.wrapping_add(1);
        self.on_backlog(backlog);
        if !data_type.is_blocking() {
            return Ok(0);
        }
        self.blocked = true;
        if self.exclusive > 0 {
            return Ok(0);
        }
        let released = self.free;
        self.floating -= released;
        (self.free, self.unannounced, self.required) = (0, 0, 0);
        Ok(released)
    }

    /// Takes the sender's backlog. However large it is, buffers come only from what the gate has.
    pub fn on_backlog(&mut self, backlog: u32) {
        if !self.blocked {
            self.required = backlog.saturating_add(self.exclusive);
        }
    }

    /// Floating buffers that the channel wants, at most `share` held at a time.
    #[must_use]
    pub fn wanted(&self, share: u32) -> u32 {
        let missing = self.required.saturating_sub(self.free);
        missing.min(share.saturating_sub(self.floating))
    }

    /// Takes floating buffers.
    pub fn on_floating(&mut self, count: u32) {
        self.floating += count;
        self.free += count;
        self.unannounced += count;
    }

    /// The consumer gave a filled buffer back.
    ///
    /// The channel keeps it and has one more credit to announce, unless it has enough, or others wait: then it gives a
    /// floating buffer back and its credit does not change.
    pub fn on_recycled(&mut self, others_wait: bool) -> Recycled {
        if self.floating > 0 && (others_wait || self.free >= self.required) {
            self.floating -= 1;
            return Recycled::Floating;
        }
        self.free += 1;
        self.unannounced += 1;
        Recycled::Kept
    }

    /// The credit to announce now, if any; it is outstanding from then on.
    ///
    /// Announcements wait until half of the channel's buffers, or 8, have come together. `idle` says that the consumer
    /// has nothing queued: then whatever there is goes out before the sender's credit is short, so that the threshold
    /// can never be what both sides wait for.
    pub fn poll_announcement(&mut self, idle: bool) -> Option<u32> {
        let threshold = ((self.exclusive + self.floating) / 2).clamp(1, MAX_UNANNOUNCED);
        let due = self.unannounced >= threshold
            || (idle && self.unannounced > 0 && self.outstanding() < threshold);
        due.then(|| std::mem::take(&mut self.unannounced))
    }

    /// Whether a blocking event came and the consumer has not resumed.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// The consumer goes on after a blocking event.
    pub fn on_resume(&mut self) {
        self.blocked = false;
    }

    /// The channel ended: gives how many free buffers it no longer holds. Filled ones come back one by one.
    pub fn on_end(&mut self) -> u32 {
        let free = std::mem::take(&mut self.free);
        let from_floating = free.min(self.floating);
        self.floating -= from_floating;
        self.exclusive -= free - from_floating;
        (self.unannounced, self.required) = (0, 0);
        free
    }

    fn check(&self, sequence: u32) -> Result<(), CreditViolation> {
        if sequence != self.sequence {
            return Err(CreditViolation::Sequence {
                expected: self.sequence,
                received: sequence,
            });
        }
        if self.blocked {
            return Err(CreditViolation::WhileBlocked { sequence });
        }
        Ok(())
    }
}

/// What becomes of a buffer that the consumer gave back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recycled {
    /// The channel holds it; it is credit to announce.
    Kept,
    /// It goes back to the gate.
    Floating,
}

/// Floating buffers that one of `active` channels may hold out of a gate's `total`.
///
/// About two thirds of all for a lone channel, twice the even share among several, but 8 where there are as many. With
/// 64 floating buffers: 40, then 16 each for eight channels, 8 each for many.
#[must_use]
pub fn floating_share(total: u32, active: u32) -> u32 {
    let most = (total.saturating_mul(5) / 8).max(1);
    let least = total.clamp(1, MAX_UNANNOUNCED).min(most);
    (total.saturating_mul(2) / active.max(1)).clamp(least, most)
}

/// The peer broke the rules of credit or order; its stream is reset, its connection lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CreditViolation {
    /// Data without a buffer for it.
    #[error("buffer {sequence} came without credit")]
    NoCredit {
        /// Its sequence number.
        sequence: u32,
    },
    /// Credit beyond 32 bits.
    #[error("credit overflows: {held} held, {added} added")]
    Overflow {
        /// Before.
        held: u32,
        /// What came.
        added: u32,
    },
    /// An item is missing or repeated.
    #[error("buffer out of order: expected {expected}, received {received}")]
    Sequence {
        /// The next in order.
        expected: u32,
        /// What came.
        received: u32,
    },
    /// An item after a blocking event and before the resume.
    #[error("buffer {sequence} came while the channel is blocked")]
    WhileBlocked {
        /// Its sequence number.
        sequence: u32,
    },
}

/// Most credit that is held back to be announced together.
const MAX_UNANNOUNCED: u32 = 8;

#[cfg(test)]
mod tests;
