//! The second engine: the kernel's native asynchronous I/O (Documentation: io_submit(2)), for hosts
//! that forbid io_uring. Really asynchronous only with direct I/O, which is what probes do.
#![allow(unsafe_code, reason = "the kernel is given pointers to buffers that this engine owns")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::io::{Errno, ReadWriteFlags};

use super::engine::{Buffer, Completion, Engine, Needs, Operation};
use crate::base::clock::monotonic;

/// `struct iocb` of include/uapi/linux/aio_abi.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Control {
    slot: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    flags: i32,
    #[cfg(target_endian = "big")]
    key: u32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    event_flags: u32,
    event_file: u32,
}

/// `struct io_event` of the same file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Event {
    slot: u64,
    control: u64,
    /// Bytes, or the negative of an errno.
    result: i64,
    result_2: i64,
}

const READ: u16 = 0;
const WRITE: u16 = 1;

struct Aio {
    context: libc::c_ulong,
    files: Vec<OwnedFd>,
    buffers: Vec<Buffer>,
    in_flight: Vec<bool>,
    controls: Vec<Control>,
    /// Slots that the kernel doesn't have yet, oldest first.
    queued: Vec<usize>,
    /// The controls of what is queued, as the call wants them; kept for its memory.
    pointers: Vec<*mut Control>,
    /// Operations that the kernel refused at once.
    refused: Vec<Completion>,
    /// Operations that the kernel has.
    with_kernel: usize,
    events: Vec<Event>,
    write_flags: i32,
}

/// # Errors
/// `EAGAIN` where the host's `fs.aio-max-nr` is used up: fewer in flight would be another workload.
pub(super) fn open(needs: &Needs<'_>) -> io::Result<Box<dyn Engine>> {
    let slots = libc::c_long::try_from(needs.slots.max(1)).map_err(|_| Errno::INVAL)?;
    let files = needs.owned()?;
    let mut context: libc::c_ulong = 0;
    // SAFETY: the kernel writes one word to `context`, which must be 0 before.
    checked(unsafe { libc::syscall(libc::SYS_io_setup, slots, &raw mut context) })?;
    Ok(Box::new(Aio {
        context,
        files,
        buffers: (0..needs.slots).map(|_| Buffer::new(needs.block, needs.align)).collect(),
        in_flight: vec![false; needs.slots],
        controls: vec![Control::default(); needs.slots],
        queued: Vec::with_capacity(needs.slots),
        pointers: Vec::with_capacity(needs.slots),
        refused: Vec::new(),
        with_kernel: 0,
        events: vec![Event::default(); needs.slots],
        write_flags: if needs.sync { ReadWriteFlags::DSYNC.bits() as i32 } else { 0 },
    }))
}

fn checked(result: libc::c_long) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| {
        let error = io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::IO)
    })
}

impl Aio {
    fn control(&mut self, operation: Operation) -> Option<Control> {
        let bytes = operation.of(self.buffers.get_mut(operation.slot)?.bytes());
        Some(Control {
            slot: operation.slot as u64,
            flags: if operation.write { self.write_flags } else { 0 },
            opcode: if operation.write { WRITE } else { READ },
            file: u32::try_from(self.files.get(operation.file)?.as_raw_fd()).ok()?,
            buffer: bytes.as_mut_ptr().addr() as u64,
            length: bytes.len() as u64,
            offset: i64::try_from(operation.offset).ok()?,
            ..Control::default()
        })
    }

    /// Gives the kernel what is queued; answers how many it took of them.
    fn give(&mut self) -> Result<usize, Errno> {
        let base = self.controls.as_mut_ptr();
        self.pointers.clear();
        self.pointers.extend(self.queued.iter().map(|slot| base.wrapping_add(*slot)));
        let (count, pointers) = (self.pointers.len() as libc::c_long, self.pointers.as_ptr());
        // SAFETY: every pointer is to a control of this engine (`queue` checks the slots), each with
        // a buffer that stays allocated and untouched until its completion is reaped: `buffer`
        // refuses slots in flight, and `Drop` leaks what the kernel still has then.
        checked(unsafe { libc::syscall(libc::SYS_io_submit, self.context, count, pointers) })
    }

    /// The oldest queued operation ends with `errno`.
    fn refuse(&mut self, errno: Errno) {
        let slot = self.queued.remove(0);
        self.in_flight[slot] = false;
        self.refused.push(Completion { slot, result: Err(errno), at: monotonic() });
    }
}

