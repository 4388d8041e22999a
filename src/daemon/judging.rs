//! Outcomes into verdicts: each run in the light of the last others on its target.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ceilings;
use super::plan::Plan;
use super::probing::{Lane, Probing};
use super::targets::target_of;
use crate::base::clock::Moment;
use crate::host::block;
use crate::judge::facts::{Facts, Run};
use crate::judge::from_osd;
use crate::judge::from_outcome::{self, Place};
use crate::judge::learn::{self, Lesson};
use crate::judge::{ceilings as judged_ceilings, limits, set};
use crate::model::ceph::OsdResult;
use crate::model::outcome::Done;
use crate::model::path::DeclaredBacking;
use crate::model::verdict::{Limit, Verdict};

/// What a run was judged to be.
#[derive(Default)]
pub struct Judged {
    /// `None` where it measured nothing to judge, or several things.
    pub verdict: Option<Verdict>,
    /// Result / binding ceiling.
    pub ceiling_ratio: Option<f64>,
    /// Of each OSD that had a bench, by its id.
    pub osds: BTreeMap<u32, Verdict>,
}

/// A result speaks for so many intervals of its probe, as it does in the metrics.
const INTERVALS: f64 = 3.0;

/// The last good run of each probe, by its key.
#[derive(Default)]
pub(super) struct Memory(BTreeMap<String, Remembered>);

struct Remembered {
    at: Moment,
    /// What told its target from another under the name.
    identity: String,
    facts: Facts,
}

impl Memory {
    pub(super) fn keep_planned(&mut self, plan: &Plan) {
        let keys: Vec<String> = plan.probes.iter().map(|probe| probe.key(plan)).collect();
        self.0.retain(|key, _| keys.contains(key));
    }

    /// What other probes of the same target said lately of what bears its name now.
    fn others(&self, plan: &Plan, index: usize, (now, identity): (Moment, &str)) -> Vec<Run> {
        let target = plan.probes[index].target;
        let others = plan.probes.iter().enumerate();
        let others = others.filter(|(other, p)| *other != index && p.target == target);
        let fresh = others.filter_map(|(_, probe)| {
            let last = self.0.get(&probe.key(plan))?;
            let fresh = now.since(last.at).0 <= INTERVALS * probe.every.0;
            let same = last.identity == identity;
            (fresh && same).then(|| Run { facts: last.facts.clone(), ..Run::default() })
        });
        fresh.collect()
    }
}

/// Judges a run that finished at a moment on what has an identity; `None` where it measured nothing.
fn judge(
    lane: &mut Lane,
    index: usize,
    done: &Done,
    (at, identity): (Moment, String),
) -> Option<(Verdict, Facts)> {
    let plan = &lane.plan;
    let probe = &plan.probes[index];
    let inspection = lane.targets.inspection(probe.target);
    let place = Place {
        inspection,
        devices: inspection.map_or(&[], |inspection| &inspection.devices),
        backing: &plan.targets[probe.target].backing,
    };
    let mut facts = from_outcome::storage(done, &place)?;
    let plain = facts.clone();
    facts.known.ceilings =
        ceilings::known(&lane.state.ceilings, &plan.targets[probe.target].name, &facts);
    let mut runs = lane.facts.others(plan, index, (at, &identity));
    runs.insert(0, Run { facts, ..Run::default() });
    set::tell_each_other(&mut runs);
    let told = runs.swap_remove(0).facts;
    let verdict = limits::judge(&told);
    // What a cache answered, or others disturbed, is nothing that other runs are measured by.
    if !matches!(verdict.limit, Limit::Cache | Limit::Contended) {
        let last = Remembered { at, identity, facts: plain };
        lane.facts.0.insert(probe.key(plan), last);
    }
    Some((verdict, told))
}

/// Each bench by itself: what one OSD gave is no measure of another's disk.
fn judge_osds(osds: &[OsdResult], backing: &DeclaredBacking) -> BTreeMap<u32, Verdict> {
    let verdict = |OsdResult { osd, bench }: &OsdResult| {
        let facts = from_osd::store(bench.as_ref()?, osd, backing);
        Some((osd.id, limits::judge(&facts)))
    };
    osds.iter().filter_map(verdict).collect()
}

