//! Runs the legs of a profile on an open region: keeps the queue full until a bound is met, then
//! drains, flushes and counts. Latency is total: from submission to completion.

use std::time::Duration;

use rustix::io::Errno;

use super::engine::{self, Chosen, Completion, Engine, Needs, Operation, PATIENCE};
use super::ground::Ground;
use super::pattern::{Filler, Pattern};
use super::tally::{Moved, Tally, is_steady};
use super::{Halt, Watch};
use crate::base::clock::monotonic;
use crate::base::fault::{Fault, FaultKind};
use crate::base::units::{Bytes, Seconds};
use crate::model::job::{EngineKind, Profile, What};
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
    /// By slot: what is in flight.
    flights: Vec<Option<Flight>>,
    issued: u64,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    operation: Operation,
    submitted: Duration,
}

/// Picks the engine on the real file and says what was opened. Where the first direct read is
/// refused, the region is opened anew through the page cache, and the result says so.
pub fn choose_engine(
    ground: &mut Ground,
    (profile, forced): (&Profile, Option<EngineKind>),
    watch: &dyn Watch,
) -> Result<Chosen, Halt> {
    let refused = check_alignment(ground, profile)?;
    if refused {
        give_up_direct(ground)?;
    }
    let chosen = loop {
        match engine::choose(&needs(ground, profile), forced, watch) {
            Ok((_, chosen)) => break chosen,
            Err(_) if watch.stopped() => return Err(Halt::stopped()),
            Err(fault) if fault.kind == FaultKind::Unsupported && ground.file.direct => {
                give_up_direct(ground)?;
            }
            Err(fault) => {
                let text = format!("{}: {}", ground.name, fault.text);
                return Err(Fault::new(fault.kind, text).into());
            }
        }
    };
    let (engine, reason) = (chosen.kind, chosen.reason.clone());
    watch.event(What::Opened { engine, reason, direct: ground.direct() });
    Ok(chosen)
}

fn give_up_direct(ground: &mut Ground) -> Result<(), Halt> {
    match ground.file.make_buffered() {
        Ok(_) => Ok(()),
        Err(errno) => Err(Fault::os(&ground.name, &errno.into()).into()),
    }
}

/// True where the file takes no direct I/O at all.
fn check_alignment(ground: &Ground, profile: &Profile) -> Result<bool, Fault> {
    match ground.file.alignment().offset.filter(|_| ground.file.direct) {
        Some(0) => Ok(true),
        Some(align) if !profile.block.0.is_multiple_of(align) => {
            let (name, block, align) = (&ground.name, profile.block, Bytes(align));
            let text = format!("{name}: blocks of {block} are no multiple of {align}, as it asks");
            Err(Fault::new(FaultKind::Unsupported, text))
        }
        _ => Ok(false),
    }
}

fn needs<'a>(ground: &'a Ground, profile: &Profile) -> Needs<'a> {
    use std::os::fd::AsFd;
    Needs {
        file: ground.file.as_fd(),
        slots: profile.in_flight_max().max(1) as usize,
        block: usize::try_from(profile.block.0).unwrap_or(usize::MAX),
        align: ground.file.alignment().memory,
        sync: profile.sync,
    }
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
        // Each leg draws its own offsets and bytes.
        let seed = leg.seed.wrapping_add(leg.index as u64);
        ground.file.drop_cache();
        Ok(Self {
            ground,
            leg,
            watch,
            chosen: chosen.clone(),
            pattern: Pattern::new(profile, ground.bytes, seed)?,
            engine: engine::reopen(&needs(ground, profile), chosen)?,
            filler: Filler::new(seed),
            flights: vec![None; profile.in_flight_max() as usize],
            issued: 0,
        })
    }

    /// Runs the leg to its end.
    pub fn run(mut self) -> LegEnd {
        let start = monotonic();
        let ramp_end = start + self.leg.profile.ramp.duration();
        let mut tally = Tally::new(self.leg.profile.block.0, ramp_end);
        let mut halt = self.keep_busy(start, &mut tally).err();
        let mut flush = None;
        if halt.is_none() && self.leg.profile.flush && tally.moved[1].operations > 0 {
            match self.flush() {
                Ok(time) => flush = Some(time),
                Err(fault) => halt = Some(fault.into()),
            }
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
        let mut completions = Vec::with_capacity(self.flights.len());
        let mut published = start;
        loop {
            let now = monotonic();
            if halt.is_none() && self.watch.stopped() {
                halt = Some(Halt::stopped());
            }
            if halt.is_none() && now < end {
                halt = self.fill_queue().err();
            }
            if self.flights.iter().all(Option::is_none) {
                return halt.map_or(Ok(()), Err);
            }
            if let Err(error) = self.engine.reap(PATIENCE, &mut completions) {
                // The engine is broken: what is in flight can't be waited for any more.
                return Err(Fault::os(&self.ground.name, &error).into());
            }
            for done in completions.drain(..) {
                if let Err(ended) = self.land(&done, tally) {
                    halt.get_or_insert(ended);
                }
            }
            if now.saturating_sub(published) >= PUBLISH_EVERY {
                published = now;
                let progress = tally.progress(self.leg.index, now.saturating_sub(start));
                self.watch.live().publish(Some(progress));
            }
        }
    }

    /// One operation on each free slot, within the bounds on bytes and operations.
    fn fill_queue(&mut self) -> Result<(), Halt> {
        let profile = self.leg.profile;
        let jobs = profile.jobs.max(1) as usize;
        for slot in 0..self.flights.len() {
            if self.flights[slot].is_some() {
                continue;
            }
            let bytes = (self.issued + 1).saturating_mul(profile.block.0);
            let bound = profile.operations_max.unwrap_or(u64::MAX);
            if bytes > profile.bytes_max.0 || self.issued >= bound {
                break;
            }
            let step = self.pattern.step(slot % jobs);
            if step.write
                && let Some(buffer) = self.engine.buffer(slot)
            {
                self.filler.fill(buffer);
            }
            self.issued += 1;
            self.submit(Operation { slot, offset: step.offset, write: step.write }, monotonic())?;
        }
        Ok(())
    }

    fn submit(&mut self, operation: Operation, submitted: Duration) -> Result<(), Halt> {
        let queued = self.engine.queue(operation);
        queued.map_err(|error| Fault::os(&self.ground.name, &error))?;
        self.flights[operation.slot] = Some(Flight { operation, submitted });
        Ok(())
    }

    /// Takes one completion; an error ends the leg.
    fn land(&mut self, done: &Completion, tally: &mut Tally) -> Result<(), Halt> {
        let Some(flight) = self.flights.get_mut(done.slot).and_then(Option::take) else {
            return Ok(());
        };
        let Operation { offset, write, .. } = flight.operation;
        match done.result {
            // Not done and no fault: asked again, and timed from the first asking.
            Err(Errno::INTR | Errno::AGAIN) if !self.watch.stopped() => {
                self.submit(flight.operation, flight.submitted)
            }
            Err(errno) => {
                tally.take(done, write, flight.submitted);
                let direction = if write { "write" } else { "read" };
                let after = tally.moved().operations;
                let place = format!(
                    "{}: {direction} at offset {offset} after {after} operations",
                    self.ground.name
                );
                Err(Fault::os(place, &errno.into()).into())
            }
            Ok(_) => {
                tally.take(done, write, flight.submitted);
                Ok(())
            }
        }
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
