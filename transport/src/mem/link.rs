//! One connection: its transitions, and whom they wake.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use tokio::sync::Notify;

use super::state::{End, Reader, Side, State, Writer};
use crate::{
    error::{ConnectionError, ErrorCode, StreamError, sanitize},
    transport::ConnectionStats,
};

/// One connection: the state, and what wakes those who wait for more than one stream.
#[derive(Debug)]
pub(super) struct Link {
    state: Mutex<State>,
    window: usize,
    /// By the side that waits: a stream may be opened again.
    pub(super) may_open: [Notify; 2],
    /// By the side that waits: a stream of the peer is there.
    pub(super) arrived: [Notify; 2],
    /// The connection ended.
    pub(super) ended: Notify,
}

impl Link {
    /// A connection whose streams buffer at most `window` bytes in each direction.
    pub(super) fn new(window: usize) -> Self {
        Self {
            state: Mutex::default(),
            window: window.max(1),
            may_open: Default::default(),
            arrived: Default::default(),
            ended: Notify::new(),
        }
    }

    /// Opens a stream, or gives `None` while the limit is reached. `first_try` counts the wait.
    pub(super) fn try_open(
        &self,
        side: Side,
        first_try: bool,
    ) -> Result<Option<u64>, ConnectionError> {
        let mut state = self.lock();
        state.check(side)?;
        if state.sides[side].open >= state.sides[1 - side].allowed {
            state.sides[side].open_waits += u64::from(first_try);
            return Ok(None);
        }
        Ok(Some(state.open(side)))
    }

    /// The next stream of the peer, if one has arrived.
    pub(super) fn try_accept(&self, side: Side) -> Result<Option<u64>, ConnectionError> {
        let mut state = self.lock();
        state.check(side)?;
        Ok(state.sides[side].arrived.pop_front())
    }

    pub(super) fn allow_streams(&self, side: Side, count: u32) {
        let mut state = self.lock();
        let allowed = &mut state.sides[side].allowed;
        *allowed = count.max(*allowed);
        drop(state);
        self.may_open[1 - side].notify_waiters();
    }

    /// Takes bytes out of `chunks` until all are taken or the window is full.
    pub(super) fn poll_write(
        &self,
        side: Side,
        id: u64,
        chunks: &mut [Bytes],
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), StreamError>> {
        let mut state = self.lock();
        state.check(side)?;
        let window = self.window;
        let pipe = state.pipe(id, side);
        pipe.check_writable()?;
        let mut taken = 0;
        let mut full = false;
        for chunk in chunks {
            while !chunk.is_empty() && !full {
                let piece = chunk.split_to(chunk.len().min(window - pipe.buffered));
                full = piece.is_empty();
                if !full {
                    taken += piece.len();
                    pipe.buffered += piece.len();
                    pipe.chunks.push_back(piece);
                }
            }
        }
        if full {
            pipe.writer_waker = Some(cx.waker().clone());
        }
        if taken > 0 {
            let waker = pipe.reader_waker.take();
            state.sides[side].bytes_sent += taken as u64;
            let shown = state.show(id);
            drop(state);
            wake(waker);
            self.announce(shown);
        }
        if full {
            Poll::Pending
        } else {
            Poll::Ready(Ok(()))
        }
    }

