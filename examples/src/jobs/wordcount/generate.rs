//! The text that is counted when no file is named: the same bytes for the same block number, everywhere.

use fastrand::Rng;

/// Writes block `index` of the generated text into `line` by line, calling `each` for every line.
///
/// Words follow roughly Zipf's law, as in real text: few are frequent, many are rare.
pub(super) fn for_each_line(index: u64, mut each: impl FnMut(&[u8])) {
    let mut random = Rng::with_seed(SEED ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut line = Vec::with_capacity(128);
    let mut written = 0;
    while written < BLOCK_BYTES {
        line.clear();
        for position in 0..random.usize(6..14) {
            if position > 0 {
                line.push(b' ');
            }
            push_word(&mut line, &mut random);
        }
        line.push(b'.');
        written += line.len() + 1;
        each(&line);
    }
}

/// Blocks that make up about `bytes` bytes.
#[must_use]
pub(super) fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES as u64)
}

fn push_word(line: &mut Vec<u8>, random: &mut Rng) {
    let rank = WORDS.len() as f64;
    let skewed = rank.powf(random.f64()) - 1.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and the number of words"
    )]
    let index = (skewed as usize).min(WORDS.len() - 1);
    line.extend_from_slice(WORDS[index].as_bytes());
    if index > WORDS.len() / 2 {
        line.extend_from_slice(random.u16(..2000).to_string().as_bytes());
    }
}

/// Bytes of one block.
pub(super) const BLOCK_BYTES: usize = 64 * 1024;
/// Fixed, so that a result can be compared with an earlier one.
const SEED: u64 = 0x7468_616c_7765_6721;
/// Words of rivers, by falling frequency.
const WORDS: [&str; 64] = [
    "the", "river", "of", "and", "water", "a", "to", "in", "flows", "bed", "stream", "bank",
    "from", "deep", "line", "current", "over", "stone", "lake", "sea", "under", "bridge", "boat",
    "delta", "source", "valley", "rain", "flood", "sand", "fish", "reed", "ford", "mouth", "bend",
    "rapids", "dam", "mill", "ferry", "gravel", "spring", "brook", "pool", "eddy", "silt", "shore",
    "island", "harbour", "channel", "tide", "wave", "mist", "ice", "fall", "gorge", "marsh",
    "meadow", "otter", "heron", "trout", "willow", "alder", "weir", "sluice", "thalweg",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_the_same_every_time_and_has_about_its_size() {
        let text = |index| {
            let mut text = Vec::new();
            for_each_line(index, |line| {
                text.extend_from_slice(line);
                text.push(b'\n');
            });
            text
        };
        assert_eq!(text(3), text(3));
        assert_ne!(text(3), text(4));
        assert!((BLOCK_BYTES..BLOCK_BYTES + 512).contains(&text(0).len()));
    }
}
