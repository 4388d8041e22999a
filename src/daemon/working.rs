//! Workers on targets: look at one, lay its ballast out, run a task, and what it means when one of
//! them does not come back.

use std::sync::Arc;
use std::time::Duration;

use super::account;
use super::eye::Eye;
use super::probing::{INSPECT_DEADLINE, Lane, Probing, RUN_GRACE};
use super::targets::target_of;
use crate::base::fault::Fault;
use crate::base::units::Bytes;
use crate::model::job::{Job, Task, WIRE_VERSION};
use crate::model::outcome::{Outcome, Reply, Skip};
use crate::schedule::turn::{Turn, TurnGuard};
use crate::worker::Ended;

/// Slowest disk that a ballast file is still laid out on.
pub(super) const LAYOUT_BYTES_PER_SECOND_MIN: u64 = 8 << 20;

/// One task for a worker on a target.
pub(super) struct Work {
    /// Index in the plan.
    pub(super) target: usize,
    pub(super) task: Task,
    pub(super) deadline: Duration,
    /// Own activity is left out of the gauges of these.
    pub(super) devices: Vec<String>,
}

impl Probing {
    pub(super) fn take_turn(&self) -> Result<TurnGuard, Outcome> {
        match Turn::try_take(&self.turn_places) {
            Ok(Turn::Mine(turn)) => Ok(turn),
            Ok(Turn::Theirs(holder)) => Err(Outcome::skipped(Skip::Locked, holder.to_string())),
            Err(fault) => Err(Outcome::Failed { fault, partial: None }),
        }
    }

    /// The ballast file, once; afterwards the target is looked at again.
    pub(super) fn lay_out(
        &self,
        lane: &mut Lane,
        target: usize,
        (bytes, reserve): (Bytes, Bytes),
    ) -> Result<(), Outcome> {
        let plan = Arc::clone(&lane.plan);
        let settings = &plan.targets[target];
        let turn = self.take_turn()?;
        let now = self.clock.now();
        lane.state
            .budget(settings, now)
            .debit_layout(now)
            .map_err(|text| Outcome::skipped(Skip::Budget, text))?;
        let seed = self.seed(lane);
        let task = Task::LayOut { target: target_of(settings), bytes, reserve, seed };
        let deadline = Duration::from_secs(bytes.0 / LAYOUT_BYTES_PER_SECOND_MIN) + RUN_GRACE;
        let devices = lane.targets.device_names(target);
        let reply = self.work(lane, Work { target, task, deadline, devices });
        drop(turn);
        match reply {
            Ok(Reply::LaidOut { written }) => {
                account::charge_layout(&self.board, target, written);
                self.inspect(lane, target);
                self.settle(lane);
                Ok(())
            }
            Ok(Reply::Skipped { skip, text }) => Err(Outcome::skipped(skip, text)),
            Ok(Reply::Failed(fault)) | Err(fault) => Err(account::fault_outcome(fault)),
            Ok(_) => Err(account::fault_outcome(account::foreign_reply())),
        }
    }

    /// One worker on a target; own activity is marked, a run ends for others' sake, and a stuck
    /// worker blocks the target.
    pub(super) fn work(&self, lane: &mut Lane, work: Work) -> Result<Reply, Fault> {
        let Work { target, task, deadline, devices } = work;
        let legs = match &task {
            Task::Run(run) => run.legs.clone(),
            _ => Vec::new(),
        };
        let job = Job { v: WIRE_VERSION, polite: true, task };
        let stop = self.stop.below();
        let mut eye = Eye::new(&self.board, legs);
        let quiet = devices.is_empty();
        self.board.lock().begin_own_run(devices, self.clock.now());
        let ended = self.runner.run(&job, deadline, &stop, &mut |what| {
            if eye.sees_foreign_load(what) {
                stop.set();
            }
        });
        let now = self.clock.now();
        self.board.lock().end_own_run(now);
        if !quiet {
            lane.worked = Some(now);
        }
        match (ended, eye.foreign()) {
            (
                Ended::Replied(Reply::Ran(Outcome::Skipped {
                    skip: Skip::Stopped, partial, ..
                })),
                Some(text),
            ) => Ok(Reply::Ran(Outcome::Skipped { skip: Skip::Busy, text, partial })),
            (Ended::Replied(reply), _) => Ok(reply),
            (Ended::Failed(fault), _) => Err(fault),
            (Ended::Hung(stuck), _) => {
                let fault = lane.targets.hang(target, stuck, now);
                lane.state.stuck = lane.targets.stuck_entries();
                Err(fault)
            }
        }
    }

