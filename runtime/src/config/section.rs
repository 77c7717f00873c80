//! One table of the configuration as a struct whose keys are known by name.

use super::value::Raw;

/// A table whose keys are read and written by name.
pub(super) trait Section {
    /// The name in brackets.
    fn name(&self) -> &'static str;

    /// The keys in the order of the file.
    fn keys(&self) -> &'static [&'static str];

    /// Reads one key.
    ///
    /// # Errors
    /// [`SetError::NoSuchKey`], or what is allowed.
    fn set(&mut self, key: &str, raw: &Raw) -> Result<(), SetError>;

    /// The value of one key as it stands in TOML.
    fn literal(&self, key: &str) -> Option<String>;
}

/// Why a key was not set.
#[derive(Debug)]
pub(super) enum SetError {
    /// The section has no such key.
    NoSuchKey,
    /// What the key takes.
    Allowed(String),
}

macro_rules! section {
    (
        $(#[$doc:meta])*
        $name:ident = $table:literal {
            $($(#[$field_doc:meta])* $field:ident: $type:ty = $default:expr,)+
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl $crate::config::section::Section for $name {
            fn name(&self) -> &'static str {
                $table
            }

            fn keys(&self) -> &'static [&'static str] {
                &[$(stringify!($field)),+]
            }

            fn set(
                &mut self,
                key: &str,
                raw: &$crate::config::value::Raw,
            ) -> Result<(), $crate::config::section::SetError> {
                match key {
                    $(stringify!($field) => {
                        self.$field = $crate::config::value::Value::read(raw)
                            .map_err($crate::config::section::SetError::Allowed)?;
                    })+
                    _ => return Err($crate::config::section::SetError::NoSuchKey),
                }
                Ok(())
            }

            fn literal(&self, key: &str) -> Option<String> {
                match key {
                    $(stringify!($field) => $crate::config::value::Value::literal(&self.$field),)+
                    _ => None,
                }
            }
        }
    };
}

pub(super) use section;
