//! Generated records, and the check that each of them arrived once, whole and in order.

use bytes::{Buf, BufMut};
use xxhash_rust::xxh3::xxh3_64;

/// Writes the records that one source sends to one sink.
///
/// A record is `source u32 | sink u32 | sequence u64 | xxh3-64 of the rest u64 | rest`, big endian.
#[derive(Debug)]
pub struct Generator {
    source: u32,
    sink: u32,
    sequence: u64,
    body: Vec<u8>,
}

impl Generator {
    /// Records of `record_bytes` bytes, at least [`HEADER_BYTES`].
    #[must_use]
    pub fn new(source: u32, sink: u32, record_bytes: usize) -> Self {
        let mut random = fastrand::Rng::with_seed(u64::from(source) << 32 | u64::from(sink));
        let body = (0..record_bytes.saturating_sub(HEADER_BYTES))
            .map(|_| random.u8(..))
            .collect();
        Self {
            source,
            sink,
            sequence: 0,
            body,
        }
    }

    /// Writes the next record into `record`.
    pub fn next_into(&mut self, record: &mut Vec<u8>) {
        // A body that changes with the sequence, so that a record delivered twice or swapped is noticed by content too.
        if let Some(first) = self.body.first_chunk_mut::<8>() {
            *first = self
                .sequence
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .to_be_bytes();
        }
        record.clear();
        record.put_u32(self.source);
        record.put_u32(self.sink);
        record.put_u64(self.sequence);
        record.put_u64(xxh3_64(&self.body));
        record.extend_from_slice(&self.body);
        self.sequence += 1;
    }
}

/// Checks the records that one sink gets from one source.
#[derive(Debug)]
pub struct Checker {
    sink: u32,
    record_bytes: usize,
    expected: Vec<u64>,
}

impl Checker {
    /// For a sink that has `sources` channels.
    #[must_use]
    pub fn new(sink: u32, sources: usize, record_bytes: usize) -> Self {
        Self {
            sink,
            record_bytes,
            expected: vec![0; sources],
        }
    }

    /// Checks one record that came through a channel.
    ///
    /// # Errors
    /// What is wrong with it: length, channel, order, or content.
    pub fn check(&mut self, channel: usize, mut record: &[u8]) -> Result<(), String> {
        if record.len() != self.record_bytes {
            return Err(format!(
                "a record of {} bytes came through channel {channel}: {} were sent",
                record.len(),
                self.record_bytes
            ));
        }
        let (source, sink, sequence, checksum) = (
            record.get_u32(),
            record.get_u32(),
            record.get_u64(),
            record.get_u64(),
        );
        let Some(expected) = self.expected.get_mut(channel) else {
            return Err(format!("a record came through unknown channel {channel}"));
        };
        if xxh3_64(record) != checksum {
            return Err(format!(
                "checksum mismatch in record {expected} of channel {channel}: its content was changed"
            ));
        }
        if source as usize != channel || sink != self.sink {
            return Err(format!(
                "a record from source {source} for sink {sink} came through channel {channel} of sink {}",
                self.sink
            ));
        }
        if sequence != *expected {
            return Err(format!(
                "record {sequence} of source {source} came where record {expected} was due"
            ));
        }
        *expected += 1;
        Ok(())
    }

    /// Records checked so far, by channel.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.expected
    }
}

/// Bytes before the body: the smallest record.
pub const HEADER_BYTES: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    fn record(generator: &mut Generator) -> Vec<u8> {
        let mut record = Vec::new();
        generator.next_into(&mut record);
        record
    }

    #[test]
    fn records_in_order_pass_and_are_counted() {
        let (mut generator, mut checker) = (Generator::new(1, 0, 100), Checker::new(0, 2, 100));
        for _ in 0..5 {
            checker.check(1, &record(&mut generator)).unwrap();
        }
        assert_eq!(checker.counts(), [0, 5]);
    }

    #[test]
    fn any_flipped_byte_is_noticed() {
        let good = record(&mut Generator::new(0, 0, 64));
        for index in 0..good.len() {
            let mut bad = good.clone();
            bad[index] ^= 1;
            assert!(
                Checker::new(0, 1, 64).check(0, &bad).is_err(),
                "byte {index}"
            );
        }
    }

    #[test]
    fn lost_doubled_and_misled_records_are_noticed() {
        let mut generator = Generator::new(0, 0, 24);
        let (first, second) = (record(&mut generator), record(&mut generator));
        assert!(
            Checker::new(0, 1, 24)
                .check(0, &second)
                .unwrap_err()
                .contains("record 1 of source 0")
        );
        let mut checker = Checker::new(0, 1, 24);
        checker.check(0, &first).unwrap();
        assert!(checker.check(0, &first).is_err());
        assert!(Checker::new(0, 2, 24).check(1, &first).is_err());
        assert!(Checker::new(0, 1, 24).check(0, &first[..20]).is_err());
    }
}