    /// Looks at a target; gives its ballast back when space has fallen under the reserve.
    pub(super) fn inspect(&self, lane: &mut Lane, target: usize) {
        let plan = Arc::clone(&lane.plan);
        let settings = &plan.targets[target];
        let task = Task::Inspect {
            target: target_of(settings),
            procfs: self.roots.procfs.clone(),
            sysfs: self.roots.sysfs.clone(),
            rootfs: self.roots.rootfs.clone(),
        };
        let work = Work { target, task, deadline: INSPECT_DEADLINE, devices: Vec::new() };
        let reply = self.work(lane, work);
        let now = self.clock.now();
        let answer = match reply {
            Ok(Reply::Inspected(inspection)) => Ok(*inspection),
            Ok(Reply::Failed(fault)) | Err(fault) => Err(fault),
            Ok(_) => Err(account::foreign_reply()),
        };
        lane.targets.inspected(target, answer, now);
        self.check_ceilings(lane);
        let remaining = lane.state.remaining(settings, now);
        account::show_target(&self.board, target, lane.targets.inspection(target), remaining);
        if lane.targets.must_give_back(target, &plan.settings.guard) {
            tracing::warn!(
                target = settings.name,
                "free space is under the reserve: ballast is given back"
            );
            let task = Task::GiveBack { target: target_of(settings) };
            let devices = lane.targets.device_names(target);
            let reply = self.work(lane, Work { target, task, deadline: RUN_GRACE, devices });
            if let Ok(Reply::Failed(fault)) | Err(fault) = reply {
                tracing::warn!(target = settings.name, "ballast not given back: {fault}");
            }
            lane.targets.forget_ballast(target);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::document::Document;
    use crate::config::settings::Settings;
    use crate::daemon::ceilings::tests::{Saved, probing, sysfs};
    use crate::daemon::plan::{self, Plan};
    use crate::model::job::{Region, Run};
    use crate::model::outcome::Skip;
    use crate::workload::testing::run_in;

    #[test]
    fn a_run_whose_turn_is_somebody_elses_costs_nothing_of_the_budget() {
        let text = "targets: [{name: srv, path: /srv}]\n\
                    probes: [{name: w, kind: disk, target: srv, disk: {profile: rand_write}}]\n";
        let document = Document::parse("test", text).unwrap();
        let settings = Settings::read(&document, &plan::kind_names()).unwrap();
        let plan = Arc::new(Plan::build(settings, &document, Path::new("/state")).unwrap());
        let (places, disk) = (tempfile::tempdir().unwrap(), sysfs(7));
        let places = vec![places.path().to_path_buf()];
        let probing =
            Probing { turn_places: places.clone(), ..probing(&Saved::default(), disk.path(), "a") };
        let mut lane = probing.open(Arc::clone(&plan));
        let (probe, target) = (&plan.probes[0], &plan.targets[0]);
        let now = probing.clock.now();
        let worst = probe.written_bytes_max();
        let whole = lane.state.budget(target, now).remaining(now);
        lane.state.budget(target, now).debit(worst, now).unwrap();
        let (bytes, legs) = (Bytes(64 << 20), probe.shape.legs.clone());
        let run = Run {
            target: target_of(target),
            region: Region::Ballast(bytes),
            ..run_in(&target.path, bytes, legs)
        };
        let Ok(Turn::Mine(_theirs)) = Turn::try_take(&places) else { panic!("nobody has it") };
        let outcome = probing.execute(&mut lane, 0, run);
        assert!(matches!(outcome, Outcome::Skipped { skip: Skip::Locked, .. }), "{outcome:?}");
        assert_eq!(lane.state.budget(target, now).remaining(now), whole);
    }
}
