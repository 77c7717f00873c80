//! What a channel has told its producer that the producer may not have heard.

use super::outbox::Outbox;

/// A producer that does not find its partition has held what came for it, and forgets it with the stream. Until it shows
/// that the partition is there, what it was told is kept, to be told again on the stream of a repeated request.
#[derive(Debug, Default)]
pub(super) struct Told {
    heard: bool,
    outbox: Outbox,
}

impl Told {
    /// Keeps what would have to be repeated of a message that is sent now.
    pub(super) fn remember(&mut self, message: &Outbox) {
        if !self.heard {
            self.outbox.append(message);
        }
    }

    /// The producer has answered with something else than an error. What was kept is to be dropped outside the gate's
    /// lock.
    pub(super) fn on_heard(&mut self) -> Outbox {
        self.heard = true;
        std::mem::take(&mut self.outbox)
    }

    pub(super) fn is_heard(&self) -> bool {
        self.heard
    }

    /// Puts what was told before what is to be told now.
    pub(super) fn repeat(&mut self, outbox: &mut Outbox) {
        self.outbox.move_before(outbox);
    }

    /// What the events cost that are kept.
    pub(super) fn event_bytes(&self) -> usize {
        self.outbox.event_bytes()
    }
}
