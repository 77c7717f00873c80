//! The header of a frame on a raw TCP or TLS connection.

use bytes::Bytes;
use thalweg_transport::FRAME_OVERHEAD;

/// Channel and length of the payload, 4 bytes each, big endian, and zeros up to the overhead of our own frames: a full
/// frame is as long as ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) channel: u32,
    pub(super) length: u32,
}

impl Header {
    pub(super) fn encode(self) -> Bytes {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.channel.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.length.to_be_bytes());
        Bytes::copy_from_slice(&bytes)
    }

    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Self {
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Self {
            channel: word(0),
            length: word(4),
        }
    }
}

pub(super) const HEADER_BYTES: usize = FRAME_OVERHEAD;

/// The channel of calls beside the data.
pub(super) const CALLS: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = Header {
            channel: 63,
            length: 32_744,
        };
        let bytes = header.encode();
        assert_eq!(bytes.len(), 24);
        assert_eq!(Header::decode(bytes[..].try_into().unwrap()), header);
    }
}
