//! State files: saved as the old file or the new one, never torn and with nothing beside it; and
//! read again.

use std::fs::DirBuilder;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use atomic_write_file::AtomicWriteFile;

use crate::base::fault::{Fault, FaultKind};
use crate::host::roots::read_file;

/// Characters that atomic-write-file puts after `.name.` while it writes.
const SUFFIX_CHARS: usize = 6;

/// Replaces `directory/name` by `content`; synced, with the directory, when it returns.
///
/// # Errors
/// The kind follows errno; the old file is then as it was.
pub(super) fn save(directory: &Path, name: &str, content: &str) -> Result<(), Fault> {
    let path = place(directory, name)?;
    sweep(directory, name)
        .and_then(|()| write(&path, content))
        .map_err(|error| Fault::os(path.display(), &error))
}

/// The text of `directory/name`; `None` where there is no such file. Makes the directory where it
/// is missing, for its owner alone.
///
/// # Errors
/// The kind follows errno; `Malformed` where it is no text.
pub(super) fn load(directory: &Path, name: &str) -> Result<Option<String>, Fault> {
    let path = place(directory, name)?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| Fault::os(directory.display(), &error))?;
    match read_file(&path) {
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|error| {
            Fault::new(FaultKind::Malformed, format!("{}: {error}", path.display()))
        }),
        Err(fault) if fault.kind == FaultKind::Missing => Ok(None),
        Err(fault) => Err(fault),
    }
}

fn place(directory: &Path, name: &str) -> Result<PathBuf, Fault> {
    if Path::new(name).file_name().is_some_and(|file| file == name) {
        return Ok(directory.join(name));
    }
    let text = format!("{}: `{name}` is no file name", directory.display());
    Err(Fault::new(FaultKind::Internal, text))
}

fn write(path: &Path, content: &str) -> io::Result<()> {
    let mut file = AtomicWriteFile::open(path)?;
    file.write_all(content.as_bytes())?;
    file.commit()
}

/// Removes what a worker left that was killed while it saved this file. There is no other at work:
/// the state directory has one daemon, and that saves through one worker at a time.
fn sweep(directory: &Path, name: &str) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let is_left = entry.file_name().to_str().is_some_and(|file| is_left_of(file, name));
        if is_left && entry.file_type()?.is_file() {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn is_left_of(file: &str, name: &str) -> bool {
    file.strip_prefix('.')
        .and_then(|rest| rest.strip_prefix(name))
        .and_then(|rest| rest.strip_prefix('.'))
        .is_some_and(|suffix| {
            suffix.len() == SUFFIX_CHARS && suffix.bytes().all(|b| b.is_ascii_alphanumeric())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_save_replaces_the_file_and_clears_what_a_killed_one_left() {
        let dir = tempfile::tempdir().unwrap();
        for other in [".state.json.AbC123", ".state.json.toolong", ".other.json.AbC123"] {
            std::fs::write(dir.path().join(other), "half").unwrap();
        }
        save(dir.path(), "state.json", "one").unwrap();
        save(dir.path(), "state.json", "two").unwrap();
        assert_eq!(load(dir.path(), "state.json").unwrap().as_deref(), Some("two"));
        assert_eq!(names(dir.path()), [".other.json.AbC123", ".state.json.toolong", "state.json"]);
    }

    #[test]
    fn the_suffix_is_the_one_that_the_crate_makes() {
        let dir = tempfile::tempdir().unwrap();
        let unfinished = AtomicWriteFile::open(dir.path().join("state.json")).unwrap();
        let names = names(dir.path());
        assert!(names.len() == 1 && is_left_of(&names[0], "state.json"), "{names:?}");
        drop(unfinished);
    }

    #[test]
    fn a_save_never_leaves_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["../state.json", "a/b", "", "..", "/etc/passwd"] {
            assert_eq!(save(dir.path(), name, "").unwrap_err().kind, FaultKind::Internal, "{name}");
        }
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn no_file_yet_is_no_fault_and_one_that_is_no_text_is() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(load(dir.path(), "state.json").unwrap(), None);
        std::fs::write(dir.path().join("state.json"), b"\xff\xfe").unwrap();
        let fault = load(dir.path(), "state.json").unwrap_err();
        assert_eq!(fault.kind, FaultKind::Malformed);
    }

    #[test]
    fn a_directory_that_is_gone_is_missing() {
        let fault = save(Path::new("/no/such/directory"), "state.json", "").unwrap_err();
        assert_eq!(fault.kind, FaultKind::Missing);
        assert!(fault.text.starts_with("/no/such/directory/state.json: "), "{}", fault.text);
    }
}
