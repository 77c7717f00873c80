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

/// Replaces what may be secret in a URL: the part before `@` of its authority, and its query.
///
/// Text that is no URL comes back unchanged.
pub(super) fn redact(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let (rest, query) = match rest.split_once('?') {
        Some((rest, _)) => (rest, "?***"),
        None => (rest, ""),
    };
    let authority_end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(authority_end);
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://***@{host}{path}{query}"),
        None => format!("{scheme}://{authority}{path}{query}"),
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
    fn text_without_a_scheme_is_refused() {
        for bad in ["", "/var/lib", "://x", "1x://y", "file://", "http://a b"] {
            assert!(bad.parse::<Url>().is_err(), "{bad:?}");
        }
    }
}
