//! The counts that the tasks return, and how they are shown.

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Write as _,
    io::{self, Write},
};

/// The result of the job: the counts, and what the sources noted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WordCountResult {
    /// The counts of all words.
    pub counts: Counts,
    /// Positions of the files that were not all UTF-8, in order, each once.
    pub not_utf8: Vec<u32>,
}

impl WordCountResult {
    /// Reads the lines that the tasks returned: notes of the sources begin with a tab, which no word does.
    ///
    /// # Errors
    /// A line of another shape, or a word that occurs twice: then the exchange has mixed up keys.
    pub fn parse(result: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(result)
            .map_err(|error| format!("the result is not UTF-8: {error}"))?;
        let mut not_utf8 = BTreeSet::new();
        let mut lines = Vec::new();
        for line in text.lines() {
            match line.strip_prefix(NOT_UTF8) {
                Some(file) => not_utf8.insert(file.parse().map_err(|_| shape(line))?),
                None => {
                    lines.push(line);
                    continue;
                }
            };
        }
        Ok(Self {
            counts: Counts::from_lines(lines.into_iter())?,
            not_utf8: not_utf8.into_iter().collect(),
        })
    }
}

/// The line by which a source says that a file was not all UTF-8.
pub(super) fn not_utf8_note(file: u32) -> String {
    format!("{NOT_UTF8}{file}\n")
}

/// Words with their counts, by count descending, then by word ascending in byte order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts(Vec<(String, u64)>);

impl Counts {
    /// Reads the lines `word<TAB>count` that the counting tasks returned; each word stands in one task's part only.
    fn from_lines<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut seen = HashMap::new();
        for line in lines {
            let parsed = line
                .split_once('\t')
                .filter(|(word, _)| !word.is_empty())
                .and_then(|(word, count)| Some((word, count.parse::<u64>().ok()?)));
            let (word, count) = parsed.ok_or_else(|| shape(line))?;
            if seen.insert(word, count).is_some() {
                return Err(format!("the word {word:?} was counted by two tasks"));
            }
        }
        let mut counts: Vec<(String, u64)> = seen
            .into_iter()
            .map(|(word, count)| (word.to_owned(), count))
            .collect();
        counts.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        Ok(Self(counts))
    }

    /// Number of different words.
    #[must_use]
    pub fn distinct(&self) -> usize {
        self.0.len()
    }

    /// Number of words.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// Writes `word<TAB>count` lines.
    ///
    /// # Errors
    /// What the writer says.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        self.0
            .iter()
            .try_for_each(|(word, count)| writeln!(out, "{word}\t{count}"))
    }

    /// The most frequent words as a table.
    #[must_use]
    pub fn table(&self, rows: usize) -> String {
        let top = &self.0[..rows.min(self.0.len())];
        let width = top
            .iter()
            .map(|(word, _)| word.chars().count())
            .max()
            .unwrap_or(0)
            .max(4);
        let digits = top
            .first()
            .map_or(5, |(_, count)| count.to_string().len())
            .max(5);
        let mut table = String::new();
        let _ = writeln!(table, "{:<width$}  {:>digits$}", "word", "count");
        for (word, count) in top {
            let pad = width - word.chars().count();
            let _ = writeln!(table, "{word}{:pad$}  {count:>digits$}", "");
        }
        table
    }
}

fn shape(line: &str) -> String {
    format!("the result has a line of another shape: {line:?}")
}

/// Begins the note that a file was not UTF-8; its position follows.
const NOT_UTF8: &str = "\tnot-utf8\t";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(result: &[u8]) -> Result<Counts, String> {
        WordCountResult::parse(result).map(|result| result.counts)
    }

    #[test]
    fn notes_stand_between_words_and_count_once_per_file() {
        let text = format!(
            "a\t1\n{}{}b\t2\n{}",
            not_utf8_note(3),
            not_utf8_note(0),
            not_utf8_note(3)
        );
        let result = WordCountResult::parse(text.as_bytes()).unwrap();
        assert_eq!(result.not_utf8, [0, 3]);
        assert_eq!(result.counts.total(), 3);
        assert!(WordCountResult::parse(b"\tnot-utf8\tx\n").is_err());
        assert!(WordCountResult::parse(b"\t1\n").is_err());
    }

    #[test]
    fn counts_are_ordered_by_count_then_word() {
        let counts = parse("b\t2\na\t2\nc\t9\nÄ\t1\n".as_bytes()).unwrap();
        let mut out = Vec::new();
        counts.write_to(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "c\t9\na\t2\nb\t2\nÄ\t1\n");
        assert_eq!((counts.distinct(), counts.total()), (4, 14));
    }

    #[test]
    fn a_word_from_two_tasks_is_an_error() {
        assert!(parse(b"a\t1\na\t2\n").unwrap_err().contains("two tasks"));
        assert!(parse(b"a 1\n").is_err());
    }

    #[test]
    fn the_table_is_aligned() {
        let table = parse("äöü\t12345678\nx\t3\n".as_bytes()).unwrap().table(20);
        assert_eq!(table, "word     count\näöü   12345678\nx            3\n");
    }
}
