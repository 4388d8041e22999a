//! What leaf disks do between two instants, from their `stat` files in sysfs.

use std::path::Path;

use crate::base::clock::{Clock, Moment, SystemClock};
use crate::base::counter::grown32;
use crate::base::units::{Bytes, Seconds};
use crate::host::block::entries;
use crate::host::roots;
use crate::model::job::Device;
use crate::model::load::{Discards, DiskCounters, DiskLoad, Flushes};
use crate::model::outcome::DeviceUse;
use crate::model::spread::Requests;

/// Counters of some disks at the instant at which the window was opened.
#[derive(Clone, Debug)]
pub struct Window {
    opened: Moment,
    disks: Vec<(Device, Option<DiskCounters>)>,
}

impl Window {
    pub fn open(devices: &[Device]) -> Self {
        let disks = devices.iter().map(|d| (d.clone(), read(&d.stat))).collect();
        Self { opened: SystemClock.now(), disks }
    }

    /// What each disk did since; disks that can't be read, or whose counters fell, are left out.
    pub fn so_far(&self) -> Vec<DeviceUse> {
        let now = SystemClock.now();
        self.disks
            .iter()
            .filter_map(|(device, before)| {
                let after = read(&device.stat)?;
                used(device, before.as_ref()?, &after, now.since(self.opened))
            })
            .collect()
    }

    pub fn busiest(&self) -> Option<DeviceUse> {
        self.so_far().into_iter().max_by(|a, b| a.busy.0.total_cmp(&b.busy.0))
    }

    /// True when every disk of the window could be read at its start.
    pub fn sees_all(&self) -> bool {
        !self.disks.is_empty() && self.disks.iter().all(|(_, before)| before.is_some())
    }

    pub fn elapsed(&self) -> Seconds {
        SystemClock.now().since(self.opened)
    }
}

fn used(
    device: &Device,
    before: &DiskCounters,
    after: &DiskCounters,
    window: Seconds,
) -> Option<DeviceUse> {
    let load = DiskLoad::between(before, after, window).ok()?;
    let flushed = before.flushes.zip(after.flushes);
    let requests = |of: fn(&DiskCounters) -> (u64, u64, u64)| {
        let ((completed, merged, ms), before) = (of(after), of(before));
        Requests {
            completed: completed.saturating_sub(before.0),
            merged: merged.saturating_sub(before.1),
            time: Seconds(grown32(before.2, ms) as f64 / 1e3),
        }
    };
    Some(DeviceUse {
        device: device.name.clone(),
        busy: load.busy,
        queue: load.queue,
        read_bytes: Bytes(after.sectors_read.saturating_sub(before.sectors_read) * 512),
        written_bytes: Bytes(after.sectors_written.saturating_sub(before.sectors_written) * 512),
        reads: requests(|c| (c.reads, c.reads_merged, c.read_ms)),
        writes: requests(|c| (c.writes, c.writes_merged, c.write_ms)),
        queue_time: Seconds(load.queue * window.0),
        flush: flushed.map(|(b, a)| Seconds(grown32(b.ms, a.ms) as f64 / 1000.0)),
        rotational: device.rotational,
        slots: None,
    })
}

/// Written in zones, in order only (Documentation/ABI/stable/sysfs-block, `queue/zoned`).
pub fn is_zoned(device: &Device) -> bool {
    let zoned = device.stat.parent().and_then(|dir| roots::attribute(&dir.join("queue/zoned")));
    zoned.is_some_and(|kind| !kind.is_empty() && kind != "none")
}

/// Requests that a disk takes at once: what its queues have tags for (block/blk-mq-sysfs.c), and of
/// SCSI what the disk was found to bear. `None` where its driver tells neither.
pub fn slots(device: &Device) -> Option<u32> {
    slots_in(device.stat.parent()?)
}

