//! The turn: one probe at a time on this host, whoever starts it.
//!
//! A lock by flock(2) is gone with its holder, however that ended. The directory has mode 1777, as
//! /run/lock itself has, and the file 0666: root's daemon and a user's command must be able to take
//! turns, and the sticky bit keeps one user from removing the file that another has locked. All it
//! grants is to wait or to make others wait.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::base::fault::{Fault, FaultKind};

/// What came of asking for the turn.
#[derive(Debug)]
pub enum Turn {
    Mine(TurnGuard),
    /// Another has it.
    Theirs(Holder),
}

/// The turn, until it is dropped.
#[derive(Debug)]
pub struct TurnGuard {
    /// Closed on exec, so that no worker inherits the lock.
    file: File,
}

/// Who has the turn; `None` where it can't be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder(pub Option<u32>);

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(pid) => write!(f, "waiting for another loadline (pid {pid})"),
            None => write!(f, "waiting for another loadline"),
        }
    }
}

/// Directories to try for the lock, best first. What shares the first of them takes turns.
pub fn places(xdg_runtime_dir: Option<&Path>, state: &Path) -> Vec<PathBuf> {
    let mut places = vec![PathBuf::from("/run/lock/loadline")];
    places.extend(xdg_runtime_dir.filter(|dir| dir.is_absolute()).map(|dir| dir.join("loadline")));
    places.push(state.to_path_buf());
    places
}

impl Turn {
    /// Asks for the turn, in the first of `places` that can be used. Never waits.
    ///
    /// # Errors
    /// When no place can be used: the reason of the last.
    pub fn try_take(places: &[PathBuf]) -> Result<Turn, Fault> {
        let mut fault = Fault::new(FaultKind::Internal, "no place for the turn's lock");
        for place in places {
            match take_in(place) {
                Ok(turn) => return Ok(turn),
                Err(error) => fault = Fault::os(place.join("turn").display(), &error),
            }
        }
        Err(fault)
    }
}

fn take_in(directory: &Path) -> io::Result<Turn> {
    make_directory(directory)?;
    let path = directory.join("turn");
    // Twice at most: a file that was removed while it was being locked locks nothing.
    for _ in 0..2 {
        let mut file = open(&path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(Turn::Theirs(holder(&mut file))),
            Err(error) => return Err(error.into()),
        }
        if file.metadata()?.nlink() > 0 {
            // For people only; a file that is another's may not be ours to write.
            let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
            return Ok(Turn::Mine(TurnGuard { file }));
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Makes the last part of the path only: a state directory that is not there is not ours to invent.
fn make_directory(directory: &Path) -> io::Result<()> {
    let is_shared = directory.starts_with("/run/lock");
    let mode = if is_shared { 0o1777 } else { 0o700 };
    match DirBuilder::new().mode(mode).create(directory) {
        // The umask took its part of the mode.
        Ok(()) if is_shared => std::fs::set_permissions(directory, Permissions::from_mode(mode)),
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Opens the lock file, makes it where there is none.
///
/// O_CREAT on another's file in a sticky directory fails even for root (fs.protected_regular,
/// fs/namei.c may_create_in_sticky), so that an existing file is opened without it; and a file that
/// can't be written can still be locked.
fn open(path: &Path) -> io::Result<File> {
    let existing = |write: bool| {
        let mut options = OpenOptions::new();
        options.read(true).write(write).custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path)
    };
    let refused = |e: &io::Error| {
        matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
    };
    match existing(true) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) if refused(&error) => return existing(false),
        other => return other,
    }
    match OpenOptions::new().read(true).write(true).create_new(true).mode(0o666).open(path) {
        Ok(file) => {
            file.set_permissions(Permissions::from_mode(0o666))?;
            Ok(file)
        }
        // Another made it meanwhile.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => existing(true),
        Err(error) => Err(error),
    }
}

fn holder(file: &mut File) -> Holder {
    let mut text = String::new();
    let read = file.take(32).read_to_string(&mut text);
    Holder(read.ok().and_then(|_| text.trim().parse().ok()))
}

impl Drop for TurnGuard {
    fn drop(&mut self) {
        // Closing the file gives the lock back.
        let _ = self.file.set_len(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(places: &[PathBuf]) -> Option<TurnGuard> {
        match Turn::try_take(places).unwrap() {
            Turn::Mine(guard) => Some(guard),
            Turn::Theirs(_) => None,
        }
    }

    #[test]
    fn one_has_the_turn_and_the_other_is_told_who() {
        let dir = tempfile::tempdir().unwrap();
        let places = [dir.path().join("lock")];
        let guard = taken(&places).unwrap();
        let Turn::Theirs(holder) = Turn::try_take(&places).unwrap() else { panic!("taken twice") };
        let pid = std::process::id();
        assert_eq!(holder.to_string(), format!("waiting for another loadline (pid {pid})"));
        drop(guard);
        assert!(taken(&places).is_some());
    }

    #[test]
    fn a_place_that_cannot_be_used_gives_way_to_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let places = [dir.path().join("no/such/place"), dir.path().join("state")];
        let guard = taken(&places).unwrap();
        assert!(taken(&places[1..]).is_none(), "both use the place that works");
        drop(guard);
        let fault = Turn::try_take(&places[..1]).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Missing);
    }

    #[test]
    fn a_link_in_place_of_the_file_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, dir.path().join("turn")).unwrap();
        assert!(Turn::try_take(&[dir.path().to_path_buf()]).is_err());
        assert_eq!(std::fs::metadata(&victim).unwrap().len(), 8);
    }

    #[test]
    fn rubbish_in_the_file_is_no_pid() {
        let dir = tempfile::tempdir().unwrap();
        let places = [dir.path().to_path_buf()];
        let _guard = taken(&places).unwrap();
        std::fs::write(dir.path().join("turn"), [0xff; 100]).unwrap();
        let Turn::Theirs(holder) = Turn::try_take(&places).unwrap() else { panic!("taken twice") };
        assert_eq!(holder, Holder(None));
    }

    #[test]
    fn a_file_that_was_removed_holds_nobody_up() {
        let dir = tempfile::tempdir().unwrap();
        let places = [dir.path().to_path_buf()];
        let _old = taken(&places).unwrap();
        std::fs::remove_file(dir.path().join("turn")).unwrap();
        assert!(taken(&places).is_some());
    }
}
