//! Files on disk: who may read a key, and writing that never shows a half file or overwrites one.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

#[cfg(unix)]
use std::os::unix::fs::PermissionsExt;

use crate::error::{CertError, Origin, Warning};

/// Who may read a file that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everyone, as far as the process's umask allows.
    Public,
    /// The owner alone.
    Secret,
}

/// A file to write.
#[derive(Debug)]
pub(crate) struct NewFile<'a> {
    pub(crate) path: PathBuf,
    pub(crate) text: &'a str,
    pub(crate) access: Access,
}

/// Reads a whole file that may be known to everyone.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, CertError> {
    let file = File::open(path).map_err(|error| CertError::io("read", path, error))?;
    read_bounded(file, path)
}

/// Reads a private key file, and refuses it if users other than its owner and group have any access to it.
pub(crate) fn read_secret(path: &Path, warnings: &mut Vec<Warning>) -> Result<Vec<u8>, CertError> {
    let file = File::open(path).map_err(|error| CertError::io("read", path, error))?;
    // The open file is asked, not the path: the two can change apart.
    check_access(&file, path, warnings)?;
    read_bounded(file, path)
}

/// Writes files that must not exist yet, all or none, and the folders that they are in.
///
/// # Errors
///
/// [`CertError::AlreadyExists`] names the first file that exists; nothing is written then.
pub(crate) fn write_new(files: &[NewFile<'_>]) -> Result<(), CertError> {
    for file in files {
        // A dangling link counts as existing: it would be replaced.
        if file.path.symlink_metadata().is_ok() {
            return Err(CertError::AlreadyExists {
                path: file.path.clone(),
            });
        }
    }
    let mut written: Vec<&Path> = Vec::new();
    for file in files {
        if let Err(error) = write_one(file) {
            for path in written {
                // The first error is the one to report; a leftover is seen by the next attempt.
                let _ = fs::remove_file(path);
            }
            return Err(error);
        }
        written.push(&file.path);
    }
    Ok(())
}

fn write_one(file: &NewFile<'_>) -> Result<(), CertError> {
    let path = file.path.as_path();
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(folder).map_err(|error| CertError::io("create folder", folder, error))?;
    let failed = |error| CertError::io("write", path, error);
    let mut temporary = tempfile::Builder::new()
        .prefix(".certs-")
        .permissions(permissions(file.access))
        .tempfile_in(folder)
        .map_err(failed)?;
    temporary.write_all(file.text.as_bytes()).map_err(failed)?;
    temporary.as_file().sync_all().map_err(failed)?;
    temporary
        .persist_noclobber(path)
        .map_err(|refused| match refused.error.kind() {
            io::ErrorKind::AlreadyExists => CertError::AlreadyExists {
                path: path.to_owned(),
            },
            _ => failed(refused.error),
        })?;
    sync_folder(folder).map_err(failed)
}

/// Makes the new name itself survive a power cut, not only the content.
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn read_bounded(file: File, path: &Path) -> Result<Vec<u8>, CertError> {
    let mut text = Vec::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut text)
        .map_err(|error| CertError::io("read", path, error))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        let origin = Origin::File(path.to_owned());
        return Err(CertError::parse(
            &origin,
            format!("is larger than {MAX_FILE_BYTES} bytes, the most that is read"),
        ));
    }
    Ok(text)
}

#[cfg(unix)]
fn check_access(file: &File, path: &Path, warnings: &mut Vec<Warning>) -> Result<(), CertError> {
    let metadata = file
        .metadata()
        .map_err(|error| CertError::io("read", path, error))?;
    let mode = metadata.permissions().mode() & 0o7777;
    if metadata.is_file() && mode & 0o007 != 0 {
        return Err(CertError::InsecureKey {
            path: path.to_owned(),
            mode,
        });
    }
    if metadata.is_file() && mode & 0o070 != 0 {
        warnings.push(Warning::GroupReadableKey {
            path: path.to_owned(),
            mode,
        });
    }
    Ok(())
}

#[cfg(unix)]
fn permissions(access: Access) -> Permissions {
    Permissions::from_mode(match access {
        Access::Public => 0o644,
        Access::Secret => 0o600,
    })
}

/// Certificates and keys of a cluster are some kilobytes; a bundle of every public CA is about 250 KiB. What is larger
/// is another file, or one without an end.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn secret(path: PathBuf) -> NewFile<'static> {
        NewFile {
            path,
            text: "secret",
            access: Access::Secret,
        }
    }

    #[test]
    fn folders_are_made_and_a_secret_is_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/key.pem");
        write_new(&[secret(path.clone())]).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(read_secret(&path, &mut Vec::new()).unwrap(), b"secret");
        assert_eq!(
            fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "no temporary file is left"
        );
    }

    #[test]
    fn nothing_is_written_if_one_of_the_files_exists() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("first"), dir.path().join("second"));
        fs::write(&second, "old").unwrap();
        let error = write_new(&[secret(first.clone()), secret(second.clone())]).unwrap_err();
        assert!(
            matches!(&error, CertError::AlreadyExists { path } if *path == second),
            "{error}"
        );
        assert!(!first.exists());
        assert_eq!(fs::read_to_string(&second).unwrap(), "old");
    }

    #[test]
    fn files_written_before_a_failure_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let first = dir.path().join("first");
        // The folder of the second file is the first file.
        let error = write_new(&[secret(first.clone()), secret(first.join("second"))]).unwrap_err();
        assert!(matches!(error, CertError::Io { .. }), "{error}");
        assert!(!first.exists());
    }

    #[test]
    fn a_dangling_link_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path().join("nowhere"), &link).unwrap();
        assert!(matches!(
            write_new(&[secret(link)]),
            Err(CertError::AlreadyExists { .. })
        ));
    }

    #[test]
    fn a_key_open_to_others_is_refused_and_one_open_to_its_group_is_warned_about() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key.pem");
        fs::write(&path, "secret").unwrap();
        for (bits, accepted, warned) in [
            (0o600, true, 0),
            (0o400, true, 0),
            (0o640, true, 1),
            (0o660, true, 1),
            (0o604, false, 0),
            (0o602, false, 0),
        ] {
            fs::set_permissions(&path, Permissions::from_mode(bits)).unwrap();
            let mut warnings = Vec::new();
            let result = read_secret(&path, &mut warnings);
            assert_eq!(result.is_ok(), accepted, "{bits:o}");
            assert_eq!(warnings.len(), warned, "{bits:o}");
            if let Err(error) = result {
                let hint = format!("chmod 600 {}", path.display());
                assert!(error.to_string().contains(&hint), "{error}");
            }
        }
    }

    #[test]
    fn an_endless_file_is_refused() {
        let error = read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(error.starts_with("/dev/zero: is larger than"), "{error}");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = read(Path::new("/nonexistent/cert.pem")).unwrap_err();
        assert_eq!(error.to_string(), "cannot read /nonexistent/cert.pem");
    }
}
