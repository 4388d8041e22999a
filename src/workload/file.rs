//! One file for direct I/O: opened so that a refusal leaves nothing behind, with what the file
//! system asks of alignment, and whether it is memory in disguise.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, Advice, AtFlags, IFlags, Mode, OFlags, StatxFlags};
use rustix::io::{self, Errno};

use crate::host::sys;

/// A file whose page cache is out of the path, where that can be had.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) fd: OwnedFd,
    pub(super) direct: bool,
}

/// tmpfs, ramfs, hugetlbfs.
const MEMORY_MAGICS: [u32; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];
const OVERLAY_MAGIC: u32 = 0x794c_7630;
pub(super) const BTRFS_MAGIC: u32 = 0x9123_683e;

/// Only the owner reads and writes what is laid out.
const MODE: Mode = Mode::from_raw_mode(0o600);

impl Handle {
    /// Opens what exists, or an unnamed file (`O_TMPFILE`), direct where the file system lets it.
    pub(super) fn open(dir: BorrowedFd<'_>, name: &str, flags: OFlags) -> io::Result<Self> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match fs::openat(dir, name, flags | OFlags::DIRECT, MODE) {
            Ok(fd) => Ok(Self { fd, direct: true }),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                let fd = fs::openat(dir, name, flags, MODE)?;
                Ok(Self { fd, direct: false })
            }
            Err(errno) => Err(errno),
        }
    }

    /// Creates `name`. The kernel makes the entry before it refuses O_DIRECT (fs/namei.c), so it
    /// is created without and opened again with it. An entry that was made all the same goes.
    pub(super) fn create(dir: BorrowedFd<'_>, name: &str) -> io::Result<Self> {
        let new = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let plain = fs::openat(dir, name, new | OFlags::CLOEXEC | OFlags::NOFOLLOW, MODE);
        let plain = plain.inspect_err(|errno| {
            // EEXIST alone says that it was there before, and somebody else's.
            if *errno != Errno::EXIST {
                let _ = fs::unlinkat(dir, name, AtFlags::empty());
            }
        })?;
        let same = |a: &fs::Stat, b: &fs::Stat| (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino);
        match Self::open(dir, name, OFlags::RDWR) {
            Ok(again) if same(&fs::fstat(&again.fd)?, &fs::fstat(&plain)?) => Ok(again),
            _ => Ok(Self { fd: plain, direct: false }),
        }
    }

    /// Gives up direct I/O; false where it was given up before.
    pub(super) fn make_buffered(&mut self) -> io::Result<bool> {
        if !self.direct {
            return Ok(false);
        }
        fs::fcntl_setfl(&self.fd, fs::fcntl_getfl(&self.fd)? - OFlags::DIRECT)?;
        self.direct = false;
        Ok(true)
    }

    /// Writes out and drops what the page cache holds of the file, where it is in the path.
    pub(super) fn drop_cache(&self) {
        if !self.direct {
            // Best effort: a result of buffered reads carries its flag anyway.
            let _ = fs::fdatasync(&self.fd);
            let _ = fs::fadvise(&self.fd, 0, None, Advice::DontNeed);
        }
    }

    pub(super) fn alignment(&self) -> Alignment {
        let asked = fs::statx(&self.fd, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
        match asked {
            Ok(x) if x.stx_mask & StatxFlags::DIOALIGN.bits() != 0 => Alignment {
                memory: (x.stx_dio_mem_align as usize).max(LOGICAL),
                offset: Some(u64::from(x.stx_dio_offset_align)),
            },
            _ => Alignment { memory: LOGICAL, offset: None },
        }
    }

    /// True where there is no disk: tmpfs and ramfs accept O_DIRECT and answer from memory. An
    /// overlay hides what is under it; of all that can be, only memory has no extents to tell of.
    pub(super) fn is_memory(&self) -> bool {
        match self.magic() {
            Some(OVERLAY_MAGIC) => matches!(sys::written_bytes(self.as_fd(), 1), Ok(None)),
            magic => magic.is_some_and(|magic| MEMORY_MAGICS.contains(&magic)),
        }
    }

    /// True on btrfs with checksums: since Linux 6.15 what is written direct goes through the page
    /// cache there (fs/btrfs/direct-io.c).
    pub(super) fn is_checksummed(&self) -> bool {
        self.magic() == Some(BTRFS_MAGIC)
            && fs::ioctl_getflags(&self.fd).is_ok_and(|flags| !flags.contains(IFlags::NOCOW))
    }

    /// Kind of file system (linux/magic.h); its width differs between architectures.
    pub(super) fn magic(&self) -> Option<u32> {
        fs::fstatfs(&self.fd).ok().map(|s| s.f_type as u32)
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Logical block of any disk in use, and the page of most hosts.
pub(super) const LOGICAL: usize = 4096;

/// What direct I/O asks for, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alignment {
    pub(super) memory: usize,
    /// Of offsets and lengths; 0: no direct I/O on this file; `None`: the kernel doesn't say
    /// (STATX_DIOALIGN came with Linux 6.1).
    pub(super) offset: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::testing::{disk_directory, on_disk_directory};

    #[test]
    fn a_created_file_is_the_one_that_is_written() {
        let dir = disk_directory();
        let at = fs::open(dir.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
        let mut file = Handle::create(at.as_fd(), "new").unwrap();
        assert_eq!(Handle::create(at.as_fd(), "new").err(), Some(Errno::EXIST));
        io::pwrite(&file, &[1; 1], 0).err(); // Unaligned: refused where direct, and only there.
        assert_eq!(file.make_buffered(), Ok(true));
        assert_eq!(file.make_buffered(), Ok(false));
        assert_eq!(io::pwrite(&file, b"x", 0), Ok(1));
        assert_eq!(std::fs::metadata(dir.path().join("new")).unwrap().len(), 1);
    }

    #[test]
    fn memory_is_no_disk_even_where_it_accepts_direct_io() {
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else { return };
        assert!(Handle { fd: file.into(), direct: true }.is_memory());
        let file = tempfile::tempfile_in(on_disk_directory()).unwrap();
        assert!(!Handle { fd: file.into(), direct: true }.is_memory());
    }

    #[test]
    fn a_link_in_the_last_place_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("ballast")).unwrap();
        let at = fs::open(dir.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
        let refused = Handle::open(at.as_fd(), "ballast", OFlags::RDONLY);
        assert_eq!(refused.err(), Some(Errno::LOOP));
    }
}
