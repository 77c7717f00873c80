//! The state of one multiplexed connection, and what the peer's frames do to it.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::{
    decoder::Piece,
    frame::{Control, Kind, MAX_WINDOW, Settings},
    growth::{Grants, Growth},
    recv::{RecvHalf, RecvState},
    schedule::Schedule,
    send::{SendHalf, SendState},
    violation::Violation,
};
use crate::error::ErrorCode;

/// Which numbers a side gives its streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Dialled the connection: odd numbers.
    Dialler,
    /// Accepted it: even numbers from 2.
    Acceptor,
}

/// What both sides announced, and the limits of this side's sending.
#[derive(Debug, Clone, Copy)]
pub struct MuxConfig {
    /// What this side announced.
    pub local: Settings,
    /// What the peer announced.
    pub peer: Settings,
    /// Longest data frame that is sent, header included.
    pub frame_bytes: usize,
    /// Bytes that wait per stream before a write has to wait.
    pub queue_bytes: usize,
    /// How this side's receive windows grow beyond what it announced.
    pub growth: Growth,
}

/// Names a stream between this machine and its user, until both of the stream's handles are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(pub(super) usize);

impl Key {
    /// Its place in a table of the user's that runs along; places are used again.
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }
}

/// What happened and may concern someone who waits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A stream has something to read: bytes, its end, or an error.
    Readable(Key),
    /// A stream takes bytes again, or never will.
    Writable(Key),
    /// The peer opened a stream.
    Incoming,
    /// Streams may be opened again.
    MayOpen,
    /// A ping was answered.
    Pong(u64),
    /// The peer ended the connection.
    Closed(ErrorCode, Bytes),
}

/// Numbers since the start, but for the open streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Payload bytes handed to the socket.
    pub bytes_sent: u64,
    /// Payload bytes taken from the socket, those of stopped streams included.
    pub bytes_received: u64,
    /// Streams of both sides that live now.
    pub streams_open: u64,
    /// Streams opened by both sides.
    pub streams_total: u64,
}

/// One side of a multiplexed connection.
///
/// It takes the peer's pieces ([`receive`](Self::receive)) and the user's calls, and gives frames
/// ([`transmit`](Self::transmit)) and events ([`events`](Self::events)).
#[derive(Debug)]
pub struct Mux {
    pub(super) side: Side,
    pub(super) config: MuxConfig,
    pub(super) slots: Vec<Option<Stream>>,
    pub(super) free: Vec<usize>,
    /// Streams that either direction of may still be heard of, by their number on the wire.
    pub(super) ids: BTreeMap<u32, Key>,
    pub(super) local: LocalStreams,
    pub(super) remote: RemoteStreams,
    pub(super) incoming: VecDeque<Key>,
    pub(super) control: VecDeque<Control>,
    pub(super) windows: VecDeque<Key>,
    pub(super) ping: Option<u64>,
    pub(super) pong: Option<u64>,
    pub(super) schedule: Schedule,
    pub(super) grants: Grants,
    pub(super) events: Vec<Event>,
    pub(super) counters: Counters,
}

#[derive(Debug)]
pub(super) struct Stream {
    /// The number on the wire; the peer knows the stream from then on.
    pub(super) id: Option<u32>,
    pub(super) is_local: bool,
    pub(super) send: SendHalf,
    pub(super) recv: RecvHalf,
    pub(super) has_sender: bool,
    pub(super) has_receiver: bool,
    /// Whether the user was told of a stream of the peer's.
    pub(super) presented: bool,
}

/// Streams of this side.
#[derive(Debug, Default)]
pub(super) struct LocalStreams {
    /// Have a number.
    pub(super) announced: u32,
    /// Are open and have none.
    pub(super) pending: u32,
    /// Allowed since the start.
    pub(super) allowed: u32,
    /// An open found the limit reached.
    pub(super) waited: bool,
}

