//! The sending half of a stream.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::error::{ErrorCode, StreamError};

/// State of a sending half.
///
/// ```text
/// Open --finish--> Finished --last frame--> Sent --CONSUMED--> Consumed
///   \________________\_______________________\----STOP------> Stopped
///    \________________\----reset-----------------------------> Reset
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendState {
    Open,
    /// The end is known, and not sent yet.
    Finished,
    /// The end is sent.
    Sent,
    Consumed,
    Stopped(ErrorCode),
    Reset,
}

#[derive(Debug)]
pub(super) struct SendHalf {
    pub(super) state: SendState,
    queue: VecDeque<Bytes>,
    pub(super) queued: usize,
    /// Bytes that the peer will take now.
    pub(super) window: u32,
    pub(super) priority: i32,
    /// The valid entry in the schedule.
    pub(super) ticket: Option<u64>,
    /// A write found the queue full.
    pub(super) blocked: bool,
    /// The peer was told that its window is used up.
    pub(super) said_blocked: bool,
}

impl SendHalf {
    pub(super) fn new(window: u32) -> Self {
        Self {
            state: SendState::Open,
            queue: VecDeque::new(),
            queued: 0,
            window,
            priority: 0,
            ticket: None,
            blocked: false,
            said_blocked: false,
        }
    }

    /// Nothing more goes from this side to the peer, and nothing more is heard about what went.
    pub(super) fn is_over(&self) -> bool {
        matches!(
            self.state,
            SendState::Consumed | SendState::Stopped(_) | SendState::Reset
        )
    }

    /// Whether a frame could be sent now.
    pub(super) fn has_output(&self) -> bool {
        match self.state {
            SendState::Open => self.queued > 0 && self.window > 0,
            SendState::Finished => self.queued == 0 || self.window > 0,
            _ => false,
        }
    }

    /// Takes chunks while the queue is shorter than `limit`; whether all were taken.
    pub(super) fn write(
        &mut self,
        chunks: &mut [Bytes],
        limit: usize,
    ) -> Result<bool, StreamError> {
        self.check_open()?;
        for chunk in chunks {
            if chunk.is_empty() {
                continue;
            }
            let room = limit.saturating_sub(self.queued);
            if room == 0 {
                self.blocked = true;
                return Ok(false);
            }
            let part = chunk.split_to(room.min(chunk.len()));
            self.queued += part.len();
            self.queue.push_back(part);
            if !chunk.is_empty() {
                self.blocked = true;
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn finish(&mut self) -> Result<(), StreamError> {
        self.check_open()?;
        self.state = SendState::Finished;
        Ok(())
    }

    fn check_open(&self) -> Result<(), StreamError> {
        match self.state {
            SendState::Open => Ok(()),
            SendState::Stopped(code) => Err(StreamError::Stopped { code }),
            _ => Err(StreamError::Closed),
        }
    }

    /// Ends the half without sending what is queued.
    pub(super) fn end(&mut self, state: SendState) {
        self.state = state;
        self.discard();
    }

    /// Frees what is queued.
    pub(super) fn discard(&mut self) {
        self.queue = VecDeque::new();
        self.queued = 0;
        self.ticket = None;
    }

    /// Whether the peer has to be told that its window is used up; true once for each time.
    pub(super) fn say_blocked(&mut self) -> bool {
        let is_open = matches!(self.state, SendState::Open | SendState::Finished);
        let is_blocked = is_open && self.window == 0 && self.queued > 0;
        is_blocked && !std::mem::replace(&mut self.said_blocked, true)
    }

    /// How long the next frame may be, and whether it ends the half.
    pub(super) fn next_frame(&self, max: usize) -> (usize, bool) {
        let length = self.queued.min(max).min(self.window as usize);
        let fin = self.state == SendState::Finished && length == self.queued;
        (length, fin)
    }

    /// Hands out `length` bytes of the queue, slice by slice, and takes them off the window.
    pub(super) fn take(&mut self, length: usize, mut put: impl FnMut(Bytes)) {
        self.queued -= length;
        let spent = u32::try_from(length).expect("a frame is never longer than the window");
        self.window -= spent;
        let mut left = length;
        while left > 0 {
            let Some(front) = self.queue.front_mut() else {
                return;
            };
            if front.len() > left {
                put(front.split_to(left));
                return;
            }
            left -= front.len();
            if let Some(whole) = self.queue.pop_front() {
                put(whole);
            }
        }
    }
}
