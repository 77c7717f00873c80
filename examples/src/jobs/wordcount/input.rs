//! What the sources read, as it travels to them.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{generate, paths::SourceFile};

/// Configuration of the sources: the whole input; each source takes its part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// So many blocks of the generated text.
    Generated {
        /// Their number.
        blocks: u64,
    },
    /// Files.
    Files(FileList),
}

/// Paths with lengths; each path is written as what differs from the one before, so that the list of a large folder
/// fits a message.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileList(Vec<Entry>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    shared: u32,
    rest: Vec<u8>,
    bytes: u64,
}

impl Input {
    /// About `bytes` bytes of generated text.
    #[must_use]
    pub fn generated(bytes: u64) -> Self {
        Self::Generated {
            blocks: generate::blocks(bytes),
        }
    }

    /// These files.
    #[must_use]
    pub fn files(files: &[SourceFile]) -> Self {
        Self::Files(FileList::new(files))
    }
}

impl FileList {
    fn new(files: &[SourceFile]) -> Self {
        let mut before: &[u8] = &[];
        let mut entries = Vec::with_capacity(files.len());
        for file in files {
            let path = file.path.as_os_str().as_bytes();
            let shared = before.iter().zip(path).take_while(|(a, b)| a == b).count();
            entries.push(Entry {
                shared: u32::try_from(shared).unwrap_or(u32::MAX),
                rest: path[(shared.min(u32::MAX as usize))..].to_vec(),
                bytes: file.bytes,
            });
            before = path;
        }
        Self(entries)
    }

    /// The files again.
    ///
    /// # Errors
    /// A list that no client wrote.
    pub fn unpack(&self) -> Result<Vec<SourceFile>, String> {
        let mut before: Vec<u8> = Vec::new();
        let mut files = Vec::with_capacity(self.0.len());
        for (index, entry) in self.0.iter().enumerate() {
            let shared = entry.shared as usize;
            if shared > before.len() {
                return Err(format!(
                    "file {index} of the list shares {shared} bytes with a path of {} bytes",
                    before.len()
                ));
            }
            before.truncate(shared);
            before.extend_from_slice(&entry.rest);
            files.push(SourceFile {
                path: PathBuf::from(OsStr::from_bytes(&before)),
                bytes: entry.bytes,
            });
        }
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_list_of_paths_comes_back_and_a_folder_is_sent_short() {
        let files: Vec<SourceFile> = (0..100_u64)
            .map(|index| SourceFile {
                path: format!("/srv/corpus/a folder with a long name/file-{index:03}.txt").into(),
                bytes: index,
            })
            .chain(["/x", "/x", "/", "/x/\u{e4}"].map(|path| SourceFile {
                path: path.into(),
                bytes: 7,
            }))
            .chain([SourceFile {
                path: OsStr::from_bytes(b"/not\xffutf8").into(),
                bytes: 1,
            }])
            .collect();
        let list = FileList::new(&files);
        assert_eq!(list.unpack().unwrap(), files);
        let sent: usize = list.0.iter().map(|entry| entry.rest.len()).sum();
        assert!(sent < 1200, "{sent} bytes of paths");
    }

    #[test]
    fn a_list_that_nobody_wrote_is_an_error() {
        let list = FileList(vec![Entry {
            shared: 1,
            rest: Vec::new(),
            bytes: 0,
        }]);
        assert!(list.unpack().is_err());
    }
}
