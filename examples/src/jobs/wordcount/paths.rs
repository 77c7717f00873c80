//! From the paths on the command line to the list of files that are read.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use walkdir::WalkDir;

/// A regular file that was found readable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Its absolute path.
    pub path: PathBuf,
    /// Its length when it was looked at.
    pub bytes: u64,
}

/// The files to read, and what was passed over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Files in reading order; a path given twice is here twice.
    pub files: Vec<SourceFile>,
    /// One line for each thing inside a folder that is no regular file.
    pub warnings: Vec<String>,
}

/// Why a path cannot be counted.
#[derive(Debug)]
pub struct PathError {
    path: PathBuf,
    reason: String,
}

impl std::fmt::Display for PathError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot read {}: {}", self.path.display(), self.reason)
    }
}

impl std::error::Error for PathError {}

/// Finds the files behind `paths`.
///
/// A path given by name is followed if it is a link and must be a regular file or a folder. Inside folders hidden files
/// count, links are not followed, and what is not a regular file is passed over with a warning. Names are taken in byte
/// order, so that the same folder gives the same list everywhere.
///
/// # Errors
/// The first path that does not exist, cannot be read, or is neither file nor folder: an unreadable file is never left
/// out silently, wherever it is.
pub fn select(paths: &[PathBuf]) -> Result<Selection, PathError> {
    let mut selection = Selection::default();
    for path in paths {
        let metadata = std::fs::metadata(path).map_err(|error| failed(path, &error))?;
        if metadata.is_file() {
            let absolute = std::path::absolute(path).map_err(|error| failed(path, &error))?;
            selection.files.push(readable(&absolute)?);
        } else if metadata.is_dir() {
            walk(path, &mut selection)?;
        } else {
            return Err(PathError {
                path: path.clone(),
                reason: "it is neither a regular file nor a folder".to_owned(),
            });
        }
    }
    Ok(selection)
}

fn walk(folder: &Path, selection: &mut Selection) -> Result<(), PathError> {
    let absolute = std::path::absolute(folder).map_err(|error| failed(folder, &error))?;
    for entry in WalkDir::new(&absolute)
        .follow_links(false)
        .sort_by_file_name()
    {
        let entry = entry.map_err(|error| {
            let path = error.path().unwrap_or(folder).to_path_buf();
            let reason = error
                .io_error()
                .map_or_else(|| error.to_string(), ToString::to_string);
            PathError { path, reason }
        })?;
        let kind = entry.file_type();
        if kind.is_file() {
            selection.files.push(readable(entry.path())?);
        } else if !kind.is_dir() && entry.depth() > 0 {
            let what = if kind.is_symlink() {
                "a symbolic link"
            } else {
                "no regular file"
            };
            selection.warnings.push(format!(
                "{} is {what} and is skipped",
                entry.path().display()
            ));
        }
    }
    Ok(())
}

fn readable(path: &Path) -> Result<SourceFile, PathError> {
    let bytes = File::open(path)
        .and_then(|file| file.metadata())
        .map_err(|error| failed(path, &error))?
        .len();
    Ok(SourceFile {
        path: path.to_path_buf(),
        bytes,
    })
}

fn failed(path: &Path, error: &io::Error) -> PathError {
    PathError {
        path: path.to_path_buf(),
        reason: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn names(selection: &Selection) -> Vec<String> {
        selection
            .files
            .iter()
            .map(|file| {
                file.path
                    .file_name()
                    .unwrap()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect()
    }

    #[test]
    fn folders_are_walked_in_name_order_with_hidden_files_and_without_links() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        for name in ["b", ".hidden", "sub/a"] {
            fs::write(dir.path().join(name), "x").unwrap();
        }
        symlink(dir.path().join("b"), dir.path().join("link")).unwrap();
        let selection = select(&[dir.path().to_path_buf()]).unwrap();
        assert_eq!(names(&selection), [".hidden", "b", "a"]);
        assert_eq!(selection.warnings.len(), 1);
        assert!(
            selection.warnings[0].contains("link is a symbolic link"),
            "{:?}",
            selection.warnings
        );
    }

    #[test]
    fn a_link_given_by_name_is_followed_and_a_path_given_twice_counts_twice() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("b"), "x").unwrap();
        symlink(dir.path().join("b"), dir.path().join("link")).unwrap();
        let link = dir.path().join("link");
        let selection = select(&[link.clone(), link]).unwrap();
        assert_eq!(names(&selection), ["link", "link"]);
        assert_eq!(selection.files[0].bytes, 1);
    }

    #[test]
    fn missing_and_special_paths_are_refused_by_name() {
        let error = select(&[PathBuf::from("/no/such/file")])
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("cannot read /no/such/file: "), "{error}");
        let error = select(&[PathBuf::from("/dev/null")])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("neither a regular file nor a folder"),
            "{error}"
        );
    }
}