/// Streams of the peer.
#[derive(Debug, Default)]
pub(super) struct RemoteStreams {
    pub(super) seen: u32,
    /// Of those, forgotten.
    pub(super) over: u32,
    /// How many may be open at the same time.
    pub(super) limit: u32,
    /// Announced as allowed since the start.
    pub(super) allowed: u32,
}

/// Where a frame of the peer belongs.
enum Target {
    Live(Key),
    /// A stream that is closed: the frame is late.
    Past,
    /// The next stream of the peer.
    New,
}

impl Mux {
    /// A connection whose SETTINGS were exchanged.
    #[must_use]
    pub fn new(side: Side, config: MuxConfig) -> Self {
        Self {
            side,
            config,
            slots: Vec::new(),
            free: Vec::new(),
            ids: BTreeMap::new(),
            local: LocalStreams {
                allowed: config.peer.streams.min(MAX_STREAMS),
                ..LocalStreams::default()
            },
            remote: RemoteStreams {
                limit: config.local.streams.min(MAX_STREAMS),
                allowed: config.local.streams.min(MAX_STREAMS),
                ..RemoteStreams::default()
            },
            incoming: VecDeque::new(),
            control: VecDeque::new(),
            windows: VecDeque::new(),
            ping: None,
            pong: None,
            schedule: Schedule::default(),
            grants: Grants::default(),
            events: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Takes a piece of what the peer sent.
    ///
    /// # Errors
    /// A [`Violation`]: the connection has to be closed.
    pub fn receive(&mut self, piece: Piece<'_>) -> Result<(), Violation> {
        match piece {
            Piece::Begin {
                stream,
                length,
                fin,
            } => self.receive_begin(stream, length, fin),
            Piece::Data { stream, bytes, end } => {
                self.receive_data(stream, bytes, end);
                Ok(())
            }
            Piece::Control(control) => self.receive_control(control),
        }
    }

    /// Takes out what happened since the last call.
    pub fn events(&mut self) -> std::vec::Drain<'_, Event> {
        self.events.drain(..)
    }

    /// Counters so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let live = self.slots.len() - self.free.len();
        Counters {
            streams_open: live as u64,
            streams_total: u64::from(self.remote.seen)
                + u64::from(self.local.announced)
                + u64::from(self.local.pending),
            ..self.counters
        }
    }

    fn receive_begin(&mut self, id: u32, length: u32, fin: bool) -> Result<(), Violation> {
        let kind = if fin { Kind::DataFin } else { Kind::Data };
        let key = match self.target(id, kind)? {
            Target::Live(key) => key,
            Target::Past => return Ok(()),
            Target::New => {
                if self.remote.seen >= self.remote.allowed {
                    return Err(Violation::StreamLimit {
                        stream: id,
                        limit: self.remote.allowed,
                    });
                }
                self.remote.seen += 1;
                self.insert(Some(id), false)
            }
        };
        match self.stream(key) {
            Some(stream) => stream.recv.begin(id, length),
            None => Ok(()),
        }
    }

    fn receive_data(&mut self, id: u32, bytes: &[u8], end: bool) {
        self.counters.bytes_received += bytes.len() as u64;
        // Looked up for each piece: the stream may have been forgotten, and its place reused, inside a frame.
        let Some(&key) = self.ids.get(&id) else {
            return;
        };
        let Some(stream) = self.stream(key) else {
            return;
        };
        let readable = stream.recv.push(bytes, end);
        if !std::mem::replace(&mut stream.presented, true) {
            self.incoming.push_back(key);
            self.events.push(Event::Incoming);
        } else if readable {
            self.events.push(Event::Readable(key));
        }
    }

