//! What leaf disks do between two instants, from their `stat` files in sysfs.

use std::path::Path;

use crate::base::clock::{Clock, Moment, SystemClock};
use crate::base::counter::grown32;
use crate::base::units::{Bytes, Seconds};
use crate::host::{disks, roots};
use crate::model::job::Device;
use crate::model::load::{DiskCounters, DiskLoad};
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

fn read(stat: &Path) -> Option<DiskCounters> {
    disks::stat(roots::attribute(stat)?.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Ratio;

    const STAT: &str = " 100 1 800 50 200 2 1600 90 0 70 140 3 0 8 1 5 20\n";

    fn sda(stat: &Path) -> Device {
        Device { name: "sda".into(), stat: stat.to_path_buf(), rotational: None }
    }

    #[test]
    fn a_stat_file_gives_bytes_and_queue() {
        let before = disks::stat(STAT.as_bytes()).unwrap();
        let after =
            disks::stat("110 1 880 550 200 2 1616 590 0 1070 1140 3 0 8 1 6 520".as_bytes())
                .unwrap();
        let used = used(&sda(Path::new("")), &before, &after, Seconds(2.0)).unwrap();
        assert_eq!((used.read_bytes, used.written_bytes), (Bytes(80 * 512), Bytes(16 * 512)));
        assert_eq!((used.reads.completed, used.writes.completed), (10, 0));
        assert_eq!((used.busy, used.queue), (Ratio(0.5), 0.75));
        assert_eq!(used.flush, Some(Seconds(0.5)));
    }

    #[test]
    fn old_kernels_have_fewer_columns_and_fell_counters_no_use() {
        let old = disks::stat("1 2 3 4 5 6 7 8 9 10 11".as_bytes()).unwrap();
        assert_eq!((old.discards, old.flushes), (None, None));
        assert_eq!(disks::stat("1 2 3".as_bytes()), None);
        assert_eq!(
            used(&sda(Path::new("")), &disks::stat(STAT.as_bytes()).unwrap(), &old, Seconds(1.0)),
            None
        );
    }

    #[test]
    fn a_disk_that_is_gone_is_left_out() {
        let gone = Device { name: "sdz".into(), stat: "/no/stat".into(), rotational: None };
        let window = Window::open(&[gone]);
        assert!(!window.sees_all());
        assert_eq!(window.busiest(), None);
    }
}
