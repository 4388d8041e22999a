//! What CPUs did to a run: time of this worker, of the host, of kernel threads on the way to the
//! disks; what was stolen, and what a cgroup withheld.

use std::path::Path;

use rustix::thread::CpuSet;
use rustix::time::{ClockId, clock_gettime};

use super::kernel::Threads;
use crate::base::legs::waits_at_device;
use crate::base::units::{Ratio, Seconds};
use crate::host::cgroup::CpuGroups;
use crate::host::cpu::{CpuStat, CpuTimes, parse};
use crate::host::roots::{self, Roots};
use crate::model::outcome::{Evidence, Measured, ThreadUse};

/// Reads everything that can be had here.
#[derive(Debug)]
pub struct Cpus {
    groups: CpuGroups,
    /// CPUs that this process may use, by the kernel's number; `None`: all.
    allowed: Option<CpuSet>,
}

/// One reading.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// CPU time of this process.
    process: Seconds,
    /// CPU time of the thread that drives the I/O, of several jobs the first's.
    thread: Seconds,
    host: Option<CpuStat>,
    kernel: Threads,
    /// Time for which the most throttled cgroup of this process was.
    throttled: Option<Seconds>,
}

/// Shares of a run between two readings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shares {
    pub process: Seconds,
    /// Of one CPU, used by the driving thread.
    pub thread: Option<Ratio>,
    pub kernel_thread: Option<ThreadUse>,
    /// Of the CPU that had most of them.
    pub interrupts: Option<Ratio>,
    /// Of the CPUs that this process may use, not idle.
    pub host: Option<Ratio>,
    pub steal: Option<Ratio>,
    pub throttled: Option<Ratio>,
}

/// A thread or CPU that does this much can do no more.
const CPU_SHARE_MAX: f64 = 0.95;
const STEAL_SHARE_MAX: f64 = 0.1;
pub(super) const THROTTLED_SHARE_MAX: f64 = 0.05;
/// Of a cgroup's limit on I/O, from which nothing is left of it.
const IO_LIMIT_SHARE: f64 = 0.95;
/// Ticks are hundredths of a second: shares of fewer say nothing.
const TICKS_MIN: u64 = 50;
const IRQ: usize = 5;
const SOFTIRQ: usize = 6;

/// CPU time of this process so far.
pub(super) fn own_cpu() -> Seconds {
    on_clock(ClockId::ProcessCPUTime)
}

