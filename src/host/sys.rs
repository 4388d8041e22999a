//! The few raw system calls that rustix lacks.
#![allow(unsafe_code, reason = "rustix has no safe form of these calls")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

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

/// Numbers of the system calls that no worker has a use for: to start programs, to look into
/// other processes, to change mounts, the kernel, namespaces, keys or the clock.
pub fn forbidden_calls() -> &'static [i64] {
    &[
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
    ]
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

/// CPU time of this process: user, system.
pub fn process_cpu() -> io::Result<(Duration, Duration)> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills in the whole structure; all of it are integers, for which zero is
    // a value too.
    let usage = unsafe {
        done(libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()).into())?;
        usage.assume_init()
    };
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    Ok((time(usage.ru_utime), time(usage.ru_stime)))
}

fn done(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
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
