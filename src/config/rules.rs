//! The rules of the core keys: what may stand in the file, and what each complaint says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::allowed::{BALLAST, BUDGET, DEVICES, INTERVAL, RESERVE, SHARE, TICK, at_most, named};
use super::cluster::cluster;
use super::complaint::{Complaint, hint};
use super::declared;
use super::document::{Document, Section};
use super::hours::utc_offset;
use super::peers::{no_target, peers};
use super::read::{check_address, one_or_many, optional};
use super::settings::{
    BUDGET_DEFAULT, DEFAULT_TARGET, Filter, GuardSettings, Hours, LINK_KIND, ProbeSettings,
    SampleSettings, Settings, TargetSettings,
};
use crate::base::units::{Bytes, Ratio, Seconds};
use crate::model::job::EngineKind;
use crate::model::path::DeclaredBacking;

const TARGETS_MAX: usize = 32;
const PROBES_MAX: usize = 64;
const ADDRESSES_MAX: usize = 16;
const SPANS_MAX: usize = 32;

impl Settings {
    /// Reads and checks the core keys. `kinds` are the probe kinds there are; each probe may have
    /// its kind's own section, which [`Settings::options`] finds.
    pub fn read(document: &Document, kinds: &[&str]) -> Result<Settings, Complaint> {
        let root = document.root();
        root.only(&[
            "listen",
            "sample",
            "disks",
            "links",
            "targets",
            "backing",
            "path",
            "probes",
            "guard",
            "peers",
            "first_run",
        ])?;
        let plain = Settings::default();
        let backing = declared::or(&root, &DeclaredBacking::default())?;
        let targets = targets(&root, &backing)?;
        Ok(Settings {
            listen: listen(&root)?.unwrap_or(plain.listen),
            sample: sample(&root)?,
            probes: probes(&root, &targets, kinds)?,
            targets,
            backing,
            path: root.get("path").map_or(Ok(plain.path), |section| declared::path(&section))?,
            guard: guard(&root)?,
            peers: peers(&root)?,
            first_run: read_or(&root, "first_run", plain.first_run)?,
        })
    }

    /// The options of a probe, under its kind's name; `None`: it has none of its own.
    pub fn options<'a>(document: &'a Document, probe: &ProbeSettings) -> Option<Section<'a>> {
        let section = document.root().get("probes")?.items().ok()?.into_iter().nth(probe.index)?;
        section.titled(format!("probe `{}`", probe.name)).get(&probe.kind)
    }
}

/// The value of `key`; `otherwise` where there is none.
fn read_or<T: DeserializeOwned>(
    section: &Section<'_>,
    key: &str,
    otherwise: T,
) -> Result<T, Complaint> {
    section.get(key).map_or(Ok(otherwise), |value| value.read())
}

fn listen(root: &Section<'_>) -> Result<Option<Vec<String>>, Complaint> {
    #[derive(Deserialize)]
    struct Listen(#[serde(deserialize_with = "one_or_many")] Vec<String>);

    let Some(section) = root.get("listen") else { return Ok(None) };
    let Listen(addresses) = section.read()?;
    let refuse = |text: String| Err(section.refuse(format!("`listen`: {text}")));
    if addresses.is_empty() || addresses.len() > ADDRESSES_MAX {
        return refuse(format!("expected 1 to {ADDRESSES_MAX} addresses (:9847)"));
    }
    for (i, address) in addresses.iter().enumerate() {
        if let Err(text) = check_address(address) {
            let item = section.items().ok().and_then(|items| items.into_iter().nth(i));
            return Err(item.unwrap_or(section).refuse(format!("`listen`: {text}")));
        }
        if addresses[..i].contains(address) {
            return refuse(format!("`{address}` is there twice"));
        }
    }
    Ok(Some(addresses))
}

fn sample(root: &Section<'_>) -> Result<SampleSettings, Complaint> {
    #[derive(Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Keys {
        #[serde(deserialize_with = "optional")]
        every: Option<Seconds>,
        devices_max: Option<usize>,
        disks: Filter,
        links: Filter,
    }

    let plain = SampleSettings::default();
    let mut settings = SampleSettings { disks: by_name(root, "disks")?, ..plain };
    settings.links = by_name(root, "links")?;
    let Some(section) = root.get("sample") else { return Ok(settings) };
    let keys: Keys = section.read()?;
    settings.every = TICK.check(&section, "every", keys.every.unwrap_or(settings.every))?;
    let devices_max = keys.devices_max.unwrap_or(settings.devices_max);
    settings.devices_max = DEVICES.check(&section, "devices_max", devices_max)?;
    for (key, filter) in [("disks", &keys.disks), ("links", &keys.links)] {
        for pattern in filter.include.iter().chain(&filter.exclude) {
            if pattern.is_empty() || pattern.chars().any(|c| c.is_whitespace() || c == '/') {
                let text = format!("`{pattern}` is not a pattern of device names (sd*, nvme?n1)");
                return Err(section.refuse_value(key, text));
            }
        }
    }
    settings.disk_filter = keys.disks;
    settings.link_filter = keys.links;
    Ok(settings)
}