fn on_clock(id: ClockId) -> Seconds {
    let time = clock_gettime(id);
    Seconds(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

impl Cpus {
    pub fn find() -> Self {
        let groups = CpuGroups::of_own(&Roots::default());
        Self { groups, allowed: rustix::thread::sched_getaffinity(None).ok() }
    }

    /// Before a run. Its own clocks are read last: a look at all processes of a large host takes
    /// longer than a small run, and is no part of it. `kernel`: whether its threads are looked at.
    pub fn before(&mut self, procfs: &Path, kernel: bool) -> Reading {
        let around = self.around(procfs, kernel);
        let (process, thread) = (own_cpu(), on_clock(ClockId::ThreadCPUTime));
        Reading { process, thread, ..around }
    }

    /// After a run: its own clocks first.
    pub fn after(&mut self, procfs: &Path, kernel: bool) -> Reading {
        let (process, thread) = (own_cpu(), on_clock(ClockId::ThreadCPUTime));
        Reading { process, thread, ..self.around(procfs, kernel) }
    }

    fn around(&mut self, procfs: &Path, kernel: bool) -> Reading {
        Reading {
            host: roots::read_file(&procfs.join("stat")).ok().and_then(|text| parse(&text).ok()),
            kernel: if kernel { Threads::read(procfs) } else { Threads::default() },
            throttled: self.groups.throttled(),
            ..Reading::default()
        }
    }

    /// What happened from `before` to `after`, `elapsed` later.
    pub fn shares(&self, before: &Reading, after: &Reading, elapsed: Seconds) -> Shares {
        let mut shares = Shares {
            process: Seconds((after.process.0 - before.process.0).max(0.0)),
            thread: Ratio::of((after.thread.0 - before.thread.0).max(0.0), elapsed.0),
            kernel_thread: after.kernel.busiest_since(&before.kernel, elapsed),
            ..Shares::default()
        };
        if let (Some(before), Some(after)) = (&before.host, &after.host) {
            let all = Grown::of(&before.all, &after.all);
            shares.steal = all.share(all.of_fields(&[CpuTimes::STEAL]));
            let allowed = |number: &u32| {
                let number = *number as usize;
                number >= CpuSet::MAX_CPU
                    || self.allowed.as_ref().is_none_or(|set| set.is_set(number))
            };
            let each = before.each.iter().filter(|(number, _)| allowed(number));
            let each: Vec<Grown> = each
                .filter_map(|(number, times)| {
                    let (_, later) = after.each.iter().find(|(n, _)| n == number)?;
                    Some(Grown::of(times, later))
                })
                .collect();
            shares.host = Grown::sum(&each).busy();
            let interrupts = each.iter().filter_map(|g| g.share(g.of_fields(&[IRQ, SOFTIRQ])));
            shares.interrupts = interrupts.max_by(|a, b| a.0.total_cmp(&b.0));
        }
        if let (Some(before), Some(after)) = (before.throttled, after.throttled) {
            shares.throttled = Ratio::of((after.0 - before.0).max(0.0), elapsed.0);
        }
        shares
    }
}

/// CPUs that others fill, or that are stolen, say nothing of a run whose operations waited at the
/// device, or that used up what its cgroup allows.
pub(super) fn is_cpu_limited(evidence: &Evidence, legs: &[Measured]) -> bool {
    let thread = |of: &Option<ThreadUse>| of.as_ref().map(|thread| thread.share);
    let own = [thread(&evidence.thread), thread(&evidence.kernel_thread), evidence.interrupts];
    let above = |share: Option<Ratio>, most: f64| share.is_some_and(|s| s.0 >= most);
    let depth = legs.iter().map(|leg| leg.profile.in_flight_max()).max().map(f64::from);
    let at_device =
        evidence.in_flight.zip(depth).is_some_and(|(n, depth)| waits_at_device(n, depth));
    let used_up = evidence.io_limit.as_ref().is_some_and(|limit| limit.used >= IO_LIMIT_SHARE);
    let had_all = at_device || used_up;
    own.into_iter().any(|share| above(share, CPU_SHARE_MAX))
        || above(evidence.throttled, THROTTLED_SHARE_MAX)
        || !had_all && above(evidence.host_cpu, CPU_SHARE_MAX)
        || !had_all && above(evidence.steal, STEAL_SHARE_MAX)
}

/// Ticks by field between two readings. Steal and idle can step back a little
/// (kernel/sched/cputime.c).
#[derive(Clone, Copy, Debug, Default)]
struct Grown([u64; CpuTimes::FIELDS]);

impl Grown {
    fn of(before: &CpuTimes, after: &CpuTimes) -> Self {
        let mut grown = Self::default();
        for ((grown, before), after) in grown.0.iter_mut().zip(before.0).zip(after.0) {
            *grown = after.saturating_sub(before);
        }
        grown
    }

    fn sum(each: &[Grown]) -> Self {
        let mut sum = Self::default();
        for one in each {
            for (sum, ticks) in sum.0.iter_mut().zip(one.0) {
                *sum = sum.saturating_add(ticks);
            }
        }
        sum
    }

    fn of_fields(&self, fields: &[usize]) -> u64 {
        fields.iter().filter_map(|field| self.0.get(*field)).sum()
    }

    fn share(&self, ticks: u64) -> Option<Ratio> {
        let total: u64 = self.0.iter().sum();
        Ratio::of(ticks as f64, total as f64).filter(|_| total >= TICKS_MIN)
    }

    /// Waiting for I/O is idle: the CPU had nothing to do.
    fn busy(&self) -> Option<Ratio> {
        let idle = self.of_fields(&[CpuTimes::IDLE, CpuTimes::IOWAIT]);
        self.share(idle).map(|idle| Ratio(1.0 - idle.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::measured;
    use crate::probe::disk::{Preset, shape};

    fn reading(stat: &[u8]) -> Reading {
        Reading { host: Some(parse(stat).unwrap()), ..Reading::default() }
    }

    #[test]
    fn a_look_at_all_processes_is_no_part_of_a_run() {
        let procfs = tempfile::tempdir().unwrap();
        for number in 1..3000 {
            let dir = procfs.path().join(number.to_string());
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("stat"), "7 (md0_raid6) S 2 0 0 0 -1 6 0 0 0 0 3 4 0\n")
                .unwrap();
        }
        let mut cpus = Cpus { groups: CpuGroups::default(), allowed: None };
        let begun = on_clock(ClockId::ThreadCPUTime);
        let before = cpus.before(procfs.path(), true);
        let look = Seconds(before.thread.0 - begun.0);
        let after = cpus.after(procfs.path(), true);
        let billed = cpus.shares(&before, &after, Seconds(1.0)).thread.unwrap();
        assert!(billed.0 < look.0 / 10.0, "{billed} of a second, and a look takes {look}");
        let short = cpus.before(procfs.path(), false);
        assert_eq!(short.kernel, Threads::default());
    }

    #[test]
    fn steal_is_of_all_ticks_and_the_rest_of_the_cpus_that_may_be_used() {
        let before = reading(b"cpu 100 0 100 800 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0\n");
        let after = reading(
            b"cpu 150 0 110 820 0 0 0 20\ncpu0 10 0 10 30 0 0 50 0\ncpu1 100 0 0 0 0 0 0 0\n",
        );
        let mut only_first = CpuSet::new();
        only_first.set(0);
        let of = |allowed| {
            let cpus = Cpus { groups: CpuGroups::of_own(&nowhere()), allowed };
            cpus.shares(&before, &after, Seconds(1.0))
        };
        let shares = of(Some(only_first));
        assert_eq!(shares.steal, Some(Ratio(0.2)));
        assert_eq!((shares.host, shares.interrupts), (Some(Ratio(0.7)), Some(Ratio(0.5))));
        assert_eq!(of(None).host, Some(Ratio(0.85)));
        let cpus = Cpus { groups: CpuGroups::of_own(&nowhere()), allowed: None };
        let none = cpus.shares(&before, &before, Seconds(1.0));
        assert_eq!((none.steal, none.host, none.interrupts), (None, None, None));
    }

    fn nowhere() -> Roots {
        Roots { procfs: "/no".into(), sysfs: "/no".into(), rootfs: "/".into() }
    }

    #[test]
    fn this_process_uses_cpu() {
        let mut cpus = Cpus::find();
        let before = cpus.before(Path::new("/proc"), true);
        let sum: u64 = (0..5_000_000_u64).fold(0, |sum, n| std::hint::black_box(sum ^ n));
        let after = cpus.after(Path::new("/proc"), true);
        let shares = cpus.shares(&before, &after, Seconds(1.0));
        assert!(shares.process.0 > 0.0 && shares.thread.unwrap().0 > 0.0, "{sum}");
    }

    #[test]
    fn each_cpu_limit_counts_by_itself() {
        let thread = |share| Some(ThreadUse { name: "x".into(), share: Ratio(share) });
        let none =
            Evidence { host_cpu: Some(Ratio(0.9)), thread: thread(0.9), ..Evidence::default() };
        assert!(!is_cpu_limited(&none, &[]));
        for evidence in [
            Evidence { thread: thread(0.96), ..none.clone() },
            Evidence { kernel_thread: thread(0.95), ..none.clone() },
            Evidence { interrupts: Some(Ratio(0.99)), ..none.clone() },
            Evidence { host_cpu: Some(Ratio(0.97)), ..none.clone() },
            Evidence { steal: Some(Ratio(0.11)), ..none.clone() },
            Evidence { throttled: Some(Ratio(0.06)), ..none.clone() },
        ] {
            assert!(is_cpu_limited(&evidence, &[]), "{evidence:?}");
        }
    }

    #[test]
    fn cpus_that_others_fill_hold_no_run_back_that_waits_at_the_device() {
        let legs = [measured(shape(Preset::RandRead).legs.remove(0))];
        let depth = f64::from(legs[0].profile.in_flight_max());
        let of = |in_flight, thread| {
            let share = Ratio(thread);
            let evidence = Evidence {
                host_cpu: Some(Ratio(1.0)),
                steal: Some(Ratio(0.25)),
                thread: Some(ThreadUse { name: "x".into(), share }),
                in_flight: Some(in_flight),
                ..Evidence::default()
            };
            is_cpu_limited(&evidence, &legs)
        };
        assert!(!of(0.97 * depth, 0.04));
        assert!(of(0.5 * depth, 0.04), "nothing says where they waited");
        assert!(of(0.97 * depth, 0.97), "its own thread was at its end");
    }
}
