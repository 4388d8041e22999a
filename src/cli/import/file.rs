//! A measurements file: YAML or JSON by hand, or what `--format json` saved.

use std::path::Path;

use super::fields::{LegKeys, RunKeys};
use crate::base::units::{Bytes, Frequency, Rate};
use crate::config::complaint::{Complaint, hint};
use crate::config::declared;
use crate::config::document::{Document, Section};
use crate::judge::facts::{CpuFacts, DeviceFacts, Facts, LinkFacts, Run, SecondLeg, Subject};
use crate::model::job::Profile;
use crate::model::outcome::Flags;
use crate::model::path::{DeclaredBacking, DeclaredPath};
use crate::probe::disk::{Preset, shape};

/// What is declared for all runs, and the runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::cli) struct Measurements {
    pub(in crate::cli) backing: DeclaredBacking,
    pub(in crate::cli) path: DeclaredPath,
    pub(in crate::cli) runs: Vec<Run>,
}

/// More are no measurements of one host.
const RUNS_MAX: usize = 1000;
const KINDS: &[&str] = &["disk", "latency", "knee", "oltp", "throughput", "osd_bench"];

/// `ceph tell osd.N bench` writes 4 MiB blocks (Ceph, src/osd/OSD.cc).
const OSD_BENCH_BLOCK: Bytes = Bytes(4 << 20);

/// What is declared elsewhere, in place of what the file declares for all.
#[derive(Clone, Debug, Default)]
pub(in crate::cli) struct Declared {
    pub(in crate::cli) backing: Option<DeclaredBacking>,
    pub(in crate::cli) path: Option<DeclaredPath>,
}

/// Reads `bytes`; `file` is their name in complaints.
pub(in crate::cli) fn parse(
    file: &Path,
    bytes: &[u8],
    given: Declared,
) -> Result<Measurements, Complaint> {
    let document = Document::within(&file.display().to_string(), bytes, super::BYTES_MAX)?;
    let root = document.root();
    root.only(&["backing", "path", "runs", "advice"])?;
    let own = declared::or(&root, &DeclaredBacking::default())?;
    let backing = given.backing.unwrap_or(own);
    let path = given.path.or(path_of(&root)?).unwrap_or_default();
    let Some(list) = root.get("runs") else { return Err(root.refuse("`runs` is missing")) };
    let items = list.items()?;
    if items.len() > RUNS_MAX {
        return Err(list.refuse(format!("`runs`: {} are more than {RUNS_MAX}", items.len())));
    }
    // All at once, since each look at one item reads the file up to there; what is wrong with one is
    // said of that one.
    let mut typed = list.read::<Vec<RunKeys>>().unwrap_or_default().into_iter();
    let numbered = items.into_iter().enumerate();
    let runs: Result<Vec<Run>, Complaint> =
        numbered.map(|(index, item)| run((item, index), typed.next(), (&backing, &path))).collect();
    Ok(Measurements { runs: runs?, backing, path })
}

fn path_of(section: &Section<'_>) -> Result<Option<DeclaredPath>, Complaint> {
    section.get("path").map(|section| declared::path(&section)).transpose()
}

