//! One block of a spilled file: what becomes a buffer or an event of its consumer.
//!
//! ```text
//!  0        4              8      9       10     12         16
//! +--------+--------------+------+-------+------+----------+---------+
//! | length | subpartition | data | flags | 0    | checksum | payload |
//! | u32    | u32          | type |       | u16  | u32      |         |
//! +--------+--------------+------+-------+------+----------+---------+
//! ```
//!
//! Numbers are big endian. The length is that of the payload; the subpartition is `u32::MAX` for a block of all of them.
//! The checksum is the lower half of the payload's XXH3, seeded with the twelve bytes before it: the disk is the only
//! place on the way of a record that neither TLS nor a checksum of the network looks after, and it costs less than 1 %
//! of what writing does.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::proto::{DataType, MAX_EVENT_BYTES};

/// Bytes of a block's header.
pub(super) const BLOCK_HEADER_BYTES: usize = 16;

/// The subpartition of a block that belongs to all of them.
pub(super) const EVERY_SUBPARTITION: u32 = u32::MAX;

/// The header of a block, without its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockHeader {
    pub(super) length: u32,
    pub(super) subpartition: u32,
    pub(super) data_type: DataType,
    pub(super) compressed: bool,
}

impl BlockHeader {
    /// The header for this payload.
    pub(super) fn encode(&self, payload: &[u8]) -> [u8; BLOCK_HEADER_BYTES] {
        let mut out = [0; BLOCK_HEADER_BYTES];
        out[..4].copy_from_slice(&self.length.to_be_bytes());
        out[4..8].copy_from_slice(&self.subpartition.to_be_bytes());
        out[8] = self.data_type as u8;
        out[9] = u8::from(self.compressed);
        let checksum = checksum(&out, payload);
        out[12..].copy_from_slice(&checksum.to_be_bytes());
        out
    }

    /// Reads a header and its checksum; the error says what is wrong.
    ///
    /// No payload is longer than a buffer of the node, or than an event may be.
    pub(super) fn decode(
        bytes: &[u8; BLOCK_HEADER_BYTES],
        subpartition: u32,
        buffer_bytes: usize,
    ) -> Result<Self, &'static str> {
        let [l0, l1, l2, l3, s0, s1, s2, s3, data_type, flags, 0, 0, ..] = *bytes else {
            return Err("there is no block header");
        };
        let data_type = DataType::from_wire(data_type).ok_or("the block's data type is unknown")?;
        if flags & !FLAG_COMPRESSED != 0 {
            return Err("the block's flags are unknown");
        }
        let header = Self {
            length: u32::from_be_bytes([l0, l1, l2, l3]),
            subpartition: u32::from_be_bytes([s0, s1, s2, s3]),
            data_type,
            compressed: flags & FLAG_COMPRESSED != 0,
        };
        let most = if data_type.is_data() {
            buffer_bytes
        } else {
            MAX_EVENT_BYTES
        };
        if header.length as usize > most || (header.compressed && !data_type.is_data()) {
            return Err("the block is longer than it may be");
        }
        if header.subpartition != subpartition && header.subpartition != EVERY_SUBPARTITION {
            return Err("the block belongs to another subpartition");
        }
        Ok(header)
    }

    /// Whether the payload is what was written with the header.
    pub(super) fn verify(bytes: &[u8; BLOCK_HEADER_BYTES], payload: &[u8]) -> bool {
        checksum(bytes, payload).to_be_bytes() == bytes[12..]
    }
}

fn checksum(header: &[u8; BLOCK_HEADER_BYTES], payload: &[u8]) -> u32 {
    let mut seed = [0; 8];
    for (index, byte) in header[..12].iter().enumerate() {
        seed[index % 8] ^= byte.rotate_left(u32::from(index >= 8));
    }
    let hash = xxh3_64_with_seed(payload, u64::from_be_bytes(seed));
    u32::try_from(hash & u64::from(u32::MAX)).unwrap_or_default()
}

const FLAG_COMPRESSED: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: BlockHeader = BlockHeader {
        length: 5,
        subpartition: 7,
        data_type: DataType::Data,
        compressed: true,
    };

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let bytes = HEADER.encode(b"hello");
        assert_eq!(BlockHeader::decode(&bytes, 7, 5), Ok(HEADER));
        assert!(BlockHeader::verify(&bytes, b"hello"));
        let every = BlockHeader {
            subpartition: EVERY_SUBPARTITION,
            ..HEADER
        };
        let bytes = every.encode(b"hello");
        assert_eq!(BlockHeader::decode(&bytes, 3, 5), Ok(every));
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let good = HEADER.encode(b"hello");
        for bit in 0..BLOCK_HEADER_BYTES * 8 {
            let mut bytes = good;
            bytes[bit / 8] ^= 1 << (bit % 8);
            let passes = BlockHeader::decode(&bytes, 7, 1 << 20).is_ok();
            assert!(!passes || !BlockHeader::verify(&bytes, b"hello"), "{bit}");
        }
        assert!(!BlockHeader::verify(&good, b"hellp"));
        assert!(!BlockHeader::verify(&good, b"hell"));
    }

    #[test]
    fn a_block_may_not_be_longer_than_a_buffer_nor_an_events_than_an_event() {
        assert!(BlockHeader::decode(&HEADER.encode(b""), 7, 4).is_err());
        let event = |length| BlockHeader {
            length,
            data_type: DataType::Event,
            compressed: false,
            ..HEADER
        };
        let most = u32::try_from(MAX_EVENT_BYTES).unwrap();
        assert!(BlockHeader::decode(&event(most).encode(b""), 7, 4).is_ok());
        assert!(BlockHeader::decode(&event(most + 1).encode(b""), 7, 4).is_err());
    }
}
