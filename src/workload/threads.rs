//! The engine of last resort: one thread a slot, preadv2 and pwritev2. Works wherever files do.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};

use super::engine::{Buffer, Completion, Engine, Needs, Operation};
use crate::base::clock::monotonic;

/// More threads measure the scheduler, not the disk.
const THREADS_MAX: usize = 64;
const STACK_BYTES: usize = 128 << 10;

struct Threads {
    slots: Vec<Slot>,
    /// Not yet with their threads.
    queued: Vec<(Operation, Buffer)>,
    done: Receiver<(Completion, Buffer)>,
}

struct Slot {
    /// With its operation while that is queued or in flight.
    buffer: Option<Buffer>,
    work: SyncSender<(Operation, Buffer)>,
}

pub(super) fn open(needs: &Needs<'_>) -> io::Result<Box<dyn Engine>> {
    if needs.slots > THREADS_MAX {
        let text = format!("{} in flight need more than {THREADS_MAX} threads", needs.slots);
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    let files: Arc<[OwnedFd]> = needs.owned()?.into();
    let flags = if needs.sync { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
    let (tell, done) = channel();
    let mut slots = Vec::with_capacity(needs.slots);
    for slot in 0..needs.slots {
        // Room for the one operation a slot may have: queueing never waits.
        let (work, next) = sync_channel(1);
        let (files, tell) = (Arc::clone(&files), tell.clone());
        // Never joined: a thread stuck on a hung device must not hold up the rest of the worker.
        std::thread::Builder::new()
            .name(format!("io-{slot}"))
            .stack_size(STACK_BYTES)
            .spawn(move || serve(&files, flags, &next, &tell))?;
        slots.push(Slot { buffer: Some(Buffer::new(needs.block, needs.align)), work });
    }
    Ok(Box::new(Threads { slots, queued: Vec::with_capacity(needs.slots), done }))
}

fn serve(
    files: &[OwnedFd],
    flags: ReadWriteFlags,
    next: &Receiver<(Operation, Buffer)>,
    tell: &Sender<(Completion, Buffer)>,
) {
    while let Ok((operation, mut buffer)) = next.recv() {
        let bytes = operation.of(buffer.bytes());
        let result = match files.get(operation.file) {
            None => Err(Errno::INVAL),
            Some(file) if operation.write => {
                pwritev2(file, &[IoSlice::new(bytes)], operation.offset, flags)
            }
            Some(file) => {
                let nothing = ReadWriteFlags::empty();
                preadv2(file, &mut [IoSliceMut::new(bytes)], operation.offset, nothing)
            }
        };
        let completion = Completion { slot: operation.slot, result, at: monotonic() };
        if tell.send((completion, buffer)).is_err() {
            return;
        }
    }
}

impl Threads {
    fn take(&mut self, (completion, buffer): (Completion, Buffer), out: &mut Vec<Completion>) {
        if let Some(slot) = self.slots.get_mut(completion.slot) {
            slot.buffer = Some(buffer);
        }
        out.push(completion);
    }
}

impl Engine for Threads {
    fn buffer(&mut self, slot: usize) -> Option<&mut [u8]> {
        Some(self.slots.get_mut(slot)?.buffer.as_mut()?.bytes())
    }

    fn queue(&mut self, operation: Operation) -> io::Result<()> {
        let slot = self.slots.get_mut(operation.slot).ok_or(Errno::BUSY)?;
        let buffer = slot.buffer.take().ok_or(Errno::BUSY)?;
        self.queued.push((operation, buffer));
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        for work in self.queued.drain(..) {
            let slot = self.slots.get(work.0.slot).ok_or(Errno::BUSY)?;
            slot.work.send(work).map_err(|_| io::Error::other("an I/O thread ended"))?;
        }
        Ok(())
    }

    fn reap(&mut self, patience: Duration, out: &mut Vec<Completion>) -> io::Result<()> {
        self.submit()?;
        match self.done.recv_timeout(patience) {
            Ok(first) => self.take(first, out),
            Err(RecvTimeoutError::Timeout) => return Ok(()),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("all I/O threads ended"));
            }
        }
        while let Ok(next) = self.done.try_recv() {
            self.take(next, out);
        }
        Ok(())
    }
}
