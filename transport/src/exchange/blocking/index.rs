//! The index of a region: where the blocks of each subpartition lie, and how many of them are data.
//!
//! ```text
//! index   = entry of subpartition 0, of subpartition 1, …, u64: where the last one's blocks end
//! entry   = u64: where its blocks begin; u32: data blocks; u32: checksum
//! ```
//!
//! Numbers are big endian. Blocks of a subpartition end where those of the next one begin, so that a reader reads one
//! entry and the place behind it. The checksum is the lower half of the XXH3 of both places, the number of blocks and the
//! subpartition, seeded with the region: without it an entry that was changed could make a region look empty.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Where the blocks of one subpartition lie in a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Stretch {
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Those that are data.
    pub(super) blocks: u32,
}

impl Stretch {
    /// Where its entry begins in the index.
    pub(super) fn offset(place: u32) -> u64 {
        u64::from(place) * ENTRY_BYTES
    }

    /// Reads an entry and the place behind it; the error says what is wrong.
    pub(super) fn decode(
        bytes: &[u8; ENTRY_READ_BYTES],
        region: usize,
        place: u32,
    ) -> Result<Self, &'static str> {
        let number = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(0, |n: u64, &byte| (n << 8) | u64::from(byte))
        };
        let blocks = u32::try_from(number(&bytes[8..12])).unwrap_or(u32::MAX);
        let stretch = Self {
            begin: number(&bytes[..8]),
            end: number(&bytes[16..]),
            blocks,
        };
        if stretch.checksum(region, place).to_be_bytes() != bytes[12..16] {
            return Err("the checksum of its index is wrong");
        }
        Ok(stretch)
    }

    fn checksum(&self, region: usize, place: u32) -> u32 {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.begin.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.end.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.blocks.to_be_bytes());
        bytes[20..].copy_from_slice(&place.to_be_bytes());
        let hash = xxh3_64_with_seed(&bytes, region as u64);
        u32::try_from(hash & u64::from(u32::MAX)).unwrap_or_default()
    }
}

/// Appends the index of a region with these stretches, one behind the other.
pub(super) fn encode(region: usize, stretches: &[Stretch], out: &mut Vec<u8>) {
    for (place, stretch) in (0..).zip(stretches) {
        out.extend_from_slice(&stretch.begin.to_be_bytes());
        out.extend_from_slice(&stretch.blocks.to_be_bytes());
        out.extend_from_slice(&stretch.checksum(region, place).to_be_bytes());
    }
    let end = stretches.last().map_or(0, |last| last.end);
    out.extend_from_slice(&end.to_be_bytes());
}

/// Bytes of one entry.
const ENTRY_BYTES: u64 = 16;

/// Bytes of an entry and the place behind it.
pub(super) const ENTRY_READ_BYTES: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    const STRETCHES: [Stretch; 2] = [
        Stretch {
            begin: 1000,
            end: 3000,
            blocks: 2,
        },
        Stretch {
            begin: 3000,
            end: 3000,
            blocks: 0,
        },
    ];

    fn entry(place: u32) -> [u8; ENTRY_READ_BYTES] {
        let mut index = Vec::new();
        encode(7, &STRETCHES, &mut index);
        let at = usize::try_from(Stretch::offset(place)).unwrap();
        index[at..at + ENTRY_READ_BYTES].try_into().unwrap()
    }

    #[test]
    fn entries_are_read_as_they_were_written() {
        for (place, stretch) in (0..).zip(STRETCHES) {
            assert_eq!(Stretch::decode(&entry(place), 7, place), Ok(stretch));
        }
    }

    #[test]
    fn every_changed_bit_and_every_wrong_place_is_noticed() {
        let good = entry(0);
        for bit in 0..ENTRY_READ_BYTES * 8 {
            let mut bytes = good;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Stretch::decode(&bytes, 7, 0).is_err(), "{bit}");
        }
        assert!(Stretch::decode(&good, 8, 0).is_err());
        assert!(Stretch::decode(&good, 7, 1).is_err());
        assert!(Stretch::decode(&[0; ENTRY_READ_BYTES], 0, 0).is_err());
    }
}
