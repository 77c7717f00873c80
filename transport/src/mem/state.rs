//! What the two sides of a connection share, and the rules that hold over it.

use std::{
    collections::{HashMap, VecDeque},
    task::Waker,
};

use bytes::Bytes;

use crate::error::{ConnectionError, ErrorCode, StreamError};

/// Which end of the connection: the one that dialled is 0, the one that accepted is 1.
pub(super) type Side = usize;

/// Everything about a connection that either side can change.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) end: Option<End>,
    pub(super) sides: [SideState; 2],
    pub(super) streams: HashMap<u64, Stream>,
    next_stream: u64,
}

/// How it ended.
#[derive(Debug, Clone)]
pub(super) enum End {
    Closed {
        by: Side,
        code: ErrorCode,
        reason: String,
    },
    Lost {
        reason: String,
    },
}

/// What belongs to one side.
#[derive(Debug)]
pub(super) struct SideState {
    /// How many streams this side lets its peer have open.
    pub(super) allowed: u32,
    /// How many streams this side has open now, of those it opened.
    pub(super) open: u32,
    pub(super) opened: u64,
    pub(super) open_waits: u64,
    pub(super) bytes_sent: u64,
    pub(super) bytes_received: u64,
    /// Streams of the peer that nobody has accepted yet; bounded by `allowed`.
    pub(super) arrived: VecDeque<u64>,
}

impl Default for SideState {
    fn default() -> Self {
        Self {
            allowed: INITIAL_STREAMS,
            open: 0,
            opened: 0,
            open_waits: 0,
            bytes_sent: 0,
            bytes_received: 0,
            arrived: VecDeque::new(),
        }
    }
}

/// One stream, until nobody holds a half of it.
#[derive(Debug)]
pub(super) struct Stream {
    opener: Side,
    /// Whether the peer of the opener has been told.
    shown: bool,
    /// Whether it still counts against the limit.
    counted: bool,
    /// Halves that still have a handle, or will have one once the stream is accepted.
    handles: u8,
    /// By the side that writes.
    pub(super) pipes: [Pipe; 2],
}

/// One direction of a stream.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    pub(super) chunks: VecDeque<Bytes>,
    pub(super) buffered: usize,
    pub(super) writer: Writer,
    pub(super) reader: Reader,
    pub(super) writer_waker: Option<Waker>,
    pub(super) reader_waker: Option<Waker>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writer {
    #[default]
    Open,
    Finished,
    Reset(ErrorCode),
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    #[default]
    Open,
    Stopped(ErrorCode),
    /// Saw the end or the reset.
    Done,
}

impl State {
    pub(super) fn check(&self, side: Side) -> Result<(), ConnectionError> {
        match self.end.clone() {
            None => Ok(()),
            Some(End::Lost { reason }) => Err(ConnectionError::Lost { reason }),
            Some(End::Closed { by, code, reason }) if by == side => {
                Err(ConnectionError::ClosedLocally { code, reason })
            }
            Some(End::Closed { code, reason, .. }) => {
                Err(ConnectionError::ClosedByPeer { code, reason })
            }
        }
    }

    /// Adds a stream. The opener has asked whether it may.
    pub(super) fn open(&mut self, opener: Side) -> u64 {
        self.sides[opener].open += 1;
        self.sides[opener].opened += 1;
        let id = self.next_stream;
        self.next_stream += 1;
        let stream = Stream {
            opener,
            shown: false,
            counted: true,
            handles: 4,
            pipes: Default::default(),
        };
        self.streams.insert(id, stream);
        id
    }

    pub(super) fn pipe(&mut self, id: u64, writer: Side) -> &mut Pipe {
        let stream = self.streams.get_mut(&id);
        &mut stream
            .expect("a stream is kept while a handle exists")
            .pipes[writer]
    }

    /// Lets the peer see the stream. Gives the side to be told, if it was not told before.
    pub(super) fn show(&mut self, id: u64) -> Option<Side> {
        let stream = self.streams.get_mut(&id)?;
        if stream.shown {
            return None;
        }
        stream.shown = true;
        let acceptor = 1 - stream.opener;
        self.sides[acceptor].arrived.push_back(id);
        Some(acceptor)
    }

    /// Gives the opener its place back when both directions are over. Gives the side that may open again.
    pub(super) fn settle(&mut self, id: u64) -> Option<Side> {
        let stream = self.streams.get_mut(&id)?;
        if !stream.counted || !stream.pipes.iter().all(Pipe::is_over) {
            return None;
        }
        stream.counted = false;
        self.sides[stream.opener].open -= 1;
        Some(stream.opener)
    }

    pub(super) fn drop_handle(&mut self, id: u64) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.handles -= 1;
            if stream.handles == 0 {
                self.streams.remove(&id);
            }
        }
    }
}

impl Pipe {
    pub(super) fn check_writable(&self) -> Result<(), StreamError> {
        match (self.writer, self.reader) {
            (Writer::Finished | Writer::Reset(_), _) => Err(StreamError::Closed),
            (Writer::Open, Reader::Stopped(code)) => Err(StreamError::Stopped { code }),
            (Writer::Open, _) => Ok(()),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.writer != Writer::Open && self.reader != Reader::Open
    }

    pub(super) fn discard(&mut self) {
        self.chunks.clear();
        self.buffered = 0;
    }
}

/// Streams that a side lets its peer open before it says more: as low as the QUIC backend starts.
const INITIAL_STREAMS: u32 = 100;
