//! Runs the legs of a profile on an open region: keeps the queue full until a bound is met, then
//! drains, flushes and counts. Latency is total: from submission to completion.

use std::io;
use std::time::Duration;

use super::engine::{self, Chosen, Completion, Engine, Operation, PATIENCE};
use super::ground::Ground;
use super::pattern::{Filler, Pattern, derived};
pub use super::tally::Moved;
use super::tally::{Sent, Tally, is_steady};
use super::{Halt, Watch};
use crate::base::clock::monotonic;
use crate::base::fault::{Fault, FaultKind};
use crate::base::units::Seconds;
use crate::model::job::{Profile, What};
use crate::model::outcome::Measured;

/// How often the numbers of a running leg are left for the reader.
const PUBLISH_EVERY: Duration = Duration::from_millis(500);

/// One leg of a run.
#[derive(Clone, Copy, Debug)]
pub struct Leg<'a> {
    pub index: usize,
    pub profile: &'a Profile,
    pub seed: u64,
}

/// How a leg ended: `halt` says why it didn't run to its bound; what was measured is kept.
#[derive(Debug)]
pub struct LegEnd {
    pub measured: Measured,
    pub moved: Moved,
    pub halt: Option<Halt>,
}

/// A leg that is ready to start: engine opened, nothing submitted.
pub struct Drive<'a> {
    ground: &'a Ground,
    leg: Leg<'a>,
    watch: &'a dyn Watch,
    chosen: Chosen,
    engine: Box<dyn Engine>,
    pattern: Pattern,
    filler: Filler,
    slots: Vec<Slot>,
    /// Slots with nothing in flight; the last comes next.
    free: Vec<usize>,
    /// Operations that may still be issued.
    left: u64,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    job: usize,
    flight: Option<Flight>,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    operation: Operation,
    submitted: Duration,
}

impl<'a> Drive<'a> {
    /// Gets a leg ready with the engine that was chosen for the run.
    pub fn prepare(
        ground: &'a Ground,
        leg: Leg<'a>,
        chosen: &Chosen,
        watch: &'a dyn Watch,
    ) -> Result<Self, Halt> {
        let profile = leg.profile;
        let seed = derived(leg.seed, leg.index as u64 + 1);
        let (count, jobs) = (profile.in_flight_max() as usize, profile.jobs.max(1) as usize);
        let by_bytes = profile.bytes_max.0.checked_div(profile.block.0).unwrap_or(0);
        ground.file.drop_cache();
        Ok(Self {
            ground,
            leg,
            watch,
            chosen: chosen.clone(),
            pattern: Pattern::new(profile, ground.span_of(profile)?, seed)?,
            engine: engine::reopen(&ground.needs(profile), chosen)?,
            filler: Filler::new(seed),
            slots: (0..count).map(|slot| Slot { job: slot % jobs, flight: None }).collect(),
            free: (0..count).rev().collect(),
            left: profile.operations_max.map_or(by_bytes, |most| most.min(by_bytes)),
        })
    }

    /// Runs the leg to its end.
    pub fn run(mut self) -> LegEnd {
        let start = monotonic();
        let ramp_end = start + self.leg.profile.ramp.duration();
        let mut tally = Tally::new(ramp_end);
        let mut halt = self.keep_busy(start, &mut tally).err();
        let mut flush = None;
        if halt.is_none() && self.leg.profile.flush && tally.moved[1].operations > 0 {
            match self.flush() {
                Ok(time) => flush = Some(time),
                Err(fault) => halt = Some(fault.into()),
            }
        }
        if halt.is_none() && tally.short_operations > 0 {
            // In the middle of a file that was filled there is nothing to come short of.
            let (short, name) = (tally.short_operations, &self.ground.name);
            let text = format!("{name}: {short} operations came back short");
            halt = Some(Fault::new(FaultKind::Io, text).into());
        }
        if halt.is_none() && tally.operations() == 0 {
            let text = format!("{}: no operation completed whole", self.ground.name);
            halt = Some(Fault::new(FaultKind::Io, text).into());
        }
        self.watch.live().publish(None);
        let measured = self.measured(&tally, flush);
        let (index, what) = (self.leg.index, Box::new(measured.clone()));
        self.watch.event(What::Leg { index, measured: what });
        LegEnd { measured, moved: tally.moved(), halt }
    }

