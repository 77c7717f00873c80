//! What the three vertices do, without the exchange between them.

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Write as _,
    fs::File,
    io::BufReader,
};

use super::{
    generate,
    input::Input,
    paths::SourceFile,
    pieces::Pieces,
    report::not_utf8_note,
    splits::{Lines, SPLIT_BYTES, Split, cut},
    words::for_each_word,
};

/// Reads the part of the input that one source has: every `parallelism`-th split or block.
#[derive(Debug)]
pub struct SourceReader {
    work: Work,
    total: u64,
    done: u64,
    not_utf8: BTreeSet<u32>,
}

#[derive(Debug)]
enum Work {
    Generated {
        next: u64,
        blocks: u64,
        step: u64,
    },
    Files {
        files: Vec<SourceFile>,
        splits: std::vec::IntoIter<Split>,
        open: Option<Open>,
    },
}

#[derive(Debug)]
struct Open {
    split: Split,
    lines: Lines<BufReader<File>>,
}

impl SourceReader {
    /// The part of source `index` of `parallelism`.
    ///
    /// # Errors
    /// An input that no client wrote.
    pub fn new(input: &Input, index: u32, parallelism: u32) -> Result<Self, String> {
        let step = parallelism.max(1);
        let (work, total) = match input {
            Input::Generated { blocks } => (
                Work::Generated {
                    next: u64::from(index),
                    blocks: *blocks,
                    step: u64::from(step),
                },
                blocks
                    .saturating_sub(u64::from(index))
                    .div_ceil(u64::from(step)),
            ),
            Input::Files(list) => {
                let files = list.unpack()?;
                let lengths: Vec<u64> = files.iter().map(|file| file.bytes).collect();
                let splits: Vec<Split> = cut(&lengths, SPLIT_BYTES)
                    .into_iter()
                    .skip(index as usize)
                    .step_by(step as usize)
                    .collect();
                let total = splits
                    .iter()
                    .map(|split| split_bytes(&lengths, split))
                    .sum();
                (
                    Work::Files {
                        files,
                        splits: splits.into_iter(),
                        open: None,
                    },
                    total,
                )
            }
        };
        Ok(Self {
            work,
            total,
            done: 0,
            not_utf8: BTreeSet::new(),
        })
    }

    /// Replaces `batch` by the next lines; false after the last ones.
    ///
    /// # Errors
    /// A file that cannot be read, by its name.
    pub fn next_batch(&mut self, batch: &mut Pieces) -> Result<bool, String> {
        batch.clear();
        match &mut self.work {
            Work::Generated { next, blocks, step } => {
                if *next >= *blocks {
                    return Ok(false);
                }
                generate::for_each_line(*next, |line| batch.push(line));
                *next += *step;
                self.done += 1;
                Ok(true)
            }
            Work::Files {
                files,
                splits,
                open,
            } => loop {
                let current = match open {
                    Some(current) => current,
                    None => {
                        let Some(split) = splits.next() else {
                            return Ok(!batch.is_empty());
                        };
                        let file = file_of(files, &split)?;
                        let lines = Lines::open(&file.path, &split)
                            .map_err(|error| unreadable(file, &error))?;
                        open.insert(Open { split, lines })
                    }
                };
                let file = file_of(files, &current.split)?;
                match current.lines.next_piece() {
                    Ok(Some(piece)) => {
                        if std::str::from_utf8(piece).is_err() {
                            self.not_utf8.insert(current.split.file);
                        }
                        batch.push(piece);
                    }
                    Ok(None) => {
                        self.done += bytes_read(current);
                        *open = None;
                    }
                    Err(error) => return Err(unreadable(file, &error)),
                }
                if batch.bytes() >= BATCH_BYTES {
                    return Ok(true);
                }
            },
        }
    }

    /// How far it is, 0 to 10,000, by bytes or blocks.
    #[must_use]
    pub fn progress(&self) -> u32 {
        let under_way = match &self.work {
            Work::Files {
                open: Some(open), ..
            } => bytes_read(open),
            _ => 0,
        };
        crate::jobs::progress(self.done + under_way, self.total)
    }

    /// What it has to tell the client, as lines of the job's result: which files were not UTF-8.
    #[must_use]
    pub fn notes(&self) -> String {
        self.not_utf8
            .iter()
            .map(|&file| not_utf8_note(file))
            .collect()
    }
}

/// Cuts lines into words.
#[derive(Debug, Default)]
pub struct Tokenizer {
    scratch: String,
    words: Pieces,
}

impl Tokenizer {
    /// The words of a line, each as often as it stands there.
    pub fn words(&mut self, line: &[u8]) -> &Pieces {
        self.words.clear();
        let words = &mut self.words;
        for_each_word(line, &mut self.scratch, |word| words.push(word.as_bytes()));
        words
    }
}

/// Counts the words that one counting task gets.
#[derive(Debug, Default)]
pub struct Counter {
    counts: HashMap<String, u64>,
}

