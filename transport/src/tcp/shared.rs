//! What the handles and the two tasks of a connection share.

use std::{
    fmt, io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::failure::of_socket;
use crate::{
    clock::now,
    error::{ConnectionError, ErrorCode, sanitize},
    identity::PeerIdentity,
    landing::{SharedLanding, land_one},
    proto::mux::{Batch, Control, Decoder, Event, Key, Liveness, Mux, Passing, Piece, Verdict},
    transport::ConnectionStats,
};

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Cancelled when the connection has ended.
    pub(super) ended: CancellationToken,
    /// The peer opened a stream, or the connection ended.
    pub(super) incoming: Notify,
    /// Streams may be opened again, or the connection ended.
    pub(super) may_open: Notify,
    pub(super) remote: SocketAddr,
    pub(super) peer: PeerIdentity,
    /// Counts the connection among those of its transport.
    _open: Arc<()>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) mux: Mux,
    pub(super) end: Option<ConnectionError>,
    /// The last frame, if the end is one that the peer should hear of.
    goodbye: Option<Control>,
    liveness: Liveness,
    pub(super) open_waits: u64,
    waiting: Vec<Waiting>,
    writer: Option<Waker>,
    /// To be woken when the lock is released.
    woken: Vec<Waker>,
    incoming: bool,
    may_open: bool,
}

/// Who waits for a stream. The index is that of the stream's [`Key`].
#[derive(Debug, Default)]
struct Waiting {
    reader: Option<Waker>,
    writer: Option<Waker>,
    landing: Place,
}

/// Whether what comes for a stream has a place to land.
#[derive(Default)]
pub(super) enum Place {
    #[default]
    None,
    Open(SharedLanding),
    /// The landing wanted no more, which its task does not know yet.
    Paused,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Open(_) => "Open",
            Self::Paused => "Paused",
        })
    }
}

impl Shared {
    pub(super) fn new(
        mux: Mux,
        liveness: Liveness,
        remote: SocketAddr,
        peer: PeerIdentity,
        open: Arc<()>,
    ) -> Self {
        Self {
            state: Mutex::new(State {
                mux,
                end: None,
                goodbye: None,
                liveness,
                open_waits: 0,
                waiting: Vec::new(),
                writer: None,
                woken: Vec::new(),
                incoming: false,
                may_open: false,
            }),
            ended: CancellationToken::new(),
            incoming: Notify::new(),
            may_open: Notify::new(),
            remote,
            peer,
            _open: open,
        }
    }

