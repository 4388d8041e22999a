//! Disks: /proc/diskstats each tick, sysfs on appearance and once a minute.

mod device;
mod families;
#[cfg(test)]
mod tests;
mod track;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::device::{Disk, Ignored, Sheet};
use self::track::{Taken, Track};
use super::filter::wanted;
use super::{Kind, Reading, Sampler, Tick};
use crate::base::clock::Moment;
use crate::base::fault::Fault;
use crate::base::units::Seconds;
use crate::config::settings::SampleSettings;
use crate::host::block::{Class, refusal};
use crate::host::disks::{Diskstats, Row};
use crate::host::roots::{KeptFile, Roots, attribute};
use crate::model::metric::Label;

pub static KIND: Kind = Kind {
    name: "disk",
    help: "Load of disks and of what is stacked on them, from /proc/diskstats.",
    descs: families::ALL,
    open: |roots, settings| Box::new(Disks::new(roots, settings)),
};

/// Facts are read again after this.
const FACTS_AGE_MAX: Seconds = Seconds(60.0);
/// A device that this many ticks in a row don't list is gone; fewer are a gap in the list.
const ABSENT_MAX: u32 = 3;
/// Devices that are remembered at all, shown or not.
const ENTRIES_MAX: usize = 16_384;

struct Disks {
    file: KeptFile,
    /// When the host was started, in seconds of the boot clock, as its own /proc has it; `None` within
    /// where it doesn't say.
    started: Option<Option<f64>>,
    table: Table,
    threshold: Label,
}

/// Every listed device, by kernel name.
struct Table {
    roots: Roots,
    settings: SampleSettings,
    entries: BTreeMap<Label, Entry>,
}

enum Entry {
    Disk(Box<Disk>),
    Ignored(Ignored),
}

impl Disks {
    fn new(roots: &Roots, settings: &SampleSettings) -> Self {
        Self {
            file: KeptFile::new(roots.proc("diskstats")),
            started: None,
            table: Table {
                roots: roots.clone(),
                settings: settings.clone(),
                entries: BTreeMap::new(),
            },
            threshold: device::threshold_label(families::BUSY_THRESHOLD),
        }
    }
}

impl Disks {
    /// For how long the host is up, time asleep included (fs/proc/uptime.c). Read once.
    fn uptime(&mut self, at: Moment) -> Option<Seconds> {
        let boot = at.boot.as_secs_f64();
        let started = *self.started.get_or_insert_with(|| {
            let text = attribute(&self.table.roots.proc("uptime"))?;
            let uptime: f64 = text.split_whitespace().next()?.parse().ok()?;
            uptime.is_finite().then_some(boot - uptime)
        });
        started.map(|started| Seconds(boot - started))
    }
}

impl Sampler for Disks {
    fn read(&mut self, tick: Tick<'_>, out: &mut Reading) -> Result<(), Fault> {
        let uptime = self.uptime(tick.at);
        let mut rows = Diskstats::new(self.file.read()?);
        self.table.begin();
        for row in rows.by_ref() {
            self.table.take(&row, tick, out);
        }
        out.rejected += rows.rejected();
        self.table.compare_with(uptime);
        self.table.end(tick.at, out);
        self.table.admit(out);
        self.table.publish(&self.threshold, tick.at, out);
        Ok(())
    }
}

impl Table {
    /// Until a row says otherwise, a device is absent in this tick.
    fn begin(&mut self) {
        for entry in self.entries.values_mut() {
            match entry {
                Entry::Disk(disk) => disk.absent += 1,
                Entry::Ignored(ignored) => ignored.absent += 1,
            }
        }
    }

    fn take(&mut self, row: &Row<'_>, tick: Tick<'_>, out: &mut Reading) {
        let name = row.name.as_ref();
        let full = self.entries.len() >= ENTRIES_MAX;
        let known = match self.entries.get_mut(name) {
            None if full => {
                out.dropped_devices += 1;
                true
            }
            None => false,
            Some(Entry::Ignored(ignored)) => {
                ignored.absent = 0;
                !ignored.is_filled()
            }
            Some(Entry::Disk(disk)) => {
                disk.absent = 0;
                let related = &disk.sheet.related;
                let own = |from: Moment, to: Moment| {
                    device::longest(related.iter().map(|name| tick.own.overlap(name, from, to)))
                };
                let moved = disk.track.counters != row.counters;
                let taken = disk.track.take(tick.at, row.counters, own);
                out.rejected += match taken {
                    Taken::Counted(bounded) => bounded,
                    Taken::Rejected => 1,
                    Taken::Replaced => 0,
                };
                taken != Taken::Replaced && !disk.is_replaced(moved)
            }
        };
        if !known {
            self.appear(row, tick.at);
        }
    }