impl Probing {
    /// What bound a finished run; learns what it teaches.
    pub(super) fn judge(&self, lane: &mut Lane, index: usize, done: &Done) -> Judged {
        let (now, plan) = (self.clock.now(), Arc::clone(&lane.plan));
        let probe = &plan.probes[index];
        let target = target_of(&plan.targets[probe.target]);
        let told = |name: &str| block::told(&self.roots, name);
        let inspection = lane.targets.inspection(probe.target).cloned();
        let identity = inspection.as_ref().map(|seen| learn::identity(&target, seen, told));
        let osds = judge_osds(&done.osds, &plan.targets[probe.target].backing);
        let identity = identity.unwrap_or_default();
        let Some((verdict, facts)) = judge(lane, index, done, (now, identity)) else {
            return Judged { osds, ..Judged::default() };
        };
        if let Some(inspection) = inspection {
            let lesson = Lesson {
                done,
                facts: &facts,
                verdict: &verdict,
                target: &target,
                inspection: &inspection,
                by: &probe.key(&plan),
                at: now,
            };
            self.learn(lane, &lesson);
        }
        let ceiling = verdict.ceiling.as_ref();
        let ceiling_ratio = ceiling.and_then(|c| judged_ceilings::share(&facts, c));
        Judged { verdict: Some(verdict), ceiling_ratio, osds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{Bytes, MIB, Rate};
    use crate::daemon::ceilings::tests::{Saved, plan_of, probing, started, sysfs};
    use crate::judge::learn::tests::done;
    use crate::model::ceph::{Bench, Osd};
    use crate::model::path::Media;

    #[test]
    fn other_runs_are_measured_by_the_last_good_one() {
        let (saved, disk) = (Saved::default(), sysfs(7));
        let probing = probing(&saved, disk.path(), "a");
        let (mut lane, ..) = started(&probing);
        let mut remembered = |rate, share_of_others, share_of_disks| {
            let mut run = done(true, [rate, rate], 4096);
            run.evidence.foreign_share = Some(share_of_others);
            run.evidence.device_read_share = Some(share_of_disks);
            probing.judge(&mut lane, 0, &run);
            lane.facts.0.values().next().and_then(|last| last.facts.operations())
        };
        assert_eq!(remembered(9000, 0.5, 1.0), None, "contended");
        assert_eq!(remembered(10_000, 0.0, 1.0), Some(10_000.0));
        assert_eq!(remembered(9000, 0.5, 1.0), Some(10_000.0));
        assert_eq!(remembered(99_000, 0.0, 0.1), Some(10_000.0), "a cache's");
    }

    #[test]
    fn what_was_said_of_another_disk_under_the_name_is_forgotten() {
        let (saved, disk) = (Saved::default(), sysfs(7));
        let probing = probing(&saved, disk.path(), "a");
        let mut lane = probing.open(plan_of(&["fast", "other"]));
        probing.inspect(&mut lane, 0);
        probing.judge(&mut lane, 0, &done(true, [10_000, 10_400], 4096));
        let remembered = lane.facts.0.values().next().unwrap();
        let (now, same) = (remembered.at, remembered.identity.clone());
        let plan = Arc::clone(&lane.plan);
        let others = |index, identity: &str| lane.facts.others(&plan, index, (now, identity)).len();
        assert_eq!((others(1, &same), others(1, "another"), others(0, &same)), (1, 0, 0));
        let later = now.plus(4 * plan.probes[0].every.duration());
        assert!(lane.facts.others(&plan, 1, (later, &same)).is_empty(), "long ago");
    }

    #[test]
    fn each_osd_of_a_run_has_its_own_verdict_and_the_run_none() {
        let (saved, disk) = (Saved::default(), sysfs(7));
        let probing = probing(&saved, disk.path(), "a");
        let bandwidth = Some(Rate(100e6));
        let mut plan = Arc::into_inner(plan_of(&["osds"])).unwrap();
        plan.targets[0].backing = DeclaredBacking { bandwidth, ..DeclaredBacking::default() };
        let mut lane = probing.open(Arc::new(plan));
        let result = |id, rate: Option<f64>| {
            let media = Some(Media::Hdd);
            let bench = rate.map(|rate| Bench {
                bytes: Bytes(256 * MIB),
                block: Bytes(4 * MIB),
                elapsed: None,
                rate: Rate(rate),
            });
            OsdResult { osd: Osd { id, media, ..Osd::default() }, bench }
        };
        let osds = vec![result(0, Some(35e6)), result(1, Some(400e6)), result(2, None)];
        let judged = probing.judge(&mut lane, 0, &Done { osds, ..Done::default() });
        let limits: Vec<_> = judged.osds.iter().map(|(id, verdict)| (*id, verdict.limit)).collect();
        assert_eq!(limits, [(0, Limit::WritePath), (1, Limit::Cache)]);
        assert!(judged.verdict.is_none() && judged.ceiling_ratio.is_none());
    }
}
