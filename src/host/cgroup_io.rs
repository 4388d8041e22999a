//! Limits on I/O of the control groups that this process is in, by device.

use std::collections::BTreeMap;
use std::path::Path;

use super::cgroup::own_levels;
use super::mountinfo::DeviceNumber;
use super::roots::{Roots, attribute, read_file};
use crate::model::evidence::Limited;

/// What a second may bring on each device: the tightest of all groups from the own one up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoLimits(BTreeMap<(u32, u32, Limited), u64>);

/// File of version 1 (Documentation/admin-guide/cgroup-v1/blkio-controller.rst), and key of `io.max`
/// in version 2 (Documentation/admin-guide/cgroup-v2.rst).
const KINDS: [(Limited, &str, &str); 4] = [
    (Limited::ReadBytes, "blkio.throttle.read_bps_device", "rbps"),
    (Limited::WriteBytes, "blkio.throttle.write_bps_device", "wbps"),
    (Limited::ReadOperations, "blkio.throttle.read_iops_device", "riops"),
    (Limited::WriteOperations, "blkio.throttle.write_iops_device", "wiops"),
];

impl IoLimits {
    /// Those of this process; none where there are none, or they can't be seen.
    pub fn of_own(roots: &Roots) -> Self {
        let mut limits = Self::default();
        for level in own_levels(roots, "blkio") {
            limits.take(&level);
        }
        limits
    }

    fn take(&mut self, group: &Path) {
        for line in text(&group.join("io.max")).lines() {
            let Some((device, keys)) = line.split_once(' ') else { continue };
            for (key, value) in keys.split_whitespace().filter_map(|k| k.split_once('=')) {
                if let Some((limited, ..)) = KINDS.iter().find(|(.., name)| *name == key) {
                    self.add(device, *limited, value);
                }
            }
        }
        for (limited, file, _) in KINDS {
            for line in text(&group.join(file)).lines() {
                if let Some((device, value)) = line.split_once(' ') {
                    self.add(device, limited, value);
                }
            }
        }
    }

    /// What isn't a number is no limit: `max`.
    fn add(&mut self, device: &str, limited: Limited, value: &str) {
        let number = DeviceNumber::parse(device.as_bytes()).zip(value.trim().parse::<u64>().ok());
        let Some((device, value)) = number.filter(|(_, value)| *value > 0) else { return };
        let kept = self.0.entry((device.major, device.minor, limited)).or_insert(value);
        *kept = value.min(*kept);
    }

    /// Limits on the device whose directory in sysfs this is.
    pub fn on<'a>(&'a self, directory: &Path) -> impl Iterator<Item = (Limited, u64)> + use<'a> {
        let number =
            attribute(&directory.join("dev")).and_then(|text| DeviceNumber::parse(text.as_bytes()));
        let is_it = move |major, minor| number == Some(DeviceNumber { major, minor });
        let limits = self.0.iter().filter(move |((major, minor, _), _)| is_it(*major, *minor));
        limits.map(|((.., limited), value)| (*limited, *value))
    }
}

fn text(path: &Path) -> String {
    String::from_utf8(read_file(path).unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Host;
    use super::*;

    fn on(host: &Host, device: &str) -> Vec<(Limited, u64)> {
        IoLimits::of_own(&host.roots()).on(&host.roots().sys(device)).collect()
    }

    #[test]
    fn the_tightest_group_of_version_2_counts_and_max_is_no_limit() {
        let host = Host::new();
        host.file("sys/a/dev", "8:16\n").file("sys/b/dev", "8:0\n");
        host.file("proc/self/cgroup", "0::/pod/c1\n");
        let inner = "8:16 rbps=max wbps=1048576 riops=max wiops=500\n8:32 rbps=1 wbps=1\n";
        host.file("sys/fs/cgroup/pod/c1/io.max", inner);
        host.file("sys/fs/cgroup/pod/io.max", "8:16 rbps=max wbps=max riops=max wiops=120\n");
        let both = [(Limited::WriteBytes, 1_048_576), (Limited::WriteOperations, 120)];
        assert_eq!(on(&host, "a"), both);
        assert_eq!(on(&host, "b"), []);
        assert_eq!(on(&host, "nowhere"), []);
    }

    #[test]
    fn version_1_has_a_file_a_limit() {
        let host = Host::new();
        host.file("sys/a/dev", "7:3\n").file("proc/self/cgroup", "5:blkio:/x\n0::/\n");
        host.file("sys/fs/cgroup/blkio/x/blkio.throttle.read_iops_device", "7:3 300\n7:4 1\n");
        assert_eq!(on(&host, "a"), [(Limited::ReadOperations, 300)]);
    }

    #[test]
    fn no_groups_no_limits() {
        assert_eq!(IoLimits::of_own(&Host::new().roots()), IoLimits::default());
    }
}