    /// A device that is new, or not the one that it was.
    fn appear(&mut self, row: &Row<'_>, at: Moment) {
        let name = row.name.as_ref();
        let sheet = Sheet::read(&self.roots, &self.settings, name);
        let key = Arc::clone(&sheet.info[0]);
        let entry = if self.is_followed(&sheet) {
            let track = Track::new(at, row.counters, self.settings.every);
            let mut disk = Disk::new(&self.roots, sheet, track, at);
            disk.admitted =
                matches!(self.entries.get(name), Some(Entry::Disk(old)) if old.admitted);
            Entry::Disk(Box::new(disk))
        } else {
            Entry::Ignored(Ignored::new(&self.roots, &sheet, at))
        };
        self.entries.insert(key, entry);
    }

    fn is_shown(&self, sheet: &Sheet) -> bool {
        wanted(&self.settings.disk_filter, sheet.name(), sheet.by_class())
    }

    /// The guard needs the leaves also where nobody wants their series.
    fn is_followed(&self, sheet: &Sheet) -> bool {
        self.is_shown(sheet) || (sheet.is_leaf() && sheet.by_class())
    }

    fn compare_with(&mut self, uptime: Option<Seconds>) {
        for entry in self.entries.values_mut() {
            if let Entry::Disk(disk) = entry {
                disk.track.compare_with(uptime);
            }
        }
    }

    /// Forgets what is gone, and reads the facts of a few again: never all in one tick.
    fn end(&mut self, at: Moment, out: &mut Reading) {
        self.entries.retain(|_, entry| match entry {
            Entry::Disk(disk) => {
                if disk.absent > 0 {
                    disk.track.skip();
                }
                disk.absent < ABSENT_MAX
            }
            Entry::Ignored(ignored) => ignored.absent < ABSENT_MAX,
        });
        let share = 1 + self.entries.len() / 30;
        let due: Vec<Label> = self
            .entries
            .iter()
            .filter(|(_, entry)| {
                let read_at = match entry {
                    Entry::Disk(disk) => disk.facts_at,
                    Entry::Ignored(ignored) => ignored.looked_at,
                };
                at.since(read_at) >= FACTS_AGE_MAX
            })
            .map(|(name, _)| Arc::clone(name))
            .take(share)
            .collect();
        for name in due {
            self.look_again(&name, at, out);
        }
    }

    fn look_again(&mut self, name: &Label, at: Moment, out: &mut Reading) {
        if refusal(&self.roots, name).is_some() {
            // What was known of it holds; the next round asks again.
            out.rejected += 1;
            match self.entries.get_mut(name) {
                Some(Entry::Disk(disk)) => disk.facts_at = at,
                Some(Entry::Ignored(ignored)) => ignored.looked_at = at,
                None => {}
            }
            return;
        }
        let sheet = Sheet::read(&self.roots, &self.settings, name);
        let followed = self.is_followed(&sheet);
        match self.entries.get_mut(name) {
            Some(Entry::Disk(disk)) if followed => {
                disk.know(sheet, at);
            }
            Some(Entry::Ignored(ignored)) if !followed => {
                *ignored = Ignored::new(&self.roots, &sheet, at);
            }
            // It appears anew with the next row.
            _ => {
                self.entries.remove(name);
            }
        }
    }

    /// Gives series to disks up to the cap: first come, first served, so that none comes and goes.
    fn admit(&mut self, out: &mut Reading) {
        let admitted = |entry: &Entry| matches!(entry, Entry::Disk(disk) if disk.admitted);
        let held = self.entries.values().filter(|entry| admitted(entry)).count();
        let mut room = self.settings.devices_max.saturating_sub(held);
        let filter = &self.settings.disk_filter;
        for entry in self.entries.values_mut() {
            let Entry::Disk(disk) = entry else { continue };
            if !wanted(filter, disk.sheet.name(), disk.sheet.by_class()) {
                disk.admitted = false;
            } else if !disk.admitted && room > 0 {
                disk.admitted = true;
                room -= 1;
            } else if !disk.admitted {
                out.dropped_devices += 1;
            }
        }
    }

    fn publish(&self, threshold: &Label, at: Moment, out: &mut Reading) {
        for entry in self.entries.values() {
            let Entry::Disk(disk) = entry else { continue };
            let name = disk.sheet.name();
            if disk.sheet.is_leaf() {
                out.conditions.disks.insert(Arc::clone(disk.label()), disk.condition(at));
            }
            if disk.sheet.facts.class == Class::Md {
                out.conditions.resync |= self.is_resyncing(name);
            }
            if !disk.admitted {
                continue;
            }
            families::points(disk, threshold, &mut out.points);
            disk.notes(&mut out.notes);
            if disk.sheet.is_leaf() {
                out.resources.push(disk.resource());
                out.disks.push(disk.live());
            }
        }
    }

    fn is_resyncing(&self, name: &str) -> bool {
        let action = self.roots.sys("class/block").join(name).join("md/sync_action");
        attribute(&action).is_some_and(|action| action != "idle")
    }
}
