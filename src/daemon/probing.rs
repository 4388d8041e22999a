//! The probing lane: one probe at a time, each through the guard, each in a worker process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::account;
use super::board::{Board, SETTLED_SAMPLES};
use super::judging::{Judged, Memory};
use super::keeper::Keeper;
use super::plan::{Plan, PlannedProbe};
use super::state::State;
use super::supervise::{Halt, Pulse};
use super::targets::{Targets, ballast_size, refuse_memory, reserve, target_of};
use super::working::{LAYOUT_BYTES_PER_SECOND_MIN, Work};
use crate::base::clock::{Clock, Moment};
use crate::base::units::{Bytes, Seconds};
use crate::config::settings::TargetSettings;
use crate::host::roots::Roots;
use crate::model::job::{Place, Region, Run, Task};
use crate::model::outcome::{Outcome, Reply, Skip};
use crate::model::snapshot::ProbeState;
use crate::probe::depths::Depths;
use crate::schedule::calm::Calm;
use crate::schedule::due::{Entry, Order, Timetable};
use crate::schedule::guard::{self, Request};
use crate::schedule::slots::Slots;
use crate::schedule::writes::may_write;
use crate::worker::{Runner, Stop};

/// What the lane is given.
pub struct Probing {
    pub roots: Roots,
    pub board: Arc<Board>,
    pub clock: Arc<dyn Clock>,
    pub halt: Halt,
    /// Cancels the worker that is running.
    pub stop: Stop,
    pub runner: Arc<dyn Runner>,
    pub keeper: Keeper,
    /// Directories for the turn's lock, best first.
    pub turn_places: Vec<PathBuf>,
    /// As other hosts that share a backend know this one.
    pub host_name: String,
    /// Differs between hosts, so that they don't all probe at the same second.
    pub host_seed: u64,
}

/// What the lane keeps between turns.
pub struct Lane {
    pub(super) plan: Arc<Plan>,
    timetable: Timetable,
    pub targets: Targets,
    pub state: State,
    runs: u64,
    /// When the last own activity on devices ended.
    pub(super) worked: Option<Moment>,
    /// For how long the gate of each target has been open.
    calm: Calm,
    /// What the last runs were judged by.
    pub(super) facts: Memory,
}

/// Time for one open, look and answer of a healthy target.
pub const INSPECT_DEADLINE: Duration = Duration::from_secs(5);
/// Beyond its runtime a run may take this long to open, drain and flush.
pub(super) const RUN_GRACE: Duration = Duration::from_secs(40);
/// The lane looks around at least this often,
const TURN: Duration = Duration::from_secs(1);
/// and so often where probes are off: each look wakes a thread, and nothing but a new plan is waited for.
const TURN_OFF: Duration = Duration::from_secs(5);

impl Probing {
    /// The lane's body: returns when halted.
    pub fn run(&self, pulse: &Pulse) {
        let Some(plan) = self.board.lock().plan.clone() else { return };
        let mut lane = self.open(plan);
        while !self.halt.is_set() {
            self.beat(pulse, &lane);
            self.take_new_plan(&mut lane);
            let now = self.clock.now();
            lane.targets.reap(now);
            self.look_at_gates(&mut lane);
            if let Some(target) = lane.targets.due_for_inspection(now) {
                self.inspect(&mut lane, target);
                continue;
            }
            match lane.timetable.next(now) {
                Some((index, due)) if due.mono <= now.mono => self.attempt(&mut lane, index),
                next => {
                    self.show_next(&lane);
                    let turn = if lane.plan.settings.guard.probes { TURN } else { TURN_OFF };
                    let wait = next.map_or(turn, |(_, due)| due.mono.saturating_sub(now.mono));
                    self.halt.sleep(wait.min(turn));
                }
            }
        }
        self.keeper
            .save(&lane.state)
            .unwrap_or_else(|fault| tracing::warn!("state not saved: {fault}"));
    }

