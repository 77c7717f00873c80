//! The envelope of calls on a stream. Pure.
//!
//! A frame is a head and, in kinds 1 to 7, a body. Numbers are big endian, reserved bytes are zero.
//!
//! | kind | head | body |
//! |---|---|---|
//! | 1 hello | kind, lowest and highest version, 0; largest frame `u32`; length `u32` | gateway and endpoint, each after its length in one byte |
//! | 2 welcome | kind, version, 0, 0; largest frame `u32`; length `u32` | the endpoint's whole name |
//! | 3 refuse | kind, 0, 0, 0; length `u32` | [`RpcError`](super::RpcError) in postcard |
//! | 4 request | kind, flags, 0, 0; method `u32`; call `u64`; deadline in ms `u32`, 0 for never; length `u32`; token `u128` if flag 1; trace if flag 2 | arguments in postcard |
//! | 5 tell | kind, flags, 0, 0; method `u32`; length `u32`; token `u128` if flag 1; trace if flag 2 | arguments in postcard |
//! | 6 answer | kind, 0, 0, 0; call `u64`; length `u32` | the value in postcard |
//! | 7 error | kind, 0, 0, 0; call `u64`; length `u32` | [`RpcError`](super::RpcError) in postcard |
//! | 8 cancel | kind, 0, 0, 0; call `u64` | |
//! | 9 drain | kind, 0, 0, 0 | |
//! | 10 drained | kind, 0, 0, 0 | |
//!
//! A trace is the caller's span as in a W3C `traceparent`: trace `u128`, span `u64`, flags `u8`. One whose trace or span is
//! zero counts as none.
//!
//! The caller opens the stream with a hello; the callee answers welcome or refuse; then callers send requests, tells
//! and cancels, callees answers and errors, in any order and number. A caller that goes on on another stream sends a drain
//! as its last frame but for cancels; the callee says drained when it has handed on everything before it.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;

use super::trace::TraceContext;
use crate::ids::FencingToken;

/// What a call carries besides its arguments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallContext {
    pub(super) token: Option<FencingToken>,
    /// The span that makes the call.
    pub(super) trace: Option<TraceContext>,
}

/// What a frame is, without its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    Hello {
        lowest: u8,
        highest: u8,
        max_frame: u32,
    },
    Welcome {
        version: u8,
        max_frame: u32,
    },
    Refuse,
    Request {
        call: u64,
        method: u32,
        context: CallContext,
        deadline_ms: u32,
    },
    Tell {
        method: u32,
        context: CallContext,
    },
    Answer {
        call: u64,
    },
    Error {
        call: u64,
    },
    Cancel {
        call: u64,
    },
    Drain,
    Drained,
}

/// A frame of a peer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) head: Head,
    pub(super) body: Bytes,
}

/// A frame that breaks the protocol. The stream is of no further use.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum WireError {
    #[error("unknown frame kind {0}")]
    UnknownKind(u8),
    #[error("reserved bits are set in a frame of kind {0}")]
    Reserved(u8),
    #[error("frame of kind {kind} has a body of {size} bytes: at most {limit} are allowed")]
    TooLarge { kind: u8, size: usize, limit: usize },
    #[error("malformed hello")]
    BadHello,
}

impl Head {
    /// Appends the head of a frame with a body of this length.
    pub(super) fn encode(&self, body: u32, out: &mut BytesMut) {
        match *self {
            Self::Hello {
                lowest,
                highest,
                max_frame,
            } => {
                out.put_slice(&[HELLO, lowest, highest, 0]);
                out.put_u32(max_frame);
                out.put_u32(body);
            }
            Self::Welcome { version, max_frame } => {
                out.put_slice(&[WELCOME, version, 0, 0]);
                out.put_u32(max_frame);
                out.put_u32(body);
            }
            Self::Refuse => {
                out.put_slice(&[REFUSE, 0, 0, 0]);
                out.put_u32(body);
            }
            Self::Request {
                call,
                method,
                context,
                deadline_ms,
            } => {
                out.put_slice(&[REQUEST, context.flags(), 0, 0]);
                out.put_u32(method);
                out.put_u64(call);
                out.put_u32(deadline_ms);
                out.put_u32(body);
                context.encode(out);
            }
            Self::Tell { method, context } => {
                out.put_slice(&[TELL, context.flags(), 0, 0]);
                out.put_u32(method);
                out.put_u32(body);
                context.encode(out);
            }
            Self::Answer { call } => {
                out.put_slice(&[ANSWER, 0, 0, 0]);
                out.put_u64(call);
                out.put_u32(body);
            }
            Self::Error { call } => {
                out.put_slice(&[ERROR, 0, 0, 0]);
                out.put_u64(call);
                out.put_u32(body);
            }
            Self::Cancel { call } => {
                out.put_slice(&[CANCEL, 0, 0, 0]);
                out.put_u64(call);
            }
            Self::Drain => out.put_slice(&[DRAIN, 0, 0, 0]),
            Self::Drained => out.put_slice(&[DRAINED, 0, 0, 0]),
        }
    }
}

