//! How operations reach the kernel: the trait of engines, the ladder that picks one, and buffers.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{Watch, aio, threads, uring};
use crate::base::fault::{Fault, FaultKind};
use crate::model::job::EngineKind;

/// One operation; `slot` names the buffer and comes back with the completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operation {
    pub slot: usize,
    pub offset: u64,
    pub write: bool,
    /// Of so much of the buffer; `None`: of all of it.
    pub bytes: Option<usize>,
    /// Which of the engine's files.
    pub file: usize,
}

impl Operation {
    /// The part of its buffer that it moves.
    pub(super) fn of<'a>(&self, buffer: &'a mut [u8]) -> &'a mut [u8] {
        let bytes = self.bytes.unwrap_or(buffer.len()).min(buffer.len());
        buffer.get_mut(..bytes).unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Completion {
    pub slot: usize,
    /// Bytes moved.
    pub result: Result<usize, Errno>,
    /// On the monotonic clock.
    pub at: Duration,
}

/// Moves blocks between its own buffers and some files. A buffer in flight belongs to the kernel.
pub trait Engine {
    /// The buffer of a slot; `None` while an operation on it is in flight.
    fn buffer(&mut self, slot: usize) -> Option<&mut [u8]>;

    /// Takes an operation for the next `submit` or `reap`; whoever times it reads the clock before.
    ///
    /// # Errors
    /// `EBUSY` where the slot is in flight or is none.
    fn queue(&mut self, operation: Operation) -> io::Result<()>;

    /// Starts what is queued; what the kernel has no room for goes in with the next `reap`.
    fn submit(&mut self) -> io::Result<()>;

    /// Starts what is queued, waits up to `patience` for at least one completion, and adds what
    /// completed to `out`. An error is the engine's; that of an operation is in its completion.
    fn reap(&mut self, patience: Duration, out: &mut Vec<Completion>) -> io::Result<()>;
}

/// What an engine is opened on.
#[derive(Clone, Copy, Debug)]
pub struct Needs<'a> {
    pub file: BorrowedFd<'a>,
    /// Further files: the first of them is file 1 of an operation.
    pub others: &'a [BorrowedFd<'a>],
    /// Most operations in flight.
    pub slots: usize,
    pub block: usize,
    /// Alignment of buffers in memory.
    pub align: usize,
    /// O_DSYNC on every write.
    pub sync: bool,
}

impl Needs<'_> {
    /// All files, as the engine's own.
    pub(super) fn owned(&self) -> io::Result<Vec<OwnedFd>> {
        let all = [self.file].into_iter().chain(self.others.iter().copied());
        all.map(|file| file.try_clone_to_owned()).collect()
    }
}

struct Rung {
    kind: EngineKind,
    open: fn(&Needs<'_>) -> io::Result<Box<dyn Engine>>,
}

/// Best first.
const LADDER: &[Rung] = &[
    Rung { kind: EngineKind::IoUring, open: uring::open },
    Rung { kind: EngineKind::Aio, open: aio::open },
    Rung { kind: EngineKind::Threads, open: threads::open },
];

/// An engine that moved a block of the real file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    pub kind: EngineKind,
    /// Why none above it on the ladder; empty for the first.
    pub reason: String,
}

/// The first engine that reads a block of the file; with `forced`, that one or a fault.
///
/// An engine that the kernel or a policy refuses gives way to the next, whether it is refused when
/// it is made or at its first call (a filter may let `io_uring_setup` through and nothing else).
///
/// # Errors
/// `Unsupported` when reads of the file itself are refused (direct I/O that isn't), else by errno.
pub fn choose(
    needs: &Needs<'_>,
    forced: Option<EngineKind>,
    watch: &dyn Watch,
) -> Result<(Box<dyn Engine>, Chosen), Fault> {
    leave_access_times(needs.file);
    let mut reasons = Vec::new();
    let mut last = Fault::new(FaultKind::Unsupported, "no such engine on this ladder");
    for rung in LADDER.iter().filter(|rung| forced.is_none_or(|kind| kind == rung.kind)) {
        match (rung.open)(needs).and_then(|engine| first_read(engine, watch)) {
            Ok((engine, Some(read))) => {
                read.result.map_err(|errno| Fault::os("first read", &errno.into()))?;
                let reason = match forced {
                    Some(_) => "asked for".to_owned(),
                    None => reasons.join("; "),
                };
                return Ok((engine, Chosen { kind: rung.kind, reason }));
            }
            Ok((_, None)) => {
                let text = "stopped before the first read came back";
                return Err(Fault::new(FaultKind::TimedOut, text));
            }
            Err(error) => {
                last = Fault::os(format_args!("engine {}", rung.kind.label()), &error);
                reasons.push(format!("{}: {error}", rung.kind.label()));
            }
        }
    }
    Err(last)
}

