//! What is known of each target: its last inspection, and whether a worker is stuck on it.

use std::sync::Arc;
use std::time::Duration;

use super::board::Board;
use super::plan::{Plan, PlannedProbe};
use super::state::{State, StuckEntry};
use crate::base::clock::Moment;
use crate::base::fault::{Fault, FaultKind};
use crate::base::units::{Bytes, MIB};
use crate::config::settings::{GuardSettings, TargetSettings};
use crate::model::ceph::Cluster;
use crate::model::job::{Backing, Place, Target};
use crate::model::outcome::{Inspection, Outcome, Skip};
use crate::model::snapshot::ProbeState;
use crate::worker::stuck::Stuck;

/// At most this many workers may be stuck on one host; then nothing is started any more.
const STUCK_MAX: usize = 4;
const INSPECT_EVERY: Duration = Duration::from_secs(60);
/// A target that just answered again is looked at sooner.
const INSPECT_AGAIN: Duration = Duration::from_secs(5);
/// Good inspections that bring a hung target back.
const GOOD_ENOUGH: u32 = 2;
const BALLAST_DEFAULT: u64 = 512 * MIB;
const BALLAST_MIN: u64 = 64 * MIB;

#[derive(Debug, Default)]
struct Known {
    name: String,
    path: std::path::PathBuf,
    inspection: Option<Inspection>,
    fault: Option<Fault>,
    next_inspection: Option<Moment>,
    /// Good inspections still wanted before work goes on.
    distrust: u32,
}

/// A worker that can't be killed: a child of ours, or one that an earlier daemon left.
#[derive(Debug)]
enum Held {
    Child(Stuck),
    Left,
}

#[derive(Debug)]
struct StuckOn {
    entry: StuckEntry,
    held: Held,
}

pub struct Targets {
    known: Vec<Known>,
    stuck: Vec<StuckOn>,
    board: Arc<Board>,
}

impl Targets {
    pub fn new(board: Arc<Board>, plan: &Plan, state: &State, now: Moment) -> Self {
        let stuck = state
            .stuck
            .iter()
            .filter(|entry| Stuck::still_there(&entry.worker))
            .map(|entry| StuckOn { entry: entry.clone(), held: Held::Left })
            .collect();
        let mut targets = Self { known: Vec::new(), stuck, board };
        targets.replan(plan, now);
        targets
    }

    /// Takes the plan's targets; what is known of those that stay is kept.
    pub fn replan(&mut self, plan: &Plan, now: Moment) {
        let mut before = std::mem::take(&mut self.known);
        self.known = plan
            .targets
            .iter()
            .map(|settings| {
                let same =
                    before.iter().position(|k| k.name == settings.name && k.path == settings.path);
                same.map(|at| before.swap_remove(at)).unwrap_or_else(|| Known {
                    name: settings.name.clone(),
                    path: settings.path.clone(),
                    next_inspection: Some(now),
                    distrust: u32::from(self.is_held(&settings.name, &[])) * GOOD_ENOUGH,
                    ..Known::default()
                })
            })
            .collect();
    }

    pub fn inspection(&self, target: usize) -> Option<&Inspection> {
        self.known.get(target)?.inspection.as_ref()
    }

    /// Kernel names of the leaf disks under a target, as last seen.
    pub fn device_names(&self, target: usize) -> Vec<String> {
        self.known.get(target).map_or(Vec::new(), device_names)
    }

    /// The outcome of a probe whose target was never seen well.
    pub fn why_unknown(&self, target: usize) -> Outcome {
        match self.known.get(target).and_then(|k| k.fault.clone()) {
            Some(fault) => Outcome::Failed { fault, partial: None },
            None => Outcome::failed(FaultKind::Missing, "the target was not looked at yet"),
        }
    }

    /// A target whose look is due and that no stuck worker holds.
    pub fn due_for_inspection(&self, now: Moment) -> Option<usize> {
        if self.stuck.len() >= STUCK_MAX {
            return None;
        }
        self.known.iter().position(|known| {
            known.next_inspection.is_some_and(|at| at.mono <= now.mono)
                && !self.is_held(&known.name, &device_names(known))
        })
    }