/// [`slots`] of the device whose directory in sysfs this is.
pub fn slots_in(dir: &Path) -> Option<u32> {
    let number = |path: &Path| roots::attribute(path)?.parse::<u32>().ok();
    let tags = |queue: String| number(&dir.join("mq").join(queue).join("nr_tags"));
    let queues = entries(&dir.join("mq"));
    let tags: Option<u32> = queues.into_iter().map(tags).sum::<Option<u32>>().filter(|n| *n > 0);
    let requests = tags.or_else(|| number(&dir.join("queue/nr_requests")));
    let borne = number(&dir.join("device/queue_depth"));
    [requests, borne].into_iter().flatten().filter(|n| *n > 0).min()
}

fn read(stat: &Path) -> Option<DiskCounters> {
    parse(&roots::attribute(stat)?)
}

/// One line of Documentation/block/stat.rst: 11 fields, then discards (4.18), flushes (5.5).
fn parse(text: &str) -> Option<DiskCounters> {
    let mut fields = text.split_ascii_whitespace().map(|field| field.parse::<u64>().ok());
    let mut next = || fields.next().flatten();
    let mut counters = DiskCounters {
        reads: next()?,
        reads_merged: next()?,
        sectors_read: next()?,
        read_ms: next()?,
        writes: next()?,
        writes_merged: next()?,
        sectors_written: next()?,
        write_ms: next()?,
        in_flight: next()?,
        busy_ms: next()?,
        queue_ms: next()?,
        discards: None,
        flushes: None,
    };
    if let (Some(completed), Some(merged), Some(sectors), Some(ms)) =
        (next(), next(), next(), next())
    {
        counters.discards = Some(Discards { completed, merged, sectors, ms });
    }
    if let (Some(completed), Some(ms)) = (next(), next()) {
        counters.flushes = Some(Flushes { completed, ms });
    }
    Some(counters)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::units::Ratio;

    const STAT: &str = " 100 1 800 50 200 2 1600 90 0 70 140 3 0 8 1 5 20\n";

    fn sda(stat: &Path) -> Device {
        Device { name: "sda".into(), stat: stat.to_path_buf(), rotational: None }
    }

    #[test]
    fn a_stat_file_gives_bytes_and_queue() {
        let before = parse(STAT).unwrap();
        let after = parse("110 1 880 550 200 2 1616 590 0 1070 1140 3 0 8 1 6 520").unwrap();
        let used = used(&sda(Path::new("")), &before, &after, Seconds(2.0)).unwrap();
        assert_eq!((used.read_bytes, used.written_bytes), (Bytes(80 * 512), Bytes(16 * 512)));
        assert_eq!((used.reads.completed, used.writes.completed), (10, 0));
        assert_eq!((used.busy, used.queue), (Ratio(0.5), 0.75));
        assert_eq!(used.flush, Some(Seconds(0.5)));
    }

    #[test]
    fn sysfs_tells_slots_and_zones_of_a_disk() {
        let dir = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let disk = sda(&dir.path().join("stat"));
        assert_eq!(slots(&disk), None);
        file("queue/nr_requests", "256\n");
        assert_eq!(slots(&disk), Some(256), "an old kernel");
        file("mq/0/nr_tags", "64\n");
        file("mq/1/nr_tags", "64\n");
        assert_eq!(slots(&disk), Some(128));
        file("device/queue_depth", "32\n");
        assert_eq!(slots(&disk), Some(32), "NCQ");
        assert!(!is_zoned(&disk));
        file("queue/zoned", "none\n");
        assert!(!is_zoned(&disk));
        file("queue/zoned", "host-aware\n");
        assert!(is_zoned(&disk));
    }

    #[test]
    fn old_kernels_have_fewer_columns_and_fell_counters_no_use() {
        let old = parse("1 2 3 4 5 6 7 8 9 10 11").unwrap();
        assert_eq!((old.discards, old.flushes), (None, None));
        assert_eq!(parse("1 2 3"), None);
        assert_eq!(used(&sda(Path::new("")), &parse(STAT).unwrap(), &old, Seconds(1.0)), None);
    }

    #[test]
    fn a_disk_that_is_gone_is_left_out() {
        let gone = Device { name: "sdz".into(), stat: "/no/stat".into(), rotational: None };
        let window = Window::open(&[gone]);
        assert!(!window.sees_all());
        assert_eq!(window.busiest(), None);
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser(text in ".{0,200}") {
            let _ = parse(&text);
        }
    }
}