/// What is declared of devices, by kernel name.
fn by_name<T: DeserializeOwned>(
    root: &Section<'_>,
    key: &str,
) -> Result<BTreeMap<String, T>, Complaint> {
    let mut found = BTreeMap::new();
    let Some(section) = root.get(key) else { return Ok(found) };
    for name in section.keys()? {
        if let Some(device) = section.get(name) {
            found.insert(name.to_owned(), device.titled(format!("`{key}.{name}`")).read()?);
        }
    }
    Ok(found)
}

/// `backing`: of those that declare none.
fn targets(
    root: &Section<'_>,
    backing: &DeclaredBacking,
) -> Result<Vec<TargetSettings>, Complaint> {
    let Some(section) = root.get("targets") else { return Ok(Vec::new()) };
    let items = section.items()?;
    at_most(&section, "targets", items.len(), TARGETS_MAX)?;
    let mut targets: Vec<TargetSettings> = Vec::new();
    for item in items {
        let target = target(item.clone(), backing)?;
        let item = item.titled(format!("target `{}`", target.name));
        if targets.iter().any(|other| other.name == target.name) {
            return Err(item.refuse_value("name", "another target has this name"));
        }
        let same = |other: &&TargetSettings| other.path == target.path && other.ceph.is_none();
        if let Some(other) = targets.iter().find(same).filter(|_| target.ceph.is_none()) {
            let text = format!("target `{}` has this path: they would share a file", other.name);
            return Err(item.refuse_value("path", text));
        }
        if target.shared.is_some() && target.shared_hosts.is_empty() && !names_peers(root) {
            let text = "name the hosts that take turns in `shared_hosts`, or in `peers.list`";
            return Err(item.refuse_value("shared", text));
        }
        targets.push(target);
    }
    Ok(targets)
}

fn names_peers(root: &Section<'_>) -> bool {
    let names = |peers: Section<'_>| peers.get("list").or_else(|| peers.get("files")).is_some();
    root.get("peers").is_some_and(names)
}

fn target(item: Section<'_>, backing: &DeclaredBacking) -> Result<TargetSettings, Complaint> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Keys {
        name: String,
        path: PathBuf,
        writes: Option<bool>,
        #[serde(default, deserialize_with = "optional")]
        ballast: Option<Bytes>,
        #[serde(default, deserialize_with = "optional")]
        budget: Option<Bytes>,
        #[serde(default)]
        wake: bool,
        /// Read apart, with its own places.
        #[serde(default, rename = "backing")]
        _backing: IgnoredAny,
        shared: Option<String>,
        #[serde(default)]
        shared_hosts: Vec<String>,
    }

    let (item, name) = named(item, "target")?;
    if let Some(section) = item.get("ceph") {
        return cluster(&item, &section, name);
    }
    let keys: Keys = item.read()?;
    check_path(&item, &keys.path)?;
    if keys.shared.is_none() && !keys.shared_hosts.is_empty() {
        return Err(item.refuse_value("shared_hosts", "say with `shared: NAME` what they share"));
    }
    if let Some(ballast) = keys.ballast {
        BALLAST.check(&item, "ballast", ballast)?;
    }
    if keys.budget == Some(Bytes(0)) {
        return Err(item.refuse_value("budget", "nothing could be written: say `writes: false`"));
    }
    let budget = BUDGET.check(&item, "budget", keys.budget.unwrap_or(BUDGET_DEFAULT))?;
    if is_device(&keys.path) && (keys.writes == Some(true) || keys.ballast.is_some()) {
        let key = if keys.writes == Some(true) { "writes" } else { "ballast" };
        return Err(item.refuse_value(key, "raw devices are only ever read: name a directory"));
    }
    Ok(TargetSettings {
        name: keys.name,
        path: keys.path,
        writes: keys.writes,
        ballast: keys.ballast,
        budget,
        wake: keys.wake,
        backing: declared::or(&item, backing)?,
        shared: keys.shared,
        shared_hosts: keys.shared_hosts,
        is_default: false,
        ceph: None,
    })
}

fn check_path(item: &Section<'_>, path: &Path) -> Result<(), Complaint> {
    let shown = path.display();
    if !path.is_absolute() {
        return Err(item.refuse_value("path", format!("`{shown}` must start with `/`")));
    }
    if path.components().any(|part| part == std::path::Component::ParentDir) {
        return Err(item.refuse_value("path", format!("`{shown}` must not contain `..`")));
    }
    Ok(())
}

fn is_device(path: &Path) -> bool {
    path.starts_with("/dev") && !path.starts_with("/dev/shm")
}

