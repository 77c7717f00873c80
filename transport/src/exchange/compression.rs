//! Compression of one buffer: on disk, and on the wire as it was on disk.

use crate::config::Compression;

/// Compresses into `out` from its end on, if that makes it smaller; otherwise leaves `out` as it was.
#[cfg(feature = "lz4")]
pub(super) fn compress(compression: Compression, raw: &[u8], out: &mut Vec<u8>) -> bool {
    if compression == Compression::None {
        return false;
    }
    let begin = out.len();
    out.resize(
        begin + lz4_flex::block::get_maximum_output_size(raw.len()),
        0,
    );
    match lz4_flex::block::compress_into(raw, &mut out[begin..]) {
        Ok(length) if length < raw.len() => {
            out.truncate(begin + length);
            true
        }
        _ => {
            out.truncate(begin);
            false
        }
    }
}

/// Without the feature a configuration that asks for compression is refused, so there is nothing to do.
#[cfg(not(feature = "lz4"))]
pub(super) fn compress(_: Compression, _: &[u8], _: &mut Vec<u8>) -> bool {
    false
}

/// Decompresses into `out`, whose length is the most that may come; says how much came, or `None` for bytes that are
/// not what [`compress`] makes of so much.
#[cfg(feature = "lz4")]
pub(super) fn decompress(compressed: &[u8], out: &mut [u8]) -> Option<usize> {
    lz4_flex::block::decompress_into(compressed, out).ok()
}

/// Nothing can be decompressed without the feature.
#[cfg(not(feature = "lz4"))]
pub(super) fn decompress(_: &[u8], _: &mut [u8]) -> Option<usize> {
    None
}

#[cfg(all(test, feature = "lz4"))]
mod tests {
    use super::*;

    #[test]
    fn what_gets_smaller_is_compressed_and_comes_back() {
        let raw = b"abcdefgh".repeat(100);
        let mut out = b"before".to_vec();
        assert!(compress(Compression::Lz4, &raw, &mut out));
        let compressed = out.split_off(6);
        assert_eq!(out, b"before");
        assert!(compressed.len() < 100);
        let mut back = vec![0; 1000];
        assert_eq!(decompress(&compressed, &mut back), Some(raw.len()));
        assert_eq!(back[..raw.len()], raw);
    }

    #[test]
    fn what_does_not_is_kept_as_it_is() {
        let mut random = fastrand::Rng::with_seed(1);
        let raw: Vec<u8> = std::iter::repeat_with(|| random.u8(..))
            .take(1000)
            .collect();
        let mut out = Vec::new();
        assert!(!compress(Compression::Lz4, &raw, &mut out) && out.is_empty());
        assert!(!compress(Compression::None, &[0; 1000], &mut out) && out.is_empty());
    }

    #[test]
    fn more_than_fits_and_garbage_are_refused() {
        let mut out = Vec::new();
        assert!(compress(Compression::Lz4, &vec![0; 1 << 20], &mut out));
        assert!(out.len() < 5000);
        assert_eq!(decompress(&out, &mut [0; 1000]), None);
        assert_eq!(decompress(&[0xff; 40], &mut [0; 1000]), None);
        assert_eq!(decompress(&[], &mut [0; 1000]), None);
    }
}