    /// Runs `f` under the lock, then wakes whom its effects concern.
    ///
    /// Wakers run after the lock is released: dropping or waking one may run code that takes it.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = f(&mut state);
        // Only `receive` meets a CLOSE, and has taken it by now.
        state.take_events();
        let incoming = std::mem::take(&mut state.incoming);
        let may_open = std::mem::take(&mut state.may_open);
        let mut woken = std::mem::take(&mut state.woken);
        if state.mux.has_output() {
            woken.extend(state.writer.take());
        }
        drop(state);
        for waker in woken {
            waker.wake();
        }
        if incoming {
            self.incoming.notify_waiters();
        }
        if may_open {
            self.may_open.notify_waiters();
        }
        result
    }

    /// Takes what was read. `false` if the connection is at an end.
    ///
    /// Landings are called without the lock, since they wake consumers.
    pub(super) fn receive(&self, decoder: &mut Decoder, mut input: &[u8]) -> bool {
        let mut landed = None;
        let closing = loop {
            match self.with(|state| state.receive(decoder, &mut input, landed.take())) {
                Received::All => break None,
                Received::Ending(ending) => break Some(ending),
                Received::Landing {
                    passing,
                    bytes,
                    landing,
                } => landed = Some((passing, land_one(&landing, bytes))),
            }
        };
        if let Some(ending) = closing {
            self.end(ending.error, ending.goodbye);
        }
        !self.ended.is_cancelled()
    }

    /// Ends the connection, unless it has ended; wakes everyone.
    pub(super) fn end(&self, error: ConnectionError, goodbye: Option<(ErrorCode, String)>) {
        let first = self.with(|state| {
            if state.end.is_some() {
                return false;
            }
            tracing::debug!(peer = %self.remote, %error, "connection ended");
            // What came before the peer's end can still be read; after one of our own nobody wants it.
            state.mux.abandon(error.is_local());
            state.end = Some(error);
            state.goodbye = goodbye.map(|(code, reason)| Control::Close {
                code,
                reason: Bytes::from(reason),
            });
            let State {
                waiting,
                woken,
                writer,
                ..
            } = state;
            for waiting in waiting {
                woken.extend(waiting.reader.take());
                woken.extend(waiting.writer.take());
            }
            woken.extend(writer.take());
            true
        });
        if first {
            self.ended.cancel();
            self.incoming.notify_waiters();
            self.may_open.notify_waiters();
        }
    }

    /// Ends the connection from this side.
    pub(super) fn close(&self, code: ErrorCode, reason: &str) {
        let reason = sanitize(reason.as_bytes());
        self.end(
            ConnectionError::ClosedLocally {
                code,
                reason: reason.clone(),
            },
            Some((code, reason)),
        );
    }

    /// Ends the connection because of a limit.
    pub(super) fn time_out(&self, reason: String) {
        self.end(
            ConnectionError::TimedOut {
                reason: reason.clone(),
            },
            Some((ErrorCode::TIMED_OUT, reason)),
        );
    }

    /// Ends the connection because the socket failed.
    pub(super) fn fail(&self, error: io::Error) {
        self.end(of_socket(error), None);
    }

    /// Pings or gives up, as the time demands; the time until it has to be asked again.
    pub(super) fn check_liveness(&self, idle_timeout: Duration) -> Duration {
        let now = now();
        let (verdict, deadline) = self.with(|state| {
            let verdict = state.liveness.poll(now);
            if let (Verdict::Ping(token), None) = (verdict, &state.end) {
                state.mux.ping(token);
            }
            (verdict, state.liveness.next_deadline())
        });
        if verdict == Verdict::Dead {
            self.time_out(format!("nothing was heard for {idle_timeout:?}"));
        }
        deadline.saturating_duration_since(now)
    }

    /// The writer's next batch; `false` at the connection's end.
    pub(super) fn poll_batch(
        &self,
        cx: &mut Context<'_>,
        batch: &mut Batch,
        budget: usize,
    ) -> Poll<bool> {
        self.with(|state| {
            if state.end.is_some() {
                return Poll::Ready(false);
            }
            state.writer = None;
            state.mux.transmit(batch, budget);
            if !batch.is_empty() {
                return Poll::Ready(true);
            }
            state.writer = Some(cx.waker().clone());
            Poll::Pending
        })
    }

    pub(super) fn take_goodbye(&self) -> Option<Control> {
        self.with(|state| state.goodbye.take())
    }

    pub(super) fn end_reason(&self) -> Option<ConnectionError> {
        self.with(|state| state.end.clone())
    }

    pub(super) fn stats(&self) -> ConnectionStats {
        self.with(|state| {
            let counters = state.mux.counters();
            ConnectionStats {
                bytes_sent: counters.bytes_sent,
                bytes_received: counters.bytes_received,
                streams_open: counters.streams_open,
                streams_total: counters.streams_total,
                open_waits: state.open_waits,
                rtt: state.liveness.rtt(),
                ..ConnectionStats::default()
            }
        })
    }
}

/// Held by each task of a connection: a task that is dropped or panics takes the connection with it, so that nobody
/// waits for ever for a runtime that is gone.
#[derive(Debug)]
pub(super) struct TaskGuard(pub(super) Arc<Shared>);

impl Drop for TaskGuard {
    fn drop(&mut self) {
        if !self.0.ended.is_cancelled() {
            let reason = "the connection's task was stopped".to_owned();
            self.0.end(ConnectionError::Lost { reason }, None);
        }
    }
}

/// How far [`State::receive`] got.
enum Received<'a> {
    All,
    Ending(Ending),
    /// These bytes are to be handed over before it goes on.
    Landing {
        passing: Passing,
        bytes: &'a [u8],
        landing: SharedLanding,
    },
}

/// An end that the peer's frames caused.
struct Ending {
    error: ConnectionError,
    goodbye: Option<(ErrorCode, String)>,
}

