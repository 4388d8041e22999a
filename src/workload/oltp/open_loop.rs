//! Offers requests at a rate and times each from the moment at which it was meant to begin. A slow
//! target doesn't slow what is offered: what it delays waits, and its wait is part of its latency.

use std::io;
use std::time::Duration;

use super::asus::Asus;
use super::generator::{Arrivals, Generator, Request};
use super::ready::{End, Ready};
use super::tally::Ledger;
use crate::base::clock::monotonic;
use crate::base::fault::{Fault, FaultKind};
use crate::base::units::{Bytes, Seconds};
use crate::model::job::{Profile, What};
use crate::model::oltp::{AsuDone, BLOCK_BYTES, Step};
use crate::model::outcome::Measured;
use crate::workload::drive::Moved;
use crate::workload::engine::{Chosen, Completion, Engine, Operation, PATIENCE};
use crate::workload::intervals::is_steady;
use crate::workload::pattern::{Filler, derived};
use crate::workload::{Halt, Watch};

/// How often the numbers are left for the reader.
const PUBLISH_EVERY: Duration = Duration::from_millis(500);
/// After the end, what is due may still begin for so long.
const DRAIN: Duration = Duration::from_secs(1);
/// So many requests that aren't done are always borne, and more than this never: they are memory.
const OPEN: (f64, f64) = (64.0, 250_000.0);

/// One rate for a while.
#[derive(Clone, Copy, Debug)]
pub struct Stint {
    pub index: usize,
    pub arrivals: Arrivals,
    /// Left out of every number.
    pub ramp: Seconds,
    pub window: Seconds,
    /// Most bytes that are moved.
    pub bytes_max: Bytes,
    /// Ends once so much time's worth of requests isn't done; `None`: goes on.
    pub patience: Option<Seconds>,
    pub counts_every: Option<Seconds>,
}

#[derive(Debug)]
pub struct StintEnd {
    pub measured: Measured,
    pub step: Step,
    pub asus: Vec<AsuDone>,
    pub service_mean: Option<Seconds>,
    pub moved: Moved,
    pub halt: Option<Halt>,
}

/// An engine on the three storage units, for one stint after the other.
pub struct Bench<'a> {
    asus: &'a Asus,
    chosen: &'a Chosen,
    engine: Box<dyn Engine>,
    slots: usize,
    watch: &'a dyn Watch,
    filler: Filler,
    seed: u64,
}

impl<'a> Bench<'a> {
    pub fn open(
        asus: &'a Asus,
        chosen: &'a Chosen,
        seed: u64,
        watch: &'a dyn Watch,
    ) -> Result<Self, Fault> {
        // Else each sleep of this thread may end 50 us late (prctl(2), PR_SET_TIMERSLACK).
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let (engine, slots) = asus.engine(chosen)?;
        Ok(Self { asus, chosen, engine, slots, watch, filler: Filler::new(seed), seed })
    }

    /// Runs one stint of `profile`'s workload, and waits for all that it began.
    pub fn run(&mut self, profile: &Profile, stint: &Stint) -> StintEnd {
        let seed = derived(self.seed, stint.index as u64 + 1);
        let start = monotonic();
        let generator = Generator::new(&stint.arrivals, &self.asus.sizes, seed);
        let mut course = Course::new(self, stint, (start, generator));
        let mut halt = course.keep_up().err();
        let Course { ledger, overloaded, end, .. } = course;
        if halt.is_none() && ledger.all.short_operations > 0 {
            let (short, name) = (ledger.all.short_operations, self.asus.name());
            let text = format!("{name}: {short} operations came back short");
            halt = Some(Fault::new(FaultKind::Io, text).into());
        }
        self.watch.live().publish(None);
        let rate = stint.arrivals.rate();
        StintEnd {
            measured: self.measured(profile, &ledger),
            step: ledger.step(rate, end, overloaded),
            asus: ledger.asus(&self.asus.sizes),
            service_mean: ledger.service_mean(),
            moved: ledger.all.moved(),
            halt,
        }
    }

    /// Gives an operation to the engine; `waits`: there are some that aren't submitted yet.
    fn begin(&mut self, operation: &Operation, waits: bool) -> io::Result<()> {
        if operation.write {
            if waits {
                self.engine.submit()?;
            }
            if let Some(buffer) = self.engine.buffer(operation.slot) {
                self.filler.fill(operation.of(buffer));
            }
        }
        self.engine.queue(*operation)
    }

    fn measured(&self, profile: &Profile, ledger: &Ledger) -> Measured {
        let (reads, writes) = ledger.all.directions();
        let rates = ledger.all.rates();
        Measured {
            profile: profile.clone(),
            engine: self.chosen.kind,
            engine_reason: self.chosen.reason.clone(),
            direct: self.asus.direct(),
            elapsed: ledger.all.elapsed().into(),
            reads,
            writes,
            flush: None,
            seed: self.seed,
            steady: is_steady(&rates),
            rates,
            errors: ledger.all.errors,
            short_operations: ledger.all.short_operations,
        }
    }
}

/// A stint under way.
struct Course<'b, 'a> {
    bench: &'b mut Bench<'a>,
    stint: &'b Stint,
    generator: Generator,
    next: Option<Request>,
    ready: Ready,
    ledger: Ledger,
    start: Duration,
    end: Duration,
    /// Of all requests that were admitted.
    bytes: u64,
    overloaded: bool,
    published: Duration,
    counted: Duration,
}