    /// Submits until a bound is met or something ends it, then waits for all that is in flight.
    fn keep_busy(&mut self, start: Duration, tally: &mut Tally) -> Result<(), Halt> {
        let end = start + (self.leg.profile.ramp.duration() + self.leg.profile.runtime.duration());
        let mut halt = None;
        let mut completions = Vec::with_capacity(self.slots.len());
        let mut published = start;
        loop {
            let now = monotonic();
            if halt.is_none() && self.watch.stopped() {
                halt = Some(Halt::stopped());
            }
            if halt.is_none() && now < end {
                let filled = self.fill_queue(now);
                halt = filled.err().map(|error| Fault::os(&self.ground.name, &error).into());
            }
            if self.free.len() == self.slots.len() {
                return halt.map_or(Ok(()), Err);
            }
            if let Err(error) = self.engine.reap(PATIENCE, &mut completions) {
                // The engine is broken: what is in flight can't be waited for any more.
                return Err(Fault::os(&self.ground.name, &error).into());
            }
            for done in completions.drain(..) {
                if let Err(fault) = self.land(&done, tally) {
                    halt.get_or_insert(fault.into());
                }
            }
            if now.saturating_sub(published) >= PUBLISH_EVERY {
                published = now;
                let progress = tally.progress(self.leg.index, now.saturating_sub(start));
                self.watch.live().publish(Some(progress));
            }
        }
    }

    /// One operation on each free slot, within the bounds on bytes and operations; `now` was read
    /// just before. Reads go to the kernel together, with the wait that follows. New data takes
    /// longer to make than a fast disk to write it, so it is nobody's latency: what is queued goes
    /// out first, and a write's clock starts when its data is there.
    fn fill_queue(&mut self, now: Duration) -> io::Result<()> {
        let mut waits = false;
        while self.left > 0
            && let Some(index) = self.free.pop()
            && let Some(slot) = self.slots.get_mut(index)
        {
            let step = self.pattern.step(slot.job);
            let mut submitted = now;
            if step.write {
                if std::mem::take(&mut waits)
                    && let Err(error) = self.engine.submit()
                {
                    self.free.push(index);
                    return Err(error);
                }
                if let Some(buffer) = self.engine.buffer(index) {
                    self.filler.fill(buffer);
                }
                submitted = monotonic();
            }
            let (offset, write) = (step.offset, step.write);
            let operation = Operation { slot: index, offset, write, ..Operation::default() };
            if let Err(error) = self.engine.queue(operation) {
                self.free.push(index);
                return Err(error);
            }
            slot.flight = Some(Flight { operation, submitted });
            self.left -= 1;
            waits = true;
        }
        Ok(())
    }

    /// Takes one completion; an error ends the leg.
    fn land(&mut self, done: &Completion, tally: &mut Tally) -> Result<(), Fault> {
        let Some(flight) = self.slots.get_mut(done.slot).and_then(|slot| slot.flight.take()) else {
            return Ok(());
        };
        self.free.push(done.slot);
        let Operation { offset, write, .. } = flight.operation;
        let bytes = self.leg.profile.block.0;
        tally.take(done, &Sent { write, bytes, at: flight.submitted });
        let Err(errno) = done.result else { return Ok(()) };
        let direction = if write { "write" } else { "read" };
        let after = tally.moved().operations;
        let name = &self.ground.name;
        let place = format!("{name}: {direction} at offset {offset} after {after} operations");
        Err(Fault::os(place, &errno.into()))
    }

