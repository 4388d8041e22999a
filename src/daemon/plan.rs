//! From what was typed to what will be done: settings and kinds make a checked plan.

use std::path::Path;
use std::sync::Arc;

use super::targets::target_of;
use crate::base::units::{Bytes, Seconds};
use crate::config::complaint::Complaint;
use crate::config::document::{Document, Section};
use crate::config::settings::{
    BUDGET_DEFAULT, PeerSettings, ProbeSettings, Settings, TargetSettings,
};
use crate::model::job::{EngineKind, Place};
use crate::probe::disk::Preset;
use crate::probe::{self, Kind, LinkShape, Shape, throughput};
use crate::schedule::budget::{self, Planned};
use crate::schedule::slots::Slots;

/// Everything a running daemon goes by. Built whole, swapped whole.
pub struct Plan {
    pub settings: Settings,
    pub targets: Vec<TargetSettings>,
    pub probes: Vec<PlannedProbe>,
    /// The one probe that goes to peers; its slots are those of the whole mesh.
    pub link: Option<PlannedLink>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PlannedLink {
    pub name: Arc<str>,
    pub shape: LinkShape,
    /// Each pair of hosts is tested so often.
    pub every: Seconds,
}

#[derive(Clone)]
pub struct PlannedProbe {
    pub name: Arc<str>,
    pub kind: &'static Kind,
    pub shape: Shape,
    /// Index in `Plan::targets`.
    pub target: usize,
    pub every: Seconds,
    pub engine: Option<EngineKind>,
}

/// Names of the kinds, for messages that offer the nearest.
pub fn kind_names() -> Vec<&'static str> {
    probe::PROBES.iter().map(|kind| kind.name).chain([throughput::NAME]).collect()
}

impl PlannedProbe {
    /// Bytes that one run can write at most.
    pub fn written_bytes_max(&self) -> Bytes {
        Bytes(self.shape.legs.iter().map(|leg| leg.written_bytes_max().0).sum())
    }

    /// Key of this probe in state and timetable: names are unique on a target.
    pub fn key(&self, plan: &Plan) -> String {
        format!("{}@{}", self.name, plan.targets[self.target].name)
    }
}

impl Plan {
    /// # Errors
    /// The first thing wrong, with its place.
    pub fn build(settings: Settings, document: &Document, state: &Path) -> Result<Self, Complaint> {
        let mut targets = settings.targets.clone();
        if targets.is_empty() {
            let backing = settings.backing.clone();
            targets.push(TargetSettings { backing, ..default_target(state) });
        }
        let probes = match &settings.probes {
            None => {
                let on_disks = (0..targets.len()).filter(|t| targets[*t].ceph.is_none());
                on_disks.flat_map(|t| default_probes(t, &targets[t])).collect()
            }
            Some(typed) => {
                let entries = match document.root().get("probes") {
                    Some(list) => list.items()?,
                    None => Vec::new(),
                };
                let planned: Result<Vec<_>, _> = typed
                    .iter()
                    .filter(|probe| probe.kind != throughput::NAME)
                    .map(|probe| configured(probe, &targets, &entries, document))
                    .collect();
                planned?
            }
        };
        let link = link(&settings, document)?;
        let plan = Self { settings, targets, probes, link };
        plan.refuse_over_budget(document)?;
        Ok(plan)
    }

    /// Worst case of all probes on a target.
    pub fn written_bytes_a_day(&self, target: usize) -> Bytes {
        let sums = budget::bytes_a_day(&self.planned());
        sums.get(self.targets[target].name.as_str()).copied().unwrap_or_default()
    }

    fn planned(&self) -> Vec<Planned<'_>> {
        let planned = |probe: &PlannedProbe| Planned {
            target: self.targets[probe.target].name.as_str(),
            every: probe.every,
            written_max: probe.written_bytes_max(),
        };
        self.probes.iter().map(planned).collect()
    }

    fn refuse_over_budget(&self, document: &Document) -> Result<(), Complaint> {
        let planned = self.planned();
        for (index, target) in self.targets.iter().enumerate() {
            let Err(text) = budget::check_plan(&planned, &target.name, target.budget) else {
                continue;
            };
            let root = document.root();
            let entry = match root.get("targets") {
                Some(list) => list.items()?.into_iter().nth(index),
                None => root.get("probes"),
            };
            return Err(entry.unwrap_or(root).refuse(text));
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
        backing: Default::default(),
        shared: None,
        shared_hosts: Vec::new(),
        is_default: true,
        ceph: None,
    }
}

