//! Settings that are one of a few words.

use std::{fmt, str::FromStr};

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$vdoc])* $variant,)+
        }

        impl $name {
            /// All values, for messages.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word in the configuration.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(alternatives(text, &[$($word),+])),
                }
            }
        }
    };
}

choice! {
    /// Whether connections are encrypted and both sides present a certificate.
    TlsMode {
        /// Mutual TLS 1.3.
        Mutual = "mutual",
        /// TLS if the peer has it. Known by name so that the refusal can say so; no backend of this version has it.
        Optional = "optional",
        /// Plain text, on TCP only.
        Off = "off",
    }
}

choice! {
    /// How the data of blocking partitions is compressed on disk.
    Compression {
        /// Not at all.
        None = "none",
        /// LZ4 blocks.
        Lz4 = "lz4",
    }
}

choice! {
    /// On which threads a TaskManager runs tasks.
    TaskPlacement {
        /// Each task on a thread of its own.
        OwnThread = "own-thread",
        /// Tasks of [light](crate::task::Task::LIGHT) types on the network thread of the node, all others each on a
        /// thread of its own. So are all tasks of a node without a network.
        Network = "network",
    }
}

choice! {
    /// When a failed job starts again.
    RestartStrategy {
        /// Never.
        None = "none",
        /// After the same delay each time.
        FixedDelay = "fixed-delay",
        /// After a delay that doubles.
        Exponential = "exponential",
    }
}

/// `a, b or c`, and the word that was probably meant.
pub(super) fn alternatives(given: &str, allowed: &[&str]) -> String {
    let list = one_of(allowed);
    match nearest(given, allowed.iter().copied()) {
        Some(near) => format!("{list} (did you mean {near}?)"),
        None => list,
    }
}

/// `a, b or c`.
pub(super) fn one_of(words: &[&str]) -> String {
    match words {
        [] => "nothing".to_owned(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// The candidate that differs least, if it is near enough to be a typing mistake.
pub(super) fn nearest<'a>(
    given: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let given: String = given.chars().take(LONGEST_WORD).collect();
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&given, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.chars().count().div_ceil(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Longer words are cut before they are compared: the comparison is quadratic, and no key is as long.
const LONGEST_WORD: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_word_lists_the_allowed_ones() {
        assert_eq!(
            "ful".parse::<TlsMode>().unwrap_err(),
            "mutual, optional or off"
        );
        assert_eq!(
            "fixed_delay".parse::<RestartStrategy>().unwrap_err(),
            "none, fixed-delay or exponential (did you mean fixed-delay?)"
        );
    }

    #[test]
    fn words_are_read_back() {
        for mode in TlsMode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(*mode));
        }
    }
}
