//! The first engine: io_uring with registered files and, where memory may be locked, registered
//! buffers. No kernel polling threads, no busy polling: a monitor must not burn a CPU.
#![allow(unsafe_code, reason = "the kernel is given pointers to buffers that this engine owns")]

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use io_uring::{EnterFlags, IoUring, opcode, squeue, types};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::engine::{Buffer, Completion, Engine, Needs, Operation};
use crate::base::clock::monotonic;

struct Uring {
    ring: IoUring,
    files: Vec<OwnedFd>,
    files_registered: bool,
    buffers: Vec<Buffer>,
    buffers_registered: bool,
    in_flight: Vec<bool>,
    entry_flags: squeue::Flags,
    write_flags: i32,
    enter_flags: EnterFlags,
}

pub(super) fn open(needs: &Needs<'_>) -> io::Result<Box<dyn Engine>> {
    let slots = u32::try_from(needs.slots).map_err(|_| Errno::INVAL)?.max(1);
    let ring = shrinking(slots)?;
    if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
        // A wait without a time-out could not see the stop flag (io_uring_enter(2), Linux 5.11).
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel's ring can't time out",
        ));
    }
    let files = needs.owned()?;
    let numbers: Vec<_> = files.iter().map(AsRawFd::as_raw_fd).collect();
    let files_registered = ring.submitter().register_files(&numbers).is_ok();
    let mut entry_flags = squeue::Flags::empty();
    entry_flags.set(squeue::Flags::FIXED_FILE, files_registered);
    entry_flags.set(squeue::Flags::ASYNC, files.iter().any(always_waits));
    // Waiting for a disk is no iowait here: else the host's own gauges would tell of the probe.
    let no_iowait = ring.params().is_feature_no_iowait();
    let mut engine = Uring {
        files,
        files_registered,
        buffers: (0..needs.slots).map(|_| Buffer::new(needs.block, needs.align)).collect(),
        buffers_registered: false,
        in_flight: vec![false; needs.slots],
        entry_flags,
        write_flags: if needs.sync { ReadWriteFlags::DSYNC.bits() as i32 } else { 0 },
        enter_flags: if no_iowait { EnterFlags::NO_IOWAIT } else { EnterFlags::empty() },
        ring,
    };
    engine.register_buffers();
    Ok(Box::new(engine))
}

/// True where the file can't be asked not to wait (FUSE, zram): the kernel hands each operation to a
/// thread of its own there, and without being told to it tries the other way first, in vain.
fn always_waits(file: &OwnedFd) -> bool {
    // Far behind the end nothing is read; whether the file knows the flag is checked before.
    let nowhere = 1 << 62;
    let asked = preadv2(file, &mut [IoSliceMut::new(&mut [0])], nowhere, ReadWriteFlags::NOWAIT);
    asked == Err(Errno::OPNOTSUPP)
}

/// A ring for `slots` in flight; where memory is short, one that takes them in smaller bites.
fn shrinking(slots: u32) -> io::Result<IoUring> {
    let mut entries = slots.next_power_of_two();
    loop {
        match with_what_the_kernel_knows(entries, slots.max(entries)) {
            Err(error) if entries > 1 && is_shortage(&error) => entries /= 2,
            other => return other,
        }
    }
}

fn is_shortage(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOMEM | Errno::AGAIN))
}

/// Newest flags first; a kernel answers EINVAL to those it doesn't know (io_uring_setup(2)).
fn with_what_the_kernel_knows(entries: u32, completions: u32) -> io::Result<IoUring> {
    let attempts: [fn(&mut io_uring::Builder, u32); 4] = [
        |b, n| {
            b.setup_cqsize(n).setup_coop_taskrun().setup_single_issuer().setup_defer_taskrun();
        },
        |b, n| {
            b.setup_cqsize(n).setup_coop_taskrun();
        },
        |b, n| {
            b.setup_cqsize(n);
        },
        |_, _| {},
    ];
    let mut refused = io::Error::from(Errno::INVAL);
    for attempt in attempts {
        let mut builder = IoUring::builder();
        attempt(&mut builder, completions);
        match builder.build(entries) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => refused = error,
            other => return other,
        }
    }
    Err(refused)
}

/// ETIME: nothing came in time. EINTR, EBUSY, EAGAIN: look at what is there, come again.
fn is_passing(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN))
}

impl Uring {
    /// Saves mapping pages for each operation; RLIMIT_MEMLOCK may forbid it, and then it's slower.
    fn register_buffers(&mut self) {
        let slices: Vec<IoSliceMut<'_>> =
            self.buffers.iter_mut().map(|b| IoSliceMut::new(b.bytes())).collect();
        // SAFETY: IoSliceMut has the layout of iovec on Unix (std documents it), and the buffers
        // live until the ring is dropped, or for ever (see `Drop`).
        let registered = unsafe {
            let vectors = std::slice::from_raw_parts(slices.as_ptr().cast(), slices.len());
            self.ring.submitter().register_buffers(vectors)
        };
        self.buffers_registered = registered.is_ok();
    }