impl<'b, 'a> Course<'b, 'a> {
    fn new(
        bench: &'b mut Bench<'a>,
        stint: &'b Stint,
        (start, mut generator): (Duration, Generator),
    ) -> Self {
        let from = start + stint.ramp.duration();
        Self {
            ready: Ready::new(bench.slots),
            ledger: Ledger::new(from),
            next: generator.next(),
            end: from + stint.window.duration(),
            bench,
            stint,
            generator,
            start,
            bytes: 0,
            overloaded: false,
            published: start,
            counted: start,
        }
    }

    /// Until the end, then until all that began is done.
    fn keep_up(&mut self) -> Result<(), Halt> {
        let mut halt = None;
        let mut completions = Vec::with_capacity(self.bench.slots);
        loop {
            let now = monotonic();
            if halt.is_none() && self.bench.watch.stopped() {
                halt = Some(Halt::stopped());
            }
            self.admit(now);
            if halt.is_some() || now >= self.end + DRAIN || self.overloaded {
                self.give_up();
            }
            if let Err(fault) = self.issue(now) {
                halt.get_or_insert(fault.into());
                self.give_up();
            }
            let over = now >= self.end || halt.is_some();
            if over && self.ready.in_flight() == 0 && self.ready.open() == 0 {
                return halt.map_or(Ok(()), Err);
            }
            let wait = if over { PATIENCE } else { self.until_next(now) };
            if let Err(error) = self.bench.engine.reap(wait, &mut completions) {
                // The engine is broken: what is in flight can't be waited for any more.
                return Err(Fault::os(self.bench.asus.name(), &error).into());
            }
            for done in completions.drain(..) {
                if let Err(fault) = self.land(&done) {
                    self.end = self.end.min(now);
                    halt.get_or_insert(fault.into());
                }
            }
            if halt.is_some() {
                self.end = self.end.min(now);
            }
            self.tell(now);
        }
    }

    fn until_next(&self, now: Duration) -> Duration {
        let next = self.next.map_or(self.end, |request| self.start + request.at);
        next.min(self.end).saturating_sub(now).min(PATIENCE)
    }

    /// Takes what is due by now, within the bounds.
    fn admit(&mut self, now: Duration) {
        while let Some(request) = self.next
            && self.start + request.at <= now
            && self.start + request.at < self.end
        {
            let bytes = request.blocks * BLOCK_BYTES;
            if self.bytes + bytes > self.stint.bytes_max.0 {
                self.end = now;
                return;
            }
            let Some(unit) = self.bench.asus.units.get(request.asu) else { return };
            self.bytes += bytes;
            self.ready.admit(&request, self.start + request.at, unit);
            self.next = self.generator.next();
        }
        let time = self.stint.patience.map_or(f64::INFINITY, |patience| patience.0);
        let borne = (OPEN.0 + time * self.stint.arrivals.rate()).min(OPEN.1);
        if self.ready.open() as f64 > borne && now < self.end {
            self.overloaded = true;
            self.end = now;
        }
    }

    fn give_up(&mut self) {
        for meant in self.ready.give_up() {
            self.ledger.give_up(meant);
        }
    }

    /// Begins what can begin. Reads go to the kernel together, with the wait that follows; what is
    /// queued goes out before new data is made.
    fn issue(&mut self, now: Duration) -> Result<(), Fault> {
        let (mut now, mut waits) = (now, false);
        while let Some(operation) = self.ready.next() {
            if let Err(error) = self.bench.begin(&operation, std::mem::take(&mut waits)) {
                // It never went to the kernel, and nothing else will end it.
                let errno = rustix::io::Errno::from_io_error(&error);
                let result = Err(errno.unwrap_or(rustix::io::Errno::IO));
                self.land(&Completion { slot: operation.slot, result, at: now })?;
                return Err(Fault::os(self.bench.asus.name(), &error));
            }
            now = if operation.write { monotonic() } else { now };
            self.ready.issued(operation.slot, now);
            waits = true;
        }
        Ok(())
    }

    /// Takes one completion; an error ends the stint.
    fn land(&mut self, done: &Completion) -> Result<(), Fault> {
        let landed = match self.ready.land(done) {
            End::None => return Ok(()),
            End::GivenUp(meant) => {
                self.ledger.give_up(meant);
                return Ok(());
            }
            End::Request(landed) => landed,
        };
        self.ledger.take(&landed);
        let Err(errno) = landed.end.result else { return Ok(()) };
        let direction = if landed.sent.write { "write" } else { "read" };
        let (name, asu) = (self.bench.asus.name(), landed.asu + 1);
        let after = self.ledger.all.moved().operations;
        let place = format!("{name}: {direction} on asu{asu} after {after} operations");
        Err(Fault::os(place, &errno.into()))
    }

    /// Leaves numbers for whoever watches.
    fn tell(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.start);
        if now.saturating_sub(self.published) >= PUBLISH_EVERY {
            self.published = now;
            let mut progress = self.ledger.all.progress(self.stint.index, elapsed);
            progress.own_queue = Some(self.ready.served().as_secs_f64() / elapsed.as_secs_f64());
            // A queue that grows is another half a second later: both are of this moment.
            self.bench.watch.live().see_devices(&mut progress);
            self.bench.watch.live().publish(Some(progress));
        }
        let every = self.stint.counts_every.map(Seconds::duration);
        if let Some(every) = every.filter(|every| now.saturating_sub(self.counted) >= *every) {
            self.counted += every;
            let counts = self.ledger.counts();
            self.bench.watch.event(What::Counts { elapsed: elapsed.into(), counts });
        }
    }
}

#[cfg(test)]
mod tests;
