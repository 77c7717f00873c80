//! Reading one value from TOML or from text, and writing it back.

use std::{path::PathBuf, time::Duration};

use thalweg_transport::{BindAddr, Profile, ResourceId};
use toml::de::DeValue;

use super::{
    choices::{Compression, RestartStrategy, TaskPlacement, TlsMode, alternatives},
    units::{ByteSize, format_duration, parse_duration},
    url::{Url, redact},
};

/// A value as a source gives it.
#[derive(Debug, Clone)]
pub(super) enum Raw {
    /// From an environment variable or a flag: its type is the key's.
    Text(String),
    /// A TOML string.
    String(String),
    /// A TOML integer.
    Integer(i64),
    /// A TOML boolean.
    Boolean(bool),
    /// A TOML array.
    List(Vec<Self>),
    /// Anything else, as written.
    Other(String),
}

impl Raw {
    /// Takes a parsed TOML value.
    pub(super) fn from_toml(value: &DeValue<'_>) -> Self {
        match value {
            DeValue::String(text) => Self::String(text.clone().into_owned()),
            DeValue::Integer(number) => {
                let digits = number.as_str();
                i64::from_str_radix(digits, number.radix())
                    .map_or_else(|_| Self::Other(digits.to_owned()), Self::Integer)
            }
            DeValue::Boolean(value) => Self::Boolean(*value),
            DeValue::Array(items) => Self::List(
                items
                    .iter()
                    .map(|item| Self::from_toml(item.get_ref()))
                    .collect(),
            ),
            DeValue::Float(number) => Self::Other(number.to_string()),
            DeValue::Datetime(time) => Self::Other(time.to_string()),
            DeValue::Table(_) => Self::Other("{ a table }".to_owned()),
        }
    }

    /// The value for messages: as it would stand in TOML, credentials hidden.
    pub(super) fn literal(&self) -> String {
        match self {
            Self::Text(text) | Self::String(text) => quote(&cut(&redact(text))),
            Self::Integer(number) => number.to_string(),
            Self::Boolean(value) => value.to_string(),
            Self::List(items) => list(items.iter().map(Self::literal)),
            Self::Other(text) => text.clone(),
        }
    }

    fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::String(text) => Some(text),
            _ => None,
        }
    }
}

/// A type that a key can have.
pub(super) trait Value: Sized {
    /// Reads the value.
    ///
    /// # Errors
    /// What is allowed, to be put behind `key = value is not allowed: `.
    fn read(raw: &Raw) -> Result<Self, String>;

    /// The value as a TOML literal; `None` if it is not set.
    fn literal(&self) -> Option<String>;
}

impl Value for bool {
    fn read(raw: &Raw) -> Result<Self, String> {
        match raw {
            Raw::Boolean(value) => Ok(*value),
            Raw::Text(text) if text == "true" => Ok(true),
            Raw::Text(text) if text == "false" => Ok(false),
            _ => Err("true or false".to_owned()),
        }
    }

