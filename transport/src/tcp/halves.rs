//! The two directions of a socket, one for each task of its connection.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, tcp::OwnedReadHalf},
};
use tokio_rustls::TlsStream;

/// What a connection reads from.
pub(super) trait ReadHalf: AsyncRead + Unpin {
    /// Hands what has come to `take`, which takes all of it; how many bytes that were, 0 at the end.
    ///
    /// `take` must not touch the socket.
    fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(&[u8]),
    ) -> Poll<io::Result<usize>>;
}

/// The reading half of a socket without TLS.
#[derive(Debug)]
pub(super) struct PlainRead {
    socket: OwnedReadHalf,
    buffer: Box<[u8]>,
}

impl PlainRead {
    pub(super) fn new(socket: OwnedReadHalf) -> Self {
        Self {
            socket,
            buffer: vec![0; BUFFER_BYTES].into(),
        }
    }
}

impl ReadHalf for PlainRead {
    fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(&[u8]),
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(&mut self.buffer);
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut buffer))?;
        let bytes = buffer.filled();
        if !bytes.is_empty() {
            take(bytes);
        }
        Poll::Ready(Ok(bytes.len()))
    }
}

impl AsyncRead for PlainRead {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buffer)
    }
}

/// The halves of a socket with TLS.
///
/// Unlike those of [`tokio::io::split`] the reading one shows what rustls has decrypted where it lies, which saves a copy
/// of every byte.
pub(super) fn split_tls(stream: TlsStream<TcpStream>) -> (TlsRead, TlsWrite) {
    let stream = Arc::new(Mutex::new(stream));
    (TlsRead(stream.clone()), TlsWrite(stream))
}

/// The reading half of a socket with TLS.
#[derive(Debug)]
pub(super) struct TlsRead(Arc<Mutex<TlsStream<TcpStream>>>);

impl ReadHalf for TlsRead {
    fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(&[u8]),
    ) -> Poll<io::Result<usize>> {
        let mut stream = lock(&self.0);
        let bytes = ready!(Pin::new(&mut *stream).poll_fill_buf(cx))?;
        let length = bytes.len();
        if length > 0 {
            take(bytes);
            Pin::new(&mut *stream).consume(length);
        }
        Poll::Ready(Ok(length))
    }
}

impl AsyncRead for TlsRead {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(&self.0)).poll_read(cx, buffer)
    }
}

/// The writing half of a socket with TLS.
#[derive(Debug)]
pub(super) struct TlsWrite(Arc<Mutex<TlsStream<TcpStream>>>);

impl AsyncWrite for TlsWrite {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *lock(&self.0)).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *lock(&self.0)).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        lock(&self.0).is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(&self.0)).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(&self.0)).poll_shutdown(cx)
    }
}

fn lock(stream: &Mutex<TlsStream<TcpStream>>) -> MutexGuard<'_, TlsStream<TcpStream>> {
    stream.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Read buffer: stays in the processor's cache (256 KiB ones halve the rate of a plain connection).
const BUFFER_BYTES: usize = 64 * 1024;