/// An engine that was chosen before, opened for the next leg.
pub fn reopen(needs: &Needs<'_>, chosen: &Chosen) -> Result<Box<dyn Engine>, Fault> {
    let rung = LADDER.iter().find(|rung| rung.kind == chosen.kind);
    let rung = rung.ok_or_else(|| Fault::new(FaultKind::Internal, "the chosen engine is gone"))?;
    (rung.open)(needs).map_err(|e| Fault::os(format_args!("engine {}", chosen.kind.label()), &e))
}

/// What is read here was not used by anybody, and noting when would be a write of its own. Only who
/// owns the file may ask for that (open(2), O_NOATIME); for others nothing is lost.
fn leave_access_times(file: BorrowedFd<'_>) {
    if let Ok(flags) = rustix::fs::fcntl_getfl(file) {
        let _ = rustix::fs::fcntl_setfl(file, flags | OFlags::NOATIME);
    }
}

/// How long a wait lasts before the stop flag is looked at again.
pub const PATIENCE: Duration = Duration::from_millis(50);

/// Reads the file's first block, so that a refusal shows before the clock starts; no completion
/// where the watch ended the wait for it.
fn first_read(
    mut engine: Box<dyn Engine>,
    watch: &dyn Watch,
) -> io::Result<(Box<dyn Engine>, Option<Completion>)> {
    engine.queue(Operation::default())?;
    let mut completions = Vec::new();
    while completions.is_empty() && !watch.stopped() {
        engine.reap(PATIENCE, &mut completions)?;
    }
    Ok((engine, completions.pop()))
}

/// Memory of one block, aligned as direct I/O asks.
#[derive(Debug)]
pub struct Buffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    pub fn new(length: usize, align: usize) -> Self {
        let align = align.max(1);
        let memory = vec![0; length + align];
        // The heap block doesn't move with its owner, so the alignment holds for life.
        let start = (align - memory.as_ptr().addr() % align) % align;
        Self { memory, start, length }
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        self.memory.get_mut(self.start..self.start + self.length).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use proptest::prelude::*;

    use super::*;
    use crate::workload::testing::Ears;

    const BLOCK: usize = 4096;
    const KINDS: [EngineKind; 3] = [EngineKind::IoUring, EngineKind::Aio, EngineKind::Threads];