    fn flush(&self) -> Result<Seconds, Fault> {
        let before = monotonic();
        rustix::fs::fdatasync(&self.ground.file.fd)
            .map_err(|e| Fault::os(format_args!("{}: final flush", self.ground.name), &e.into()))?;
        let seconds = Seconds::from(monotonic().saturating_sub(before));
        self.watch.event(What::Flush { seconds });
        Ok(seconds)
    }

    fn measured(&self, tally: &Tally, flush: Option<Seconds>) -> Measured {
        let (reads, writes) = tally.directions();
        let rates = tally.rates();
        Measured {
            profile: self.leg.profile.clone(),
            engine: self.chosen.kind,
            engine_reason: self.chosen.reason.clone(),
            direct: self.ground.direct(),
            elapsed: Seconds(tally.elapsed().as_secs_f64() + flush.map_or(0.0, |f| f.0)),
            reads,
            writes,
            flush,
            seed: self.leg.seed,
            steady: is_steady(&rates),
            rates,
            errors: tally.errors,
            short_operations: tally.short_operations,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::base::units::Bytes;
    use crate::model::job::{Access, EngineKind};
    use crate::model::outcome::Skip;
    use crate::workload::pattern::tests::profile;
    use crate::workload::testing::{Ears, disk_directory, on_disk_directory};

    const KINDS: [EngineKind; 3] = [EngineKind::IoUring, EngineKind::Aio, EngineKind::Threads];

    fn ground(bytes: u64) -> Ground {
        let file = tempfile::tempfile_in(on_disk_directory()).unwrap();
        file.set_len(bytes).unwrap();
        Ground::for_test(file.into(), Bytes(bytes))
    }

    fn drive(ground: &mut Ground, profile: &Profile, kind: EngineKind, ears: &Ears) -> LegEnd {
        let chosen = ground.choose_engine(profile, Some(kind), ears).unwrap();
        let leg = Leg { index: 0, profile, seed: 9 };
        Drive::prepare(ground, leg, &chosen, ears).unwrap().run()
    }

    #[test]
    fn bounds_on_operations_and_bytes_are_never_passed() {
        for kind in KINDS {
            let mut ground = ground(1 << 20);
            let mut mix = profile(Access::Random, 0.5, 4096);
            mix.runtime = Seconds(600.0);
            mix.operations_max = Some(37);
            let end = drive(&mut ground, &mix, kind, &Ears::default());
            assert_eq!((end.halt, end.moved.operations), (None, 37), "{kind:?}");
            assert_eq!(end.measured.operations(), 37);
            mix.operations_max = None;
            mix.bytes_max = Bytes(50 * 4096 + 1);
            let end = drive(&mut ground, &mix, kind, &Ears::default());
            assert_eq!(end.moved.read.0 + end.moved.written.0, 50 * 4096, "{kind:?}");
        }
    }

    #[test]
    fn a_leg_that_wrote_ends_with_a_flush_inside_its_time() {
        let mut ground = ground(1 << 20);
        let mut writes = profile(Access::Sequential, 0.0, 65536);
        writes.bytes_max = Bytes(1 << 20);
        let ears = Ears::default();
        let end = drive(&mut ground, &writes, EngineKind::Threads, &ears);
        let flush = end.measured.flush.unwrap();
        assert!(end.measured.elapsed.0 >= flush.0);
        assert!(ears.heard.lock().unwrap().contains(&What::Flush { seconds: flush }));
        let reads = Profile { reads: crate::base::units::Ratio(1.0), ..writes };
        let end = drive(&mut ground, &reads, EngineKind::Threads, &ears);
        assert_eq!(end.measured.flush, None);
    }

    #[test]
    fn time_ends_a_leg_and_the_ramp_is_left_out_of_it() {
        for kind in KINDS {
            let mut ground = ground(1 << 20);
            let mut reads = profile(Access::Random, 1.0, 4096);
            reads.bytes_max = Bytes(u64::MAX);
            (reads.ramp, reads.runtime) = (Seconds(0.1), Seconds(0.2));
            let end = drive(&mut ground, &reads, kind, &Ears::default());
            assert_eq!(end.halt, None);
            let counted = end.measured.operations();
            assert!(counted > 0 && counted < end.moved.operations, "{kind:?}: {counted}");
            assert!(end.measured.rates.iter().any(|rate| *rate > 0.0));
            assert_eq!(end.measured.reads.durations.count(), counted);
        }
    }

    #[test]
    fn an_error_ends_the_leg_with_its_place_and_what_was_measured() {
        for kind in KINDS {
            let file = tempfile::NamedTempFile::new_in(on_disk_directory()).unwrap();
            file.as_file().set_len(1 << 20).unwrap();
            let read_only = std::fs::File::open(file.path()).unwrap();
            let mut ground = Ground::for_test(OwnedFd::from(read_only), Bytes(1 << 20));
            let mut mix = profile(Access::Random, 0.5, 4096);
            mix.runtime = Seconds(600.0);
            let end = drive(&mut ground, &mix, kind, &Ears::default());
            let Some(Halt::Failed(fault)) = end.halt else { panic!("{:?}", end.halt) };
            assert!(fault.text.starts_with("test: write at offset "), "{fault}");
            assert!(end.measured.errors >= 1);
            assert_eq!(end.measured.writes.operations, 0);
            assert_eq!(end.measured.reads.operations, end.moved.operations);
        }
    }

    #[test]
    fn a_file_that_shrank_gives_no_result() {
        let mut ground = ground(1 << 20);
        rustix::fs::ftruncate(&ground.file.fd, 0).unwrap();
        let mut reads = profile(Access::Random, 1.0, 4096);
        reads.operations_max = Some(20);
        let end = drive(&mut ground, &reads, EngineKind::Threads, &Ears::default());
        let Some(Halt::Failed(fault)) = end.halt else { panic!("{:?}", end.halt) };
        assert_eq!((fault.kind, end.measured.short_operations), (FaultKind::Io, 20));
        assert_eq!(end.measured.reads.latency_mean, None);
    }

    #[test]
    fn a_stop_ends_a_running_leg_with_what_it_has() {
        for kind in KINDS {
            let mut ground = ground(1 << 20);
            let mut reads = profile(Access::Random, 1.0, 4096);
            (reads.runtime, reads.bytes_max) = (Seconds(600.0), Bytes(u64::MAX));
            let ears = Ears::default();
            let end = std::thread::scope(|scope| {
                let leg = scope.spawn(|| drive(&mut ground, &reads, kind, &ears));
                while ears.live.progress().is_none_or(|p| p.read_operations == 0) {
                    std::thread::yield_now();
                }
                ears.stop.store(true, Ordering::Relaxed);
                leg.join().unwrap()
            });
            assert!(matches!(end.halt, Some(Halt::Skipped(Skip::Stopped, _))), "{:?}", end.halt);
            assert!(end.measured.operations() > 0);
            assert_eq!(ears.live.progress(), None, "nothing runs any more");
        }
    }

    #[test]
    fn direct_io_asks_for_whole_blocks_by_name() {
        let dir = disk_directory();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![1; 1 << 20]).unwrap();
        let at = rustix::fs::open(dir.path(), rustix::fs::OFlags::DIRECTORY, 0.into()).unwrap();
        let file = crate::workload::file::Handle::open(
            std::os::fd::AsFd::as_fd(&at),
            "file",
            rustix::fs::OFlags::RDWR,
        )
        .unwrap();
        let asks = file.direct && file.alignment().offset.is_some_and(|align| align > 4);
        let mut ground = Ground::for_test(file.fd, Bytes(1 << 20));
        ground.file.direct = file.direct;
        let odd = profile(Access::Random, 1.0, 2300);
        let result = ground.choose_engine(&odd, None, &Ears::default());
        if asks {
            let Err(Halt::Failed(fault)) = result else { panic!("{result:?}") };
            assert_eq!(fault.kind, FaultKind::Unsupported);
            assert!(fault.text.contains("asks for multiples of"), "{fault}");
        }
    }
}