/// Latency, the five profiles, and the knee of random reads.
fn default_probes(target: usize, settings: &TargetSettings) -> Vec<PlannedProbe> {
    let latency = (probe::latency::KIND.read)(None)
        .map(|shape| (probe::latency::KIND.name, &probe::latency::KIND, shape));
    let profiles = Preset::ALL
        .into_iter()
        .map(|preset| (preset.name(), &probe::disk::KIND, probe::disk::shape(preset)));
    let knee = (probe::knee::KIND.read)(None)
        .map(|shape| (probe::knee::KIND.name, &probe::knee::KIND, shape));
    latency
        .into_iter()
        .chain(profiles)
        .chain(knee)
        .filter_map(|(name, kind, shape)| {
            let shape = allowed(shape, settings)?;
            let every = shape.every;
            Some(PlannedProbe { name: Arc::from(name), kind, shape, target, every, engine: None })
        })
        .collect()
}

/// With peers and without a list of probes there is one to them, as there are some on targets.
fn link(settings: &Settings, document: &Document) -> Result<Option<PlannedLink>, Complaint> {
    let has_peers = settings.peers.as_ref().is_some_and(PeerSettings::has_peers);
    let Some(typed) = &settings.probes else {
        let planned = |shape: LinkShape| PlannedLink {
            name: Arc::from(throughput::NAME),
            every: shape.every,
            shape,
        };
        return has_peers.then(|| throughput::read(None).map(planned)).transpose();
    };
    let mut links = typed.iter().filter(|probe| probe.kind == throughput::NAME);
    let Some(probe) = links.next() else { return Ok(None) };
    let entry = |probe: &ProbeSettings| {
        let list = document.root().get("probes").and_then(|list| list.items().ok());
        let entry = list.and_then(|list| list.into_iter().nth(probe.index));
        entry.unwrap_or_else(|| document.root())
    };
    if let Some(second) = links.next() {
        let text = format!("`{}` goes to peers already: the slots are one probe's", probe.name);
        return Err(entry(second).refuse(text));
    }
    if !has_peers {
        let text = format!("probe `{}` goes to peers: name them in `peers.list`", probe.name);
        return Err(entry(probe).refuse(text));
    }
    let shape = throughput::read(Settings::options(document, probe).as_ref())?;
    let every = probe.every.unwrap_or(shape.every);
    Ok(Some(PlannedLink { name: Arc::from(probe.name.as_str()), shape, every }))
}

/// A target that is only read keeps the reading legs of a probe, if it has any.
fn allowed(shape: Shape, settings: &TargetSettings) -> Option<Shape> {
    let raw = matches!(target_of(settings).place, Place::Device(_));
    if raw || settings.writes == Some(false) { shape.read_only() } else { Some(shape) }
}

/// OSDs are benched by one kind, which does nothing else.
fn on_its_ground(kind: &Kind, target: &TargetSettings) -> Result<(), String> {
    let (name, asks) = (&target.name, kind.name == probe::osd_bench::KIND.name);
    match (asks, target.ceph.is_some()) {
        (true, false) => Err(format!(
            "`osd_bench` asks a cluster: give target `{name}` a `ceph` section, or use `osd_like`"
        )),
        (false, true) => {
            Err(format!("target `{name}` is a Ceph cluster: only kind `osd_bench` works on one"))
        }
        _ => Ok(()),
    }
}

fn configured(
    typed: &ProbeSettings,
    targets: &[TargetSettings],
    entries: &[Section<'_>],
    document: &Document,
) -> Result<PlannedProbe, Complaint> {
    // Settings::read has checked the names: what is looked up here is there.
    let entry = entries.get(typed.index).cloned().unwrap_or_else(|| document.root());
    let kind = probe::kind(&typed.kind)
        .ok_or_else(|| entry.refuse(format!("no probe kind `{}`", typed.kind)))?;
    let target = targets
        .iter()
        .position(|target| target.name == typed.target)
        .ok_or_else(|| entry.refuse(format!("no target `{}`", typed.target)))?;
    on_its_ground(kind, &targets[target]).map_err(|text| entry.refuse(text))?;
    let options = entry.get(kind.name);
    let shape = (kind.read)(options.as_ref())?;
    if let Some(shared) = targets[target].shared.as_ref().filter(|_| !shape.exempt_from_gate)
        && shape.time() > Slots::run_max()
    {
        let (time, most) = (shape.time(), Slots::run_max());
        let text =
            format!("a run takes {time}: a turn on the shared `{shared}` has room for {most}");
        return Err(entry.refuse(text));
    }
    let shape = allowed(shape, &targets[target]).ok_or_else(|| {
        let (name, target) = (&typed.name, &typed.target);
        entry.refuse(format!("probe `{name}` writes, and target `{target}` is only read"))
    })?;
    if let (Some(span), Some(ballast)) = (shape.span(), targets[target].ballast)
        && span > ballast
    {
        let (name, target) = (&typed.name, &typed.target);
        let text =
            format!("probe `{name}` works on {span}, and `ballast` of `{target}` is {ballast}");
        return Err(entry.refuse(text));
    }
    Ok(PlannedProbe {
        name: Arc::from(typed.name.as_str()),
        kind,
        every: typed.every.unwrap_or(shape.every),
        engine: typed.engine.or(shape.engine),
        shape,
        target,
    })
}
