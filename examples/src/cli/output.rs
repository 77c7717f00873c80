//! Result files, whole or not at all.

use std::{
    fs,
    io::{self, BufWriter, Write},
    path::Path,
};

use super::failure::Failure;

/// Writes a file through a temporary one in the same folder, which then takes its name: a reader sees the old content or
/// the new one, and after a failure the old one is still there.
///
/// A file that existed keeps its permissions; what is not a regular file (a pipe, a device) is written to as it is.
pub(crate) fn write_atomically(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    write(path, content).map_err(|error| failed(path, &error))
}

/// Finds out before a job runs that its result could not be written: a missing folder, or a folder in the file's place.
pub(crate) fn check(path: &Path) -> Result<(), Failure> {
    if path.is_dir() {
        return Err(failed(path, &io::Error::from(io::ErrorKind::IsADirectory)));
    }
    match fs::metadata(folder(path)) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(failed(path, &io::Error::from(io::ErrorKind::NotADirectory))),
        Err(error) => Err(failed(path, &error)),
    }
}

fn write(path: &Path, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    // A link stays one: its target is replaced.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let existing = fs::metadata(&target).ok();
    if existing
        .as_ref()
        .is_some_and(|metadata| !metadata.is_file())
    {
        let mut out = BufWriter::new(fs::OpenOptions::new().write(true).open(&target)?);
        content(&mut out)?;
        return out.flush();
    }
    let mut file = tempfile::Builder::new()
        .prefix(".cluster-")
        .suffix(".tmp")
        .permissions(match existing {
            Some(metadata) => metadata.permissions(),
            None => default_permissions(),
        })
        .tempfile_in(folder(&target))?;
    let mut out = BufWriter::new(&mut file);
    content(&mut out)?;
    out.flush()?;
    drop(out);
    file.as_file().sync_all()?;
    file.persist(&target).map_err(|error| error.error)?;
    Ok(())
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// What the process's umask leaves of it, as for any new file.
fn default_permissions() -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o666)
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_failed_write_leaves_the_old_content_and_no_other_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        fs::write(&path, "old").unwrap();
        let failure = write_atomically(&path, |out| {
            out.write_all(b"half")?;
            Err(io::Error::other("disk is gone"))
        })
        .unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(dir.path()), ["out"]);
        assert_eq!(failure.code(), 1);
        let text = failure.to_string();
        assert!(
            text.contains("out") && text.contains("disk is gone"),
            "{text}"
        );
    }

    #[test]
    fn the_new_content_takes_the_place_and_the_permissions_of_the_old() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("out"), dir.path().join("link"));
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&path, &link).unwrap();
        write_atomically(&link, |out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o640
        );
    }

    #[test]
    fn devices_are_written_to_and_not_replaced() {
        write_atomically(Path::new("/dev/null"), |out| out.write_all(b"x")).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn places_that_cannot_be_written_are_found_before_the_job_runs() {
        let dir = tempfile::tempdir().unwrap();
        check(&dir.path().join("new")).unwrap();
        check(Path::new("new")).unwrap();
        for path in [dir.path().to_owned(), dir.path().join("no/such/file")] {
            let failure = check(&path).unwrap_err();
            assert!(
                failure.to_string().contains(&path.display().to_string()),
                "{failure}"
            );
        }
    }
}