impl Engine for Aio {
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
        self.controls[operation.slot] = self.control(operation).ok_or(Errno::INVAL)?;
        self.in_flight[operation.slot] = true;
        self.queued.push(operation.slot);
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        while !self.queued.is_empty() {
            match self.give() {
                Ok(taken) => {
                    self.queued.drain(..taken);
                    self.with_kernel += taken;
                }
                Err(Errno::INTR) => {}
                // No room until something completes (io_submit(2)).
                Err(Errno::AGAIN) if self.with_kernel > 0 => return Ok(()),
                Err(errno @ (Errno::AGAIN | Errno::NOSYS | Errno::PERM)) => {
                    return Err(errno.into());
                }
                // What io_submit says of the first operation is its result.
                Err(errno) => self.refuse(errno),
            }
        }
        Ok(())
    }

    fn reap(&mut self, patience: Duration, out: &mut Vec<Completion>) -> io::Result<()> {
        self.submit()?;
        if !self.refused.is_empty() {
            out.append(&mut self.refused);
            return Ok(());
        }
        let mut time = libc::timespec {
            tv_sec: libc::time_t::try_from(patience.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: patience.subsec_nanos() as libc::c_long,
        };
        let (events, room) = (self.events.as_mut_ptr(), self.events.len() as libc::c_long);
        let one: libc::c_long = 1;
        // SAFETY: `events` has room for as many as `room` says, and the time is read only.
        let got = checked(unsafe {
            libc::syscall(libc::SYS_io_getevents, self.context, one, room, events, &raw mut time)
        });
        let at = monotonic();
        let got = match got {
            Err(Errno::INTR) => 0,
            other => other?,
        };
        for event in self.events.iter().take(got) {
            let slot = event.slot as usize;
            if let Some(flag) = self.in_flight.get_mut(slot) {
                *flag = false;
            }
            let result = usize::try_from(event.result).map_err(|_| {
                Errno::from_raw_os_error(i32::try_from(-event.result).unwrap_or(libc::EIO))
            });
            out.push(Completion { slot, result, at });
        }
        self.with_kernel = self.with_kernel.saturating_sub(got);
        Ok(())
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        if self.with_kernel > 0 {
            // To destroy the context would wait for the device (fs/aio.c), which may hang; and the
            // device may still write into these buffers, so they are never freed.
            std::mem::forget(std::mem::take(&mut self.buffers));
            return;
        }
        // SAFETY: the context is this engine's own, and nothing is in flight on it.
        let _ = unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

    use super::*;
    use crate::model::job::EngineKind;
    use crate::workload::engine::{Chosen, choose};
    use crate::workload::testing::Ears;

    /// What is chosen, and what happens to one that is forced, on a thread that may not make `calls`.
    fn without(calls: &[i64], errno: Errno) -> (Chosen, String) {
        let rules = calls.iter().map(|call| (*call, Vec::new())).collect();
        let refuse = SeccompAction::Errno(errno.raw_os_error() as u32);
        let arch = TargetArch::try_from(std::env::consts::ARCH).unwrap();
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).unwrap();
        let program: BpfProgram = filter.try_into().unwrap();
        let confined = move || {
            seccompiler::apply_filter(&program).unwrap();
            let file = tempfile::tempfile().unwrap();
            file.set_len(1 << 20).unwrap();
            let file = file.as_fd();
            let needs =
                Needs { file, others: &[], slots: 4, block: 4096, align: 4096, sync: false };
            let chosen = choose(&needs, None, &Ears::default()).unwrap().1;
            let forced = choose(&needs, Some(EngineKind::IoUring), &Ears::default());
            (chosen, forced.err().map(|fault| fault.text).unwrap_or_default())
        };
        std::thread::scope(|scope| scope.spawn(confined).join().unwrap())
    }

    #[test]
    fn case_101_a_forbidden_io_uring_gives_way_and_says_why() {
        for errno in [Errno::PERM, Errno::NOSYS, Errno::NOMEM] {
            // Filters of containers deny all of it; one that denies only `enter` lets it be made.
            for call in [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter] {
                let (chosen, forced) = without(&[call], errno);
                let why = io::Error::from(errno);
                assert_eq!(chosen.kind, EngineKind::Aio, "{errno} {chosen:?}");
                assert_eq!(chosen.reason, format!("io_uring: {why}"));
                assert!(forced.starts_with("engine io_uring: "), "{forced}");
            }
        }
    }

    #[test]
    fn threads_are_left_where_both_others_are_forbidden() {
        let both = [libc::SYS_io_uring_setup, libc::SYS_io_setup];
        let (chosen, _) = without(&both, Errno::PERM);
        assert_eq!(chosen.kind, EngineKind::Threads);
        let why = io::Error::from(Errno::PERM);
        assert_eq!(chosen.reason, format!("io_uring: {why}; aio: {why}"));
        let (chosen, _) = without(&[both[0], libc::SYS_io_submit], Errno::NOSYS);
        assert_eq!(chosen.kind, EngineKind::Threads);
    }

    #[test]
    fn structures_are_as_long_as_the_kernels() {
        assert_eq!((size_of::<Control>(), size_of::<Event>()), (64, 32));
    }
}
