//! One job of a leg: keeps its own queue full until a bound is met, then drains it. As with fio, a job
//! is a thread with an engine, a part of the region and draws of its own.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::drive::Leg;
use super::engine::{self, Chosen, Completion, Engine, Needs, Operation, PATIENCE};
use super::ground::Ground;
use super::pattern::{Filler, Pattern, derived};
use super::tally::{Sent, Tally};
use super::{Halt, Watch};
use crate::base::clock::monotonic;
use crate::base::fault::Fault;
use crate::model::job::{Profile, Progress};

/// How often the numbers of a running leg are left for the reader.
const PUBLISH_EVERY: Duration = Duration::from_millis(500);

/// What the jobs of a leg have in common.
pub(super) struct Course<'a> {
    pub(super) ground: &'a Ground,
    pub(super) leg: Leg<'a>,
    pub(super) watch: &'a dyn Watch,
    pub(super) chosen: Chosen,
    /// Operations that may still be issued, by whichever job.
    left: AtomicU64,
    /// One of them failed or was told to stop: none issues more.
    ended: AtomicBool,
    /// Of each job, as it said last.
    progress: Mutex<Vec<Progress>>,
}

impl<'a> Course<'a> {
    pub(super) fn new(
        ground: &'a Ground,
        leg: Leg<'a>,
        chosen: &Chosen,
        watch: &'a dyn Watch,
    ) -> Self {
        let Profile { bytes_max, block, operations_max, .. } = leg.profile;
        let by_bytes = bytes_max.0.checked_div(block.0).unwrap_or(0);
        let left = AtomicU64::new(operations_max.map_or(by_bytes, |most| most.min(by_bytes)));
        let ended = AtomicBool::new(false);
        let progress = Mutex::new(vec![Progress::default(); leg.profile.jobs as usize]);
        Self { ground, leg, watch, chosen: chosen.clone(), left, ended, progress }
    }

    fn may_issue(&self) -> bool {
        let taken = |left: u64| left.checked_sub(1);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }

    /// Leaves the sum of what all jobs did; how long it took is one's word for all, they are alike.
    fn publish(&self, job: usize, progress: Progress) {
        let mut all = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = all.get_mut(job) {
            *place = progress.clone();
        }
        let others = all.iter().enumerate().filter(|(number, _)| *number != job);
        let sum = others.fold(progress, |mut sum, (_, other)| {
            sum.read_operations += other.read_operations;
            sum.write_operations += other.write_operations;
            sum.read_bytes.0 += other.read_bytes.0;
            sum.written_bytes.0 += other.written_bytes.0;
            sum
        });
        self.watch.live().publish(Some(sum));
    }
}

/// A job that is ready to start: engine opened, nothing submitted. It runs on the thread that opened
/// it: a ring has a single issuer.
pub(super) struct Job {
    number: u32,
    engine: Box<dyn Engine>,
    pattern: Pattern,
    filler: Filler,
    flights: Vec<Option<Flight>>,
    /// Slots with nothing in flight; the last comes next.
    free: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    operation: Operation,
    submitted: Duration,
}

impl Job {
    pub(super) fn open(course: &Course<'_>, number: u32) -> Result<Self, Halt> {
        let Course { ground, leg, chosen, .. } = course;
        let slots = leg.profile.depth.max(1) as usize;
        let seed = derived(leg.seed, leg.index as u64 + 1);
        Ok(Self {
            number,
            pattern: Pattern::new(leg.profile, ground.span_of(leg.profile)?, seed, number)?,
            engine: engine::reopen(&Needs { slots, ..ground.needs(leg.profile) }, chosen)?,
            filler: Filler::new(derived(seed, u64::from(number) + 1)),
            flights: vec![None; slots],
            free: (0..slots).rev().collect(),
        })
    }

