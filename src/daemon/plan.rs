//! From what was typed to what will be done: settings and kinds make a checked plan.

use std::path::Path;
use std::sync::Arc;

use crate::base::units::{Bytes, Seconds};
use crate::config::document::{Complaint, Document, Section};
use crate::config::settings::{BUDGET_DEFAULT, ProbeSettings, Settings, TargetSettings};
use crate::model::job::EngineKind;
use crate::probe::{self, Kind, Shape};

/// Everything a running daemon goes by. Built whole, swapped whole.
#[derive(Debug)]
pub struct Plan {
    pub settings: Settings,
    pub targets: Vec<TargetSettings>,
    pub probes: Vec<PlannedProbe>,
}

#[derive(Clone, Debug)]
pub struct PlannedProbe {
    pub name: Arc<str>,
    pub kind: &'static Kind,
    pub shape: Shape,
    /// Index in `Plan::targets`.
    pub target: usize,
    pub every: Seconds,
    pub engine: Option<EngineKind>,
}

/// The plan of a day may use this share of the budget; the rest is for reruns and amplification.
const BUDGET_SHARE_MAX: f64 = 0.8;
const DAY_SECONDS: f64 = 86_400.0;
/// What a common consumer SSD of a terabyte is rated for.
const FLASH_LIFE_BYTES: f64 = 600e12;

/// Names of the kinds, for messages that offer the nearest.
pub fn kind_names() -> Vec<&'static str> {
    probe::KINDS.iter().map(|kind| kind.name).collect()
}

impl PlannedProbe {
    /// Bytes that one run can write at most.
    pub fn written_bytes_max(&self) -> Bytes {
        Bytes(self.shape.legs.iter().map(|leg| leg.written_bytes_max().0).sum())
    }

    pub fn written_bytes_a_day(&self) -> f64 {
        self.written_bytes_max().0 as f64 * DAY_SECONDS / self.every.0
    }

    /// Key of this probe in the state: unique, since names are unique on a target.
    pub fn state_key(&self, plan: &Plan) -> String {
        format!("{}@{}", self.name, plan.targets[self.target].name)
    }
}

impl Plan {
    /// # Errors
    /// The first thing wrong, with its place.
    pub fn build(settings: Settings, document: &Document, state: &Path) -> Result<Self, Complaint> {
        let mut targets = settings.targets.clone();
        if targets.is_empty() {
            targets.push(default_target(state));
        }
        let probes = match &settings.probes {
            None => (0..targets.len()).flat_map(|t| default_probes(t, &targets[t])).collect(),
            Some(typed) => {
                let list = document.root().get("probes");
                let planned: Result<Vec<_>, _> = typed
                    .iter()
                    .map(|probe| configured(probe, &targets, list.as_ref()))
                    .collect();
                planned?
            }
        };
        let plan = Self { settings, targets, probes };
        plan.refuse_over_budget(document)?;
        Ok(plan)
    }

    pub fn written_bytes_a_day(&self, target: usize) -> Bytes {
        let sum: f64 = self
            .probes
            .iter()
            .filter(|probe| probe.target == target)
            .map(PlannedProbe::written_bytes_a_day)
            .sum();
        Bytes(sum.round() as u64)
    }

    /// Years until a 600 TBW flash device is worn out by probes alone.
    pub fn flash_life_share_a_year(&self, target: usize) -> f64 {
        self.written_bytes_a_day(target).0 as f64 * 365.0 / FLASH_LIFE_BYTES
    }

    fn refuse_over_budget(&self, document: &Document) -> Result<(), Complaint> {
        for (index, target) in self.targets.iter().enumerate() {
            let planned = self.written_bytes_a_day(index);
            if planned.0 as f64 <= target.budget.0 as f64 * BUDGET_SHARE_MAX {
                continue;
            }
            let text = format!(
                "the probes on `{}` may write {planned} a day, over 80 % of its budget of {}: \
                 raise `budget`, or run the writing ones less often",
                target.name, target.budget
            );
            let root = document.root();
            let place = root.get("targets").or_else(|| root.get("probes"));
            let entry = place.as_ref().and_then(|list| list.items().into_iter().nth(index));
            return Err(entry.or(place).unwrap_or(root).refuse(text));
        }
        Ok(())
    }
}

/// The one that nobody configured: the daemon's own state directory.
fn default_target(state: &Path) -> TargetSettings {
    TargetSettings {
        name: "root".into(),
        path: state.to_path_buf(),
        writes: None,
        ballast: None,
        budget: BUDGET_DEFAULT,
        wake: false,
        is_default: true,
    }
}

/// Latency, and the five profiles.
fn default_probes(target: usize, settings: &TargetSettings) -> Vec<PlannedProbe> {
    probe::defaults()
        .into_iter()
        .filter_map(|(name, kind, shape)| {
            let shape = allowed(shape, settings)?;
            let every = shape.every;
            Some(PlannedProbe { name: Arc::from(name), kind, shape, target, every, engine: None })
        })
        .collect()
}

/// A target that may not be written keeps the reading legs of a probe, if it has any.
fn allowed(shape: Shape, settings: &TargetSettings) -> Option<Shape> {
    if settings.writes == Some(false) { shape.read_only() } else { Some(shape) }
}

fn configured(
    typed: &ProbeSettings,
    targets: &[TargetSettings],
    list: Option<&Section<'_>>,
) -> Result<PlannedProbe, Complaint> {
    // Settings::read has checked names: what is looked up here is there.
    let entry = list.and_then(|l| l.items().into_iter().nth(typed.index));
    let refuse = |text: String| match &entry {
        Some(section) => section.refuse(text),
        None => Complaint::plain(text),
    };
    let kind = probe::KINDS
        .iter()
        .find(|kind| kind.name == typed.kind)
        .ok_or_else(|| refuse(format!("no probe kind `{}`", typed.kind)))?;
    let target = targets
        .iter()
        .position(|target| target.name == typed.target)
        .ok_or_else(|| refuse(format!("no target `{}`", typed.target)))?;
    let options = entry.as_ref().and_then(|section| section.get(kind.name));
    let shape = (kind.read)(options.as_ref())?;
    let shape = allowed(shape, &targets[target]).ok_or_else(|| {
        refuse(format!("probe `{}` writes, and `{}` has `writes: false`", typed.name, typed.target))
    })?;
    Ok(PlannedProbe {
        name: Arc::from(typed.name.as_str()),
        kind,
        every: typed.every.unwrap_or(shape.every),
        shape,
        target,
        engine: typed.engine,
    })
}
