//! What CPUs did to a run: time of this worker, of the host, stolen, and withheld by a cgroup.

use std::path::{Path, PathBuf};

use rustix::time::{ClockId, clock_gettime};

use crate::base::units::{Ratio, Seconds};
use crate::host::roots;

/// One reading of everything that can be had here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reading {
    /// CPU time of this process.
    process: f64,
    /// CPU time of the thread that drives the I/O.
    thread: f64,
    host: Option<Host>,
    /// Seconds for which the cgroup of this process was throttled.
    throttled: Option<f64>,
}

/// Ticks of the first line of /proc/stat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Host {
    total: u64,
    idle: u64,
    steal: u64,
}

/// Shares of a run between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Shares {
    pub(super) process: Seconds,
    /// Of one CPU, used by the driving thread.
    pub(super) thread: Option<Ratio>,
    /// Of all CPUs, not idle.
    pub(super) host: Option<Ratio>,
    pub(super) steal: Option<Ratio>,
    pub(super) throttled: Option<Ratio>,
}

/// Ticks are hundredths of a second: shares of fewer say nothing.
const TICKS_MIN: u64 = 50;

pub(super) fn take(procfs: &Path, throttle: Option<&Throttle>) -> Reading {
    let seconds = |id| {
        let t = clock_gettime(id);
        t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
    };
    Reading {
        process: seconds(ClockId::ProcessCPUTime),
        thread: seconds(ClockId::ThreadCPUTime),
        host: roots::read_file(&procfs.join("stat")).ok().and_then(|text| host(&text)),
        throttled: throttle.and_then(Throttle::seconds),
    }
}

impl Reading {
    pub(super) fn until(&self, later: &Reading, elapsed: Seconds) -> Shares {
        let mut shares = Shares {
            process: Seconds((later.process - self.process).max(0.0)),
            thread: Ratio::of((later.thread - self.thread).max(0.0), elapsed.0),
            ..Shares::default()
        };
        if let (Some(before), Some(after)) = (self.host, later.host) {
            let total = after.total.saturating_sub(before.total);
            // Steal and idle can step back a little between readings (kernel/sched/cputime.c).
            let share = |b: u64, a: u64| {
                Ratio::of(a.saturating_sub(b) as f64, total as f64).filter(|_| total >= TICKS_MIN)
            };
            shares.steal = share(before.steal, after.steal);
            shares.host = share(before.idle, after.idle).map(|idle| Ratio(1.0 - idle.0));
        }
        if let (Some(before), Some(after)) = (self.throttled, later.throttled) {
            shares.throttled = Ratio::of((after - before).max(0.0), elapsed.0);
        }
        shares
    }
}

/// `cpu  user nice system idle iowait irq softirq steal guest guest_nice`; guest is within user.
fn host(text: &[u8]) -> Option<Host> {
    let line = std::str::from_utf8(text.split(|b| *b == b'\n').next()?).ok()?;
    let mut words = line.split_ascii_whitespace();
    if words.next() != Some("cpu") {
        return None;
    }
    let fields: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
    let at = |i: usize| fields.get(i).copied();
    // Waiting for I/O is idle: the CPU had nothing to do.
    let idle = at(3)?.saturating_add(at(4).unwrap_or(0));
    let total = fields.iter().fold(0_u64, |sum, n| sum.saturating_add(*n));
    Some(Host { total, idle, steal: at(7).unwrap_or(0) })
}

/// The file that says for how long the cgroup of this process was throttled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Throttle(PathBuf);

impl Throttle {
    /// Found through the process's own cgroup and where that hierarchy is mounted.
    pub(super) fn find() -> Option<Self> {
        let text = |path: &str| String::from_utf8(roots::read_file(Path::new(path)).ok()?).ok();
        let (cgroups, mounts) = (text("/proc/self/cgroup")?, text("/proc/self/mountinfo")?);
        let path = locate(&cgroups, &mounts)?;
        let found = Throttle(path);
        found.seconds().map(|_| found)
    }

