//! The few raw system calls that rustix lacks. libc is named here only.
#![allow(unsafe_code, reason = "raw system calls; each block says why it is sound")]

use std::io;

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

fn done(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
