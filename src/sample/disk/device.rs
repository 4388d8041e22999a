//! One disk as the sampler holds it: what it is, and what its counters came to.

use std::sync::Arc;

use super::track::{Track, Window};
use crate::base::clock::Moment;
use crate::base::units::{Bytes, Ratio, Seconds};
use crate::config::settings::{Media, SampleSettings};
use crate::host::block::{Class, Facts, directory, entries, refusal, slots, told_by};
use crate::host::roots::{KeptNumber, Roots};
use crate::host::topology::under_device;
use crate::host::transport::nvme_paths;
use crate::model::job::Backing;
use crate::model::live::{DiskLive, DiskWindow};
use crate::model::metric::Label;
use crate::model::outcome::DiskCondition;
use crate::model::snapshot::{Flow, Of, Resource, ResourceClass};

pub(super) struct Disk {
    pub(super) track: Track,
    pub(super) sheet: Sheet,
    pub(super) facts_at: Moment,
    /// Has series; false for disks that a filter or the cap leaves out.
    pub(super) admitted: bool,
    /// Ticks in a row that didn't list it.
    pub(super) absent: u32,
    /// Tells it from another under its name.
    identity: Label,
    sequence: KeptNumber,
    known_sequence: Option<u64>,
    /// Ticks since the identity was asked for.
    unasked: u32,
}

/// The identity of a disk whose counters stand still is asked for at every so many ticks: what hasn't
/// moved has no spike to show, and with many devices these reads were a tenth of a tick.
const ASK_EVERY: u32 = 10;

impl Disk {
    pub(super) fn new(roots: &Roots, sheet: Sheet, track: Track, at: Moment) -> Self {
        let dir = directory(roots, sheet.name()).unwrap_or_default();
        let mut sequence = KeptNumber::new(dir.join("diskseq"));
        let known_sequence = sequence.read();
        let identity = told(&sheet, known_sequence);
        Self {
            track,
            sheet,
            facts_at: at,
            admitted: false,
            absent: 0,
            identity,
            sequence,
            known_sequence,
            unasked: 0,
        }
    }

    pub(super) fn label(&self) -> &Label {
        &self.sheet.info[0]
    }

    /// Another disk bears the name now: the kernel numbers each it ever saw (since 5.15).
    /// `moved`: its counters are not those of the last tick.
    pub(super) fn is_replaced(&mut self, moved: bool) -> bool {
        self.unasked += 1;
        // A loop is given another file, or none, without a request.
        let still = !moved && self.sheet.facts.class != Class::Loop;
        if still && self.unasked < ASK_EVERY {
            return false;
        }
        self.unasked = 0;
        let now = self.sequence.read();
        now.is_some() && self.known_sequence.is_some() && now != self.known_sequence
    }

    /// The last window; `None` too where the queue is told to count nothing.
    pub(super) fn window(&self) -> Option<&Window> {
        self.track.window().filter(|_| self.sheet.facts.counted)
    }

    pub(super) fn is_stalled(&self) -> bool {
        self.track.is_stalled(self.sheet.stall_limit())
    }

    pub(super) fn condition(&self, now: Moment) -> DiskCondition {
        let window = self.window();
        DiskCondition {
            // Where the kernel's busy time can't be true: no more than the mean queue.
            busy: window.and_then(|w| w.busy.or_else(|| Some(Ratio(w.queue()?.min(1.0))))),
            queue: window.and_then(Window::queue),
            in_flight: window.map_or(self.track.counters.in_flight, |w| w.load.in_flight),
            rotational: self.sheet.rotational(),
            idle_for: self.track.idle_for(now),
        }
    }

    pub(super) fn resource(&self) -> Resource {
        let window = self.window();
        let load = window.map_or_else(Vec::new, |w| {
            let flow = |operations, bytes_per_second, latency| Flow {
                operations_per_second: Some(operations),
                bytes_per_second,
                latency,
            };
            let l = &w.load;
            vec![
                ("read", flow(l.reads_per_second, l.read_bytes_per_second, w.read_latency())),
                ("write", flow(l.writes_per_second, l.write_bytes_per_second, w.write_latency())),
            ]
        });
        let share: Option<Ratio> = window.and_then(|w| w.busy);
        Resource {
            device: Arc::clone(self.label()),
            class: ResourceClass::Disk,
            facts: Arc::clone(&self.sheet.phrase),
            load,
            share: share.filter(|_| self.sheet.rotational() == Some(true)),
            of: Of::Time,
        }
    }

