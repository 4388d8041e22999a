//! The few raw system calls that rustix lacks.
#![allow(unsafe_code, reason = "rustix has no safe form of these calls")]

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;
use rustix::ioctl;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::base::units::Seconds;
use crate::model::spread::ProcessUse;

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

/// One stretch of a file as it lies on its file system, all in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub logical: u64,
    /// In the file system's own space.
    pub physical: u64,
    pub length: u64,
    /// It was written: it doesn't read as zeros without the disk.
    pub has_data: bool,
}

/// Extents of the first `length` bytes of a file. `None` where the file system can't say.
pub fn extents(file: BorrowedFd<'_>, length: u64) -> io::Result<Option<Vec<Extent>>> {
    let (mut from, mut all) = (0, Vec::new());
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
        let found = map.extents.get(..count).unwrap_or_default();
        all.extend(found.iter().map(|extent| Extent {
            logical: extent.logical,
            physical: extent.physical,
            length: extent.length,
            has_data: extent.flags & FIEMAP_EXTENT_NO_DATA == 0,
        }));
        let last = found.last().filter(|last| last.flags & FIEMAP_EXTENT_LAST == 0);
        let end = last.map_or(0, |last| last.logical.saturating_add(last.length));
        if end <= from {
            break;
        }
        from = end;
    }
    Ok(Some(all))
}

/// Bytes of the first `length` of a file that lie in written extents. `None` where the file system
/// can't say.
pub fn written_bytes(file: BorrowedFd<'_>, length: u64) -> io::Result<Option<u64>> {
    let Some(extents) = extents(file, length)? else { return Ok(None) };
    let (mut end, mut written) = (0, 0);
    for extent in extents {
        let stop = extent.logical.saturating_add(extent.length).min(length);
        if extent.has_data {
            written += stop.saturating_sub(extent.logical.max(end));
        }
        end = end.max(stop);
    }
    Ok(Some(written))
}

/// `struct fstrim_range` of linux/fs.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct TrimRange {
    start: u64,
    length: u64,
    least: u64,
}

const FITRIM: ioctl::Opcode = ioctl::opcode::read_write::<TrimRange>(b'X', 121);

/// Discards what is free between `start` and `start + length` of the file system that `file` lies
/// on; what is in use there stays as it is.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN; EOPNOTSUPP where the device discards nothing.
pub fn discard_free(file: BorrowedFd<'_>, start: u64, length: u64) -> io::Result<()> {
    let mut range = TrimRange { start, length, least: 0 };
    // SAFETY: the kernel reads and writes the three numbers of `fstrim_range`, as `range` has them.
    unsafe { ioctl::ioctl(file, ioctl::Updater::<FITRIM, TrimRange>::new(&mut range)) }?;
    Ok(())
}

// ---- network interfaces ---------------------------------------------------------------------

// include/uapi/linux/sockios.h, ethtool.h, if.h
const SIOCETHTOOL: ioctl::Opcode = 0x8946;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETH_SS_STATS: u32 = 1;
const ETH_GSTRING_BYTES: usize = 32;
/// Cards with more statistics aren't asked ...
const STATISTICS_MAX: u32 = 4096;
/// ... and there is room for this many, since the kernel writes as many as the driver has when it is
/// asked, whatever it said before (net/ethtool/ioctl.c): that number moves with the card's queues.
const STATISTICS_ROOM: usize = 4 * STATISTICS_MAX as usize;

/// `struct ifreq` as SIOCETHTOOL reads it: 16 bytes of name, then a pointer in a union of 24 bytes.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    data: *mut u64,
    rest: [usize; 3],
}

/// Statistics of the driver of `name`, in this process's network namespace: names of 32 bytes each, and
/// as many values. May ask the card's firmware.
///
/// # Errors
/// The kernel's: `EOPNOTSUPP` where the driver has none; `EINVAL` for a name that can't be one.
pub fn interface_statistics(name: &OsStr) -> io::Result<(Vec<u8>, Vec<u64>)> {
    let (family, kind) = (AddressFamily::INET, SocketType::DGRAM);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    let ask = |words: &mut [u64]| ethtool(socket.as_fd(), name, words);
    // struct ethtool_sset_info: command, reserved, mask of 64 bits, then a count for each bit.
    let mut sets = [pair(ETHTOOL_GSSET_INFO, 0), 1 << ETH_SS_STATS, 0];
    ask(&mut sets)?;
    let [_, known, count] = sets;
    let count = halves(count).0;
    if known & 1 << ETH_SS_STATS == 0 || !(1..=STATISTICS_MAX).contains(&count) {
        return Err(Errno::OPNOTSUPP.into());
    }
    // struct ethtool_gstrings: command, set, count, then the names from byte 12.
    let mut names = vec![0_u64; 2 + STATISTICS_ROOM * ETH_GSTRING_BYTES / 8];
    (names[0], names[1]) = (pair(ETHTOOL_GSTRINGS, ETH_SS_STATS), pair(count, 0));
    ask(&mut names)?;
    // struct ethtool_stats: command, count, then the values from byte 8.
    let mut values = vec![0_u64; 1 + STATISTICS_ROOM];
    values[0] = pair(ETHTOOL_GSTATS, count);
    ask(&mut values)?;
    let told = halves(names[1]).0.min(halves(values[0]).1).min(count) as usize;
    let names = names.iter().flat_map(|word| word.to_ne_bytes()).skip(12);
    let names = names.take(told * ETH_GSTRING_BYTES).collect();
    Ok((names, values.into_iter().skip(1).take(told).collect()))
}

