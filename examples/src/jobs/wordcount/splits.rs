//! Files cut into splits that different tasks read, and the lines of a split.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Seek, SeekFrom},
    path::Path,
};

use serde::{Deserialize, Serialize};

/// A part of a file: the lines that *start* in `start..end`. The last split of a file has no end, so that a file which
/// grew since it was looked at is still read to where it ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Split {
    /// Index in the job's list of files.
    pub(super) file: u32,
    /// First byte.
    pub(super) start: u64,
    /// Byte behind the last one, or `None` for the rest of the file.
    pub(super) end: Option<u64>,
}

/// Cuts files of these lengths into splits of about `split_bytes`.
#[must_use]
pub(super) fn cut(lengths: &[u64], split_bytes: u64) -> Vec<Split> {
    let mut splits = Vec::new();
    for (file, &length) in (0_u32..).zip(lengths) {
        let count = length.div_ceil(split_bytes).max(1);
        for index in 0..count {
            let start = index * split_bytes;
            let end = (index + 1 < count).then_some(start + split_bytes);
            splits.push(Split { file, start, end });
        }
    }
    splits
}

/// Reads the lines of one split, without their line ends.
///
/// A line that grows past [`MAX_PIECE_BYTES`] is handed out in pieces, each cut behind an ASCII byte that is no letter
/// or digit: such a byte is never part of a word nor of a multi-byte character, so that pieces hold whole words.
#[derive(Debug)]
pub(super) struct Lines<R> {
    input: R,
    position: u64,
    end: Option<u64>,
    line: Vec<u8>,
    max_piece: usize,
    carried: Vec<u8>,
    in_line: bool,
}

impl Lines<BufReader<File>> {
    /// Opens a split.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn open(path: &Path, split: &Split) -> io::Result<Self> {
        let mut file = File::open(path)?;
        if split.start == 0 {
            return Ok(Self::new(
                BufReader::with_capacity(READ_BYTES, file),
                0,
                split.end,
            ));
        }
        file.seek(SeekFrom::Start(split.start - 1))?;
        let mut lines = Self::new(
            BufReader::with_capacity(READ_BYTES, file),
            split.start - 1,
            split.end,
        );
        lines.skip_line()?;
        Ok(lines)
    }
}

impl<R: BufRead> Lines<R> {
    fn new(input: R, position: u64, end: Option<u64>) -> Self {
        Self {
            input,
            position,
            end,
            line: Vec::new(),
            max_piece: MAX_PIECE_BYTES,
            carried: Vec::new(),
            in_line: false,
        }
    }

    /// How far the reader is in its file.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// The next line or piece of one, or `None` at the end of the split.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn next_piece(&mut self) -> io::Result<Option<&[u8]>> {
        if !self.in_line && self.end.is_some_and(|end| self.position >= end) {
            return Ok(None);
        }
        std::mem::swap(&mut self.line, &mut self.carried);
        self.carried.clear();
        let mut found_end = false;
        loop {
            let available = match self.input.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if available.is_empty() {
                break;
            }
            let (taken, newline) = match available.iter().position(|&byte| byte == b'\n') {
                Some(at) => (at, true),
                None => (available.len(), false),
            };
            self.line.extend_from_slice(&available[..taken]);
            let consumed = taken + usize::from(newline);
            self.input.consume(consumed);
            self.position += consumed as u64;
            if newline {
                found_end = true;
                break;
            }
            if self.line.len() >= self.max_piece
                && let Some(at) = self
                    .line
                    .iter()
                    .rposition(|&byte| byte.is_ascii() && !byte.is_ascii_alphanumeric())
            {
                self.carried.extend_from_slice(&self.line[at + 1..]);
                self.line.truncate(at + 1);
                self.in_line = true;
                return Ok(Some(&self.line));
            }
        }
        self.in_line = false;
        if !found_end && self.line.is_empty() {
            return Ok(None);
        }
        Ok(Some(&self.line))
    }

    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let available = match self.input.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let at = available.iter().position(|&byte| byte == b'\n');
            let consumed = at.map_or(available.len(), |at| at + 1);
            let done = at.is_some() || available.is_empty();
            self.input.consume(consumed);
            self.position += consumed as u64;
            if done {
                return Ok(());
            }
        }
    }
}

/// Size of a split: small enough that a corpus of some megabytes occupies every task, large enough that the line read
/// twice at a split's edge does not matter.
pub(super) const SPLIT_BYTES: u64 = 2 * 1024 * 1024;
/// Longest piece of a line that is looked for a cut: bounds the memory of a task for files without line ends.
const MAX_PIECE_BYTES: usize = 16 * 1024 * 1024;
/// Read size.
const READ_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn all_lines(text: &[u8], split_bytes: u64) -> Vec<Vec<u8>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, text).unwrap();
        let mut found = Vec::new();
        for split in cut(&[text.len() as u64], split_bytes) {
            let mut lines = Lines::open(&path, &split).unwrap();
            while let Some(line) = lines.next_piece().unwrap() {
                found.push(line.to_vec());
            }
        }
        found
    }

    #[test]
    fn every_split_size_gives_every_line_once() {
        let text = "one\ntwo\n\n\u{e4}\u{f6}\u{fc} longer line here\nlast".as_bytes();
        let expected: Vec<Vec<u8>> = text.split(|&b| b == b'\n').map(<[u8]>::to_vec).collect();
        for split_bytes in 1..=text.len() as u64 + 1 {
            assert_eq!(
                all_lines(text, split_bytes),
                expected,
                "split of {split_bytes}"
            );
        }
    }

    #[test]
    fn an_empty_file_has_no_line_and_a_last_line_end_adds_none() {
        assert!(all_lines(b"", 10).is_empty());
        assert_eq!(all_lines(b"a\n", 10), [b"a".to_vec()]);
        assert_eq!(all_lines(b"\n", 10), [Vec::<u8>::new()]);
    }

    #[test]
    fn a_long_line_comes_in_pieces_of_whole_words() {
        let text: Vec<u8> = b"alpha beta gamma delta epsilon".to_vec();
        let mut lines = Lines::new(BufReader::with_capacity(4, text.as_slice()), 0, None);
        lines.max_piece = 8;
        let mut pieces = Vec::new();
        while let Some(piece) = lines.next_piece().unwrap() {
            pieces.push(String::from_utf8(piece.to_vec()).unwrap());
        }
        assert!(pieces.len() > 1, "{pieces:?}");
        assert_eq!(pieces.concat().as_bytes(), text);
        for piece in &pieces[..pieces.len() - 1] {
            assert!(piece.ends_with(' '), "{pieces:?}");
        }
    }
}