fn run(
    (item, index): (Section<'_>, usize),
    typed: Option<RunKeys>,
    (backing, path): (&DeclaredBacking, &DeclaredPath),
) -> Result<Run, Complaint> {
    let item = item.titled(format!("run {}", index + 1));
    let keys = typed.map_or_else(|| item.read::<RunKeys>(), Ok)?;
    let name = keys.name.clone().unwrap_or_else(|| format!("run {}", index + 1));
    let item = item.titled(format!("run `{name}`"));
    if !KINDS.contains(&keys.kind.as_str()) {
        let text = format!("there is no kind `{}`{}", keys.kind, hint(&keys.kind, KINDS));
        return Err(item.refuse_value("kind", text));
    }
    let profile = profile(&item, &keys)?;
    check(&item, &keys)?;
    let facts = match keys.verdict.as_ref().and_then(|verdict| verdict.evidence.as_ref()) {
        Some(evidence) => (**evidence).clone(),
        None => {
            let facts = facts(&keys, profile.as_ref());
            let backing = declared::or(&item, backing)?;
            Facts { backing, path: path_of(&item)?.unwrap_or_else(|| path.clone()), ..facts }
        }
    };
    Ok(Run { name, kind: keys.kind, profile: keys.profile, facts })
}

/// The shape that a named profile has; a name of the user's own says nothing.
fn profile(item: &Section<'_>, keys: &RunKeys) -> Result<Option<Profile>, Complaint> {
    let Some(name) = &keys.profile else { return Ok(None) };
    let known = Preset::ALL.into_iter().find(|preset| preset.name() == name);
    let Some(preset) = known else {
        let names = Preset::ALL.map(Preset::name);
        let bare = keys.access.is_none() && keys.block_size.is_none() && keys.verdict.is_none();
        if bare && keys.kind == "disk" {
            let text = format!("there is no profile `{name}`{}", hint(name, &names));
            return Err(item.refuse_value("profile", text));
        }
        return Ok(None);
    };
    Ok(shape(preset).legs.into_iter().next())
}

/// What contradicts itself.
fn check(item: &Section<'_>, keys: &RunKeys) -> Result<(), Complaint> {
    let link = keys.kind == "throughput";
    let typed = item.keys()?;
    let of_links = ["received", "sent", "streams", "retransmits", "window", "mss"];
    let of_storage =
        ["read", "write", "read_operations", "write_operations", "depth", "block_size"];
    let strange: &[&str] = if link { &of_storage } else { &of_links };
    if let Some(key) = typed.iter().find(|key| strange.contains(key)) {
        let (this, other) = if link { ("a link", "storage") } else { ("storage", "a link") };
        return Err(item.refuse_value(key, format!("this run is of {this}, not of {other}")));
    }
    if keys.block_size == Some(Bytes(0)) {
        return Err(item.refuse_value("block_size", "must be more than 0"));
    }
    let numbers = [
        ("depth", keys.depth.map(f64::from), 1.0),
        ("jobs", keys.jobs.map(f64::from), 1.0),
        ("streams", keys.streams.map(f64::from), 1.0),
        ("device_slots", keys.device_slots.map(f64::from), 1.0),
        ("device_queue", keys.device_queue, 0.0),
        ("write_amplification", keys.write_amplification, 0.0),
        ("device_read_share", keys.device_read_share, 0.0),
        ("device_write_share", keys.device_write_share, 0.0),
        ("foreign", keys.foreign, 0.0),
    ];
    for (key, value, least) in numbers {
        if value.is_some_and(|value| !value.is_finite() || value < least) {
            return Err(item.refuse_value(key, format!("must be {least} or more")));
        }
    }
    Ok(())
}

fn facts(keys: &RunKeys, profile: Option<&Profile>) -> Facts {
    let subject = match keys.kind.as_str() {
        "throughput" => Subject::Link,
        "osd_bench" => Subject::Store,
        _ => Subject::Storage,
    };
    let bench = subject == Subject::Store;
    let block = keys.block_size.or(profile.map(|p| p.block)).or(bench.then_some(OSD_BENCH_BLOCK));
    let sequential = bench.then_some(crate::model::job::Access::Sequential);
    let read = both(keys.read, keys.read_operations, block);
    let write = both(keys.write, keys.write_operations, block);
    let saved = profile.map_or(1.0, |profile| profile.reads.0);
    let (read, write) = match (keys.operations_per_second, keys.bytes_per_second) {
        (None, None) => (read, write),
        (operations, bytes) if read.is_empty() && write.is_empty() => {
            saved_split(operations, bytes, saved)
        }
        _ => (read, write),
    };
    let is_link = subject == Subject::Link;
    let received = keys.received.or(keys.sent).or(keys.bytes_per_second.map(Rate));
    let depth = depth(keys, profile);
    let mut facts = Facts {
        subject,
        access: keys.access.or(profile.map(|p| p.access)).or(sequential),
        block_bytes: block,
        depth,
        duration_seconds: keys.duration,
        read_operations_per_second: read.operations.filter(|_| !is_link),
        write_operations_per_second: write.operations.filter(|_| !is_link),
        read_bytes_per_second: read.bytes.filter(|_| !is_link),
        write_bytes_per_second: write.bytes.filter(|_| !is_link),
        goodput_bytes_per_second: received.filter(|_| is_link),
        latency_p50_seconds: keys.latency_p50,
        second_leg: None,
        rate_cv: keys.rate_cv.map(|cv| cv.0),
        device: device(keys),
        cpu: CpuFacts {
            busiest_ratio: keys.cpu,
            allowed_ratio: keys.cpu_all,
            steal_ratio: keys.steal,
            throttled_ratio: keys.cpu_throttled,
        },
        link: link(keys),
        flags: Flags { direct: keys.direct, ..Flags::default() },
        ..Facts::default()
    };
    facts.second_leg = keys.second_leg.as_ref().and_then(|leg| second_leg(&facts, keys, leg));
    facts
}

/// Operations in flight of all jobs, or streams: as typed, else the profile's.
fn depth(keys: &RunKeys, profile: Option<&Profile>) -> Option<f64> {
    if let Some(streams) = keys.streams {
        return Some(f64::from(streams));
    }
    match (keys.depth, profile) {
        (Some(depth), _) => Some(f64::from(depth) * f64::from(keys.jobs.unwrap_or(1))),
        (None, Some(profile)) => Some(f64::from(profile.in_flight_max())),
        (None, None) => None,
    }
}

fn device(keys: &RunKeys) -> DeviceFacts {
    DeviceFacts {
        busy_ratio: keys.device_busy,
        in_flight: keys.device_queue,
        slots: keys.device_slots.map(f64::from),
        idle_ratio: keys.device_idle,
        write_amplification: keys.write_amplification,
        read_share: keys.device_read_share,
        write_share: keys.device_write_share,
        foreign_share: keys.foreign,
        flush_ratio: keys.flushing,
        is_virtual: keys.is_virtual,
        cgroup_ratio: keys.cgroup_limit_used,
        ..DeviceFacts::default()
    }
}

fn link(keys: &RunKeys) -> LinkFacts {
    LinkFacts {
        retransmits: keys.retransmits,
        segment_payload_bytes: keys.mss,
        round_trip_seconds: keys.rtt,
        window_bytes: keys.window,
        receive_window_limited_ratio: keys.window_limited,
        send_buffer_limited_ratio: keys.send_buffer_limited,
        ..LinkFacts::default()
    }
}

fn second_leg(first: &Facts, keys: &RunKeys, leg: &LegKeys) -> Option<SecondLeg> {
    let block = first.block_bytes;
    let (read, write) =
        (both(leg.read, leg.read_operations, block), both(leg.write, leg.write_operations, block));
    let sum = |a: Option<f64>, b: Option<f64>| {
        (a.is_some() || b.is_some()).then(|| a.unwrap_or(0.0) + b.unwrap_or(0.0))
    };
    let operations = sum(read.operations.map(|n| n.0), write.operations.map(|n| n.0));
    let bytes = sum(read.bytes.map(|n| n.0), write.bytes.map(|n| n.0));
    let rate_per_second = match first.operations() {
        _ if first.is_link() => leg.received.map(|rate| rate.0)?,
        Some(_) => operations?,
        None => bytes?,
    };
    let jobs = f64::from(leg.jobs.or(keys.jobs).unwrap_or(1));
    let depth = leg.streams.map(f64::from).or(leg.depth.map(|depth| f64::from(depth) * jobs));
    Some(SecondLeg { depth, rate_per_second, latency_p50_seconds: leg.latency_p50 })
}

/// One direction in both units, where the block size makes one of the other.
#[derive(Clone, Copy, Default)]
struct Both {
    operations: Option<Frequency>,
    bytes: Option<Rate>,
}

impl Both {
    fn is_empty(self) -> bool {
        self.operations.is_none() && self.bytes.is_none()
    }
}

fn both(bytes: Option<Rate>, operations: Option<Frequency>, block: Option<Bytes>) -> Both {
    let block = block.map(|block| block.0 as f64).filter(|block| *block > 0.0);
    Both {
        operations: operations.or(bytes.zip(block).map(|(rate, block)| Frequency(rate.0 / block))),
        bytes: bytes.or(operations.zip(block).map(|(rate, block)| Rate(rate.0 * block))),
    }
}

/// Saved totals without evidence, split as the profile's mix says.
fn saved_split(operations: Option<f64>, bytes: Option<f64>, reads: f64) -> (Both, Both) {
    let part = |share: f64| Both {
        operations: operations.filter(|_| share > 0.0).map(|n| Frequency(n * share)),
        bytes: bytes.filter(|_| share > 0.0).map(|n| Rate(n * share)),
    };
    (part(reads), part(1.0 - reads))
}
