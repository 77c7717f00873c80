//! A text that is hard to count: letters of several bytes across the edges of buffers, a very long line, bytes that are
//! no text, empty and hidden files. And the straightforward way to count it.

use std::{
    cmp::Reverse,
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use fastrand::Rng;

/// Files, and what `wordcount` has to say about them.
pub(crate) struct Corpus {
    folder: PathBuf,
    expected: String,
}

impl Corpus {
    /// The one of this test binary. It stays in the build folder, where the next run finds it again.
    pub(crate) fn get() -> &'static Self {
        static CORPUS: LazyLock<Corpus> = LazyLock::new(Corpus::make);
        &CORPUS
    }

    /// The folder in which [`PATHS`] are.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Lines `word<TAB>count`, by count descending, then by word.
    pub(crate) fn expected(&self) -> &str {
        &self.expected
    }

    fn make() -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("corpus");
        let files = files();
        let bytes: usize = files.iter().map(|(_, content)| content.len()).sum();
        assert!(bytes > 50_000_000, "{bytes} bytes");
        for (name, content) in &files {
            write(&folder.join(name), content);
        }
        let contents = files.iter().flat_map(|(name, content)| {
            let times = PATHS.iter().filter(move |path| {
                name == *path || (**path == TREE && name.starts_with(&format!("{TREE}/")))
            });
            times.map(|_| content.as_slice())
        });
        let expected = count(contents);
        Self { folder, expected }
    }
}

/// Arguments of `wordcount`: files, one of them twice, and a folder.
pub(crate) const PATHS: [&str; 5] = ["prose.txt", "small.txt", "empty.txt", "small.txt", TREE];
const TREE: &str = "tree";

/// The file that is not UTF-8 everywhere.
pub(crate) const NOT_UTF8: &str = "tree/deep/noise.bin";

/// Counts words one after another.
pub(crate) fn count<'a>(contents: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut counts: HashMap<String, u64> = HashMap::new();
    for content in contents {
        let text = String::from_utf8_lossy(content);
        let words = text.split(|letter: char| !letter.is_alphanumeric());
        for word in words.filter(|word| !word.is_empty()) {
            *counts.entry(word.to_lowercase()).or_default() += 1;
        }
    }
    let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
    counts.sort_unstable_by(|(a, m), (b, n)| (Reverse(m), a).cmp(&(Reverse(n), b)));
    let lines = counts.iter().map(|(word, n)| format!("{word}\t{n}\n"));
    lines.collect()
}

fn files() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("prose.txt", prose(1, 24 * MB, true)),
        (
            "small.txt",
            "One file \u{2014} GROSS, groß, Straße; \u{39f}\u{394}\u{39f}\u{3a3} \u{130}stanbul. No line end"
                .into(),
        ),
        ("empty.txt", Vec::new()),
        ("tree/.hidden", "hidden words count, Hidden words too\n".into()),
        ("tree/edges.txt", edges()),
        ("tree/deep/empty.txt", Vec::new()),
        ("tree/deep/line-ends-only.txt", b"\n\r\n\n".to_vec()),
        ("tree/deep/long-line.txt", prose(2, 5 * MB, false)),
        (NOT_UTF8, noise()),
        ("tree/deep/prose.txt", prose(3, 16 * MB, true)),
    ]
}

/// Words of many scripts, with or without line ends; the last line has none.
fn prose(seed: u64, bytes: usize, lines: bool) -> Vec<u8> {
    let mut random = Rng::with_seed(seed);
    let words: Vec<String> = (0..4000).map(|_| word(&mut random)).collect();
    let separators = if lines {
        &[" ", " ", " ", ", ", "\n", "\r\n", "'", " \u{1f642} "][..]
    } else {
        &[" ", " ", "\u{2014}", "/"][..]
    };
    let mut text = String::with_capacity(bytes + 100);
    while text.len() < bytes {
        // Some words are much more frequent than others.
        let limit = random.usize(1..=words.len());
        text.push_str(&words[random.usize(..limit)]);
        text.push_str(separators[random.usize(..separators.len())]);
    }
    text.push_str("end");
    text.into_bytes()
}

fn word(random: &mut Rng) -> String {
    let letters: Vec<char> = LETTERS.chars().collect();
    let plain = random.u8(..4) > 0;
    (0..random.usize(1..12))
        .map(|_| {
            if plain {
                random.alphanumeric()
            } else {
                letters[random.usize(..letters.len())]
            }
        })
        .collect()
}

/// Lines whose letters of two and three bytes lie across every edge near the sizes of buffers and reads: some of one
/// word, which as a record is longer than a buffer, others of many.
fn edges() -> Vec<u8> {
    let mut text = Vec::new();
    let lengths = (16_380..16_390)
        .chain(32_720..32_780)
        .chain([65_536, 262_144]);
    for length in lengths {
        for pause in [usize::MAX, 20] {
            line(&mut text, length, pause);
        }
    }
    for length in 32_740..32_900 {
        line(&mut text, length, 7);
    }
    text
}

/// One line of exactly `length` bytes, a space after every `pause` letters.
fn line(text: &mut Vec<u8>, length: usize, pause: usize) {
    let letters = ["ж", "щ", "北", "京", "ſ", "é"];
    let mut line = "a".repeat(length % 5);
    for count in 1.. {
        let next = if count % pause == 0 {
            " "
        } else {
            letters[(count * 7 + length) % letters.len()]
        };
        if line.len() + next.len() > length {
            break;
        }
        line.push_str(next);
    }
    while line.len() < length {
        line.push('z');
    }
    text.extend_from_slice(line.as_bytes());
    text.push(b'\n');
}

/// Bytes that are no text, and text with holes; it ends inside a letter.
fn noise() -> Vec<u8> {
    let mut random = Rng::with_seed(4);
    let mut bytes: Vec<u8> = (0..300_000).map(|_| random.u8(..)).collect();
    bytes.extend_from_slice(b"cut \xe4\xb8\nshort \xf0\x9f\x98\n\xff\xfeBOM \xc3(\n");
    let mut holes = prose(5, MB, true);
    holes.retain(|_| random.u16(..) > 100);
    bytes.extend_from_slice(&holes);
    bytes.extend_from_slice(b"\nlast \xe2\x82");
    bytes
}

/// Writes what is not there yet; whoever reads at the same time finds the old file or the new one.
fn write(path: &Path, content: &[u8]) {
    if fs::read(path).is_ok_and(|found| found == content) {
        return;
    }
    let folder = path.parent().unwrap();
    fs::create_dir_all(folder).unwrap();
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::write(file.path(), content).unwrap();
    file.persist(path).unwrap();
}

const MB: usize = 1_000_000;
/// Letters and digits of one to four bytes, among them some whose lower case has another length, or depends on its place.
const LETTERS: &str = "aäÄßẞéÉñçøÅžşİıǅﬃſαβΣσςΩжЩЯבغ٣१日本語北京한글ア𝒳𐐀𐐨Ⅷ½";
