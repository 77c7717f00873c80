//! Text for people: aligned lines, and nothing that a terminal would obey.

use std::fmt::Write;
use std::path::Path;

use thalweg_certs::Warning;

/// Lines of `key: value` with the values in one column.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    rows: Vec<(&'static str, String)>,
}

impl Lines {
    pub(crate) fn push(&mut self, key: &'static str, value: impl Into<String>) {
        self.rows.push((key, value.into()));
    }

    pub(crate) fn into_text(self) -> String {
        let width = self
            .rows
            .iter()
            .map(|(key, _)| key.len() + 1)
            .max()
            .unwrap_or(0);
        let mut text = String::new();
        for (key, value) in self.rows {
            let label = format!("{key}:");
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{label:width$} {}", printable(&value));
        }
        text
    }
}

/// The text with its control characters written out: names in certificates come from anywhere.
pub(crate) fn printable(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            clean.extend(c.escape_default());
        } else {
            clean.push(c);
        }
    }
    clean
}

/// A path as a shell takes it.
pub(crate) fn shell_word(path: &Path) -> String {
    let word = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%,:=".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Tells about what works but should be changed, on standard error.
pub(crate) fn warn(warnings: &[Warning]) {
    for warning in warnings {
        // A closed standard error must not fail the command.
        let _ =
            std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("warning: {warning}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_in_one_column_and_cannot_control_the_terminal() {
        let mut lines = Lines::default();
        lines.push("a", "1");
        lines.push("long key", "\u{1b}[2J");
        assert_eq!(lines.into_text(), "a:        1\nlong key: \\u{1b}[2J\n");
    }

    #[test]
    fn paths_with_special_characters_are_quoted() {
        assert_eq!(shell_word(Path::new("certs/tm-1")), "certs/tm-1");
        assert_eq!(shell_word(Path::new("my certs")), "'my certs'");
        assert_eq!(shell_word(Path::new("it's")), r"'it'\''s'");
    }
}
