//! The first bytes of a connection, on whatever carries it.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::reader::{LINGER, drain};
use crate::{
    error::{ErrorCode, sanitize},
    proto::mux::{Control, HEADER_BYTES, Header, Kind, MAGIC, Settings, Violation},
};

/// Why no preface could be read.
#[derive(Debug, Error)]
pub(super) enum PrefaceError {
    /// The peer refused us.
    #[error("{reason}")]
    Refused { code: ErrorCode, reason: String },
    /// The peer speaks TLS on a connection without.
    #[error("the peer speaks TLS, this side does not")]
    SpeaksTls,
    /// The peer speaks another version of the multiplex.
    #[error("the peer speaks version {theirs} of the multiplex, this side version {}", MAGIC[7])]
    Version { theirs: u8 },
    /// The peer speaks something else.
    #[error("the peer speaks another protocol, it began with \"{0}\"")]
    NotOurs(String),
    /// The first frame is not allowed.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The first frame is allowed, but not there.
    #[error("the first frame is {0:?}, not settings")]
    FirstFrame(Kind),
    /// The socket failed or was ended.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl PrefaceError {
    /// What the peer is told, if it may understand.
    pub(super) fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused { .. } | Self::Io(_) => None,
            Self::Version { .. } => Some(ErrorCode::VERSION_MISMATCH),
            _ => Some(ErrorCode::PROTOCOL),
        }
    }
}

/// Sends the preface of a side that goes on.
pub(super) async fn send<W: AsyncWrite + Unpin>(
    socket: &mut W,
    settings: Settings,
) -> io::Result<()> {
    send_first(socket, &Control::Settings(settings)).await
}

/// Sends the preface of a side that refuses, and ends the connection so that the peer can read it.
pub(super) async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut S,
    code: ErrorCode,
    reason: &str,
) {
    let close = Control::Close {
        code,
        reason: Bytes::copy_from_slice(reason.as_bytes()),
    };
    let farewell = async {
        send_first(socket, &close).await?;
        socket.shutdown().await
    };
    if let Ok(Ok(())) = tokio::time::timeout(LINGER, farewell).await {
        drain(socket).await;
    }
}

/// Reads the peer's preface.
pub(super) async fn receive<R: AsyncRead + Unpin>(
    socket: &mut R,
) -> Result<Settings, PrefaceError> {
    let mut magic = [0; MAGIC.len()];
    let mut have = 0;
    // Judged as it comes: a peer of another protocol may wait for an answer to fewer bytes.
    while have < magic.len() {
        let read = socket.read(&mut magic[have..]).await?;
        if read == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        have += read;
        check_magic(&magic[..have])?;
    }
    let mut header = [0; HEADER_BYTES];
    socket.read_exact(&mut header).await?;
    let header = Header::decode(header)?;
    if !matches!(header.kind, Kind::Settings | Kind::Close) {
        return Err(PrefaceError::FirstFrame(header.kind));
    }
    // At most 1,028 bytes: the header was checked.
    let mut payload = vec![0; header.length as usize];
    socket.read_exact(&mut payload).await?;
    match Control::decode(header, &payload)? {
        Some(Control::Settings(settings)) => Ok(settings),
        Some(Control::Close { code, reason }) => Err(PrefaceError::Refused {
            code,
            reason: sanitize(&reason),
        }),
        _ => Err(PrefaceError::FirstFrame(header.kind)),
    }
}

/// Judges the bytes that have come so far.
pub(super) fn check_magic(bytes: &[u8]) -> Result<(), PrefaceError> {
    match bytes {
        [TLS_HANDSHAKE | TLS_ALERT] => Ok(()),
        [TLS_HANDSHAKE | TLS_ALERT, TLS_MAJOR, ..] => Err(PrefaceError::SpeaksTls),
        _ if MAGIC.starts_with(bytes) => Ok(()),
        [name @ .., theirs] if bytes.len() == MAGIC.len() && MAGIC.starts_with(name) => {
            Err(PrefaceError::Version { theirs: *theirs })
        }
        _ => Err(PrefaceError::NotOurs(bytes.escape_ascii().to_string())),
    }
}

async fn send_first<W: AsyncWrite + Unpin>(socket: &mut W, first: &Control) -> io::Result<()> {
    let mut bytes = BytesMut::with_capacity(MAGIC.len() + first.wire_bytes());
    bytes.put_slice(&MAGIC);
    first.encode(&mut bytes);
    socket.write_all(&bytes).await?;
    socket.flush().await
}

/// The content type of a record with a ClientHello or ServerHello (RFC 8446 section 5.1).
pub(super) const TLS_HANDSHAKE: u8 = 0x16;

/// The content type of an alert.
const TLS_ALERT: u8 = 0x15;

/// First byte of the record version of every TLS version, after the content type.
const TLS_MAJOR: u8 = 0x03;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_tell_the_protocol() {
        assert!(check_magic(b"THALWEG\x01").is_ok());
        assert!(check_magic(b"THA").is_ok());
        let words = |bytes: &[u8]| check_magic(bytes).unwrap_err().to_string();
        assert_eq!(
            words(b"\x16\x03\x01\x02"),
            "the peer speaks TLS, this side does not"
        );
        assert_eq!(
            words(b"GET / HT"),
            "the peer speaks another protocol, it began with \"GET / HT\""
        );
        assert_eq!(
            words(b"THALWEG\x07"),
            "the peer speaks version 7 of the multiplex, this side version 1"
        );
    }
}