    /// Whether a worker may be started on a target at all.
    pub fn may_work(&self, target: usize) -> Result<(), (Skip, String)> {
        let Some(known) = self.known.get(target) else { return Ok(()) };
        if self.stuck.len() >= STUCK_MAX {
            return Err((Skip::Hung, format!("{STUCK_MAX} workers are stuck on this host")));
        }
        if self.is_held(&known.name, &device_names(known)) {
            return Err((Skip::Hung, "a worker is stuck on this target or its devices".into()));
        }
        if known.distrust > 0 {
            return Err((Skip::Hung, "it answers again, and is watched for a while".into()));
        }
        Ok(())
    }

    fn is_held(&self, name: &str, devices: &[String]) -> bool {
        self.stuck.iter().any(|stuck| {
            stuck.entry.target == name || stuck.entry.devices.iter().any(|d| devices.contains(d))
        })
    }

    /// Takes what a look found.
    pub fn inspected(&mut self, target: usize, answer: Result<Inspection, Fault>, now: Moment) {
        let Some(known) = self.known.get_mut(target) else { return };
        match answer {
            Ok(inspection) => {
                known.distrust = known.distrust.saturating_sub(1);
                known.inspection = Some(inspection);
                known.fault = None;
            }
            Err(fault) => {
                if known.fault.as_ref().map(|f| &f.text) != Some(&fault.text) {
                    tracing::warn!(target = known.name, "{fault}: {}", fault.kind.advice());
                }
                known.inspection = None;
                known.fault = Some(fault);
            }
        }
        let again = if known.distrust > 0 { INSPECT_AGAIN } else { INSPECT_EVERY };
        known.next_inspection = Some(now.plus(again));
        if known.distrust == 0 && known.fault.is_none() {
            show_hung(&self.board, target, None);
        }
    }

    /// A worker did not die: its target is hung until it does, and two looks are good.
    pub fn hang(&mut self, target: usize, stuck: Stuck, now: Moment) -> Fault {
        let Some(known) = self.known.get_mut(target) else {
            return hung("a target that is gone");
        };
        let fault = hung(&known.path.display().to_string());
        tracing::error!(target = known.name, "{fault}: {}", fault.kind.advice());
        known.distrust = GOOD_ENOUGH;
        known.fault = Some(fault.clone());
        let entry = StuckEntry {
            target: known.name.clone(),
            devices: device_names(known),
            worker: stuck.record().clone(),
        };
        self.stuck.push(StuckOn { entry, held: Held::Child(stuck) });
        show_hung(&self.board, target, Some(now));
        fault
    }

    /// Lets go of workers that ended after all; their targets are looked at at once.
    pub fn reap(&mut self, now: Moment) {
        let mut free = Vec::new();
        self.stuck.retain_mut(|stuck| {
            let gone = match &mut stuck.held {
                Held::Child(child) => child.reap(),
                Held::Left => !Stuck::still_there(&stuck.entry.worker),
            };
            if gone {
                free.push(stuck.entry.target.clone());
            }
            !gone
        });
        for known in self.known.iter_mut().filter(|known| free.contains(&known.name)) {
            tracing::info!(target = known.name, "the stuck worker ended; looking at it again");
            known.next_inspection = Some(now);
        }
        for (index, known) in self.known.iter().enumerate() {
            if self.is_held(&known.name, &device_names(known)) {
                show_hung(&self.board, index, Some(now));
            }
        }
    }

    pub fn stuck_entries(&self) -> Vec<StuckEntry> {
        self.stuck.iter().map(|stuck| stuck.entry.clone()).collect()
    }

    pub fn must_give_back(&self, target: usize, settings: &GuardSettings) -> bool {
        let Some(inspection) = self.inspection(target) else { return false };
        inspection.ballast.is_some() && inspection.available < reserve(settings, inspection)
    }

