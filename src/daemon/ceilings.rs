//! Ceilings in the daemon: learned from runs, held against the devices that are there, and given to
//! the sampling lane.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::plan::Plan;
use super::probing::{Lane, Probing};
use super::state::Discard;
use super::targets::{Targets, target_of};
use crate::host::block;
use crate::host::roots::Roots;
use crate::judge::book::{Book, Entry, Resource, declared};
use crate::judge::effective::Effective;
use crate::judge::facts::Facts;
use crate::judge::learn::{self, Lesson};
use crate::model::verdict::Ceiling;

/// What earlier runs on a target found that compares with this one.
pub(super) fn known(book: &Book, target: &str, facts: &Facts) -> Vec<Ceiling> {
    let target = Resource::Target(target.to_owned());
    let alike = |entry: &&Entry| {
        entry.of.resource == target && facts.mean_block().is_some_and(|b| entry.is_alike(b))
    };
    book.entries().iter().filter(alike).map(Entry::ceiling).collect()
}

impl Probing {
    /// Takes what a run teaches, and saves it.
    pub(super) fn learn(&self, lane: &mut Lane, lesson: &Lesson<'_>) {
        let told = |name: &str| block::told(&self.roots, name);
        let declared = all_declared(&lane.plan);
        let before = lane.state.ceilings.clone();
        for reached in lesson.reached(told) {
            lane.state.ceilings.measured(&reached, &declared);
        }
        lesson.entries(told).into_iter().for_each(|entry| lane.state.ceilings.learn(entry));
        if lane.state.ceilings == before {
            return;
        }
        self.check_ceilings(lane);
        self.keeper
            .save(&lane.state)
            .unwrap_or_else(|fault| tracing::warn!("ceilings not saved: {fault}"));
    }

    /// Forgets what probes found that are no longer planned.
    pub(super) fn keep_planned_ceilings(&self, lane: &mut Lane) {
        let keys: Vec<_> = lane.plan.probes.iter().map(|probe| probe.key(&lane.plan)).collect();
        lane.state.ceilings.keep_found_by(&keys);
        self.check_ceilings(lane);
    }

    /// Discards ceilings of what no longer bears its name, and gives the rest to the sampling lane.
    pub(super) fn check_ceilings(&self, lane: &mut Lane) {
        let here = Here::new(&self.roots, &lane.plan, &lane.targets);
        let gone = lane.state.ceilings.keep_same(|resource| here.identity(resource));
        let declared = all_declared(&lane.plan);
        let is_here = |resource: &Resource| match resource {
            Resource::Disk(_) => here.identity(resource).is_some(),
            Resource::Target(name) => {
                let is_declared = declared.iter().any(|entry| entry.of.resource == *resource);
                is_declared || here.targets.contains_key(name)
            }
        };
        let effective = Effective::of(&lane.state.ceilings, &declared, is_here);
        let mut shared = self.board.lock();
        shared.ceilings = Arc::new(effective);
        if gone > 0 {
            tracing::warn!("{gone} ceilings are of another device or mount: discarded");
            shared.count_discards(Discard::Device, gone);
        }
    }
}

fn all_declared(plan: &Plan) -> Vec<Entry> {
    plan.targets.iter().flat_map(|target| declared(&target.name, &target.backing)).collect()
}

/// What tells the devices and targets that are there from others; each device is asked once.
struct Here<'a> {
    roots: &'a Roots,
    /// Of those that were looked at.
    targets: BTreeMap<String, String>,
    disks: RefCell<BTreeMap<String, Option<String>>>,
}

impl<'a> Here<'a> {
    fn new(roots: &'a Roots, plan: &Plan, targets: &Targets) -> Self {
        let mut here = Self { roots, targets: BTreeMap::new(), disks: RefCell::default() };
        for (index, settings) in plan.targets.iter().enumerate() {
            let Some(inspection) = targets.inspection(index) else { continue };
            let told = |name: &str| here.disk(name);
            let identity = learn::identity(&target_of(settings), inspection, told);
            here.targets.insert(settings.name.clone(), identity);
        }
        here
    }

    fn disk(&self, name: &str) -> Option<String> {
        let mut known = self.disks.borrow_mut();
        known.entry(name.to_owned()).or_insert_with(|| block::told(self.roots, name)).clone()
    }