    /// What is set against ceilings.
    pub(super) fn live(&self) -> DiskLive {
        let window = self.window().map(|w| DiskWindow {
            load: w.load,
            busy: w.busy,
            timed: w.timed,
            new: self.track.is_new(),
        });
        DiskLive {
            device: Arc::clone(self.label()),
            identity: Arc::clone(&self.identity),
            spindle: self.sheet.rotational() == Some(true),
            slots: self.sheet.slots,
            window,
        }
    }

    /// Takes what was read of it again.
    pub(super) fn know(&mut self, sheet: Sheet, at: Moment) {
        self.identity = told(&sheet, self.known_sequence);
        self.sheet = sheet;
        self.facts_at = at;
    }

    /// What can't be known of it, and how to change that.
    pub(super) fn notes(&self, out: &mut Vec<String>) {
        let name = self.sheet.name();
        out.extend(self.sheet.note.clone());
        if self.sheet.facts.counted && self.track.times().is_none() {
            out.push(format!(
                "{name}: its driver counts requests but no time, so busy, queue and latency are \
                 unknown: look at its members"
            ));
        }
        if self.sheet.facts.counted && self.track.is_runaway() {
            out.push(format!(
                "{name}: its busy time is longer than this host is up, a fault of the kernel: go by \
                 queue and latency, which hold"
            ));
        }
    }
}

fn told(sheet: &Sheet, sequence: Option<u64>) -> Label {
    let facts = &sheet.facts;
    told_by(facts.identity.as_deref(), sequence, facts.size).unwrap_or_default().into()
}

/// What is known of a disk, read on appearance and once a minute.
pub(super) struct Sheet {
    pub(super) facts: Facts,
    media: Option<Media>,
    leaf: bool,
    /// Requests that it takes at once.
    slots: Option<u32>,
    /// Values of `loadline_disk_info`, the device's name first.
    pub(super) info: [Label; 9],
    /// What carries it.
    pub(super) leaves: Vec<Label>,
    /// Names under which own runs may go on in it.
    pub(super) related: Vec<Label>,
    phrase: Label,
    note: Option<String>,
}

impl Sheet {
    pub(super) fn read(roots: &Roots, settings: &SampleSettings, name: &str) -> Self {
        let facts = Facts::read(roots, name).unwrap_or_else(|| Facts::guessed(name));
        let mut backing = facts.backing;
        let medium = |name: &str, rotational| media(settings, name, rotational);
        let mut media = medium(name, facts.rotational());
        let mut leaves = Vec::new();
        if facts.class.is_stacked() {
            let under = under_device(roots, name);
            backing = under.backing;
            let mut kinds = under.devices.iter().map(|d| medium(&d.name, d.rotational));
            let first = kinds.next().flatten();
            media = media.or_else(|| first.filter(|kind| kinds.all(|k| k == Some(*kind))));
            leaves = under.devices.into_iter().map(|device| device.name).collect();
        }
        // A loop whose file lies on no known disk carries itself.
        let leaf = matches!(facts.class, Class::Disk | Class::Multipath) || leaves == [name];
        leaves.retain(|leaf| leaf != name);
        match facts.class {
            Class::Multipath => leaves = facts.slaves.clone(),
            Class::Disk => leaves = nvme_paths(roots, name),
            _ => {}
        }
        let mut related: Vec<Label> = leaves.iter().map(|l| l.as_str().into()).collect();
        related.push(name.into());
        if facts.class == Class::Path {
            let dir = directory(roots, name).unwrap_or_default();
            related.extend(entries(&dir.join("holders")).iter().map(|h| Label::from(h.as_str())));
        }
        let text = |value: &Option<String>| value.as_deref().unwrap_or_default().into();
        let info = [
            name.into(),
            media.map_or("unknown", media_label).into(),
            backing_label(backing).into(),
            facts.transport.into(),
            text(&facts.model),
            text(&facts.scheduler),
            text(&facts.write_cache),
            text(&facts.dm_name),
            text(&facts.identity),
        ];
        let (phrase, note) = words(name, &facts, media, &leaves);
        let note = refusal(roots, name)
            .map(|fault| format!("{name}: its facts can't be read: {fault}"))
            .or(note);
        let leaves = leaves.iter().map(|leaf| leaf.as_str().into()).collect();
        let facts = Facts { backing, ..facts };
        let slots = directory(roots, name).filter(|_| leaf).and_then(|dir| slots(&dir));
        Self { facts, media, leaf, slots, info, leaves, related, phrase: phrase.into(), note }
    }

    pub(super) fn name(&self) -> &str {
        &self.info[0]
    }

