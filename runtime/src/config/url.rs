//! URLs that may carry credentials.

use std::{fmt, str::FromStr};

/// A URL whose user information and query are hidden wherever it is printed.
///
/// Only the scheme is checked here; what reads the URL checks the rest.
#[derive(Clone, PartialEq, Eq)]
pub struct Url(String);

impl Url {
    /// The whole text, credentials included: for the client that dials it, not for logs.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redact(&self.0))
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({self})")
    }
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let valid = text.split_once("://").is_some_and(|(scheme, rest)| {
            scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
                && !rest.is_empty()
                && !rest.contains(|c: char| c.is_control() || c.is_whitespace())
        });
        if valid {
            Ok(Self(text.to_owned()))
        } else {
            Err("a URL like file:///var/lib/thalweg".to_owned())
        }
    }
}

/// Replaces what may be secret in a URL by `***`: everything before the last `@`, and the query.
///
/// It does not rely on the text being a valid URL: a secret may have characters that should have been escaped, and a
/// mistyped URL is shown in a message. Text without any of the characters `@ ? #` comes back unchanged.
pub(super) fn redact(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), text),
    };
    let query = rest.find(['?', '#']);
    match (rest.rfind('@'), query) {
        // Either a secret with a question mark or a query with an at sign: nothing of it is safe to show.
        (Some(at), Some(query)) if query < at => format!("{scheme}***"),
        (Some(at), Some(query)) => format!("{scheme}***{}?***", &rest[at..query]),
        (Some(at), None) => format!("{scheme}***{}", &rest[at..]),
        (None, Some(query)) => format!("{scheme}{}?***", &rest[..query]),
        (None, None) => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_never_printed() {
        let url: Url = "s3://key:secret@bucket/path?signature=abc".parse().unwrap();
        assert_eq!(url.to_string(), "s3://***@bucket/path?***");
        assert_eq!(format!("{url:?}"), "Url(s3://***@bucket/path?***)");
        assert_eq!(url.expose(), "s3://key:secret@bucket/path?signature=abc");
    }

    #[test]
    fn secrets_that_are_not_escaped_are_hidden_too() {
        for text in [
            "s3://id:hun/ter2@bucket/path",
            "s3://id:hun?ter2@bucket",
            "s3://id:hun#ter2@bucket",
            "s3://bucket?key=hunter2&mail=a@b",
            "s3:/id:hunter2@bucket",
            "id:hunter2@bucket",
        ] {
            let shown = redact(text);
            assert!(!shown.contains("hun") && !shown.contains("ter2"), "{shown}");
        }
        assert_eq!(redact("file:///var/lib"), "file:///var/lib");
    }

    #[test]
    fn text_without_a_scheme_is_refused() {
        for bad in ["", "/var/lib", "://x", "1x://y", "file://", "http://a b"] {
            assert!(bad.parse::<Url>().is_err(), "{bad:?}");
        }
    }
}