impl State {
    /// Takes pieces, until one has a place to land. `landed` is what has become of the last such piece.
    fn receive<'a>(
        &mut self,
        decoder: &mut Decoder,
        input: &mut &'a [u8],
        landed: Option<(Passing, bool)>,
    ) -> Received<'a> {
        match landed {
            None if self.end.is_none() => self.liveness.on_received(now()),
            None => return Received::All,
            Some((passing, goes_on)) => {
                if self.mux.passed(passing) && !goes_on {
                    self.pause(passing.key);
                }
                if self.end.is_some() {
                    return Received::All;
                }
            }
        }
        loop {
            let result = match decoder.piece(input) {
                Ok(Some(Piece::Data { stream, bytes, end })) => {
                    if let Some((key, landing)) = self.landing_of(stream) {
                        return Received::Landing {
                            passing: Passing {
                                key,
                                stream,
                                length: bytes.len(),
                                end,
                            },
                            bytes,
                            landing,
                        };
                    }
                    self.mux.receive(Piece::Data { stream, bytes, end })
                }
                Ok(Some(piece)) => self.mux.receive(piece),
                Ok(None) => return Received::All,
                Err(violation) => Err(violation),
            };
            if let Err(violation) = result {
                let reason = violation.to_string();
                return Received::Ending(Ending {
                    error: ConnectionError::Protocol {
                        reason: reason.clone(),
                    },
                    goodbye: Some((ErrorCode::PROTOCOL, reason)),
                });
            }
            // CLOSE ends the connection here: what follows it is not looked at.
            if let Some(ending) = self.take_events() {
                return Received::Ending(ending);
            }
        }
    }

    fn landing_of(&mut self, stream: u32) -> Option<(Key, SharedLanding)> {
        let key = self.mux.may_pass(stream)?;
        match &self.waiting.get(key.index())?.landing {
            Place::Open(landing) => Some((key, landing.clone())),
            Place::None | Place::Paused => None,
        }
    }

    /// What comes for the stream lands there from now on, until it is paused.
    pub(super) fn set_landing(&mut self, key: Key, landing: &SharedLanding) {
        self.waiting(key).landing = Place::Open(landing.clone());
    }

    /// Takes the place away; whether it was paused.
    pub(super) fn end_landing(&mut self, key: Key) -> bool {
        matches!(
            std::mem::take(&mut self.waiting(key).landing),
            Place::Paused
        )
    }

    fn pause(&mut self, key: Key) {
        let Some(waiting) = self.waiting.get_mut(key.index()) else {
            return;
        };
        // Its task may have left.
        if let Place::Open(_) = waiting.landing {
            waiting.landing = Place::Paused;
            self.woken.extend(waiting.reader.take());
        }
    }

    /// Leaves a waker for when the stream can be read. Call under the lock after a read found nothing.
    pub(super) fn wait_readable(&mut self, key: Key, cx: &Context<'_>) {
        let old = self.waiting(key).reader.replace(cx.waker().clone());
        self.drop_later(old, cx);
    }

    /// Leaves a waker for when the stream takes bytes or its fate is known.
    pub(super) fn wait_writable(&mut self, key: Key, cx: &Context<'_>) {
        let old = self.waiting(key).writer.replace(cx.waker().clone());
        self.drop_later(old, cx);
    }

    fn waiting(&mut self, key: Key) -> &mut Waiting {
        if self.waiting.len() <= key.index() {
            self.waiting.resize_with(key.index() + 1, Waiting::default);
        }
        &mut self.waiting[key.index()]
    }

    /// A waker of another task is woken rather than dropped under the lock; one of the same task is just a count.
    fn drop_later(&mut self, old: Option<Waker>, cx: &Context<'_>) {
        self.woken
            .extend(old.filter(|old| !old.will_wake(cx.waker())));
    }

    /// Turns the machine's events into wakers and, for CLOSE, the end.
    fn take_events(&mut self) -> Option<Ending> {
        let Self {
            mux,
            liveness,
            waiting,
            woken,
            incoming,
            may_open,
            ..
        } = self;
        let mut ending = None;
        for event in mux.events() {
            match event {
                Event::Readable(key) => {
                    let waiting = waiting.get_mut(key.index());
                    woken.extend(waiting.and_then(|waiting| waiting.reader.take()));
                }
                Event::Writable(key) => {
                    let waiting = waiting.get_mut(key.index());
                    woken.extend(waiting.and_then(|waiting| waiting.writer.take()));
                }
                Event::Incoming => *incoming = true,
                Event::MayOpen => *may_open = true,
                Event::Pong(token) => liveness.on_pong(now(), token),
                Event::Closed(code, reason) => {
                    let reason = sanitize(&reason);
                    ending.get_or_insert(Ending {
                        error: ConnectionError::ClosedByPeer { code, reason },
                        goodbye: None,
                    });
                }
            }
        }
        ending
    }
}