    fn receive_control(&mut self, control: Control) -> Result<(), Violation> {
        match control {
            Control::Reset { stream, code } => {
                if let Some(key) = self.known(stream, Kind::Reset)? {
                    self.receive_reset(key, stream, code)?;
                }
            }
            Control::Stop { stream, code } => {
                if let Some(key) = self.known(stream, Kind::Stop)? {
                    self.receive_end_of_send(key, SendState::Stopped(code));
                }
            }
            Control::Window { stream, increment } => {
                if let Some(key) = self.known(stream, Kind::Window)? {
                    self.receive_window(key, stream, increment)?;
                }
            }
            Control::Blocked { stream } => {
                if let Some(key) = self.known(stream, Kind::Blocked)? {
                    self.on_blocked(key);
                }
            }
            Control::Consumed { stream } => {
                if let Some(key) = self.known(stream, Kind::Consumed)? {
                    let sent = self.stream(key).map(|stream| stream.send.state);
                    match sent {
                        Some(SendState::Sent) => {
                            self.receive_end_of_send(key, SendState::Consumed);
                        }
                        Some(SendState::Open | SendState::Finished) => {
                            return Err(Violation::AfterEnd { stream });
                        }
                        _ => {}
                    }
                }
            }
            Control::MaxStreams { count } => {
                let count = count.min(MAX_STREAMS);
                if count > self.local.allowed {
                    self.local.allowed = count;
                    self.may_open();
                }
            }
            Control::Ping { token } => self.pong = Some(token),
            Control::Pong { token } => self.events.push(Event::Pong(token)),
            Control::Close { code, reason } => self.events.push(Event::Closed(code, reason)),
            Control::Settings(_) => return Err(Violation::SecondSettings),
        }
        Ok(())
    }

    fn receive_reset(&mut self, key: Key, id: u32, code: ErrorCode) -> Result<(), Violation> {
        let Some(stream) = self.stream(key) else {
            return Ok(());
        };
        match stream.recv.state {
            RecvState::Open | RecvState::Finished => {
                stream.recv.end(RecvState::Reset(code));
                self.events.push(Event::Readable(key));
                self.retire(key);
                Ok(())
            }
            RecvState::Stopped(_) | RecvState::Ended => Ok(()),
            RecvState::Reset(_) => Err(Violation::AfterEnd { stream: id }),
        }
    }

    fn receive_end_of_send(&mut self, key: Key, state: SendState) {
        let Some(stream) = self.stream(key) else {
            return;
        };
        if !stream.send.is_over() {
            stream.send.end(state);
            self.events.push(Event::Writable(key));
            self.retire(key);
        }
    }

    fn receive_window(&mut self, key: Key, id: u32, increment: u32) -> Result<(), Violation> {
        let Some(stream) = self.stream(key) else {
            return Ok(());
        };
        let window = stream.send.window.checked_add(increment);
        let Some(window) = window.filter(|window| *window <= MAX_WINDOW) else {
            return Err(Violation::WindowIncrement {
                stream: id,
                increment,
            });
        };
        stream.send.window = window;
        stream.send.said_blocked = false;
        self.plan(key);
        Ok(())
    }

    /// The stream of a frame that cannot open one; `None` if it is closed.
    fn known(&self, id: u32, kind: Kind) -> Result<Option<Key>, Violation> {
        match self.target(id, kind)? {
            Target::Live(key) => Ok(Some(key)),
            Target::Past => Ok(None),
            Target::New => Err(Violation::NeverOpened { kind, stream: id }),
        }
    }

    fn target(&self, id: u32, kind: Kind) -> Result<Target, Violation> {
        if let Some(&key) = self.ids.get(&id) {
            return Ok(Target::Live(key));
        }
        let is_local = (id % 2 == 1) == (self.side == Side::Dialler);
        let index = id.saturating_sub(1) / 2;
        let seen = if is_local {
            self.local.announced
        } else {
            self.remote.seen
        };
        if index < seen {
            Ok(Target::Past)
        } else if index == seen && !is_local {
            Ok(Target::New)
        } else {
            Err(Violation::NeverOpened { kind, stream: id })
        }
    }
}

/// Streams that one side can number in 32 bits.
pub(super) const MAX_STREAMS: u32 = (1 << 31) - 2;