    fn literal(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Value for u32 {
    fn read(raw: &Raw) -> Result<Self, String> {
        let number = match raw {
            Raw::Integer(number) => Self::try_from(*number).ok(),
            Raw::Text(text) => text.parse().ok(),
            _ => None,
        };
        number.ok_or_else(|| format!("a whole number from 0 to {}", Self::MAX))
    }

    fn literal(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Value for String {
    fn read(raw: &Raw) -> Result<Self, String> {
        raw.as_text()
            .map(str::to_owned)
            .ok_or_else(|| "a string".to_owned())
    }

    fn literal(&self) -> Option<String> {
        Some(quote(self))
    }
}

impl Value for PathBuf {
    fn read(raw: &Raw) -> Result<Self, String> {
        match raw.as_text() {
            Some(text) if !text.is_empty() && !text.contains('\0') => Ok(text.into()),
            _ => Err("a path".to_owned()),
        }
    }

    fn literal(&self) -> Option<String> {
        Some(quote(&self.to_string_lossy()))
    }
}

impl Value for Duration {
    fn read(raw: &Raw) -> Result<Self, String> {
        let allowed = "a duration like 250ms, 10s or 1m30s";
        raw.as_text()
            .and_then(|text| parse_duration(text).ok())
            .ok_or_else(|| allowed.to_owned())
    }

    fn literal(&self) -> Option<String> {
        Some(quote(&format_duration(*self)))
    }
}

impl Value for ByteSize {
    fn read(raw: &Raw) -> Result<Self, String> {
        let size = match raw {
            Raw::Integer(bytes) => u64::try_from(*bytes).ok().map(Self::bytes),
            _ => raw.as_text().and_then(|text| text.parse().ok()),
        };
        size.ok_or_else(|| "a size like 64KiB, 10MB or 4096".to_owned())
    }

    fn literal(&self) -> Option<String> {
        Some(quote(&self.to_string()))
    }
}

impl Value for ResourceId {
    fn read(raw: &Raw) -> Result<Self, String> {
        raw.as_text()
            .and_then(|text| Self::new(text).ok())
            .ok_or_else(|| "1 to 128 characters of A-Z a-z 0-9 . _ -".to_owned())
    }

    fn literal(&self) -> Option<String> {
        Some(quote(self.as_str()))
    }
}

impl Value for BindAddr {
    fn read(raw: &Raw) -> Result<Self, String> {
        raw.as_text()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| "IP:PORT, IP:FIRST-LAST or [IPv6]:PORT".to_owned())
    }

    fn literal(&self) -> Option<String> {
        Some(quote(&self.to_string()))
    }
}

impl Value for Profile {
    fn read(raw: &Raw) -> Result<Self, String> {
        let names = Self::ALL.map(Self::as_str);
        let text = raw.as_text().unwrap_or_default();
        text.parse().map_err(|_| alternatives(text, &names))
    }

    fn literal(&self) -> Option<String> {
        Some(quote(self.as_str()))
    }
}

macro_rules! by_text {
    ($($name:ty),+) => {
        $(impl Value for $name {
            fn read(raw: &Raw) -> Result<Self, String> {
                raw.as_text().unwrap_or_default().parse()
            }

            fn literal(&self) -> Option<String> {
                Some(quote(&self.to_string()))
            }
        })+
    };
}

by_text!(TlsMode, Compression, RestartStrategy, TaskPlacement, Url);

impl<T: Value> Value for Option<T> {
    fn read(raw: &Raw) -> Result<Self, String> {
        match raw {
            // An environment variable cannot be taken away, only emptied.
            Raw::Text(text) if text.is_empty() => Ok(None),
            _ => T::read(raw).map(Some),
        }
    }

    fn literal(&self) -> Option<String> {
        self.as_ref().and_then(Value::literal)
    }
}

impl<T: Value> Value for Vec<T> {
    fn read(raw: &Raw) -> Result<Self, String> {
        let each = |allowed: String| format!("a list, each of {allowed}");
        match raw {
            Raw::List(items) => items
                .iter()
                .map(|item| T::read(item).map_err(each))
                .collect(),
            Raw::Text(text) if text.trim_start().starts_with('[') => {
                let parsed = DeValue::parse(text)
                    .map_err(|_| "a list like [\"a\", \"b\"] or a,b".to_owned())?;
                Self::read(&Raw::from_toml(parsed.get_ref()))
            }
            Raw::Text(text) => text
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty())
                .map(|item| T::read(&Raw::Text(item.to_owned())).map_err(each))
                .collect(),
            _ => Err("a list like [\"a\", \"b\"]".to_owned()),
        }
    }

    fn literal(&self) -> Option<String> {
        Some(list(self.iter().filter_map(Value::literal)))
    }
}

/// A TOML basic string on one line.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => quoted.push_str(&format!("\\U{:08X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

/// Keeps a message readable whatever somebody put into a variable.
fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Characters of a wrong value that a message repeats.
const LONGEST_SHOWN: usize = 200;
