//! Calls and answers as frames on one stream, matched by id.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, BufMut, BytesMut};
use thalweg_transport::now;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::bench::{
    case::Calls,
    counters::Counters,
    spec::{MAX_OUTSTANDING, MAX_PAYLOAD},
};

/// Calls again and again, as many outstanding as asked, until the stream ends: each answer makes the next call.
pub(super) async fn call<S: AsyncRead + AsyncWrite + Unpin>(
    socket: S,
    calls: Calls,
    counters: &Counters,
) -> io::Result<()> {
    let message = vec![0; calls.payload as usize];
    let mut out = BytesMut::new();
    let mut sent = Vec::new();
    for id in 0..calls.outstanding {
        put(&mut out, id, &message);
        sent.push(now());
    }
    let frames = Frames::new(socket, out);
    frames
        .each(|id, answer, out| {
            let sent = sent.get_mut(id as usize).ok_or_else(|| invalid("an id"))?;
            if answer.len() != message.len() {
                return Err(invalid("a length"));
            }
            let answered = now();
            counters.add_call(answered.saturating_duration_since(*sent));
            *sent = answered;
            put(out, id, &message);
            Ok(())
        })
        .await
}

/// Answers every call with what it was called with.
pub(super) async fn answer<S: AsyncRead + AsyncWrite + Unpin>(socket: S) -> io::Result<()> {
    let frames = Frames::new(socket, BytesMut::new());
    frames
        .each(|id, call, out| {
            put(out, id, call);
            Ok(())
        })
        .await
}

/// Length of the payload and id, 4 bytes each, big endian, then the payload.
fn put(out: &mut BytesMut, id: u32, payload: &[u8]) {
    out.put_u32(u32::try_from(payload.len()).unwrap_or(u32::MAX));
    out.put_u32(id);
    out.put_slice(payload);
}

/// Both directions of a stream in one task: neither end ever waits to write while it does not read.
struct Frames<S> {
    socket: S,
    out: BytesMut,
    unflushed: bool,
    block: Box<[u8]>,
    filled: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Frames<S> {
    fn new(socket: S, out: BytesMut) -> Self {
        Self {
            socket,
            out,
            unflushed: false,
            block: vec![0; READ_BYTES].into(),
            filled: 0,
        }
    }

    /// Hands over every frame that comes, and writes what that adds, all of it that one read has brought at once.
    async fn each(
        mut self,
        mut take: impl FnMut(u32, &[u8], &mut BytesMut) -> io::Result<()>,
    ) -> io::Result<()> {
        poll_fn(|cx| {
            loop {
                self.poll_write(cx)?;
                ready!(self.poll_read(cx))?;
                self.take_frames(&mut take)?;
            }
        })
        .await
    }

    /// As much as the socket takes.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let mut socket = Pin::new(&mut self.socket);
        while !self.out.is_empty() {
            match socket.as_mut().poll_write(cx, &self.out)? {
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(written) => self.out.advance(written),
                Poll::Pending => break,
            }
            self.unflushed = true;
        }
        if self.unflushed && socket.poll_flush(cx)?.is_ready() {
            self.unflushed = false;
        }
        Ok(())
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut free = ReadBuf::new(&mut self.block[self.filled..]);
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut free))?;
        match free.filled().len() {
            0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            read => {
                self.filled += read;
                Poll::Ready(Ok(()))
            }
        }
    }

    fn take_frames(
        &mut self,
        take: &mut impl FnMut(u32, &[u8], &mut BytesMut) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut rest = &self.block[..self.filled];
        while let Some((mut header, body)) = rest.split_at_checked(HEADER_BYTES) {
            let (length, id) = (header.get_u32(), header.get_u32());
            if length > MAX_PAYLOAD {
                return Err(invalid("a length"));
            }
            let Some((payload, after)) = body.split_at_checked(length as usize) else {
                break;
            };
            take(id, payload, &mut self.out)?;
            rest = after;
        }
        let left = rest.len();
        self.block.copy_within(self.filled - left..self.filled, 0);
        self.filled = left;
        if self.out.len() > MAX_OUT {
            return Err(invalid("a number of calls"));
        }
        Ok(())
    }
}

fn invalid(what: &str) -> io::Error {
    let text = format!("the other end sent {what} that is not allowed");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

const HEADER_BYTES: usize = 8;

/// More than a frame, and what stays in the processor's cache.
const READ_BYTES: usize = 64 * 1024;

/// All calls that may be outstanding, at their longest.
const MAX_OUT: usize = MAX_OUTSTANDING as usize * (MAX_PAYLOAD as usize + HEADER_BYTES);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{
        io::{AsyncWriteExt, duplex},
        time::timeout,
    };

    use super::*;

    #[tokio::test]
    async fn calls_are_answered_through_a_stream_of_any_size() {
        for (payload, outstanding, room) in [(1, 1, 1), (64, 64, 100), (MAX_PAYLOAD, 8, 1000)] {
            let (here, there) = duplex(room);
            let counters = Counters::new(0);
            let calls = Calls {
                payload,
                outstanding,
                gateway: true,
            };
            let enough = async {
                while counters.call_times().len() < 3 * u64::from(outstanding) {
                    tokio::task::yield_now().await;
                }
            };
            let ended = timeout(DEADLINE, async {
                tokio::select! {
                    ended = call(here, calls, &counters) => Some(ended),
                    ended = answer(there) => Some(ended),
                    () = enough => None,
                }
            });
            let ended = ended.await.expect("calls are answered in time");
            assert!(ended.is_none(), "{ended:?}");
        }
    }

    #[tokio::test]
    async fn what_no_caller_sends_ends_the_stream() {
        let (mut here, there) = duplex(100);
        here.write_all(&u64::MAX.to_be_bytes()).await.unwrap();
        let error = answer(there).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);

        let (mut here, there) = duplex(100);
        let mut wrong = BytesMut::new();
        put(&mut wrong, 7, b"not asked for");
        here.write_all(&wrong).await.unwrap();
        let calls = Calls {
            payload: 13,
            outstanding: 1,
            gateway: true,
        };
        let error = call(there, calls, &Counters::new(0)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    const DEADLINE: Duration = Duration::from_secs(30);
}
