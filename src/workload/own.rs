//! What of a target is loadline's own: one directory, a file and its tag in it. Nothing else is ever
//! opened, replaced or removed.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::{self, Errno};

use super::file::Handle;
use super::ground::Held;
use super::layout::read_trailer;
use crate::base::fault::{Fault, FaultKind};

/// Directory in a target that holds the ballast, and nothing else.
pub const DIRECTORY: &str = ".loadline";
/// The declared file, within [`DIRECTORY`].
pub const NAME: &str = "ballast";
pub(super) const TAG: &str = "CACHEDIR.TAG";
/// <https://bford.info/cachedir/>: backups leave the directory out.
const TAG_TEXT: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55\n\
# The file beside this one is written and read by loadline to measure this disk.\n\
# `loadline clean` removes it.\n";
pub(super) struct Found {
    pub(super) file: Handle,
}

impl Found {
    /// Its size by its trailer; `None`: half-written.
    pub(super) fn whole(&self, held: &Held) -> Result<Option<u64>, Fault> {
        read_trailer(&self.file).map_err(|e| held.fault(&format!("{DIRECTORY}/{NAME}"), e))
    }
}

/// The ballast file as it is, half or whole; `None` where there is none.
pub(super) fn find(held: &Held, dir: &OwnedFd, access: OFlags) -> Result<Option<Found>, Fault> {
    match own_file(held, dir, NAME) {
        Ok(()) => {}
        Err(fault) if fault.kind == FaultKind::Missing => return Ok(None),
        Err(fault) => return Err(fault),
    }
    let place = format!("{DIRECTORY}/{NAME}");
    let file = Handle::open(dir.as_fd(), NAME, access).map_err(|e| held.fault(&place, e))?;
    let stat = fs::fstat(&file.fd).map_err(|errno| held.fault(&place, errno))?;
    if !is_own(&stat, FileType::RegularFile) {
        return Err(refused(held, &place));
    }
    Ok(Some(Found { file }))
}

fn refused(held: &Held, place: &str) -> Fault {
    let text = format!("{}: is there and not loadline's own: it is left alone", held.path(place));
    Fault::new(FaultKind::Refused, text)
}

pub(super) fn is_own(stat: &fs::Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == kind
        && stat.st_uid == rustix::process::geteuid().as_raw()
        && (kind == FileType::Directory || stat.st_nlink <= 1)
}

/// Looks before opening: opening a pipe or a device can block or act.
fn own_file(held: &Held, dir: &OwnedFd, name: &str) -> Result<(), Fault> {
    let place = format!("{DIRECTORY}/{name}");
    match fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if is_own(&stat, FileType::RegularFile) => Ok(()),
        Ok(_) => Err(refused(held, &place)),
        Err(errno) => Err(held.fault(&place, errno)),
    }
}

pub(super) fn existing_directory(held: &Held) -> Result<Option<OwnedFd>, Fault> {
    match own_directory(held, false) {
        Ok(dir) => Ok(Some(dir)),
        Err(fault) if fault.kind == FaultKind::Missing => Ok(None),
        Err(fault) => Err(fault),
    }
}

pub(super) fn own_directory(held: &Held, create: bool) -> Result<OwnedFd, Fault> {
    if create {
        match fs::mkdirat(held.dir(), DIRECTORY, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(held.fault(DIRECTORY, errno)),
        }
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match fs::openat(held.dir(), DIRECTORY, flags, Mode::empty()) {
        Ok(dir) => match fs::fstat(&dir) {
            Ok(stat) if is_own(&stat, FileType::Directory) => Ok(dir),
            Ok(_) => Err(refused(held, DIRECTORY)),
            Err(errno) => Err(held.fault(DIRECTORY, errno)),
        },
        Err(Errno::LOOP | Errno::NOTDIR) => Err(refused(held, DIRECTORY)),
        Err(errno) => Err(held.fault(DIRECTORY, errno)),
    }
}

pub(super) fn remove(held: &Held, dir: &OwnedFd, name: &str) -> Result<(), Fault> {
    match fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(held.fault(&format!("{DIRECTORY}/{name}"), errno)),
    }
}

pub(super) fn write_tag(held: &Held, dir: &OwnedFd) -> Result<(), Fault> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match fs::openat(dir, TAG, flags, Mode::from_raw_mode(0o644)) {
        Ok(file) => io::write(&file, TAG_TEXT).map(|_| ()),
        Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
    .map_err(|errno| held.fault(&format!("{DIRECTORY}/{TAG}"), errno))
}

/// Removes what stands around the ballast file, once that is gone.
pub(super) fn sweep(held: &Held) -> Result<(), Fault> {
    let Some(dir) = existing_directory(held)? else { return Ok(()) };
    if own_file(held, &dir, TAG).is_ok() {
        remove(held, &dir, TAG)?;
    }
    // Whatever somebody else put there keeps the directory.
    let _ = fs::unlinkat(held.dir(), DIRECTORY, AtFlags::REMOVEDIR);
    Ok(())
}