    fn identity(&self, resource: &Resource) -> Option<String> {
        match resource {
            Resource::Disk(name) => self.disk(name),
            Resource::Target(name) => self.targets.get(name).cloned(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;
    use std::sync::Mutex;

    use super::*;
    use crate::base::clock::{Clock, ManualClock};
    use crate::config::document::Document;
    use crate::config::settings::Settings;
    use crate::daemon::board::Board;
    use crate::daemon::keeper::Keeper;
    use crate::daemon::plan;
    use crate::daemon::supervise::Halt;
    use crate::judge::learn::tests::{done, inspection};
    use crate::model::job::{Job, Task};
    use crate::model::outcome::Reply;
    use crate::worker::rehearse::{Scene, Scripted};
    use crate::worker::{Runner, Stop};

    /// What workers saved last.
    pub(in crate::daemon) type Saved = Arc<Mutex<Option<String>>>;

    /// One flash disk in sysfs.
    pub(in crate::daemon) fn sysfs(sequence: u32) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let disk = root.path().join("block/sda");
        std::fs::create_dir_all(&disk).unwrap();
        std::fs::write(disk.join("size"), "2048\n").unwrap();
        std::fs::write(disk.join("diskseq"), format!("{sequence}\n")).unwrap();
        root
    }

    fn plan() -> Arc<Plan> {
        plan_of(&["fast"])
    }

    pub(in crate::daemon) fn plan_of(probes: &[&str]) -> Arc<Plan> {
        let probe = |name: &&str| format!("{{name: {name}, kind: disk, target: srv}}");
        let probes: Vec<String> = probes.iter().map(probe).collect();
        let probes = probes.join(", ");
        let text = format!("targets: [{{name: srv, path: /srv}}]\nprobes: [{probes}]\n");
        let document = Document::parse("test", &text).unwrap();
        let settings = Settings::read(&document, &plan::kind_names()).unwrap();
        Arc::new(Plan::build(settings, &document, Path::new("/state")).unwrap())
    }

    pub(in crate::daemon) fn probing(saved: &Saved, sysfs: &Path, machine: &str) -> Probing {
        let clock = ManualClock::starting_at(1_700_000_000);
        let saved = Arc::clone(saved);
        let script = move |job: &Job| {
            let reply = match &job.task {
                Task::Save { content, .. } => {
                    *saved.lock().unwrap() = Some(content.clone());
                    Reply::Saved
                }
                Task::Load { .. } => Reply::Loaded { content: saved.lock().unwrap().clone() },
                Task::Inspect { .. } => {
                    Reply::Inspected(Box::new(inspection(Some(false), &["sda"])))
                }
                other => panic!("nobody asked for {other:?}"),
            };
            Scene::Reply { takes: Default::default(), events: Vec::new(), reply }
        };
        let runner: Arc<dyn Runner> = Arc::new(Scripted::new(clock.clone(), script));
        let clock: Arc<dyn Clock> = Arc::new(clock);
        Probing {
            roots: Roots { sysfs: sysfs.into(), ..Roots::default() },
            board: Arc::new(Board::default()),
            clock,
            halt: Halt::default(),
            stop: Stop::default(),
            keeper: Keeper {
                runner: Arc::clone(&runner),
                directory: "/state".into(),
                machine: machine.into(),
            },
            runner,
            turn_places: Vec::new(),
            host_name: "host".into(),
            host_seed: 1,
        }
    }

    /// Starts on `sysfs`, looks at the target, and says which series of ceilings there are, how many
    /// disks have some, and what was discarded.
    pub(in crate::daemon) fn started(probing: &Probing) -> (Lane, usize, usize, Vec<&'static str>) {
        let mut lane = probing.open(plan());
        probing.inspect(&mut lane, 0);
        let shared = probing.board.lock();
        let discarded = shared.discarded.keys().copied().collect();
        let (series, disks) = (shared.ceilings.points.len(), shared.ceilings.disks.len());
        drop(shared);
        (lane, series, disks, discarded)
    }

    #[test]
    fn a_ceiling_outlives_the_daemon_and_neither_its_disk_nor_its_machine() {
        let (saved, disk) = (Saved::default(), sysfs(7));
        let first = probing(&saved, disk.path(), "a");
        let (mut lane, series, _, _) = started(&first);
        assert_eq!(series, 0, "nothing is known yet");
        let judged = first.judge(&mut lane, 0, &done(true, [10_000, 10_400], 4096));
        assert_eq!(judged.verdict.unwrap().limit, crate::model::verdict::Limit::Operations);
        assert_eq!(first.board.lock().ceilings.points.len(), 6, "of target and disk");

        let (_, series, disks, discarded) = started(&probing(&saved, disk.path(), "a"));
        assert_eq!((series, disks, discarded), (6, 1, Vec::new()), "after a restart");

        let (_, series, disks, discarded) = started(&probing(&saved, sysfs(8).path(), "a"));
        assert_eq!((series, disks, discarded), (0, 0, vec!["device"]), "another disk");

        let (_, series, disks, discarded) = started(&probing(&saved, disk.path(), "b"));
        assert_eq!((series, disks, discarded), (0, 0, vec!["machine"]), "another machine");
    }

    #[test]
    fn what_a_probe_found_leaves_with_it_at_a_restart_and_with_a_new_plan() {
        let (saved, disk) = (Saved::default(), sysfs(7));
        let first = probing(&saved, disk.path(), "a");
        let (mut lane, ..) = started(&first);
        first.judge(&mut lane, 0, &done(true, [10_000, 10_400], 4096));
        assert_eq!(lane.state.ceilings.entries().len(), 2);
        let restarted = probing(&saved, disk.path(), "a").open(plan_of(&["other"]));
        assert!(restarted.state.ceilings.is_empty());
        first.board.lock().plan = Some(plan_of(&["other"]));
        first.take_new_plan(&mut lane);
        assert!(lane.state.ceilings.is_empty());
    }

    #[test]
    fn a_torn_state_is_set_aside_and_teaches_nothing() {
        let (saved, disk) = (Saved::default(), sysfs(7));
        let first = probing(&saved, disk.path(), "a");
        let (mut lane, ..) = started(&first);
        first.judge(&mut lane, 0, &done(true, [10_000, 10_400], 4096));
        let whole = saved.lock().unwrap().clone().unwrap();
        *saved.lock().unwrap() = Some(whole[..whole.len() - 1].to_owned());
        let (_, series, disks, discarded) = started(&probing(&saved, disk.path(), "a"));
        assert_eq!((series, disks, discarded), (0, 0, vec!["torn"]));
    }
}