impl Counter {
    /// Counts one word.
    ///
    /// # Errors
    /// A word that no tokenizer made.
    pub fn add(&mut self, word: &[u8]) -> Result<(), String> {
        let word = std::str::from_utf8(word)
            .map_err(|error| format!("a word that is not UTF-8 arrived: {error}"))?;
        match self.counts.get_mut(word) {
            Some(count) => *count += 1,
            None => {
                self.counts.insert(word.to_owned(), 1);
            }
        }
        Ok(())
    }

    /// The counts as lines `word<TAB>count`, in chunks of about 64 KiB, in byte order of the words.
    pub fn into_chunks(self) -> impl Iterator<Item = String> {
        let mut counts: Vec<(String, u64)> = self.counts.into_iter().collect();
        counts.sort_unstable();
        let mut counts = counts.into_iter().peekable();
        std::iter::from_fn(move || {
            counts.peek()?;
            let mut chunk = String::new();
            while chunk.len() < BATCH_BYTES
                && let Some((word, count)) = counts.next()
            {
                // Writing to a string cannot fail.
                let _ = writeln!(chunk, "{word}\t{count}");
            }
            Some(chunk)
        })
    }
}

/// Bytes that a split had when its file was looked at.
fn split_bytes(lengths: &[u64], split: &Split) -> u64 {
    let end = split
        .end
        .or_else(|| lengths.get(split.file as usize).copied());
    end.unwrap_or(split.start).saturating_sub(split.start)
}

fn bytes_read(open: &Open) -> u64 {
    open.lines.position().saturating_sub(open.split.start)
}

fn file_of<'a>(files: &'a [SourceFile], split: &Split) -> Result<&'a SourceFile, String> {
    files
        .get(split.file as usize)
        .ok_or_else(|| format!("a split names file {} of {}", split.file, files.len()))
}

fn unreadable(file: &SourceFile, error: &std::io::Error) -> String {
    format!("cannot read {}: {error}", file.path.display())
}

/// Lines are read, and results are written, in pieces of about this size.
const BATCH_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::wordcount::WordCountResult;

    fn count(input: &Input, parallelism: u32) -> WordCountResult {
        let mut counters: Vec<Counter> = (0..parallelism).map(|_| Counter::default()).collect();
        let (mut batch, mut tokenizer) = (Pieces::new(), Tokenizer::default());
        let mut result = String::new();
        for index in 0..parallelism {
            let mut reader = SourceReader::new(input, index, parallelism).unwrap();
            while reader.next_batch(&mut batch).unwrap() {
                for line in batch.iter() {
                    for word in tokenizer.words(line).iter() {
                        let target = word[0] as usize % counters.len();
                        counters[target].add(word).unwrap();
                    }
                }
            }
            assert_eq!(reader.progress(), 10_000);
            result.push_str(&reader.notes());
        }
        for counter in counters {
            result.extend(counter.into_chunks());
        }
        WordCountResult::parse(result.as_bytes()).unwrap()
    }

    #[test]
    fn any_parallelism_counts_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let text = "the river, the bed\nthe \u{c4}\u{d6}\u{dc}\n".repeat(120_000);
        std::fs::write(dir.path().join("a"), &text).unwrap();
        std::fs::write(dir.path().join("b"), b"the \xff end").unwrap();
        std::fs::write(dir.path().join("empty"), b"").unwrap();
        let files = super::super::paths::select(&[dir.path().to_owned()]).unwrap();
        let input = Input::files(&files.files);
        let one = count(&input, 1);
        assert_eq!(one.counts.total(), 120_000 * 6 + 2);
        assert_eq!(one.counts.distinct(), 5);
        assert_eq!(one.not_utf8, [1]);
        for parallelism in [2, 3, 7] {
            assert_eq!(count(&input, parallelism), one, "{parallelism}");
        }
    }

    #[test]
    fn the_generated_text_is_the_same_for_any_parallelism() {
        let input = Input::generated(200_000);
        let one = count(&input, 1);
        assert!(one.counts.total() > 20_000);
        assert_eq!(count(&input, 3), one);
        assert_eq!(
            count(&input, 9),
            one,
            "with more tasks than blocks some are idle"
        );
    }

    #[test]
    fn a_file_that_is_gone_is_named() {
        let input = Input::files(&[SourceFile {
            path: "/no/such/file".into(),
            bytes: 3,
        }]);
        let mut reader = SourceReader::new(&input, 0, 1).unwrap();
        let error = reader.next_batch(&mut Pieces::new()).unwrap_err();
        assert!(error.starts_with("cannot read /no/such/file: "), "{error}");
    }

    #[test]
    fn results_come_in_chunks_of_whole_lines() {
        let mut counter = Counter::default();
        for number in 0..20_000_u32 {
            counter.add(number.to_string().as_bytes()).unwrap();
        }
        assert!(counter.add(b"\xff").is_err());
        let chunks: Vec<String> = counter.into_chunks().collect();
        assert!(chunks.len() > 1);
        assert!(chunks.iter().all(|chunk| chunk.ends_with("\t1\n")));
        assert_eq!(chunks.concat().lines().count(), 20_000);
    }
}