    fn entry(&mut self, operation: Operation) -> Option<squeue::Entry> {
        let index = u16::try_from(operation.slot).ok()?;
        let bytes = operation.of(self.buffers.get_mut(operation.slot)?.bytes());
        let (start, length) = (bytes.as_mut_ptr(), u32::try_from(bytes.len()).ok()?);
        let number = self.files.get(operation.file)?.as_raw_fd();
        let place = i32::try_from(operation.file).ok()?;
        let file = types::Fd(if self.files_registered { place } else { number });
        let entry = match (operation.write, self.buffers_registered) {
            (false, true) => {
                opcode::ReadFixed::new(file, start, length, index).offset(operation.offset).build()
            }
            (false, false) => {
                opcode::Read::new(file, start, length).offset(operation.offset).build()
            }
            (true, true) => opcode::WriteFixed::new(file, start, length, index)
                .offset(operation.offset)
                .rw_flags(self.write_flags)
                .build(),
            (true, false) => opcode::Write::new(file, start, length)
                .offset(operation.offset)
                .rw_flags(self.write_flags)
                .build(),
        };
        Some(entry.user_data(operation.slot as u64).flags(self.entry_flags))
    }
}

impl Engine for Uring {
    fn buffer(&mut self, slot: usize) -> Option<&mut [u8]> {
        if *self.in_flight.get(slot)? {
            return None;
        }
        Some(self.buffers.get_mut(slot)?.bytes())
    }

    fn queue(&mut self, operation: Operation) -> io::Result<()> {
        if self.in_flight.get(operation.slot) != Some(&false) {
            return Err(Errno::BUSY.into());
        }
        let entry = self.entry(operation).ok_or(Errno::INVAL)?;
        if self.ring.submission().is_full() {
            let _ = self.ring.submit();
        }
        // SAFETY: the buffer stays allocated and untouched until its completion is reaped:
        // `buffer` refuses slots in flight, and `Drop` leaks what is still in flight then.
        unsafe { self.ring.submission().push(&entry) }.map_err(|_| Errno::AGAIN)?;
        if let Some(flag) = self.in_flight.get_mut(operation.slot) {
            *flag = true;
        }
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        match self.ring.submit() {
            Ok(_) => Ok(()),
            Err(error) if is_passing(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn reap(&mut self, patience: Duration, out: &mut Vec<Completion>) -> io::Result<()> {
        let time = types::Timespec::from(patience);
        let args = types::SubmitArgs::new().timespec(&time);
        match self.ring.submitter().submit_with_args_and_flags(1, &args, self.enter_flags) {
            Ok(_) => {}
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
        let at = monotonic();
        for entry in self.ring.completion() {
            let slot = entry.user_data() as usize;
            if let Some(flag) = self.in_flight.get_mut(slot) {
                *flag = false;
            }
            let result = usize::try_from(entry.result())
                .map_err(|_| Errno::from_raw_os_error(entry.result().saturating_neg()));
            out.push(Completion { slot, result, at });
        }
        Ok(())
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // Closing a ring doesn't wait for its operations, and direct I/O can't be recalled: the
        // device may still write into these buffers, so they are never freed.
        if self.in_flight.contains(&true) {
            std::mem::forget(std::mem::take(&mut self.buffers));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn more_in_flight_than_the_ring_takes_at_once_is_no_error() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        let needs = Needs {
            file: file.as_fd(),
            others: &[],
            slots: 16,
            block: 512,
            align: 4096,
            sync: false,
        };
        if open(&needs).is_err() {
            return; // No io_uring here; the ladder's tests cover that.
        }
        let mut engine = Uring {
            ring: with_what_the_kernel_knows(2, 16).unwrap(),
            files: needs.owned().unwrap(),
            files_registered: false,
            buffers: (0..16).map(|_| Buffer::new(512, 4096)).collect(),
            buffers_registered: false,
            in_flight: vec![false; 16],
            entry_flags: squeue::Flags::empty(),
            write_flags: 0,
            enter_flags: EnterFlags::empty(),
        };
        for slot in 0..16 {
            engine
                .queue(Operation { slot, offset: slot as u64 * 512, ..Operation::default() })
                .unwrap();
        }
        let mut done = Vec::new();
        while done.len() < 16 {
            engine.reap(Duration::from_millis(50), &mut done).unwrap();
        }
        assert!(done.iter().all(|c| c.result == Ok(512)));
    }
}