    pub fn forget_ballast(&mut self, target: usize) {
        if let Some(inspection) = self.known.get_mut(target).and_then(|k| k.inspection.as_mut()) {
            inspection.ballast = None;
        }
    }
}

fn device_names(known: &Known) -> Vec<String> {
    let devices = known.inspection.iter().flat_map(|i| &i.devices);
    devices.map(|device| device.name.clone()).collect()
}

/// All probes of a hung target are hung, since the time the first was.
fn show_hung(board: &Board, target: usize, since: Option<Moment>) {
    let mut shared = board.lock();
    let Some(plan) = shared.plan.clone() else { return };
    let of_target = plan.probes.iter().map(|probe| probe.target == target);
    for (view, _) in shared.probes.iter_mut().zip(of_target).filter(|(_, of_target)| *of_target) {
        match (since, view.state) {
            (Some(_), ProbeState::Hung { .. }) => {}
            (Some(since), _) => Arc::make_mut(view).state = ProbeState::Hung { since },
            (None, ProbeState::Hung { .. }) => Arc::make_mut(view).state = ProbeState::Waiting,
            (None, _) => {}
        }
    }
}

/// Size of the ballast file a target gets: the one that is there, the one configured, or
/// min(512 MiB, 1 % of free space). A raw device has none, nor has a cluster.
///
/// # Errors
/// `Full` where that is under 64 MiB.
pub fn ballast_size(
    settings: &TargetSettings,
    inspection: &Inspection,
) -> Result<Bytes, (Skip, String)> {
    if !matches!(target_of(settings).place, Place::Directory(_)) {
        return Ok(Bytes(0));
    }
    if let Some(size) = settings.ballast {
        return Ok(size);
    }
    if let Some(size) = inspection.ballast.filter(|size| size.0 >= BALLAST_MIN) {
        return Ok(size);
    }
    let share = inspection.available.0 / 100 / MIB * MIB;
    let size = share.min(BALLAST_DEFAULT);
    if size < BALLAST_MIN {
        let text = format!(
            "1 % of the {} free is under 64 MiB: no ballast file (set `ballast` to have one)",
            inspection.available
        );
        return Err((Skip::Full, text));
    }
    Ok(Bytes(size))
}

/// Space that stays free on the target's file system whatever probes do.
pub fn reserve(settings: &GuardSettings, inspection: &Inspection) -> Bytes {
    let share = (inspection.size.0 as f64 * settings.reserve_share) as u64;
    settings.reserve.max(Bytes(share))
}

/// The fault of a worker that could not be killed.
pub fn hung(place: &str) -> Fault {
    Fault::new(FaultKind::Hung, format!("{place}: calls into it do not return"))
}

/// File systems of memory that hosts mount under /dev.
const NOT_DEVICES: [&str; 3] = ["/dev/shm", "/dev/hugepages", "/dev/mqueue"];

/// A target as the worker knows it: by its path, what lies under /dev is a device, else a directory.
pub fn target_of(settings: &TargetSettings) -> Target {
    if let Some(cluster) = &settings.ceph {
        // Workers have no environment of their own.
        let search_path = std::env::var("PATH").ok();
        let place = Place::Cluster(Box::new(Cluster { search_path, ..cluster.clone() }));
        return Target { name: settings.name.clone(), place };
    }
    let path = settings.path.clone();
    let raw = path.starts_with("/dev") && !NOT_DEVICES.iter().any(|dir| path.starts_with(dir));
    let place = if raw { Place::Device(path) } else { Place::Directory(path) };
    Target { name: settings.name.clone(), place }
}

/// Memory is refused before anything is laid out: a result would look great and hide a broken disk.
pub fn refuse_memory(probe: &PlannedProbe, inspection: &Inspection) -> Result<(), Outcome> {
    let asked = probe.shape.legs.iter().all(|leg| !leg.direct);
    if inspection.backing != Backing::Memory || asked {
        return Ok(());
    }
    let text = format!("{} is memory, not a disk: choose another target", inspection.filesystem);
    Err(Outcome::failed(FaultKind::Unsupported, text))
}
