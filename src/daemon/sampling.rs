//! The sampling lane: reads every sampler once a period on one OS thread and publishes a snapshot.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::board::Board;
use super::itself::{self, *};
use super::plan::Plan;
use super::supervise::{Halt, Pulse};
use crate::base::clock::{Clock, Moment};
use crate::base::fault::{Fault, FaultKind};
use crate::base::units::Seconds;
use crate::host::roots::Roots;
use crate::judge::load::Live;
use crate::model::metric::{Label, Point, push_some};
use crate::model::outcome::Conditions;
use crate::model::snapshot::{HostFacts, Snapshot};
use crate::publish::Published;
use crate::sample::{Kind, Reading, SAMPLERS, Sampler, Tick};

/// What the lane is given.
pub struct Sampling {
    pub roots: Roots,
    pub host: Arc<HostFacts>,
    pub board: Arc<Board>,
    pub published: Arc<Published>,
    pub clock: Arc<dyn Clock>,
    pub halt: Halt,
    pub started: Moment,
    /// Pulses of all lanes, for `loadline_lane_restarts_total`.
    pub pulses: Arc<std::sync::Mutex<Vec<Arc<Pulse>>>>,
}

/// One sampler and how it fares.
struct Slot {
    kind: &'static Kind,
    label: Label,
    sampler: Box<dyn Sampler>,
    up: bool,
    /// This kernel never had its source: not a failure, and nobody should be woken for it.
    unsupported: bool,
    last_success: Option<Moment>,
    read: Seconds,
    rejected: u64,
    /// Of the last reading: the next will have about as many.
    points: usize,
    /// Readings that failed, by what was wrong.
    failures: BTreeMap<FaultKind, u64>,
    said: Option<String>,
}

impl Slot {
    fn new(kind: &'static Kind, sampler: Box<dyn Sampler>) -> Self {
        Self {
            kind,
            label: Arc::from(kind.name),
            sampler,
            up: false,
            unsupported: false,
            last_success: None,
            read: Seconds(0.0),
            rejected: 0,
            points: 0,
            failures: BTreeMap::new(),
            said: None,
        }
    }
}

/// The samplers as opened for one plan.
pub struct Samplers {
    plan: Arc<Plan>,
    slots: Vec<Slot>,
    late: u64,
    /// Loads against ceilings.
    live: Live,
    /// The `process_*` families and when they were read: they are of interest by the minute.
    process: (Option<Moment>, Vec<Point>),
}

const PROCESS_EVERY_SECONDS: f64 = 15.0;

impl Samplers {
    pub fn open(roots: &Roots, plan: Arc<Plan>) -> Self {
        let slots = SAMPLERS
            .iter()
            .map(|kind| Slot::new(kind, (kind.open)(roots, &plan.settings.sample)))
            .collect();
        Self { plan, slots, late: 0, live: Live::default(), process: (None, Vec::new()) }
    }
}

impl Sampling {
    /// The lane's body: returns when halted.
    pub fn run(&self, pulse: &Pulse) {
        let Some(plan) = self.board.lock().plan.clone() else { return };
        let mut samplers = Samplers::open(&self.roots, plan);
        let mut due = self.clock.now();
        loop {
            let period = samplers.plan.settings.sample.every.duration();
            pulse.beat(self.clock.now(), period * 3 + Duration::from_secs(5));
            self.take_new_plan(&mut samplers);
            let snapshot = self.tick(&mut samplers);
            self.published.publish(snapshot);
            let now = self.clock.now();
            due = next_tick(due, now, period, &mut samplers.late);
            if self.halt.sleep(due.mono.saturating_sub(now.mono)) {
                return;
            }
        }
    }

    /// A changed plan reopens the samplers only when what they were told has changed.
    fn take_new_plan(&self, samplers: &mut Samplers) {
        let Some(plan) = self.board.lock().plan.clone() else { return };
        if Arc::ptr_eq(&plan, &samplers.plan) {
            return;
        }
        if plan.settings.sample == samplers.plan.settings.sample {
            samplers.plan = plan;
        } else {
            let late = samplers.late;
            *samplers = Samplers::open(&self.roots, plan);
            samplers.late = late;
        }
    }