    /// The state as a worker reads it, and a timetable for the plan.
    pub(super) fn open(&self, plan: Arc<Plan>) -> Lane {
        let state = self.keeper.load(&self.board);
        let targets = Targets::new(Arc::clone(&self.board), &plan, &state, self.clock.now());
        let timetable = self.timetable(&plan);
        account::new_views(&self.board, &plan);
        let worked = Some(self.clock.now());
        let (calm, facts) = (Calm::default(), Memory::default());
        let mut lane = Lane { plan, timetable, targets, state, runs: 0, worked, calm, facts };
        self.keep_planned_ceilings(&mut lane);
        lane
    }

    fn timetable(&self, plan: &Plan) -> Timetable {
        let entry = |probe: &PlannedProbe| Entry {
            name: probe.key(plan),
            every: probe.every,
            soon: probe.shape.calm.0 > 0.0,
            order: if probe.shape.exempt_from_gate {
                Order::Latency
            } else if probe.shape.depths == Depths::Ladder {
                Order::Ladders
            } else if probe.shape.writes_anything() {
                Order::Writes
            } else {
                Order::Reads
            },
        };
        let entries = plan.probes.iter().map(entry).collect();
        Timetable::new(entries, plan.settings.first_run, self.host_seed, self.clock.now())
    }

    /// A changed plan keeps what is known of probes and targets that are still there.
    pub(super) fn take_new_plan(&self, lane: &mut Lane) {
        let Some(plan) = self.board.lock().plan.clone() else { return };
        if Arc::ptr_eq(&plan, &lane.plan) {
            return;
        }
        let now = self.clock.now();
        lane.timetable = self.timetable(&plan).following(&lane.timetable, now);
        lane.calm = Calm::default();
        lane.targets.replan(&plan, now);
        lane.facts.keep_planned(&plan);
        account::new_views(&self.board, &plan);
        lane.plan = plan;
        self.keep_planned_ceilings(lane);
    }

    /// Sees how the idle gates stand that somebody waits for; not in the wake of own work, which is
    /// no load of others.
    fn look_at_gates(&self, lane: &mut Lane) {
        let now = self.clock.now();
        let every = lane.plan.settings.sample.every.0;
        let own = lane.worked.is_some_and(|worked| now.since(worked).0 < SETTLED_SAMPLES * every);
        let waited_for = |probe: &&PlannedProbe| probe.shape.calm.0 > 0.0;
        if own || !lane.plan.probes.iter().any(|probe| waited_for(&probe)) {
            return;
        }
        let shared = self.board.lock();
        for probe in lane.plan.probes.iter().filter(waited_for) {
            let Some(inspection) = lane.targets.inspection(probe.target) else { continue };
            let open = guard::idle(&inspection.devices, &shared.conditions, now).is_ok();
            lane.calm.see(probe.target, open, now);
        }
    }

    /// How long a probe has to wait for a calm that is long enough; its first run needs none.
    fn wait_for_calm(&self, lane: &Lane, index: usize) -> Option<Duration> {
        let probe = &lane.plan.probes[index];
        let first = self.board.lock().probes.get(index).is_none_or(|view| view.runs == 0);
        let wait = lane.calm.wait(probe.target, probe.shape.calm, self.clock.now());
        wait.filter(|_| !first)
    }

    /// The turns on a backend that this host shares, or why it has none; what is exempt from the gate
    /// is too little to wait for others.
    fn slots(&self, lane: &Lane, index: usize) -> Option<Result<Slots, String>> {
        let probe = &lane.plan.probes[index];
        let target = &lane.plan.targets[probe.target];
        let name = target.shared.as_ref().filter(|_| !probe.shape.exempt_from_gate)?;
        let named = target.shared_hosts.iter().map(String::as_str);
        let slots = match target.shared_hosts.is_empty() {
            true => self.board.lock().slots(),
            false => Slots::new(named, &self.host_name),
        };
        Some(slots.map_err(|text| format!("no turn on the shared `{name}`: {text}")))
    }

    /// How long it is until this host's turn on a backend that it shares.
    fn wait_for_slot(&self, lane: &Lane, index: usize) -> Option<Duration> {
        let slots = self.slots(lane, index)?.ok()?;
        slots.wait(lane.plan.probes[index].shape.time(), self.clock.now())
    }

