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

/// A ceiling found with other blocks says nothing of a run's.
const ALIKE: std::ops::RangeInclusive<f64> = 0.5..=2.0;

/// What earlier runs on a target found that compares with this one.
pub(super) fn known(book: &Book, target: &str, facts: &Facts) -> Vec<Ceiling> {
    let alike = |entry: &&Entry| {
        let block = facts.mean_block().map_or(0.0, |block| block / entry.block.0 as f64);
        entry.of.resource == Resource::Target(target.to_owned()) && ALIKE.contains(&block)
    };
    book.entries().iter().filter(alike).map(Entry::ceiling).collect()
}

impl Probing {
    /// Takes what a run teaches, and saves it.
    pub(super) fn learn(&self, lane: &mut Lane, lesson: &Lesson<'_>) {
        let told = |name: &str| block::told(&self.roots, name);
        let declared = all_declared(&lane.plan);
        let before = lane.state.ceilings.clone();
        if let Some((of, value, kind)) = lesson.reached() {
            lane.state.ceilings.measured(&of, (value, kind), &declared);
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
