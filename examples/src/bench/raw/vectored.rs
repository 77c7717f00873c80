//! Writing many pieces without joining them.

use std::io::{self, IoSlice};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// Writes all pieces with as few calls as the socket takes, and flushes.
pub(super) async fn write_all<W: AsyncWrite + Unpin>(
    socket: &mut W,
    pieces: &mut [Bytes],
) -> io::Result<()> {
    let mut rest = pieces;
    while !rest.is_empty() {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let filled = rest.len().min(SLICES);
        for (slice, piece) in slices.iter_mut().zip(&*rest) {
            *slice = IoSlice::new(piece);
        }
        let mut written = socket.write_vectored(&slices[..filled]).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let mut whole = 0;
        for piece in &mut *rest {
            if written < piece.len() {
                piece.advance(written);
                break;
            }
            written -= piece.len();
            whole += 1;
        }
        rest = &mut rest[whole..];
    }
    socket.flush().await
}

/// Pieces of the largest batch: eight frames, header and payload.
const SLICES: usize = 16;