    /// How long it is until a test with a peer is over that this run would hold up.
    fn wait_for_peers(&self, lane: &Lane, index: usize) -> Option<Duration> {
        let mesh = self.board.lock().mesh.clone()?;
        mesh.keeps_waiting(lane.plan.probes[index].shape.time(), self.clock.now().wall)
    }

    /// One due probe: guard, ballast, budget, turn, run, account.
    fn attempt(&self, lane: &mut Lane, index: usize) {
        let waits = [
            self.wait_for_calm(lane, index),
            self.wait_for_slot(lane, index),
            self.wait_for_peers(lane, index),
        ];
        if let Some(wait) = waits.into_iter().flatten().max() {
            return lane.timetable.defer(index, wait, self.clock.now());
        }
        self.settle(lane);
        let began = self.clock.now();
        let outcome = match self.prepare(lane, index) {
            Ok(run) => self.execute(lane, index, run),
            Err(outcome) => outcome,
        };
        let ended = self.clock.now();
        let busy = matches!(&outcome, Outcome::Skipped { skip: Skip::Busy | Skip::Locked, .. });
        if busy {
            lane.timetable.postpone(index, ended);
        } else {
            lane.timetable.ran(index, ended);
        }
        let judged = match &outcome {
            Outcome::Done(done) => self.judge(lane, index, done),
            _ => Judged::default(),
        };
        account::record(&self.board, index, (began, ended), (outcome, judged));
    }

    /// The guard decides on windows without own activity: there is one two samples after it.
    pub(super) fn settle(&self, lane: &mut Lane) {
        let every = lane.plan.settings.sample.every.duration();
        if let Some(worked) = lane.worked.take() {
            let settled = worked.plus(every.mul_f64(SETTLED_SAMPLES));
            self.halt.sleep(settled.mono.saturating_sub(self.clock.now().mono));
        }
    }

    /// Everything that must be true before a worker is started; else the outcome that says why not.
    fn prepare(&self, lane: &mut Lane, index: usize) -> Result<Run, Outcome> {
        let plan = Arc::clone(&lane.plan);
        let probe = &plan.probes[index];
        let settings = &plan.targets[probe.target];
        let skip = |(skip, text): (Skip, String)| Outcome::skipped(skip, text);
        lane.targets.may_work(probe.target).map_err(skip)?;
        if let Some(Err(text)) = self.slots(lane, index) {
            return Err(Outcome::skipped(Skip::Locked, text));
        }
        let inspection = match lane.targets.inspection(probe.target) {
            Some(inspection) => inspection.clone(),
            None => return Err(lane.targets.why_unknown(probe.target)),
        };
        refuse_memory(probe, &inspection)?;
        let size = ballast_size(settings, &inspection).map_err(skip)?;
        let writes = probe.written_bytes_max();
        let conditions = self.board.lock().conditions.clone();
        let request = Request {
            exempt: probe.shape.exempt_from_gate,
            devices: &inspection.devices,
            writes,
            may_write: may_write(settings, &inspection, &plan.settings.sample.disks),
            region: size,
            inspection: Some(&inspection),
            wake: settings.wake,
        };
        let guard_settings = &plan.settings.guard;
        let now = self.clock.now();
        guard::permit(&request, &conditions, guard_settings, now).map_err(skip)?;
        let reserve = reserve(guard_settings, &inspection);
        let target = target_of(settings);
        if inspection.ballast != Some(size) && matches!(target.place, Place::Directory(_)) {
            self.lay_out(lane, probe.target, (size, reserve))?;
        }
        self.debit(lane, settings, writes)?;
        let region = match target.place {
            Place::Directory(_) => Region::Ballast(size),
            Place::Device(_) => Region::WholeDevice,
            Place::Cluster(_) => Region::Objects,
        };
        Ok(Run {
            kind: probe.kind.name.into(),
            region,
            legs: account::bounded_legs(&self.board, index, probe),
            engine: probe.engine,
            seed: self.seed(lane),
            devices: inspection.devices,
            top: inspection.top,
            reserve,
            procfs: self.roots.procfs.clone(),
            quiet: probe.shape.quiet,
            target,
        })
    }