/// Cuts a stream of bytes into frames. Holds at most what was pushed: a length in a head takes no memory.
#[derive(Debug)]
pub(super) struct Decoder {
    buffer: BytesMut,
    max_body: usize,
}

impl Decoder {
    /// Refuses bodies of more than `max_body` bytes; errors and hellos have limits of their own.
    pub(super) fn new(max_body: u32) -> Self {
        Self {
            buffer: BytesMut::new(),
            max_body: max_body as usize,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Bytes that are held.
    pub(super) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether the bytes end between two frames.
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The next whole frame.
    pub(super) fn next_frame(&mut self) -> Result<Option<Frame>, WireError> {
        let Some(&kind) = self.buffer.first() else {
            return Ok(None);
        };
        let head_bytes = match kind {
            DRAIN | DRAINED => 4,
            REFUSE => 8,
            HELLO | WELCOME | CANCEL | TELL => 12,
            ANSWER | ERROR => 16,
            REQUEST => 24,
            _ => return Err(WireError::UnknownKind(kind)),
        };
        if self.buffer.len() < head_bytes {
            return Ok(None);
        }
        let mut head = &self.buffer[..head_bytes];
        let [_, first, second, third] = head.get_u32().to_be_bytes();
        let (may_first, may_second) = match kind {
            HELLO => (u8::MAX, u8::MAX),
            WELCOME => (u8::MAX, 0),
            REQUEST | TELL => (FENCED | TRACED, 0),
            _ => (0, 0),
        };
        if first & !may_first != 0 || second & !may_second != 0 || third != 0 {
            return Err(WireError::Reserved(kind));
        }
        let flags = if matches!(kind, REQUEST | TELL) {
            first
        } else {
            0
        };
        let parsed = match kind {
            HELLO => Head::Hello {
                lowest: first,
                highest: second,
                max_frame: head.get_u32(),
            },
            WELCOME => Head::Welcome {
                version: first,
                max_frame: head.get_u32(),
            },
            REFUSE => Head::Refuse,
            REQUEST => {
                let method = head.get_u32();
                Head::Request {
                    method,
                    call: head.get_u64(),
                    deadline_ms: head.get_u32(),
                    context: CallContext::default(),
                }
            }
            TELL => Head::Tell {
                method: head.get_u32(),
                context: CallContext::default(),
            },
            ANSWER => Head::Answer {
                call: head.get_u64(),
            },
            ERROR => Head::Error {
                call: head.get_u64(),
            },
            DRAIN => Head::Drain,
            DRAINED => Head::Drained,
            _ => Head::Cancel {
                call: head.get_u64(),
            },
        };
        let size = if matches!(kind, CANCEL | DRAIN | DRAINED) {
            0
        } else {
            head.get_u32() as usize
        };
        let limit = match kind {
            HELLO => MAX_HELLO_BYTES,
            WELCOME => MAX_NAME_BYTES,
            REFUSE | ERROR => MAX_ERROR_BYTES,
            _ => self.max_body,
        };
        if size > limit {
            return Err(WireError::TooLarge { kind, size, limit });
        }
        if self.buffer.len() < head_bytes + CallContext::bytes(flags) + size {
            return Ok(None);
        }
        self.buffer.advance(head_bytes);
        let context = CallContext::decode(flags, &mut self.buffer);
        let body = self.buffer.split_to(size).freeze();
        Ok(Some(Frame {
            head: with_context(parsed, context),
            body,
        }))
    }
}

/// The body of a hello.
pub(super) fn encode_hello(gateway: &str, endpoint: &str) -> Vec<u8> {
    let mut body = Vec::with_capacity(2 + gateway.len() + endpoint.len());
    for name in [gateway, endpoint] {
        let length = u8::try_from(name.len()).expect("names have at most 128 bytes and a star");
        body.push(length);
        body.extend_from_slice(name.as_bytes());
    }
    body
}

/// Gateway and endpoint of a hello.
pub(super) fn decode_hello(mut body: &[u8]) -> Result<(&str, &str), WireError> {
    let gateway = name(&mut body)?;
    let endpoint = name(&mut body)?;
    if body.is_empty() {
        Ok((gateway, endpoint))
    } else {
        Err(WireError::BadHello)
    }
}

fn name<'a>(body: &mut &'a [u8]) -> Result<&'a str, WireError> {
    let (&length, rest) = body.split_first().ok_or(WireError::BadHello)?;
    let (name, rest) = rest
        .split_at_checked(usize::from(length))
        .ok_or(WireError::BadHello)?;
    *body = rest;
    std::str::from_utf8(name).map_err(|_| WireError::BadHello)
}

