//! The receiving half of a stream.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::violation::Violation;
use crate::error::{ErrorCode, StreamError};

/// What a read gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// The next bytes, never empty.
    Chunk(Bytes),
    /// The peer finished, and everything was read.
    End,
    /// Nothing yet.
    Blocked,
}

/// State of a receiving half.
///
/// ```text
/// Open --DATA_FIN--> Finished --last byte read--> Ended
///   \___________________\----RESET-------------> Reset
///    \___________________\---stop--------------> Stopped
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecvState {
    Open,
    /// The end has come, and is not read yet.
    Finished,
    Ended,
    Reset(ErrorCode),
    Stopped(ErrorCode),
}

#[derive(Debug)]
pub(super) struct RecvHalf {
    pub(super) state: RecvState,
    chunks: VecDeque<Bytes>,
    /// Small pieces, laid together behind `chunks`.
    tail: BytesMut,
    buffered: usize,
    /// Bytes that the peer may still send.
    pub(super) window: u32,
    /// What its window may be beyond that of the start.
    pub(super) granted: u32,
    /// The sender was blocked, and has not been answered.
    pub(super) is_blocked: bool,
    /// It was once, and the reader waited for it.
    pub(super) asked: bool,
    /// Bytes read, or granted, since the last WINDOW frame.
    pub(super) unannounced: u32,
    /// A WINDOW frame is due.
    pub(super) due: bool,
}

impl RecvHalf {
    pub(super) fn new(window: u32) -> Self {
        Self {
            state: RecvState::Open,
            chunks: VecDeque::new(),
            tail: BytesMut::new(),
            buffered: 0,
            window,
            granted: 0,
            is_blocked: false,
            asked: false,
            unannounced: 0,
            due: false,
        }
    }

    /// Nothing more is wanted from the peer in this direction.
    pub(super) fn is_over(&self) -> bool {
        matches!(
            self.state,
            RecvState::Ended | RecvState::Reset(_) | RecvState::Stopped(_)
        )
    }

    /// A data frame begins. Its whole length is taken off the window before any of it is kept.
    pub(super) fn begin(&mut self, stream: u32, length: u32) -> Result<(), Violation> {
        match self.state {
            RecvState::Open => {}
            RecvState::Stopped(_) => return Ok(()),
            _ => return Err(Violation::AfterEnd { stream }),
        }
        self.window = self
            .window
            .checked_sub(length)
            .ok_or(Violation::WindowExceeded {
                stream,
                length,
                window: self.window,
            })?;
        Ok(())
    }

    /// Keeps a copy of payload; whether a reader that found nothing finds something now.
    pub(super) fn push(&mut self, bytes: &[u8], end: bool) -> bool {
        if self.state != RecvState::Open {
            return false;
        }
        let was_empty = self.buffered == 0;
        self.buffered += bytes.len();
        if bytes.len() < SMALL_BYTES {
            self.tail.extend_from_slice(bytes);
            if self.tail.len() >= TAIL_BYTES {
                self.end_tail();
            }
        } else {
            self.end_tail();
            self.chunks.push_back(Bytes::copy_from_slice(bytes));
        }
        if end {
            self.state = RecvState::Finished;
        }
        was_empty
    }

    /// The next bytes, at most `max`. The second value says that the end was reached with this read.
    pub(super) fn read(&mut self, max: usize) -> Result<(Read, bool), StreamError> {
        match self.state {
            RecvState::Open | RecvState::Finished => {}
            RecvState::Ended => return Ok((Read::End, false)),
            RecvState::Reset(code) => return Err(StreamError::Reset { code }),
            RecvState::Stopped(_) => return Err(StreamError::Closed),
        }
        let read = match self.pop(max.max(1)) {
            Some(chunk) => {
                self.buffered -= chunk.len();
                if self.state == RecvState::Open {
                    let length =
                        u32::try_from(chunk.len()).expect("a chunk fits the stream's window");
                    self.unannounced += length;
                }
                Read::Chunk(chunk)
            }
            None if self.state == RecvState::Finished => Read::End,
            None => return Ok((Read::Blocked, false)),
        };
        let ended = self.state == RecvState::Finished && self.buffered == 0;
        if ended {
            self.end(RecvState::Ended);
        }
        Ok((read, ended))
    }

    /// How much is worth a WINDOW frame, if the window began at `start`.
    pub(super) fn update(&self, start: u32) -> u32 {
        start.saturating_add(self.granted) / WINDOW_UPDATES
    }

    /// Makes a WINDOW frame due if there is enough to tell; whether it was not before.
    pub(super) fn make_due(&mut self, update: u32) -> bool {
        let is_due = self.state == RecvState::Open && self.unannounced >= update.max(1);
        is_due && !std::mem::replace(&mut self.due, true)
    }

    /// Grants more, to be told at once; whether a WINDOW frame was not due before.
    pub(super) fn grow(&mut self, more: u32) -> bool {
        self.granted += more;
        self.unannounced += more;
        self.make_due(1)
    }

    /// Gives back what was read and not announced, down to a grant of `share`; how much.
    pub(super) fn give_back(&mut self, share: u32) -> u32 {
        let back = self.granted.saturating_sub(share).min(self.unannounced);
        self.granted -= back;
        self.unannounced -= back;
        back
    }

    /// The increment of a WINDOW frame that is due.
    pub(super) fn announce(&mut self) -> Option<u32> {
        let due = std::mem::take(&mut self.due);
        if !due || self.state != RecvState::Open {
            return None;
        }
        let increment = std::mem::take(&mut self.unannounced);
        self.window += increment;
        (increment > 0).then_some(increment)
    }

    /// Ends the half and frees what was not read.
    pub(super) fn end(&mut self, state: RecvState) {
        self.state = state;
        self.discard();
    }

    /// Frees what was not read, at the connection's end. A half that was not read to its end has none any more: what is
    /// missing would go unnoticed.
    pub(super) fn abandon(&mut self) {
        if self.state == RecvState::Finished && self.buffered > 0 {
            self.state = RecvState::Open;
        }
        self.discard();
    }

    /// Frees what was not read.
    pub(super) fn discard(&mut self) {
        self.chunks = VecDeque::new();
        self.tail = BytesMut::new();
        self.buffered = 0;
        self.due = false;
    }

    pub(super) fn buffered(&self) -> usize {
        self.buffered
    }

    fn pop(&mut self, max: usize) -> Option<Bytes> {
        if self.chunks.is_empty() {
            self.end_tail();
        }
        let front = self.chunks.front_mut()?;
        if front.len() > max {
            Some(front.split_to(max))
        } else {
            self.chunks.pop_front()
        }
    }

    fn end_tail(&mut self) {
        if !self.tail.is_empty() {
            self.chunks
                .push_back(std::mem::take(&mut self.tail).freeze());
        }
    }
}

/// Below this pieces are laid together, so that the queue's own entries stay small beside what they hold.
const SMALL_BYTES: usize = 4 * 1024;

/// Small pieces are handed out together from here on.
const TAIL_BYTES: usize = 16 * 1024;

/// A stream's window is raised whenever this part of it was read. A quarter: 42 buffers of credit (1.3 MiB) under way
/// and an unannounced quarter still fit a window of 2 MiB, so that credits bind first.
const WINDOW_UPDATES: u32 = 4;