    /// A new seed each run, so that no run repeats another's offsets.
    pub(super) fn seed(&self, lane: &mut Lane) -> u64 {
        lane.runs += 1;
        let now = self.clock.now();
        (now.wall.as_nanos() as u64) ^ self.host_seed.rotate_left((lane.runs % 64) as u32)
    }

    /// Worst-case bytes are debited and synced before a run; what it didn't use comes back after.
    fn debit(
        &self,
        lane: &mut Lane,
        target: &TargetSettings,
        writes: Bytes,
    ) -> Result<(), Outcome> {
        if writes.0 == 0 {
            return Ok(());
        }
        let now = self.clock.now();
        let budget = lane.state.budget(target, now);
        budget.debit(writes, now).map_err(|text| Outcome::skipped(Skip::Budget, text))?;
        self.keeper.save(&lane.state).map_err(|fault| {
            lane.state.budget(target, now).refund(writes, Bytes(0));
            Outcome::Failed { fault, partial: None }
        })
    }

    pub(super) fn execute(&self, lane: &mut Lane, index: usize, run: Run) -> Outcome {
        let plan = Arc::clone(&lane.plan);
        let probe = &plan.probes[index];
        let turn = match self.take_turn() {
            Ok(turn) => turn,
            Err(outcome) => {
                // Nothing began: the debit of its worst case comes back whole.
                let budget = lane.state.budget(&plan.targets[probe.target], self.clock.now());
                budget.refund(probe.written_bytes_max(), Bytes(0));
                return outcome;
            }
        };
        let time: f64 = run.legs.iter().map(|leg| leg.runtime.0 + leg.ramp.0).sum();
        let deadline = Seconds(time + 2.0 * run.quiet.0).duration() + RUN_GRACE;
        let devices = run.devices.iter().map(|d| d.name.clone()).collect();
        account::running(&self.board, index, self.clock.now());
        let work = Work { target: probe.target, task: Task::Run(run), deadline, devices };
        let ended = self.work(lane, work);
        drop(turn);
        let outcome = match ended {
            Ok(Reply::Ran(outcome)) => outcome,
            Ok(Reply::Skipped { skip, text }) => Outcome::skipped(skip, text),
            Ok(Reply::Failed(fault)) | Err(fault) => account::fault_outcome(fault),
            Ok(_) => account::fault_outcome(account::foreign_reply()),
        };
        let settings = &plan.targets[probe.target];
        let cost = account::cost(&outcome, probe.written_bytes_max());
        if probe.written_bytes_max().0 > 0 {
            let now = self.clock.now();
            let budget = lane.state.budget(settings, now);
            budget.refund(probe.written_bytes_max(), cost.written_bytes);
        }
        let remaining = lane.state.remaining(settings, self.clock.now());
        account::charge(&self.board, probe.target, cost, remaining);
        outcome
    }

    fn show_next(&self, lane: &Lane) {
        let now = self.clock.now();
        let mut shared = self.board.lock();
        for (index, view) in shared.probes.iter_mut().enumerate() {
            let due = lane.timetable.due(index, now).map(|due| due.mono);
            if view.next_due.map(|shown| shown.mono) != due {
                Arc::make_mut(view).next_due = lane.timetable.due(index, now);
            }
            if matches!(view.state, ProbeState::Running { .. }) {
                Arc::make_mut(view).state = ProbeState::Waiting;
            }
        }
    }

    /// Silence is fine for as long as the longest worker may take.
    fn beat(&self, pulse: &Pulse, lane: &Lane) {
        let longest = lane
            .plan
            .probes
            .iter()
            .map(|p| p.shape.legs.iter().map(|l| l.runtime.0 + l.ramp.0).sum::<f64>())
            .fold(0.0, f64::max);
        let layout = Duration::from_secs((512 << 20) / LAYOUT_BYTES_PER_SECOND_MIN);
        pulse.beat(self.clock.now(), Seconds(longest).duration() + layout + RUN_GRACE * 3);
    }
}