    fn seconds(&self) -> Option<f64> {
        throttled(&String::from_utf8(roots::read_file(&self.0).ok()?).ok()?)
    }
}

/// `throttled_usec` of cgroup v2, `throttled_time` in nanoseconds of v1.
fn throttled(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        let value = value.trim().parse::<f64>().ok()?;
        match name {
            "throttled_usec" => Some(value / 1e6),
            "throttled_time" => Some(value / 1e9),
            _ => None,
        }
    })
}

/// `cpu.stat` of this process's cgroup: of the v1 hierarchy with the cpu controller, else of v2.
fn locate(cgroups: &str, mounts: &str) -> Option<PathBuf> {
    // `4:cpu,cpuacct:/path` and `0::/path` (cgroups(7)).
    let own = |wanted: &dyn Fn(&str) -> bool| {
        cgroups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let controllers = parts.nth(1)?;
            wanted(controllers).then(|| parts.next())?
        })
    };
    let has_cpu = |list: &str| list.split(',').any(|c| c == "cpu");
    let (path, kind) = match own(&has_cpu) {
        Some(path) => (path, "cgroup"),
        None => (own(&|list: &str| list.is_empty())?, "cgroup2"),
    };
    mounts.lines().find_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, at) = (fields.next()?, fields.next()?);
        let mut source = source.split(' ');
        if source.next()? != kind || (kind == "cgroup" && !has_cpu(source.nth(1)?)) {
            return None;
        }
        let below = path.strip_prefix(root.trim_end_matches('/')).unwrap_or(path);
        Some(Path::new(at).join(below.trim_start_matches('/')).join("cpu.stat"))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn steal_and_idle_are_shares_of_all_ticks() {
        let before = host(b"cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 2 3").unwrap();
        let after = host(b"cpu  150 0 110 820 0 0 0 20 0 0\n").unwrap();
        let reading = |host| Reading { host: Some(host), ..Reading::default() };
        let shares = reading(before).until(&reading(after), Seconds(1.0));
        assert_eq!((shares.steal, shares.host), (Some(Ratio(0.2)), Some(Ratio(0.8))));
        let none = reading(before).until(&reading(before), Seconds(1.0));
        assert_eq!((none.steal, none.host), (None, None));
    }

    #[test]
    fn the_cgroup_is_found_in_both_versions_and_in_containers() {
        let v2 = "30 1 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
        assert_eq!(
            locate("0::/system.slice/loadline.service\n", v2),
            Some("/sys/fs/cgroup/system.slice/loadline.service/cpu.stat".into())
        );
        let v1 = "31 1 0:27 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup \
                  rw,cpu,cpuacct\n";
        assert_eq!(
            locate("5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/x\n", v1),
            Some("/sys/fs/cgroup/cpu,cpuacct/cpu.stat".into())
        );
    }

    #[test]
    fn throttled_time_has_the_unit_of_its_version() {
        assert_eq!(throttled("nr_periods 3\nthrottled_usec 1500000\n"), Some(1.5));
        assert_eq!(throttled("nr_periods 3\nthrottled_time 2000000000\n"), Some(2.0));
        assert_eq!(throttled("usage_usec 1\n"), None);
    }

    #[test]
    fn this_process_uses_cpu() {
        let before = take(Path::new("/proc"), None);
        let sum: u64 = (0..5_000_000_u64).fold(0, |sum, n| std::hint::black_box(sum ^ n));
        let shares = before.until(&take(Path::new("/proc"), None), Seconds(1.0));
        assert!(shares.process.0 > 0.0 && shares.thread.unwrap().0 > 0.0, "{sum}");
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parsers(a in ".{0,200}", b in ".{0,200}") {
            let _ = (locate(&a, &b), throttled(&a), host(b.as_bytes()));
        }
    }
}