/// One ethtool command; `words` hold the command and room for its answer.
fn ethtool(socket: BorrowedFd<'_>, name: &OsStr, words: &mut [u64]) -> io::Result<()> {
    let mut request = InterfaceRequest { name: [0; 16], data: words.as_mut_ptr(), rest: [0; 3] };
    let bytes = name.as_bytes();
    // The last byte stays 0: the kernel wants a name that ends.
    if bytes.len() >= request.name.len() {
        return Err(Errno::INVAL.into());
    }
    request.name[..bytes.len()].copy_from_slice(bytes);
    // SAFETY: SIOCETHTOOL reads one `struct ifreq`, which `InterfaceRequest` is laid out as and no smaller
    // than, and writes its answer where the pointer leads: into `words`, which the callers above make
    // four times as large as the most that they ask for.
    let answer = unsafe {
        ioctl::ioctl(socket, ioctl::Updater::<SIOCETHTOOL, InterfaceRequest>::new(&mut request))
    };
    answer.map_err(io::Error::from)
}

/// Two 32-bit words as the kernel lays them side by side.
fn pair(first: u32, second: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

fn halves(word: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]))
}

// ---- processes -------------------------------------------------------------------------------

/// Marks every open descriptor over 2 close-on-exec, so that a worker holds only its pipes and the
/// log, whatever this process inherited: a stuck worker must never keep a port or a lock.
///
/// # Errors
/// ENOSYS or EINVAL before Linux 5.11.
pub fn close_all_on_exec() -> io::Result<()> {
    // SAFETY: closes nothing and touches no memory; it only sets a flag on open descriptors.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    done(result)
}

/// I/O of this thread, and of those it starts, comes after everybody else's (honoured by bfq and
/// mq-deadline: Documentation/block/ioprio.rst).
pub fn io_priority_idle() -> io::Result<()> {
    // include/uapi/linux/ioprio.h
    const WHO_PROCESS: i32 = 1;
    const CLASS_IDLE: i32 = 3 << 13;
    // SAFETY: takes three integers; 0 means the calling thread.
    done(unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, CLASS_IDLE) })
}

/// Whether somebody keeps this host's clock, by an adjtimex(2) that changes nothing; `None`: it can't
/// be asked.
pub fn clock_is_synchronised() -> Option<bool> {
    const TIME_ERROR: libc::c_long = 5; // include/uapi/linux/timex.h
    // SAFETY: the kernel fills in one `timex` of 208 bytes; all zero, it asks for no change.
    let state = unsafe { libc::syscall(libc::SYS_adjtimex, [0_u64; 32].as_mut_ptr()) };
    (state >= 0).then_some(state != TIME_ERROR)
}

/// Numbers of the system calls that no worker has a use for: to start programs, to look into
/// other processes, to change mounts, the kernel, namespaces, keys or the clock. The first two start
/// programs: `but_execution` leaves them out.
pub fn forbidden_calls(but_execution: bool) -> &'static [i64] {
    let calls = &[
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_pidfd_getfd,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_fsopen,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_move_mount,
        libc::SYS_open_tree,
        libc::SYS_mount_setattr,
        libc::SYS_open_by_handle_at,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_kexec_load,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_reboot,
        libc::SYS_setns,
        libc::SYS_unshare,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_keyctl,
        libc::SYS_settimeofday,
        libc::SYS_clock_settime,
        libc::SYS_clock_adjtime,
        libc::SYS_acct,
    ];
    if but_execution { &calls[2..] } else { calls }
}

/// What this process used so far, all its threads together: getrusage(2).
pub fn usage() -> ProcessUse {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills in one `rusage`, for which there is room.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: it is plain integers, and zeros are a value of each.
    let usage = unsafe { usage.assume_init() };
    let seconds = |t: libc::timeval| Seconds(t.tv_sec as f64 + t.tv_usec as f64 / 1e6);
    let count = |n: libc::c_long| u64::try_from(n).unwrap_or(0);
    ProcessUse {
        user: seconds(usage.ru_utime),
        system: seconds(usage.ru_stime),
        context_switches: count(usage.ru_nvcsw) + count(usage.ru_nivcsw),
        major_faults: count(usage.ru_majflt),
        minor_faults: count(usage.ru_minflt),
    }
}

// ---- sockets ---------------------------------------------------------------------------------

/// `struct tcp_info` of a TCP socket, as many bytes as this kernel knows (linux/tcp.h: it only grows).
pub fn tcp_info(socket: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
    let mut length = libc::socklen_t::try_from(into.len()).unwrap_or(libc::socklen_t::MAX);
    // SAFETY: the kernel writes at most `length` bytes, and `into` has as many.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            into.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    done(result.into()).map(|()| (length as usize).min(into.len()))
}

/// Most bytes a second that the kernel lets a socket send (socket(7); TCP paces itself without
/// the fq scheduler since Linux 4.13).
pub fn set_pacing(socket: BorrowedFd<'_>, bytes_per_second: u64) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes as the length says, and a u64 has as many.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const bytes_per_second).cast(),
            size_of::<u64>() as libc::socklen_t,
        )
    };
    done(result.into())
}

fn done(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn statistics_come_with_a_name_each_or_not_at_all() {
        let interfaces = std::fs::read_dir("/sys/class/net").unwrap();
        for name in interfaces.map(|entry| entry.unwrap().file_name()) {
            let Ok((names, values)) = interface_statistics(&name) else { continue };
            assert_eq!(names.len(), values.len() * ETH_GSTRING_BYTES, "{name:?}");
            assert!(names.chunks(ETH_GSTRING_BYTES).all(|n| n[0].is_ascii_graphic()), "{name:?}");
        }
        let long = interface_statistics("a name of sixteen".as_ref()).unwrap_err();
        assert_eq!(long.raw_os_error(), Some(libc::EINVAL));
        let gone = interface_statistics("no-such-link".as_ref()).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ENODEV));
    }

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