    /// Reads everything once and puts a snapshot together.
    pub fn tick(&self, samplers: &mut Samplers) -> Snapshot {
        let at = self.clock.now();
        let (own, ceilings) = {
            let shared = self.board.lock();
            (shared.own.clone(), Arc::clone(&shared.ceilings))
        };
        let points = samplers.slots.iter().map(|slot| slot.points).sum::<usize>() * 5 / 4;
        let mut all = Reading { points: Vec::with_capacity(points), ..Reading::default() };
        for slot in &mut samplers.slots {
            let tick = Tick { at, own: &own };
            let settings = &samplers.plan.settings.sample;
            let begun = self.clock.now();
            match read_apart(slot, tick) {
                Ok(reading) => take(&mut all, slot, reading, at),
                Err(fault) => {
                    if fault.kind == FaultKind::Internal {
                        slot.sampler = (slot.kind.open)(&self.roots, settings);
                    }
                    say_once(slot, &fault);
                }
            }
            slot.read = self.clock.now().since(begun);
        }
        all.conditions.at = at;
        let shown = (&mut all.points, &mut all.resources[..]);
        samplers.live.disks(&all.disks, &ceilings, shown);
        let lines = samplers.live.lines(std::mem::take(&mut all.lines));
        if samplers.process.0.is_none_or(|read| at.since(read).0 >= PROCESS_EVERY_SECONDS) {
            samplers.process = (Some(at), Vec::new());
            itself::process(&mut samplers.process.1, self.started);
        }
        let ceilings = vec![Arc::clone(&ceilings.points), lines];
        Snapshot { ceilings, ..self.compose(samplers, all, at) }
    }

    fn compose(&self, samplers: &Samplers, mut all: Reading, at: Moment) -> Snapshot {
        let mut itself_points = Vec::with_capacity(64);
        self.describe_itself(samplers, &all, &mut itself_points);
        let mut shared = self.board.lock();
        shared.conditions = std::mem::take(&mut all.conditions);
        all.notes.extend(shared.notes.iter().cloned());
        Snapshot {
            at,
            points: all.points,
            itself: itself_points,
            host: Arc::clone(&self.host),
            resources: all.resources,
            probes: shared.probes.clone(),
            targets: shared.targets.clone(),
            links: shared.links.clone(),
            mesh: shared.mesh_view.clone(),
            notes: all.notes,
            ceilings: Vec::new(),
        }
    }

    fn describe_itself(&self, samplers: &Samplers, all: &Reading, out: &mut Vec<Point>) {
        out.push(itself::build_info());
        for slot in &samplers.slots {
            let label = [&slot.label];
            let up = (!slot.unsupported).then(|| f64::from(u8::from(slot.up)));
            push_some(out, &SAMPLER_UP, &label, up);
            let success = slot.last_success.map(|m| m.unix_seconds());
            push_some(out, &SAMPLER_LAST_SUCCESS, &label, success);
            out.push(Point::number(&SAMPLER_READ, &label, slot.read.0));
            out.push(Point::number(&SAMPLER_REJECTED, &label, slot.rejected as f64));
            for (kind, failures) in &slot.failures {
                let labels = [&slot.label, &Arc::from(kind.label())];
                out.push(Point::number(&SAMPLER_FAILURES, &labels, *failures as f64));
            }
        }
        out.push(Point::number(&SAMPLES_LATE, &[], samplers.late as f64));
        out.push(Point::number(&DROPPED_DEVICES, &[], all.dropped_devices as f64));
        let pulses = self.pulses.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        for pulse in pulses {
            let lane: Label = Arc::from(pulse.name);
            out.push(Point::number(&LANE_RESTARTS, &[&lane], pulse.restarts() as f64));
        }
        let shared = self.board.lock();
        out.push(Point::number(&CONFIG_RELOAD_OK, &[], f64::from(u8::from(shared.reload_ok))));
        push_some(out, &CONFIG_RELOAD_AT, &[], shared.reload_at.map(|m| m.unix_seconds()));
        for discard in super::state::Discard::ALL {
            let count = shared.discarded.get(discard.label()).copied().unwrap_or(0);
            out.push(Point::number(&STATE_DISCARDED, &[&Arc::from(discard.label())], count as f64));
        }
        for (part, held) in &shared.sandbox {
            let part: Label = Arc::from(part.as_str());
            out.push(Point::number(&SANDBOX, &[&part], f64::from(u8::from(*held))));
        }
        crate::probe::throughput::metrics::mesh_points(&shared.mesh_view, out);
        drop(shared);
        out.extend(samplers.process.1.iter().cloned());
    }
}

/// A reading of one sampler alone: its fault or panic costs the others nothing.
fn read_apart(slot: &mut Slot, tick: Tick<'_>) -> Result<Reading, Fault> {
    let sampler = AssertUnwindSafe(&mut slot.sampler);
    let points = Vec::with_capacity(slot.points);
    catch_unwind(move || {
        let mut reading = Reading { points, ..Reading::default() };
        let sampler = sampler;
        sampler.0.read(tick, &mut reading).map(|()| reading)
    })
    .unwrap_or_else(|_| {
        Err(Fault::new(FaultKind::Internal, format!("the {} sampler panicked", slot.kind.name)))
    })
}