    /// Submits until a bound is met or something ends it, then waits for all that is in flight. What
    /// it counted is kept, whatever ended it.
    pub(super) fn run(mut self, course: &Course<'_>, start: Duration) -> (Tally, Result<(), Halt>) {
        let mut tally = Tally::new(start + course.leg.profile.ramp.duration());
        let result = self.keep_busy(course, start, &mut tally);
        course.ended.fetch_or(result.is_err(), Ordering::Relaxed);
        (tally, result)
    }

    fn keep_busy(
        &mut self,
        course: &Course<'_>,
        start: Duration,
        tally: &mut Tally,
    ) -> Result<(), Halt> {
        let Leg { profile, index, .. } = course.leg;
        let name = &course.ground.name;
        let end = start + (profile.ramp.duration() + profile.runtime.duration());
        let mut halt = None;
        let mut completions = Vec::with_capacity(self.flights.len());
        let mut published = start;
        loop {
            let now = monotonic();
            if halt.is_none() && course.watch.stopped() {
                halt = Some(Halt::stopped());
            }
            if halt.is_some() {
                course.ended.store(true, Ordering::Relaxed);
            } else if now < end && !course.ended.load(Ordering::Relaxed) {
                let filled = self.fill_queue(course, now);
                halt = filled.err().map(|error| Fault::os(name, &error).into());
            }
            if self.free.len() == self.flights.len() {
                return halt.map_or(Ok(()), Err);
            }
            if let Err(error) = self.engine.reap(PATIENCE, &mut completions) {
                // The engine is broken: what is in flight can't be waited for any more.
                return Err(Fault::os(name, &error).into());
            }
            for done in completions.drain(..) {
                if let Err(fault) = self.land(course, &done, tally) {
                    halt.get_or_insert(fault.into());
                }
            }
            if now.saturating_sub(published) >= PUBLISH_EVERY {
                published = now;
                let progress = tally.progress(index, now.saturating_sub(start));
                course.publish(self.number as usize, progress);
            }
        }
    }

    /// One operation on each free slot, within the bounds on bytes and operations; `now` was read
    /// just before. Reads go to the kernel together, with the wait that follows. New data takes
    /// longer to make than a fast disk to write it, so it is nobody's latency: what is queued goes
    /// out first, and a write's clock starts when its data is there.
    fn fill_queue(&mut self, course: &Course<'_>, now: Duration) -> io::Result<()> {
        let mut waits = false;
        while let Some(slot) = self.free.last().copied()
            && course.may_issue()
        {
            let step = self.pattern.step();
            let mut submitted = now;
            if step.write {
                if std::mem::take(&mut waits) {
                    self.engine.submit()?;
                }
                if let Some(buffer) = self.engine.buffer(slot) {
                    self.filler.fill(buffer);
                }
                submitted = monotonic();
            }
            let (offset, write) = (step.offset, step.write);
            let operation = Operation { slot, offset, write, ..Operation::default() };
            self.engine.queue(operation)?;
            self.free.pop();
            if let Some(flight) = self.flights.get_mut(slot) {
                *flight = Some(Flight { operation, submitted });
            }
            waits = true;
        }
        Ok(())
    }

    /// Takes one completion; an error ends the leg.
    fn land(
        &mut self,
        course: &Course<'_>,
        done: &Completion,
        tally: &mut Tally,
    ) -> Result<(), Fault> {
        let Some(flight) = self.flights.get_mut(done.slot).and_then(Option::take) else {
            return Ok(());
        };
        self.free.push(done.slot);
        let Operation { offset, write, .. } = flight.operation;
        let bytes = course.leg.profile.block.0;
        tally.take(done, &Sent { write, bytes, at: flight.submitted });
        let Err(errno) = done.result else { return Ok(()) };
        let direction = if write { "write" } else { "read" };
        let after = tally.moved().operations;
        let name = &course.ground.name;
        let place = format!("{name}: {direction} at offset {offset} after {after} operations");
        Err(Fault::os(place, &errno.into()))
    }
}