fn probes(
    root: &Section<'_>,
    targets: &[TargetSettings],
    kinds: &[&str],
) -> Result<Option<Vec<ProbeSettings>>, Complaint> {
    let Some(section) = root.get("probes") else { return Ok(None) };
    let items = section.items()?;
    at_most(&section, "probes", items.len(), PROBES_MAX)?;
    let mut names: Vec<String> = Vec::new();
    let mut probes = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        let (item, name) = named(item, "probe")?;
        if names.contains(&name) {
            return Err(item.refuse_value("name", "another probe has this name"));
        }
        names.push(name.clone());
        if let Some(probe) = probe(&item, targets, kinds)? {
            probes.push(ProbeSettings { name, index, ..probe });
        }
    }
    Ok(Some(probes))
}

/// One probe; `None`: it is switched off. Its name and place are the caller's.
fn probe(
    item: &Section<'_>,
    targets: &[TargetSettings],
    kinds: &[&str],
) -> Result<Option<ProbeSettings>, Complaint> {
    /// Other keys than these are looked at before: which they are depends on the kind.
    #[derive(Deserialize)]
    struct Keys {
        kind: String,
        target: Option<String>,
        #[serde(default, deserialize_with = "optional")]
        every: Option<Seconds>,
        engine: Option<EngineKind>,
        enabled: Option<bool>,
    }

    let core = ["name", "kind", "target", "every", "engine", "enabled"];
    let keys: Keys = item.read()?;
    if !kinds.contains(&keys.kind.as_str()) {
        let text = format!("there is no kind `{}`{}", keys.kind, hint(&keys.kind, kinds));
        return Err(item.refuse_value("kind", text));
    }
    for other in item.keys()?.into_iter().filter(|key| kinds.contains(key)) {
        if other != keys.kind {
            let text = format!("options of another kind: this probe is of kind `{}`", keys.kind);
            return Err(item.refuse_value(other, text));
        }
    }
    item.only(&[&core[..], &[keys.kind.as_str()]].concat())?;
    let target = match keys.kind == LINK_KIND {
        true => no_target(item, keys.target.is_some(), keys.engine.is_some())?,
        false => probe_target(item, keys.target, targets)?,
    };
    if let Some(every) = keys.every {
        INTERVAL.check(item, "every", every)?;
    }
    let (name, index) = (String::new(), 0);
    Ok(keys.enabled.unwrap_or(true).then_some(ProbeSettings {
        name,
        kind: keys.kind,
        target,
        every: keys.every,
        engine: keys.engine,
        index,
    }))
}

/// The target that a probe names, or the only one there is.
fn probe_target(
    item: &Section<'_>,
    named: Option<String>,
    targets: &[TargetSettings],
) -> Result<String, Complaint> {
    let known: Vec<&str> = match targets {
        [] => vec![DEFAULT_TARGET],
        some => some.iter().map(|target| target.name.as_str()).collect(),
    };
    match (named, &known[..]) {
        (Some(name), _) if known.contains(&name.as_str()) => Ok(name),
        (Some(name), _) => {
            let text = format!("there is no target `{name}`{}", hint(&name, &known));
            Err(item.refuse_value("target", text))
        }
        (None, [only]) => Ok((*only).to_owned()),
        (None, _) => Err(item.refuse_value("target", "missing: there are several targets")),
    }
}

fn guard(root: &Section<'_>) -> Result<GuardSettings, Complaint> {
    #[derive(Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Keys {
        probes: Option<bool>,
        dry_run: Option<bool>,
        #[serde(deserialize_with = "one_or_many")]
        allowed_hours: Vec<String>,
        #[serde(deserialize_with = "one_or_many")]
        blackout: Vec<String>,
        time_zone: Option<String>,
        #[serde(deserialize_with = "optional")]
        reserve: Option<Bytes>,
        #[serde(deserialize_with = "optional")]
        reserve_share: Option<Ratio>,
    }

    let plain = GuardSettings::default();
    let Some(section) = root.get("guard") else { return Ok(plain) };
    let keys: Keys = section.read()?;
    let zone = keys.time_zone.as_deref().unwrap_or("UTC");
    let zone = utc_offset(zone).map_err(|text| section.refuse_value("time_zone", text))?;
    let spans = |key: &str, texts: Vec<String>| {
        at_most(&section, key, texts.len(), SPANS_MAX)?;
        let parse = |text: &String| Hours::parse(text, zone);
        texts
            .iter()
            .map(parse)
            .collect::<Result<_, _>>()
            .map_err(|text| section.refuse_value(key, text))
    };
    let reserve = keys.reserve.unwrap_or(plain.reserve);
    let share = keys.reserve_share.unwrap_or(Ratio(plain.reserve_share));
    Ok(GuardSettings {
        probes: keys.probes.unwrap_or(plain.probes),
        dry_run: keys.dry_run.unwrap_or(plain.dry_run),
        allowed_hours: spans("allowed_hours", keys.allowed_hours)?,
        blackout: spans("blackout", keys.blackout)?,
        reserve_share: SHARE.check(&section, "reserve_share", share)?.0,
        reserve: RESERVE.check(&section, "reserve", reserve)?,
    })
}
