//! What the user of a connection does with its streams.

use bytes::Bytes;
use thiserror::Error;

use super::{
    frame::Control,
    machine::{Event, Key, MAX_STREAMS, Mux, Side, Stream},
    recv::{Read, RecvHalf, RecvState},
    send::{SendHalf, SendState},
};
use crate::error::{ErrorCode, StreamError};

/// Why no stream could be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum OpenError {
    /// The peer's limit is reached; [`Event::MayOpen`] says when it is worth trying again.
    #[error("the peer's limit of streams is reached")]
    Limit,
    /// All numbers were used; only a new connection helps.
    #[error("all stream numbers of the connection are used")]
    Exhausted,
}

impl Mux {
    /// Opens a stream with both of its handles. The peer hears of it with its first frame.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(&mut self) -> Result<Key, OpenError> {
        let opened = self.local.announced + self.local.pending;
        if opened >= MAX_STREAMS {
            return Err(OpenError::Exhausted);
        }
        if opened >= self.local.allowed {
            self.local.waited = true;
            return Err(OpenError::Limit);
        }
        self.local.pending += 1;
        Ok(self.insert(None, true))
    }

    /// Takes the next stream that the peer opened, with both of its handles.
    pub fn accept(&mut self) -> Option<Key> {
        self.incoming.pop_front()
    }

    /// Takes chunks into the stream's queue; `false` if it is full and [`Event::Writable`] has to be waited for.
    ///
    /// # Errors
    /// [`StreamError::Stopped`], [`StreamError::Closed`].
    pub fn write(&mut self, key: Key, chunks: &mut [Bytes]) -> Result<bool, StreamError> {
        let limit = self.config.queue_bytes;
        let stream = self.stream(key).ok_or(StreamError::Closed)?;
        let whole = stream.send.write(chunks, limit)?;
        self.plan(key);
        self.say_blocked(key);
        Ok(whole)
    }

    /// Ends the sending half behind what was written.
    ///
    /// # Errors
    /// [`StreamError::Stopped`], [`StreamError::Closed`].
    pub fn finish(&mut self, key: Key) -> Result<(), StreamError> {
        let stream = self.stream(key).ok_or(StreamError::Closed)?;
        stream.send.finish()?;
        self.plan(key);
        Ok(())
    }

    /// Gives the sending half up. A stream that the peer never heard of is forgotten without a word.
    pub fn reset(&mut self, key: Key, code: ErrorCode) {
        let Some(stream) = self.stream(key) else {
            return;
        };
        if stream.send.is_over() {
            return;
        }
        stream.send.end(SendState::Reset);
        match stream.id {
            Some(id) => self.control.push_back(Control::Reset { stream: id, code }),
            None => stream.recv.end(RecvState::Stopped(code)),
        }
        self.retire(key);
    }

    /// Changes where the stream stands among those that compete.
    pub fn set_priority(&mut self, key: Key, priority: i32) {
        let Some(stream) = self.stream(key) else {
            return;
        };
        if stream.send.priority != priority {
            stream.send.priority = priority;
            stream.send.ticket = None;
            self.plan(key);
        }
    }

    /// What became of the sending half: `None` while it is not known.
    ///
    /// # Errors
    /// [`StreamError::Closed`] after a reset.
    pub fn outcome(&mut self, key: Key) -> Result<Option<Option<ErrorCode>>, StreamError> {
        match self.stream(key).map(|stream| stream.send.state) {
            Some(SendState::Consumed) => Ok(Some(None)),
            Some(SendState::Stopped(code)) => Ok(Some(Some(code))),
            Some(SendState::Open | SendState::Finished | SendState::Sent) => Ok(None),
            Some(SendState::Reset) | None => Err(StreamError::Closed),
        }
    }

    /// The next bytes of a stream, 1 to `max`.
    ///
    /// # Errors
    /// [`StreamError::Reset`] if the peer gave it up, [`StreamError::Closed`] after [`stop`](Self::stop).
    pub fn read(&mut self, key: Key, max: usize) -> Result<Read, StreamError> {
        let stream = self.stream(key).ok_or(StreamError::Closed)?;
        let (read, ended) = stream.recv.read(max)?;
        let id = stream.id;
        self.on_read(key);
        if ended {
            if let Some(stream) = id {
                self.control.push_back(Control::Consumed { stream });
            }
            self.retire(key);
        }
        Ok(read)
    }

    /// Wants no more of the stream; what was not read is dropped.
    pub fn stop(&mut self, key: Key, code: ErrorCode) {
        let Some(stream) = self.stream(key) else {
            return;
        };
        let id = stream.id;
        match stream.recv.state {
            RecvState::Finished if stream.recv.buffered() == 0 => {
                stream.recv.end(RecvState::Ended);
                self.control
                    .extend(id.map(|stream| Control::Consumed { stream }));
            }
            RecvState::Open | RecvState::Finished => {
                // Without a number the word waits for the first frame, see `transmit`.
                stream.recv.end(RecvState::Stopped(code));
                self.control
                    .extend(id.map(|stream| Control::Stop { stream, code }));
            }
            _ => return,
        }
        self.retire(key);
    }

    /// The handle of the sending half is gone: without a finish the half is reset.
    pub fn drop_sender(&mut self, key: Key) {
        let Some(stream) = self.stream(key) else {
            return;
        };
        stream.has_sender = false;
        if stream.send.state == SendState::Open {
            self.reset(key, ErrorCode::DROPPED);
        }
        self.retire(key);
    }

    /// The handle of the receiving half is gone: unless it was read to its end, the half is stopped.
    pub fn drop_receiver(&mut self, key: Key) {
        let Some(stream) = self.stream(key) else {
            return;
        };
        stream.has_receiver = false;
        self.stop(key, ErrorCode::DROPPED);
        self.retire(key);
    }

    /// Raises how many streams the peer may have open at the same time.
    pub fn allow_streams(&mut self, count: u32) {
        self.remote.limit = self.remote.limit.max(count.min(MAX_STREAMS));
    }

    /// Sends a ping; one that still waits is replaced.
    pub fn ping(&mut self, token: u64) {
        self.ping = Some(token);
    }

    /// Frees everything that waits to be sent and, if `unread` too, to be read: the connection is at an end.
    pub fn abandon(&mut self, unread: bool) {
        for stream in self.slots.iter_mut().flatten() {
            stream.send.discard();
            if unread {
                stream.recv.abandon();
            }
        }
        self.schedule.clear();
        self.control.clear();
        self.windows.clear();
        self.ping = None;
        self.pong = None;
    }

    pub(super) fn stream(&mut self, key: Key) -> Option<&mut Stream> {
        self.slots.get_mut(key.0).and_then(Option::as_mut)
    }

    pub(super) fn insert(&mut self, id: Option<u32>, is_local: bool) -> Key {
        let stream = Stream {
            id,
            is_local,
            send: SendHalf::new(self.config.peer.window),
            recv: RecvHalf::new(self.config.local.window),
            has_sender: true,
            has_receiver: true,
            presented: is_local,
        };
        let key = match self.free.pop() {
            Some(free) => {
                self.slots[free] = Some(stream);
                Key(free)
            }
            None => {
                self.slots.push(Some(stream));
                Key(self.slots.len() - 1)
            }
        };
        if let Some(id) = id {
            self.ids.insert(id, key);
        }
        key
    }

    /// Puts a stream that can send and is not in the schedule into it.
    pub(super) fn plan(&mut self, key: Key) {
        let Some(stream) = self.slots.get_mut(key.0).and_then(Option::as_mut) else {
            return;
        };
        if stream.send.ticket.is_none() && stream.send.has_output() {
            stream.send.ticket = Some(self.schedule.push(stream.send.priority, key));
        }
    }

    /// Forgets what is over: the number when both directions are, the rest when the handles are gone too.
    pub(super) fn retire(&mut self, key: Key) {
        self.release_grant(key);
        let Some(stream) = self.stream(key) else {
            return;
        };
        if !stream.send.is_over() || !stream.recv.is_over() {
            return;
        }
        let (id, is_local) = (stream.id, stream.is_local);
        let unused = !stream.has_sender && !stream.has_receiver;
        if let Some(id) = id {
            self.ids.remove(&id);
        }
        if !unused {
            return;
        }
        self.slots[key.0] = None;
        self.free.push(key.0);
        if !is_local {
            self.remote.over += 1;
        } else if id.is_none() {
            self.local.pending -= 1;
            self.may_open();
        }
    }

    /// Tells the peer if a stream has used its window up. One that has no number has used none.
    pub(super) fn say_blocked(&mut self, key: Key) {
        let Some(stream) = self.stream(key) else {
            return;
        };
        if let Some(id) = stream.id
            && stream.send.say_blocked()
        {
            self.control.push_back(Control::Blocked { stream: id });
        }
    }

    pub(super) fn may_open(&mut self) {
        if std::mem::take(&mut self.local.waited) {
            self.events.push(Event::MayOpen);
        }
    }

    /// The number of this side's next stream.
    pub(super) fn next_id(&mut self) -> u32 {
        let first = match self.side {
            Side::Dialler => 1,
            Side::Acceptor => 2,
        };
        let id = first + 2 * self.local.announced;
        self.local.announced += 1;
        self.local.pending -= 1;
        id
    }
}