fn take(all: &mut Reading, slot: &mut Slot, reading: Reading, at: Moment) {
    slot.up = true;
    slot.unsupported = false;
    slot.last_success = Some(at);
    slot.said = None;
    slot.rejected += reading.rejected;
    slot.points = reading.points.len();
    all.points.extend(reading.points);
    all.resources.extend(reading.resources);
    all.disks.extend(reading.disks);
    all.lines.extend(reading.lines);
    all.notes.extend(reading.notes);
    all.dropped_devices += reading.dropped_devices;
    merge_conditions(&mut all.conditions, reading.conditions);
}

fn merge_conditions(all: &mut Conditions, one: Conditions) {
    all.disks.extend(one.disks);
    all.lines.extend(one.lines);
    all.io_pressure = one.io_pressure.or(all.io_pressure);
    all.cpu_idle = one.cpu_idle.or(all.cpu_idle);
    all.resync |= one.resync;
    all.on_battery |= one.on_battery;
}

/// A fault that stays is said once, not once a second.
fn say_once(slot: &mut Slot, fault: &Fault) {
    slot.up = false;
    slot.unsupported = fault.kind == FaultKind::Unsupported && slot.last_success.is_none();
    if !slot.unsupported {
        *slot.failures.entry(fault.kind).or_default() += 1;
    }
    if slot.said.as_deref() != Some(fault.text.as_str()) {
        tracing::warn!(sampler = slot.kind.name, "{fault}: {}", fault.kind.advice());
        slot.said = Some(fault.text.clone());
    }
}

/// The next absolute deadline; whole periods that were missed are skipped and counted, never caught up.
fn next_tick(due: Moment, now: Moment, period: Duration, late: &mut u64) -> Moment {
    let next = due.mono + period;
    if next >= now.mono {
        return Moment { mono: next, ..now };
    }
    let missed = (now.mono - next).as_nanos() / period.as_nanos().max(1) + 1;
    *late += u64::try_from(missed).unwrap_or(u64::MAX);
    now.plus(period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_skips_ticks_and_counts_them() {
        let s = Duration::from_secs;
        let at = |seconds| Moment::default().plus(s(seconds));
        let mut late = 0;
        let on_time = next_tick(at(10), at(10), s(1), &mut late);
        assert_eq!((on_time.mono, late), (s(11), 0));
        let after = next_tick(at(10), at(14), s(1), &mut late);
        assert_eq!((after.mono, late), (s(15), 4));
    }

    #[test]
    fn every_family_of_the_daemon_keeps_our_own_rules() {
        let all = crate::daemon::descs();
        assert_eq!(crate::publish::reference::own_lint(&all), [""; 0]);
    }

    struct Panics;
    impl Sampler for Panics {
        fn read(&mut self, _: Tick<'_>, _: &mut Reading) -> Result<(), Fault> {
            std::panic::resume_unwind(Box::new("a parser's fault"))
        }
    }

    #[test]
    fn a_sampler_that_panics_is_a_fault_of_its_own() {
        let mut slot = Slot::new(SAMPLERS[0], Box::new(Panics));
        slot.up = true;
        let own = Default::default();
        let fault = read_apart(&mut slot, Tick { at: Moment::default(), own: &own }).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Internal);
        say_once(&mut slot, &fault);
        assert!(!slot.up);
    }

    #[test]
    fn case_088_a_hidden_file_is_a_named_failure_and_costs_the_others_nothing() {
        // As a unit with ProcSubset=pid sees it: no stat, no diskstats, no pressure, but a network.
        let hidden = include_str!("../../tests/fixtures/cases/088-procfs-restricted-values.input");
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("1/net")).unwrap();
        for file in ["1/net/dev", "1/net/snmp"] {
            std::fs::write(dir.path().join(file), "").unwrap();
        }
        let roots = Roots { procfs: dir.path().into(), ..Roots::default() };
        for (sampler, file) in [("disk", "/proc/diskstats"), ("cpu", "/proc/stat")] {
            assert!(hidden.contains(&format!("{file}: ENOENT")));
            let kind = SAMPLERS.iter().find(|kind| kind.name == sampler).unwrap();
            let mut slot = Slot::new(kind, (kind.open)(&roots, &Default::default()));
            for expected in 1..3 {
                let own = Default::default();
                let tick = Tick { at: Moment::default(), own: &own };
                let fault = read_apart(&mut slot, tick).unwrap_err();
                say_once(&mut slot, &fault);
                assert_eq!(slot.failures, BTreeMap::from([(FaultKind::Missing, expected)]));
            }
            assert!(!slot.up && !slot.unsupported);
        }
        let kind = SAMPLERS.iter().find(|kind| kind.name == "tcp").unwrap();
        let mut slot = Slot::new(kind, (kind.open)(&roots, &Default::default()));
        let own = Default::default();
        let reading = read_apart(&mut slot, Tick { at: Moment::default(), own: &own }).unwrap();
        assert!(reading.points.is_empty(), "nothing is made up");
    }
}
