//! Payload that goes past a stream's queue, straight to whoever waits for it.

use super::{
    frame::Control,
    machine::{Event, Key, Mux},
    recv::RecvState,
};

/// Payload that somebody else took instead of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passing {
    /// The stream.
    pub key: Key,
    /// Its number: the place that the key names may be another stream's by the time the bytes are taken.
    pub stream: u32,
    /// Payload bytes.
    pub length: usize,
    /// Whether the sender's half ends with them.
    pub end: bool,
}

impl Mux {
    /// The stream of a data piece if its payload may go past the queue: nothing that came before it waits there.
    #[must_use]
    pub fn may_pass(&self, stream: u32) -> Option<Key> {
        let key = *self.ids.get(&stream)?;
        let found = self.slots.get(key.index()).and_then(Option::as_ref)?;
        let open = found.recv.state == RecvState::Open && found.recv.buffered() == 0;
        (open && found.presented).then_some(key)
    }

    /// Counts payload as received and read. `false` if the stream was given up meanwhile, which has its end then.
    pub fn passed(&mut self, passing: Passing) -> bool {
        self.counters.bytes_received += passing.length as u64;
        let key = passing.key;
        let Some(stream) = self.stream(key) else {
            return false;
        };
        if stream.id != Some(passing.stream) || stream.recv.state != RecvState::Open {
            return false;
        }
        let length = u32::try_from(passing.length).expect("a piece fits the stream's window");
        stream.recv.unannounced += length;
        if passing.end {
            stream.recv.end(RecvState::Ended);
            self.control.push_back(Control::Consumed {
                stream: passing.stream,
            });
            self.events.push(Event::Readable(key));
        }
        self.on_read(key);
        if passing.end {
            self.retire(key);
        }
        true
    }
}