/// The version that both sides know, the highest there is.
pub(super) fn common_version(lowest: u8, highest: u8) -> Option<u8> {
    let version = highest.min(HIGHEST_VERSION);
    (version >= lowest.max(LOWEST_VERSION)).then_some(version)
}

fn with_context(head: Head, context: CallContext) -> Head {
    match head {
        Head::Request {
            call,
            method,
            deadline_ms,
            ..
        } => Head::Request {
            call,
            method,
            context,
            deadline_ms,
        },
        Head::Tell { method, .. } => Head::Tell { method, context },
        other => other,
    }
}

impl CallContext {
    fn flags(&self) -> u8 {
        let (fenced, traced) = (self.token.is_some(), self.trace.is_some());
        u8::from(fenced) * FENCED + u8::from(traced) * TRACED
    }

    fn encode(&self, out: &mut BytesMut) {
        if let Some(token) = self.token {
            out.put_u128(token.as_u128());
        }
        if let Some(trace) = self.trace {
            out.put_u128(trace.trace_id());
            out.put_u64(trace.span_id());
            out.put_u8(trace.flags());
        }
    }

    /// How long it is in a frame with these flags.
    fn bytes(flags: u8) -> usize {
        let of = |flag, bytes| if flags & flag == 0 { 0 } else { bytes };
        of(FENCED, TOKEN_BYTES) + of(TRACED, TRACE_BYTES)
    }

    /// Takes it from the front of bytes that hold it whole.
    fn decode(flags: u8, bytes: &mut BytesMut) -> Self {
        let token = (flags & FENCED != 0).then(|| FencingToken::from_u128(bytes.get_u128()));
        let trace = (flags & TRACED != 0)
            .then(|| TraceContext::new(bytes.get_u128(), bytes.get_u64(), bytes.get_u8()))
            .flatten();
        Self { token, trace }
    }
}

/// Versions of the envelope that this code speaks.
pub(super) const LOWEST_VERSION: u8 = 1;
pub(super) const HIGHEST_VERSION: u8 = 1;

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const REFUSE: u8 = 3;
const REQUEST: u8 = 4;
const TELL: u8 = 5;
const ANSWER: u8 = 6;
const ERROR: u8 = 7;
const CANCEL: u8 = 8;
const DRAIN: u8 = 9;
const DRAINED: u8 = 10;

/// The frame carries a fencing token.
const FENCED: u8 = 1;

/// The frame carries a trace context.
const TRACED: u8 = 2;

const TOKEN_BYTES: usize = 16;
const TRACE_BYTES: usize = 16 + 8 + 1;

/// A name has at most 128 bytes; a prefix ends in a star.
const MAX_NAME_BYTES: usize = 129;
const MAX_HELLO_BYTES: usize = 2 + 2 * MAX_NAME_BYTES;

/// Errors are cut to 18 texts of 4 KiB before they are sent.
const MAX_ERROR_BYTES: usize = 128 * 1024;

#[cfg(test)]
mod tests;