    /// Fills `out` with what is ready, each entry with at most `max` bytes; 0 stands for the end of data.
    pub(super) fn poll_read(
        &self,
        side: Side,
        id: u64,
        max: usize,
        out: &mut [Bytes],
        cx: &mut Context<'_>,
    ) -> Poll<Result<usize, StreamError>> {
        let mut state = self.lock();
        state.check(side)?;
        let pipe = state.pipe(id, 1 - side);
        match (pipe.reader, pipe.writer) {
            (Reader::Stopped(_), _) => return Poll::Ready(Err(StreamError::Closed)),
            (_, Writer::Reset(code)) => {
                pipe.reader = Reader::Done;
                let released = state.settle(id);
                drop(state);
                self.released(released);
                return Poll::Ready(Err(StreamError::Reset { code }));
            }
            (_, Writer::Finished) if pipe.chunks.is_empty() => {
                pipe.reader = Reader::Done;
                let waker = pipe.writer_waker.take();
                let released = state.settle(id);
                drop(state);
                wake(waker);
                self.released(released);
                return Poll::Ready(Ok(0));
            }
            _ if pipe.chunks.is_empty() => {
                pipe.reader_waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            _ => {}
        }
        let mut count = 0;
        let mut bytes = 0;
        for slot in out {
            let Some(first) = pipe.chunks.front_mut() else {
                break;
            };
            *slot = first.split_to(first.len().min(max));
            if first.is_empty() {
                pipe.chunks.pop_front();
            }
            bytes += slot.len();
            count += 1;
        }
        pipe.buffered -= bytes;
        let waker = pipe.writer_waker.take();
        state.sides[side].bytes_received += bytes as u64;
        drop(state);
        wake(waker);
        Poll::Ready(Ok(count))
    }

    pub(super) fn finish(&self, side: Side, id: u64) -> Result<(), StreamError> {
        let mut state = self.lock();
        state.check(side)?;
        let pipe = state.pipe(id, side);
        pipe.check_writable()?;
        pipe.writer = Writer::Finished;
        let waker = pipe.reader_waker.take();
        let shown = state.show(id);
        drop(state);
        wake(waker);
        self.announce(shown);
        Ok(())
    }

    /// Gives the sending half up, unless its end was read already.
    pub(super) fn reset(&self, side: Side, id: u64, code: ErrorCode) {
        let mut state = self.lock();
        let pipe = state.pipe(id, side);
        if pipe.reader == Reader::Done || matches!(pipe.writer, Writer::Reset(_)) {
            return;
        }
        pipe.writer = Writer::Reset(code);
        pipe.discard();
        let waker = pipe.reader_waker.take();
        let shown = state.show(id);
        let released = state.settle(id);
        drop(state);
        wake(waker);
        self.announce(shown);
        self.released(released);
    }

    pub(super) fn stop(&self, side: Side, id: u64, code: ErrorCode) {
        let mut state = self.lock();
        let pipe = state.pipe(id, 1 - side);
        if pipe.reader != Reader::Open {
            return;
        }
        pipe.reader = match pipe.writer {
            Writer::Reset(_) => Reader::Done,
            Writer::Open | Writer::Finished => Reader::Stopped(code),
        };
        pipe.discard();
        let waker = pipe.writer_waker.take();
        let released = state.settle(id);
        drop(state);
        wake(waker);
        self.released(released);
    }

    pub(super) fn poll_stopped(
        &self,
        side: Side,
        id: u64,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<ErrorCode>, StreamError>> {
        let mut state = self.lock();
        state.check(side)?;
        let pipe = state.pipe(id, side);
        match (pipe.writer, pipe.reader) {
            (_, Reader::Stopped(code)) => Poll::Ready(Ok(Some(code))),
            (Writer::Finished, Reader::Done) => Poll::Ready(Ok(None)),
            (Writer::Reset(_), _) => Poll::Ready(Err(StreamError::Closed)),
            _ => {
                pipe.writer_waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The handle of the sending half goes away.
    pub(super) fn drop_send(&self, side: Side, id: u64) {
        let unfinished = self.lock().pipe(id, side).writer == Writer::Open;
        if unfinished {
            self.reset(side, id, ErrorCode::DROPPED);
        }
        self.lock().drop_handle(id);
    }

    /// The handle of the receiving half goes away.
    pub(super) fn drop_recv(&self, side: Side, id: u64) {
        self.stop(side, id, ErrorCode::DROPPED);
        self.lock().drop_handle(id);
    }

    pub(super) fn close(&self, side: Side, code: ErrorCode, reason: &str) {
        self.end(End::Closed {
            by: side,
            code,
            reason: sanitize(reason.as_bytes()),
        });
    }

    pub(super) fn sever(&self, reason: &str) {
        self.end(End::Lost {
            reason: reason.to_owned(),
        });
    }

    /// Why the connection ended, as `side` sees it.
    pub(super) fn error(&self, side: Side) -> Option<ConnectionError> {
        self.lock().check(side).err()
    }

    pub(super) fn stats(&self, side: Side) -> ConnectionStats {
        let state = self.lock();
        let own = &state.sides[side];
        let peer = &state.sides[1 - side];
        ConnectionStats {
            bytes_sent: own.bytes_sent,
            bytes_received: own.bytes_received,
            streams_open: u64::from(own.open) + u64::from(peer.open),
            streams_total: own.opened + peer.opened,
            open_waits: own.open_waits,
            ..ConnectionStats::default()
        }
    }

    /// Ends the connection once, and wakes everybody.
    fn end(&self, end: End) {
        let mut state = self.lock();
        if state.end.is_some() {
            return;
        }
        state.end = Some(end);
        let mut wakers = Vec::new();
        for pipe in state.streams.values_mut().flat_map(|s| &mut s.pipes) {
            pipe.discard();
            wakers.extend(pipe.writer_waker.take());
            wakers.extend(pipe.reader_waker.take());
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        for side in 0..2 {
            self.may_open[side].notify_waiters();
            self.arrived[side].notify_waiters();
        }
        self.ended.notify_waiters();
    }

    fn announce(&self, side: Option<Side>) {
        if let Some(side) = side {
            self.arrived[side].notify_waiters();
        }
    }

    fn released(&self, opener: Option<Side>) {
        if let Some(opener) = opener {
            self.may_open[opener].notify_waiters();
        }
    }

    /// Poisoning is ignored: no transition leaves the state half changed where it could panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
