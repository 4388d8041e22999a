//! Sees that the configuration file changed, whichever way it was replaced.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::document::FILE_BYTES_MAX;
use crate::base::fault::{Fault, FaultKind};

/// What tells one state of a file from another without reading it. The change time sees a
/// permission that was granted; symbolic links are followed, as a ConfigMap is swapped by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// A file that is looked at now and then.
#[derive(Debug)]
pub struct Watched {
    path: PathBuf,
    /// The state that was read or complained of last.
    known: Option<Look>,
    /// A new state, seen once.
    seen: Option<Look>,
    checksum: Option<(u32, usize)>,
}

impl Watched {
    /// A file nobody has read yet: read it with [`Watched::read`].
    pub fn new(path: PathBuf) -> Self {
        Self { path, known: None, seen: None, checksum: None }
    }

    /// A new state was seen once: the next look decides.
    pub fn is_changing(&self) -> bool {
        self.seen.is_some()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The content now, changed or not: at start and on SIGHUP. Longer than a configuration may be,
    /// it is cut so that [`super::document::Document::from_bytes`] refuses it.
    pub fn read(&mut self) -> Result<Vec<u8>, Fault> {
        let look = look(&self.path).map_err(|e| Fault::os(self.path.display(), &e))?;
        self.take(look)
    }

    /// The content if it changed since it was last given; `None` when it didn't, or is gone.
    ///
    /// A new state is taken when two looks in a row agree: an editor that empties a file before it
    /// writes it must not be read in between. A change back to the same bytes is no change.
    ///
    /// # Errors
    /// Once per state of a file that can't be read.
    pub fn poll(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        // Gone, or a link that leads nowhere for now: what is in force stays in force.
        let Ok(now) = look(&self.path) else { return Ok(None) };
        if self.known == Some(now) {
            self.seen = None;
            return Ok(None);
        }
        if self.seen.replace(now) != Some(now) {
            return Ok(None);
        }
        let before = self.checksum;
        let bytes = self.take(now)?;
        Ok((self.checksum != before).then_some(bytes))
    }

    fn take(&mut self, look: Look) -> Result<Vec<u8>, Fault> {
        self.known = Some(look);
        self.seen = None;
        let bytes = content(&self.path)?;
        self.checksum = Some((crc32fast::hash(&bytes), bytes.len()));
        Ok(bytes)
    }
}

fn look(path: &Path) -> std::io::Result<Look> {
    let m = std::fs::metadata(path)?;
    Ok(Look {
        device: m.dev(),
        inode: m.ino(),
        size: m.size(),
        modified: (m.mtime(), m.mtime_nsec()),
        changed: (m.ctime(), m.ctime_nsec()),
    })
}

/// All of a regular file, cut behind what a configuration may be long; never waits for a pipe.
pub fn content(path: &Path) -> Result<Vec<u8>, Fault> {
    let fault = |e: &std::io::Error| Fault::os(path.display(), e);
    // A named pipe would block the open until somebody writes to it.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file: File =
        OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|e| fault(&e))?;
    if !file.metadata().map_err(|e| fault(&e))?.is_file() {
        let text = format!("{}: not a regular file", path.display());
        return Err(Fault::new(FaultKind::Malformed, text));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(|e| fault(&e))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn watched(content: &str) -> (tempfile::TempDir, Watched) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("loadline.yml");
        std::fs::write(&path, content).unwrap();
        let mut watched = Watched::new(path);
        assert_eq!(watched.read().unwrap(), content.as_bytes());
        (dir, watched)
    }

    fn polls(watched: &mut Watched) -> Option<Vec<u8>> {
        assert_eq!(watched.poll().unwrap(), None, "one look is not enough");
        watched.poll().unwrap()
    }

    #[test]
    fn an_atomic_replacement_is_seen_once() {
        let (dir, mut watched) = watched("a: 1\n");
        let new = dir.path().join("new");
        std::fs::write(&new, "a: 2\n").unwrap();
        std::fs::rename(&new, watched.path()).unwrap();
        assert_eq!(polls(&mut watched).as_deref(), Some(&b"a: 2\n"[..]));
        assert_eq!(watched.poll().unwrap(), None);
        assert_eq!(watched.poll().unwrap(), None);
    }

    #[test]
    fn a_file_emptied_and_then_written_is_never_read_empty() {
        let (_dir, mut watched) = watched("a: 1\n");
        std::fs::write(watched.path(), "").unwrap();
        assert_eq!(watched.poll().unwrap(), None);
        std::fs::write(watched.path(), "a: 22\n").unwrap();
        assert_eq!(polls(&mut watched).as_deref(), Some(&b"a: 22\n"[..]));
    }

    #[test]
    fn a_link_swapped_above_the_file_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for (name, content) in [("one", "a: 1\n"), ("two", "a: 2\n")] {
            std::fs::create_dir(at(name)).unwrap();
            std::fs::write(at(name).join("loadline.yml"), content).unwrap();
        }
        symlink("one", at("..data")).unwrap();
        symlink("..data/loadline.yml", at("loadline.yml")).unwrap();
        let mut watched = Watched::new(at("loadline.yml"));
        assert_eq!(watched.read().unwrap(), b"a: 1\n");
        symlink("two", at("..data_tmp")).unwrap();
        std::fs::rename(at("..data_tmp"), at("..data")).unwrap();
        assert_eq!(polls(&mut watched).as_deref(), Some(&b"a: 2\n"[..]));
    }

    #[test]
    fn a_deleted_file_changes_nothing_and_its_return_is_seen() {
        let (_dir, mut watched) = watched("a: 1\n");
        std::fs::remove_file(watched.path()).unwrap();
        assert_eq!(polls(&mut watched), None);
        std::fs::write(watched.path(), "a: 3\n").unwrap();
        assert_eq!(polls(&mut watched).as_deref(), Some(&b"a: 3\n"[..]));
    }

    #[test]
    fn the_same_bytes_again_are_no_change() {
        let (dir, mut watched) = watched("a: 1\n");
        let new = dir.path().join("new");
        std::fs::write(&new, "a: 1\n").unwrap();
        std::fs::rename(&new, watched.path()).unwrap();
        assert_eq!(polls(&mut watched), None);
    }

    #[test]
    fn what_cannot_be_read_is_told_once() {
        let (_dir, mut watched) = watched("a: 1\n");
        std::fs::remove_file(watched.path()).unwrap();
        std::fs::create_dir(watched.path()).unwrap();
        assert_eq!(watched.poll().unwrap(), None);
        assert_eq!(watched.poll().unwrap_err().kind, FaultKind::Malformed);
        assert_eq!(watched.poll().unwrap(), None);
    }

    #[test]
    fn a_right_that_was_given_is_seen() {
        if rustix::process::geteuid().is_root() {
            return; // root reads everything
        }
        let (_dir, mut watched) = watched("a: 1\n");
        let mode = |mode| std::fs::Permissions::from_mode(mode);
        std::fs::write(watched.path(), "a: 2\n").unwrap();
        std::fs::set_permissions(watched.path(), mode(0)).unwrap();
        assert_eq!(watched.poll().unwrap(), None);
        assert_eq!(watched.poll().unwrap_err().kind, FaultKind::Denied);
        std::fs::set_permissions(watched.path(), mode(0o600)).unwrap();
        assert_eq!(polls(&mut watched).as_deref(), Some(&b"a: 2\n"[..]));
    }
}