    fn needs(file: &std::fs::File, slots: usize) -> Needs<'_> {
        Needs { file: file.as_fd(), others: &[], slots, block: BLOCK, align: 4096, sync: false }
    }

    /// All completions of what is in flight.
    fn drain(engine: &mut dyn Engine, expected: usize) -> Vec<Completion> {
        let mut all = Vec::new();
        while all.len() < expected {
            engine.reap(PATIENCE, &mut all).unwrap();
        }
        all
    }

    #[test]
    fn every_engine_moves_the_bytes_to_where_they_belong() {
        for kind in KINDS {
            for sync in [false, true] {
                let file = tempfile::tempfile().unwrap();
                file.set_len(8 * BLOCK as u64).unwrap();
                let needs = Needs { sync, ..needs(&file, 8) };
                let (mut engine, chosen) = choose(&needs, Some(kind), &Ears::default()).unwrap();
                assert_eq!(chosen.kind, kind);
                for slot in 0..8 {
                    engine.buffer(slot).unwrap().fill(slot as u8 + 1);
                    let offset = (7 - slot as u64) * BLOCK as u64;
                    engine
                        .queue(Operation { slot, offset, write: true, ..Operation::default() })
                        .unwrap();
                }
                for done in drain(engine.as_mut(), 8) {
                    assert_eq!(done.result, Ok(BLOCK), "{kind:?}");
                }
                let mut back = vec![0; BLOCK];
                for slot in 0..8_u8 {
                    file.read_exact_at(&mut back, (7 - u64::from(slot)) * BLOCK as u64).unwrap();
                    assert!(back.iter().all(|b| *b == slot + 1), "{kind:?} slot {slot}");
                }
                engine.queue(Operation { slot: 3, ..Operation::default() }).unwrap();
                drain(engine.as_mut(), 1);
                assert_eq!(engine.buffer(3).unwrap()[0], 8);
            }
        }
    }

    #[test]
    fn a_buffer_in_flight_is_nobodys() {
        for kind in KINDS {
            let file = tempfile::tempfile().unwrap();
            file.set_len(BLOCK as u64).unwrap();
            let (mut engine, _) = choose(&needs(&file, 1), Some(kind), &Ears::default()).unwrap();
            let operation = Operation::default();
            engine.queue(operation).unwrap();
            assert!(engine.buffer(0).is_none(), "{kind:?}");
            let busy = engine.queue(operation).unwrap_err();
            assert_eq!(Errno::from_io_error(&busy), Some(Errno::BUSY));
            assert!(engine.queue(Operation { slot: 9, ..operation }).is_err());
            drain(engine.as_mut(), 1);
            assert!(engine.buffer(0).is_some());
        }
    }

    #[test]
    fn errors_and_short_reads_come_back_as_such() {
        for kind in KINDS {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            std::io::Write::write_all(&mut file, &[1; 100]).unwrap();
            let read_only = std::fs::File::open(file.path()).unwrap();
            let (mut engine, _) =
                choose(&needs(&read_only, 2), Some(kind), &Ears::default()).unwrap();
            engine.queue(Operation::default()).unwrap();
            engine.queue(Operation { slot: 1, write: true, ..Operation::default() }).unwrap();
            let mut done = drain(engine.as_mut(), 2);
            done.sort_by_key(|c| c.slot);
            assert_eq!(done[0].result, Ok(100), "{kind:?}");
            assert_eq!(done[1].result, Err(Errno::BADF), "{kind:?}");
        }
    }

    #[test]
    fn a_wait_for_nothing_ends() {
        for kind in KINDS {
            let file = tempfile::tempfile().unwrap();
            file.set_len(BLOCK as u64).unwrap();
            let (mut engine, _) = choose(&needs(&file, 1), Some(kind), &Ears::default()).unwrap();
            let mut none = Vec::new();
            engine.reap(Duration::from_millis(1), &mut none).unwrap();
            assert!(none.is_empty(), "{kind:?}");
        }
    }

    #[test]
    fn the_first_engine_needs_no_reason() {
        let file = tempfile::tempfile().unwrap();
        let (_, chosen) = choose(&needs(&file, 4), None, &Ears::default()).unwrap();
        assert_eq!(chosen.kind == LADDER[0].kind, chosen.reason.is_empty());
    }

    #[test]
    fn a_probe_leaves_no_access_time() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(BLOCK as u64).unwrap();
        let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        let times = std::fs::FileTimes::new().set_accessed(long_ago);
        file.as_file().set_times(times).unwrap();
        for kind in KINDS {
            choose(&needs(file.as_file(), 1), Some(kind), &Ears::default()).unwrap();
            let accessed = file.as_file().metadata().unwrap().accessed().unwrap();
            assert_eq!(accessed, long_ago, "{kind:?}");
        }
    }

    #[test]
    fn nothing_starts_before_it_is_submitted() {
        for kind in KINDS {
            let file = tempfile::tempfile().unwrap();
            file.set_len(BLOCK as u64).unwrap();
            let (mut engine, _) = choose(&needs(&file, 1), Some(kind), &Ears::default()).unwrap();
            engine.buffer(0).unwrap().fill(7);
            engine.queue(Operation { write: true, ..Operation::default() }).unwrap();
            let mut byte = [0];
            // Threads that had the operation would have begun by the time ten reads are made.
            for _ in 0..10 {
                file.read_exact_at(&mut byte, 0).unwrap();
            }
            assert_eq!(byte, [0], "{kind:?}");
            engine.submit().unwrap();
            assert_eq!(drain(engine.as_mut(), 1)[0].result, Ok(BLOCK));
            file.read_exact_at(&mut byte, 0).unwrap();
            assert_eq!(byte, [7], "{kind:?}");
        }
    }

    #[test]
    fn more_in_flight_than_threads_is_refused_rather_than_made_fewer() {
        let file = tempfile::tempfile().unwrap();
        let result = choose(&needs(&file, 65), Some(EngineKind::Threads), &Ears::default());
        let text = result.err().unwrap().text;
        assert_eq!(text, "engine threads: 65 in flight need more than 64 threads");
    }

    proptest! {
        #[test]
        fn buffers_are_aligned(length in 1_usize..100_000, shift in 0_u32..14) {
            let mut buffer = Buffer::new(length, 1 << shift);
            prop_assert_eq!(buffer.bytes().as_ptr().addr() % (1 << shift), 0);
            prop_assert_eq!(buffer.bytes().len(), length);
        }
    }
}
