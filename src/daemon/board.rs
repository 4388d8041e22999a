//! What the lanes share: the probing lane writes where probes stand, the sampling lane writes the
//! host's conditions and puts both into each snapshot.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::mesh::Mesh;
use super::plan::Plan;
use super::state::Discard;
use crate::base::clock::Moment;
use crate::base::units::Seconds;
use crate::judge::effective::Effective;
use crate::model::metric::Label;
use crate::model::outcome::{Conditions, LineUse, OwnRun, OwnRuns};
use crate::model::peer::{LinkView, MeshView};
use crate::model::snapshot::{ProbeView, TargetView};
use crate::schedule::slots::Slots;

#[derive(Default)]
pub struct Board(Mutex<Shared>);

/// Held only for copies and small changes: no call under this lock reads the host or waits.
#[derive(Default)]
pub struct Shared {
    /// The plan in force; lanes compare it by pointer to see a reload.
    pub plan: Option<Arc<Plan>>,
    pub conditions: Conditions,
    pub own: OwnRuns,
    /// In force, for the sampling lane.
    pub ceilings: Arc<Effective>,
    /// Shared with each snapshot: changed by copy, when there is something to change.
    pub probes: Vec<Arc<ProbeView>>,
    pub targets: Vec<TargetView>,
    /// Link probes, by peer.
    pub links: Vec<Arc<LinkView>>,
    /// When the last test of this host with a peer ended, whichever end made it.
    pub tested: Option<Moment>,
    /// In force, for all who share the host's turn with tests of peers.
    pub mesh: Option<Arc<Mesh>>,
    pub mesh_view: MeshView,
    pub notes: Vec<String>,
    pub sandbox: BTreeMap<String, bool>,
    pub discarded: BTreeMap<&'static str, u64>,
    pub reload_ok: bool,
    pub reload_at: Option<Moment>,
}

/// Samples after own work until there is a window without it.
pub(super) const SETTLED_SAMPLES: f64 = 2.5;
/// Own runs that ended longer ago no longer touch any window.
const OWN_RUN_KEPT_SECONDS: f64 = 30.0;

impl Board {
    pub fn lock(&self) -> MutexGuard<'_, Shared> {
        // A lane that panicked left values, never half-made ones: each change is one assignment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    pub fn begin_own_run(&mut self, devices: Vec<String>, now: Moment) {
        self.own
            .0
            .retain(|run| run.until.is_none_or(|until| now.since(until).0 < OWN_RUN_KEPT_SECONDS));
        self.own.0.push(OwnRun { devices, from: now, until: None });
    }

    /// Ends the open own run; what a stuck worker does after that is foreign load.
    pub fn end_own_run(&mut self, now: Moment) {
        for run in self.own.0.iter_mut().filter(|run| run.until.is_none()) {
            run.until = Some(now);
        }
    }

    /// What others move on this host's lines; `None` so soon after a test with a peer that it may be
    /// the test's.
    pub fn lines_of_others(&self, now: Moment) -> Option<&BTreeMap<Label, LineUse>> {
        let every = self.plan.as_ref().map_or(Seconds(0.0), |plan| plan.settings.sample.every);
        let settled = |ended| now.since(ended).0 > SETTLED_SAMPLES * every.0;
        self.tested.is_none_or(settled).then_some(&self.conditions.lines)
    }

    /// Turns on a backend that the hosts of the mesh share.
    ///
    /// # Errors
    /// Where this host can't know them, or knows that another goes by another list.
    pub fn slots(&self) -> Result<Slots, String> {
        let mesh = self.mesh.as_ref().ok_or("the list of peers is not read yet")?;
        match self.links.iter().find(|link| link.list_differs == Some(true)) {
            Some(link) => Err(format!("{} goes by another list of peers or times", link.peer)),
            None => mesh.slots(),
        }
    }

    pub fn count_discards(&mut self, discard: Discard, times: usize) {
        *self.discarded.entry(discard.label()).or_default() += times as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::clock::{Clock, ManualClock};

    #[test]
    fn an_own_run_is_open_until_it_ends_and_forgotten_later() {
        let clock = ManualClock::starting_at(0);
        let mut shared = Shared::default();
        let from = clock.now();
        shared.begin_own_run(vec!["sda".into()], from);
        clock.advance(Duration::from_secs(3));
        assert_eq!(shared.own.overlap("sda", from, clock.now()).0, 3.0);
        shared.end_own_run(clock.now());
        clock.advance(Duration::from_secs(60));
        assert_eq!(shared.own.overlap("sda", from, clock.now()).0, 3.0);
        shared.begin_own_run(vec!["sdb".into()], clock.now());
        assert_eq!(shared.own.0.len(), 1, "the old run is gone");
    }
}
