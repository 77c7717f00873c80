//! Why data could not be written to disk or read from it.

use std::{io, path::Path, sync::Arc};

use thiserror::Error;

/// A failure of the disk that holds spilled data. It fails one partition, or one reader of it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SpillError {
    /// The system refused.
    #[error("cannot {operation} {}: {reason}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// The file or folder.
        path: Arc<Path>,
        /// What the system said.
        reason: Arc<str>,
    },
    /// The file does not hold what was written to it.
    #[error("{} is damaged in region {region} at byte {at}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: Arc<Path>,
        /// Which part of it that was written at one time, from 0 on.
        region: usize,
        /// Where in it.
        at: u64,
        /// What is wrong there.
        reason: &'static str,
    },
    /// No folder was given.
    #[error("no folder for spilled data is given")]
    NoFolder,
    /// The runtime of the blocking operations has ended.
    #[error("the input and output manager is closed")]
    Closed,
}

impl SpillError {
    pub(super) fn io(operation: &'static str, path: &Path, error: &io::Error) -> Self {
        Self::Io {
            operation,
            path: path.into(),
            reason: error.to_string().into(),
        }
    }
}
