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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, duplex};

    use super::*;

    #[tokio::test]
    async fn pieces_arrive_in_order_through_a_socket_that_takes_little_at_a_time() {
        let sent: Vec<Bytes> = (1..40_u8)
            .map(|n| Bytes::from(vec![n; usize::from(n)]))
            .collect();
        let (mut here, mut there) = duplex(7);
        let mut pieces = sent.clone();
        let mut received = Vec::new();
        let (written, read) = tokio::join!(
            async {
                let written = write_all(&mut here, &mut pieces).await;
                drop(here);
                written
            },
            there.read_to_end(&mut received)
        );
        written.unwrap();
        read.unwrap();
        assert_eq!(received, sent.concat());
    }
}
