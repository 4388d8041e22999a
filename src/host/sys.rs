//! The few raw system calls that rustix lacks.
#![allow(unsafe_code, reason = "rustix has no safe form of these calls")]

use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::ioctl;

// Extents of files (Documentation/filesystems/fiemap.rst).

const EXTENTS_PER_CALL: usize = 128;
/// Write out what is delayed first, so that no extent is still to be allocated.
const FIEMAP_FLAG_SYNC: u32 = 1;
const FIEMAP_EXTENT_LAST: u32 = 1;
/// Unknown place (2), delayed allocation (4), or allocated but never written (0x800).
const FIEMAP_EXTENT_NO_DATA: u32 = 2 | 4 | 0x800;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FiemapHeader {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FiemapExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

#[repr(C)]
struct Fiemap {
    header: FiemapHeader,
    extents: [FiemapExtent; EXTENTS_PER_CALL],
}

const FS_IOC_FIEMAP: ioctl::Opcode = ioctl::opcode::read_write::<FiemapHeader>(b'f', 11);

/// Bytes of the first `length` of a file that lie in written extents: not in holes, not in extents
/// that read as zeros without the disk. `None` where the file system can't say.
pub fn written_bytes(file: BorrowedFd<'_>, length: u64) -> io::Result<Option<u64>> {
    let (mut from, mut written) = (0, 0);
    while from < length {
        let mut map = Fiemap {
            header: FiemapHeader {
                start: from,
                length: length - from,
                flags: FIEMAP_FLAG_SYNC,
                extent_count: EXTENTS_PER_CALL as u32,
                ..FiemapHeader::default()
            },
            extents: [FiemapExtent::default(); EXTENTS_PER_CALL],
        };
        // SAFETY: the header says how many extents the kernel may fill in, and `Fiemap` has room
        // for as many right behind it, as `struct fiemap` of linux/fiemap.h has.
        let answer =
            unsafe { ioctl::ioctl(file, ioctl::Updater::<FS_IOC_FIEMAP, Fiemap>::new(&mut map)) };
        match answer {
            Ok(()) => {}
            Err(Errno::INTR) => continue,
            Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS | Errno::INVAL) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
        let count = (map.header.mapped_extents as usize).min(EXTENTS_PER_CALL);
        let Some(extents) = map.extents.get(..count).filter(|e| !e.is_empty()) else { break };
        let mut end = from;
        for extent in extents {
            let stop = extent.logical.saturating_add(extent.length).min(length);
            if extent.flags & FIEMAP_EXTENT_NO_DATA == 0 {
                written += stop.saturating_sub(extent.logical.max(end));
            }
            end = end.max(stop);
            if extent.flags & FIEMAP_EXTENT_LAST != 0 {
                return Ok(Some(written));
            }
        }
        if end <= from {
            break;
        }
        from = end;
    }
    Ok(Some(written))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn holes_and_reserved_space_are_not_written_bytes() {
        let file = tempfile::tempfile_in(concat!(env!("CARGO_MANIFEST_DIR"), "/target")).unwrap();
        file.set_len(4 << 20).unwrap();
        let Some(none) = written_bytes(file.as_fd(), 4 << 20).unwrap() else { return };
        assert_eq!(none, 0);
        let keep = rustix::fs::FallocateFlags::empty();
        if rustix::fs::fallocate(&file, keep, 0, 2 << 20).is_ok() {
            assert_eq!(written_bytes(file.as_fd(), 4 << 20).unwrap(), Some(0));
        }
        // Many extents: every second block of 4 KiB.
        for block in 0..300 {
            file.write_all_at(&[7; 4096], block * 8192).unwrap();
        }
        file.sync_all().unwrap();
        assert_eq!(written_bytes(file.as_fd(), 4 << 20).unwrap(), Some(300 * 4096));
    }
}