    /// A disk that others stand on; the guard looks at these.
    pub(super) fn is_leaf(&self) -> bool {
        self.leaf
    }

    /// Whole disks and stacks; loops and zram only while there is something in them. Paths to a
    /// disk that has a node of its own would count it twice.
    pub(super) fn by_class(&self) -> bool {
        let size = self.facts.size;
        match self.facts.class {
            Class::Disk | Class::Multipath | Class::Dm | Class::Md | Class::Stack => {
                size != Some(Bytes(0))
            }
            Class::Loop | Class::Zram => size.is_some_and(|size| size.0 > 0),
            Class::Partition | Class::Path | Class::Ram => false,
        }
    }

    fn rotational(&self) -> Option<bool> {
        self.media.map(|media| media == Media::Hdd)
    }

    /// How long nothing may complete: a spindle spins up, a network retries.
    fn stall_limit(&self) -> Seconds {
        Seconds(match (self.facts.backing, self.facts.transport) {
            (Backing::Network, _) => 10.0,
            (_, "nvme") => 1.0,
            _ => 5.0,
        })
    }
}

/// Declared by the operator, else as the kernel says where it can be trusted.
fn media(settings: &SampleSettings, name: &str, rotational: Option<bool>) -> Option<Media> {
    let declared = settings.disks.get(name).and_then(|disk| disk.media);
    declared.or_else(|| {
        rotational.map(|turns| match turns {
            true => Media::Hdd,
            false if name.starts_with("nvme") => Media::Nvme,
            false => Media::Ssd,
        })
    })
}

fn media_label(media: Media) -> &'static str {
    match media {
        Media::Hdd => "hdd",
        Media::Ssd => "ssd",
        Media::Nvme => "nvme",
    }
}

fn backing_label(backing: Backing) -> &'static str {
    match backing {
        Backing::Local => "local",
        Backing::Network => "network",
        Backing::Memory => "memory",
        Backing::Unknown => "unknown",
    }
}

/// The facts in a phrase, and what to do about what is unknown.
fn words(
    name: &str,
    facts: &Facts,
    media: Option<Media>,
    leaves: &[String],
) -> (String, Option<String>) {
    let uncounted = !facts.counted && facts.backing != Backing::Memory;
    let off = uncounted.then(|| {
        format!("{name}: its queue counts nothing: set /sys/block/{name}/queue/iostats to 1")
    });
    if facts.class.is_stacked() || facts.backing == Backing::Memory {
        let own = facts.dm_name.as_deref().unwrap_or(match facts.class {
            Class::Md => "md array",
            Class::Loop => "loop",
            Class::Zram | Class::Ram => "memory",
            _ => "stack",
        });
        let on = if leaves.is_empty() { "" } else { " on " };
        return (format!("{own}{on}{}", leaves.join(", ")), off);
    }
    let turns = facts.rpm.map_or_else(String::new, |rpm| format!(", {rpm} rpm"));
    if let Some(media) = media {
        return (format!("{}{turns}", media_label(media)), off);
    }
    let claim = match facts.rotational_claim {
        Some(true) => "hdd? ",
        Some(false) => "ssd? ",
        None => "",
    };
    let why = if facts.transport.is_empty() { "no sysfs" } else { facts.transport };
    let note = format!("{name}: medium unknown ({why}): set disks.{name}.media");
    (format!("{claim}({why}: medium unknown)"), off.or(Some(note)))
}

/// Own runs under several names of one disk overlap: the longest stands for all.
pub(super) fn longest(spans: impl Iterator<Item = Seconds>) -> Seconds {
    spans.fold(Seconds(0.0), |a, b| if b > a { b } else { a })
}

/// A device that has no series and no windows, and what would make us look again.
pub(super) struct Ignored {
    pub(super) looked_at: Moment,
    pub(super) absent: u32,
    size: Option<KeptNumber>,
}

impl Ignored {
    pub(super) fn new(roots: &Roots, sheet: &Sheet, at: Moment) -> Self {
        let empty = sheet.facts.size == Some(Bytes(0));
        let dir = directory(roots, sheet.name());
        let size = dir.filter(|_| empty).map(|dir| KeptNumber::new(dir.join("size")));
        Self { looked_at: at, absent: 0, size }
    }

    /// Something was attached to a loop, a reader, or set up on a zram.
    pub(super) fn is_filled(&mut self) -> bool {
        self.size.as_mut().and_then(KeptNumber::read).is_some_and(|size| size > 0)
    }
}

pub(super) fn threshold_label(threshold: f64) -> Label {
    Arc::from(threshold.to_string())
}
