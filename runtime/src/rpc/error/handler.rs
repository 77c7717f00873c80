//! The errors of endpoints' code.

use std::{error::Error, fmt, iter::successors};

use serde::{Deserialize, Serialize};

use super::RpcError;

/// An error that an endpoint's code answers with: a kind that the caller can match, and texts for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandlerError {
    /// A stable word for the kind, such as `slot.no_free_slot`.
    pub kind: String,
    /// What happened.
    pub message: String,
    /// Whether the same call may succeed later.
    pub retryable: bool,
    /// The sources, outermost first, without `message` itself.
    pub chain: Vec<String>,
}

impl HandlerError {
    /// An error without a source that a retry does not cure.
    pub fn new(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            message: message.into(),
            retryable: false,
            chain: Vec::new(),
        }
    }

    /// Takes the text of an error and of its sources. Of an [`RpcError`] or [`HandlerError`] among them it takes its own
    /// sources, and whether a retry may help.
    pub fn from_error(kind: impl Into<String>, error: &(dyn Error + 'static)) -> Self {
        let mut texts = Vec::new();
        let mut retryable = false;
        for cause in successors(Some(error), |&error| error.source()).take(MAX_SOURCES) {
            let rpc = cause.downcast_ref::<RpcError>();
            retryable |= rpc.is_some_and(RpcError::is_retryable);
            let handler = match rpc {
                Some(RpcError::Handler(error)) => Some(error),
                _ => cause.downcast_ref::<Self>(),
            };
            match handler {
                Some(error) => {
                    retryable |= error.retryable;
                    texts.push(error.message.clone());
                    texts.extend_from_slice(&error.chain);
                }
                None => texts.push(cause.to_string()),
            }
        }
        let mut chain = texts.split_off(1);
        shorten(&mut chain);
        Self {
            retryable,
            chain,
            ..Self::new(kind, texts.remove(0))
        }
    }

    /// Says what was tried when this came up. Kind and whether a retry may help stay, the message so far becomes the
    /// first of the sources.
    ///
    /// ```
    /// # use thalweg_runtime::rpc::HandlerError;
    /// let error = HandlerError::new("disk.full", "no space left on /data")
    ///     .context("cannot store partition 7")
    ///     .context("task map/3 failed");
    /// assert_eq!(error.kind, "disk.full");
    /// assert_eq!(
    ///     error.to_string(),
    ///     "task map/3 failed: cannot store partition 7: no space left on /data"
    /// );
    /// ```
    #[must_use]
    pub fn context(mut self, message: impl Into<String>) -> Self {
        let inner = std::mem::replace(&mut self.message, message.into());
        self.chain.insert(0, inner);
        shorten(&mut self.chain);
        self
    }

    /// Says that a retry may help.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        for cause in &self.chain {
            write!(f, ": {cause}")?;
        }
        Ok(())
    }
}

impl Error for HandlerError {}

/// An endpoint that passes another endpoint's failure on keeps its kind, whether a retry may help, and the sources.
impl From<RpcError> for HandlerError {
    fn from(error: RpcError) -> Self {
        match error {
            RpcError::Handler(error) => error,
            other => Self {
                retryable: other.is_retryable(),
                ..Self::new(other.kind(), other.to_string())
            },
        }
    }
}

/// Keeps the outer ones, which say what was tried, and the last one, which says why it failed.
pub(super) fn shorten(chain: &mut Vec<String>) {
    if chain.len() > MAX_CHAIN {
        let root = chain.pop();
        chain.truncate(MAX_CHAIN - 1);
        chain.extend(root);
    }
}

/// Deeper chains repeat themselves.
pub(super) const MAX_CHAIN: usize = 16;

/// An error whose sources form a circle must not hang its endpoint.
const MAX_SOURCES: usize = 64;
