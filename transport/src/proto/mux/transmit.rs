//! What goes out next.

use super::{
    batch::Batch,
    frame::{Control, HEADER_BYTES, Header, Kind},
    machine::{Event, Key, MAX_STREAMS, Mux},
    recv::RecvState,
};

impl Mux {
    /// Whether [`transmit`](Self::transmit) may have something.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.control.is_empty()
            || !self.windows.is_empty()
            || self.ping.is_some()
            || self.pong.is_some()
            || self.streams_to_allow() > self.remote.allowed
            || !self.schedule.is_empty()
    }

    /// Fills an empty batch with up to `budget` bytes: control frames first, then one data frame of each stream in turn,
    /// highest priority first.
    ///
    /// A last data frame is cut so that a batch of many frames is exactly `budget` long: a writer that cuts its stream
    /// into records of a fixed size is left with no short one.
    pub fn transmit(&mut self, batch: &mut Batch, budget: usize) {
        batch.clear();
        self.transmit_control(batch, budget);
        loop {
            let room = budget.saturating_sub(batch.len());
            if room < LEAST_FRAME_BYTES && !batch.is_empty() {
                break;
            }
            let Some((key, ticket)) = self.schedule.pop() else {
                break;
            };
            self.transmit_data(key, ticket, room, batch);
        }
        batch.seal();
    }

    fn transmit_control(&mut self, batch: &mut Batch, budget: usize) {
        let mut put = |control: &Control| batch.put_small(|out| control.encode(out));
        let mut left = budget;
        if let Some(token) = self.pong.take() {
            put(&Control::Pong { token });
        }
        if let Some(token) = self.ping.take() {
            put(&Control::Ping { token });
        }
        while let Some(control) = self.control.front() {
            match left.checked_sub(control.wire_bytes()) {
                Some(rest) => left = rest,
                None => return,
            }
            put(control);
            self.control.pop_front();
        }
        while left > 0
            && let Some(key) = self.windows.pop_front()
        {
            let stream = self.slots.get_mut(key.0).and_then(Option::as_mut);
            let Some(stream) = stream else { continue };
            if let (Some(id), Some(increment)) = (stream.id, stream.recv.announce()) {
                put(&Control::Window {
                    stream: id,
                    increment,
                });
                left = left.saturating_sub(HEADER_BYTES + 4);
            }
        }
        // Behind everything that closed streams left to say: a peer that does not read gets no new streams.
        let count = self.streams_to_allow();
        if left > 0 && count > self.remote.allowed {
            self.remote.allowed = count;
            put(&Control::MaxStreams { count });
        }
    }

    /// A stream that sends anyway tells half as much as is worth a write, and on TLS a record, of its own: an answering
    /// stream, such as one that gives credits, then needs no other. One that is silent tells nothing early, so that it can
    /// still give it back.
    fn transmit_window(&mut self, key: Key, batch: &mut Batch) -> usize {
        let start = self.config.local.window;
        let Some(stream) = self.stream(key) else {
            return 0;
        };
        stream.recv.make_due(stream.recv.update(start) / 2);
        let (Some(id), Some(increment)) = (stream.id, stream.recv.announce()) else {
            return 0;
        };
        let control = Control::Window {
            stream: id,
            increment,
        };
        batch.put_small(|out| control.encode(out));
        control.wire_bytes()
    }

    fn transmit_data(&mut self, key: Key, ticket: u64, room: usize, batch: &mut Batch) {
        let Some(stream) = self.stream(key) else {
            return;
        };
        if stream.send.ticket != Some(ticket) {
            return;
        }
        stream.send.ticket = None;
        if !stream.send.has_output() {
            return;
        }
        let room = room.saturating_sub(self.transmit_window(key, batch));
        let frame = room.min(self.config.frame_bytes).max(HEADER_BYTES + 1);
        let Some(stream) = self.stream(key) else {
            return;
        };
        let (id, is_new) = match stream.id {
            Some(id) => (id, false),
            None => (self.next_id(), true),
        };
        let queue_bytes = self.config.queue_bytes;
        let Some(stream) = self.stream(key) else {
            return;
        };
        let (length, fin) = stream.send.next_frame(frame - HEADER_BYTES);
        let header = Header {
            kind: if fin { Kind::DataFin } else { Kind::Data },
            length: u32::try_from(length).expect("a frame is shorter than 16 MiB"),
            stream: id,
        };
        batch.put_small(|out| out.extend_from_slice(&header.encode()));
        stream.send.take(length, |bytes| batch.put(bytes));
        if fin {
            stream.send.state = super::send::SendState::Sent;
        }
        let writable = stream.send.blocked && stream.send.queued <= queue_bytes / 2;
        stream.send.blocked &= !writable;
        let stopped = match stream.recv.state {
            RecvState::Stopped(code) if is_new => Some(code),
            _ => None,
        };
        if is_new {
            stream.id = Some(id);
            self.ids.insert(id, key);
        }
        self.control
            .extend(stopped.map(|code| Control::Stop { stream: id, code }));
        self.say_blocked(key);
        self.counters.bytes_sent += length as u64;
        if writable {
            self.events.push(Event::Writable(key));
        }
        self.plan(key);
    }

    fn streams_to_allow(&self) -> u32 {
        self.remote
            .over
            .saturating_add(self.remote.limit)
            .min(MAX_STREAMS)
    }
}

/// A batch with less room than this is full: a shorter data frame is not worth its header and its place.
const LEAST_FRAME_BYTES: usize = 512;
