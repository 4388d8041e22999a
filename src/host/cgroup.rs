//! The CPU limit of the control groups this process is in: how long they were throttled.

use std::path::{Component, Path, PathBuf};

use super::roots::{KeptFile, Roots, read_file};
use crate::base::units::Seconds;

/// Time for which a group was throttled, of its `cpu.stat`; `None` where it has no limit to tell of.
///
/// v2 prints `throttled_usec` (Documentation/admin-guide/cgroup-v2.rst), v1 `throttled_time` in
/// nanoseconds (Documentation/scheduler/sched-bwc.rst).
pub fn throttled(text: &[u8]) -> Option<Seconds> {
    text.split(|b| *b == b'\n').find_map(|line| {
        let mut words = std::str::from_utf8(line).ok()?.split_whitespace();
        let per_second = match words.next()? {
            "throttled_usec" => 1e6,
            "throttled_time" => 1e9,
            _ => return None,
        };
        let value: u64 = words.next()?.parse().ok()?;
        Some(Seconds(value as f64 / per_second))
    })
}

/// Where a controller has its group in `text` (/proc/self/cgroup): directories below the cgroup mount
/// to try, and the path of the group in it.
fn group<'a>(text: &'a str, controller: &'a str) -> Option<(Vec<&'a str>, &'a str)> {
    let lines = text.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        Some((parts.next()?, parts.next()?, parts.next()?))
    });
    let mut unified = None;
    for (id, controllers, path) in lines {
        if controllers.split(',').any(|c| c == controller) {
            return Some((vec![controllers, controller], path));
        }
        if id == "0" && controllers.is_empty() {
            unified = Some((vec![""], path));
        }
    }
    unified
}

/// `cpu.stat` of the own group and of each group above it, which can be limited as well.
#[derive(Debug)]
pub struct CpuGroups(Vec<KeptFile>);

impl CpuGroups {
    /// The groups of this process; none where it can't be known.
    pub fn of_own(roots: &Roots) -> Self {
        let files = own_levels(roots, "cpu").into_iter().map(|level| level.join("cpu.stat"));
        Self(files.filter(|f| f.exists()).map(KeptFile::new).collect())
    }

    /// Time for which the most throttled of them was; `None` where none has a limit.
    pub fn throttled(&mut self) -> Option<Seconds> {
        self.0
            .iter_mut()
            .filter_map(|file| throttled(file.read().ok()?))
            .max_by(|a, b| a.0.total_cmp(&b.0))
    }
}

/// Directories of the groups of a controller that this process is in, from its own one up; none where
/// they can't be known.
pub(super) fn own_levels(roots: &Roots, controller: &str) -> Vec<PathBuf> {
    let text = read_file(&roots.proc("self/cgroup")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let Some((mounts, path)) = group(&text, controller) else { return Vec::new() };
    let mut tops = mounts.iter().map(|mount| roots.sys("fs/cgroup").join(mount));
    tops.find(|top| top.is_dir()).map_or_else(Vec::new, |top| levels(&top, path))
}

/// Directories from the group up to the mount. A path out of the mount (another cgroup namespace)
/// and one that isn't mounted here leave the mount itself: in a container that is the own group.
fn levels(top: &Path, path: &str) -> Vec<PathBuf> {
    let relative = Path::new(path.trim_start_matches('/'));
    let inside = relative.components().all(|c| matches!(c, Component::Normal(_)));
    let group = top.join(relative);
    if !inside || !group.is_dir() {
        return vec![top.to_path_buf()];
    }
    group.ancestors().take_while(|p| p.starts_with(top)).map(Path::to_path_buf).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fixture::Host;
    use super::*;

    fn own(host: &Host) -> Option<f64> {
        CpuGroups::of_own(&host.roots()).throttled().map(|s| s.0)
    }

    #[test]
    fn a_nested_group_of_version_2_is_found_by_its_path() {
        let host = Host::new();
        host.file("proc/self/cgroup", "0::/kubepods/pod7/c1\n");
        host.file("sys/fs/cgroup/cpu.stat", "usage_usec 9\nuser_usec 5\n");
        host.file("sys/fs/cgroup/kubepods/pod7/c1/cpu.stat", "usage_usec 9\n");
        assert_eq!(own(&host), None, "no limit, no series");
        host.file(
            "sys/fs/cgroup/kubepods/pod7/c1/cpu.stat",
            "nr_throttled 3\nthrottled_usec 1500000\n",
        );
        assert_eq!(own(&host), Some(1.5));
        host.file(
            "sys/fs/cgroup/kubepods/pod7/cpu.stat",
            "nr_throttled 3\nthrottled_usec 2500000\n",
        );
        assert_eq!(own(&host), Some(2.5), "the group above throttles as well");
    }

    #[test]
    fn version_1_counts_nanoseconds_under_its_controllers_name() {
        let host = Host::new();
        host.file("proc/self/cgroup", "9:name=systemd:/\n4:cpu,cpuacct:/docker/x\n0::/other\n");
        host.file(
            "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.stat",
            "nr_periods 5\nnr_throttled 2\nthrottled_time 250000000\n",
        );
        assert_eq!(own(&host), Some(0.25));
    }

    #[test]
    fn in_a_container_the_mount_is_the_own_group() {
        for path in ["/", "/docker/x", "/../../escaped"] {
            let host = Host::new();
            host.file("proc/self/cgroup", format!("1:cpu:{path}\n"));
            host.file("sys/fs/cgroup/cpu/cpu.stat", "throttled_time 1000000000\n");
            assert_eq!(own(&host), Some(1.0), "{path}");
        }
    }

    #[test]
    fn without_groups_there_is_nothing_to_tell() {
        assert_eq!(own(&Host::new()), None);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in ".{0,300}", bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = group(&text, "cpu").map(|(_, path)| levels(Path::new("/nonexistent"), path));
            let _ = throttled(&bytes);
        }
    }
}
