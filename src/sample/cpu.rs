//! CPU: how busy, how much is stolen, how long the own limit held it; and whether on battery.

use super::{Kind, Reading, Sampler, Tick};
use crate::base::clock::Moment;
use crate::base::fault::Fault;
use crate::base::units::{Ratio, Seconds};
use crate::base::window::{Held, Span};
use crate::config::settings::SampleSettings;
use crate::host::cgroup::CpuGroups;
use crate::host::cpu::{CpuGrowth, CpuMeter, CpuStat, CpuTimes, parse};
use crate::host::power::on_battery;
use crate::host::roots::{KeptFile, Roots};
use crate::model::metric::{Desc, push_some};

static UTILIZATION: Desc = Desc::gauge(
    "loadline_cpu_utilization_ratio",
    &[],
    "Share of the last window in which the CPUs neither idled nor waited for I/O; over all CPUs.",
    "/proc/stat",
);
static STEAL: Desc = Desc::gauge(
    "loadline_cpu_steal_ratio",
    &[],
    "Share of the last window that the hypervisor gave to others; over all CPUs.",
    "/proc/stat",
);
static THROTTLED: Desc = Desc::counter(
    "loadline_cpu_throttled_seconds_total",
    &[],
    "Seconds for which the CPU limit of loadline's control group, or of one above it, held it \
     back; absent where there is no limit.",
    "cpu.stat of the own cgroup: throttled_usec, throttled_time",
);

static LIMIT: Desc = Desc::gauge(
    "loadline_cpu_limit_cpus",
    &[],
    "CPUs that loadline's control group, or one above it, may use; absent where there is no limit.",
    "cpu.max; cpu.cfs_quota_us / cpu.cfs_period_us",
);

pub static KIND: Kind = Kind {
    name: "cpu",
    help: "Time of all CPUs: busy, stolen by the hypervisor, withheld by the own limit.",
    descs: &[&UTILIZATION, &STEAL, &THROTTLED, &LIMIT],
    open,
};

fn open(roots: &Roots, settings: &SampleSettings) -> Box<dyn Sampler> {
    Box::new(CpuSampler {
        stat: KeptFile::new(roots.proc("stat")),
        every: settings.every,
        meter: CpuMeter::default(),
        before: None,
        shares: Held::default(),
        slow: Slow::look(roots, None),
        roots: roots.clone(),
    })
}

struct CpuSampler {
    roots: Roots,
    stat: KeptFile,
    every: Seconds,
    meter: CpuMeter,
    before: Option<Moment>,
    shares: Held<Shares>,
    slow: Slow,
}

/// What changes seldom: looked at once a minute.
struct Slow {
    at: Option<Moment>,
    groups: CpuGroups,
    on_battery: bool,
}

impl Slow {
    const EVERY: f64 = 60.0;

    fn look(roots: &Roots, at: Option<Moment>) -> Self {
        Self { at, groups: CpuGroups::of_own(roots), on_battery: on_battery(roots) }
    }

    fn due(&self, now: Moment) -> bool {
        self.at.is_none_or(|at| now.since(at).0 >= Self::EVERY)
    }
}

/// Shares of all CPU time of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Shares {
    busy: Option<Ratio>,
    stolen: Option<Ratio>,
    idle: Option<Ratio>,
}

impl Shares {
    /// A share is absent where a field that it needs is in doubt; a stolen share in doubt takes
    /// only itself away.
    fn of(growth: &CpuGrowth) -> Self {
        let ran: Option<u64> = (0..CpuTimes::FIELDS)
            .filter(|field| *field != CpuTimes::STEAL)
            .map(|field| growth[field])
            .sum();
        let Some(ran) = ran else { return Self::default() };
        let stolen = growth[CpuTimes::STEAL];
        let total = (ran + stolen.unwrap_or(0)) as f64;
        let idle = growth[CpuTimes::IDLE].zip(growth[CpuTimes::IOWAIT]).map(|(i, w)| i + w);
        let idle = idle.and_then(|idle| Ratio::of(idle as f64, total));
        Self {
            busy: idle.map(|Ratio(idle)| Ratio(1.0 - idle)),
            stolen: stolen.and_then(|stolen| Ratio::of(stolen as f64, total)),
            idle,
        }
    }
}

impl CpuSampler {
    fn window(&mut self, at: Moment, stat: &CpuStat) {
        let span = self.before.map(|then| Span::between(then, at, self.every));
        match span {
            Some(Span::Short) => return,
            Some(Span::Good(Seconds(length))) => {
                match self.meter.take(stat.all, length, stat.each.len()) {
                    Some(growth) => self.shares.set(Shares::of(&growth)),
                    None => self.shares.miss(),
                }
            }
            Some(Span::Broken) | None => {
                self.meter.restart(stat.all);
                self.shares.miss();
            }
        }
        self.before = Some(at);
    }
}

impl Sampler for CpuSampler {
    fn read(&mut self, tick: Tick<'_>, out: &mut Reading) -> Result<(), Fault> {
        if self.slow.due(tick.at) {
            self.slow = Slow::look(&self.roots, Some(tick.at));
        }
        out.conditions.on_battery = self.slow.on_battery;
        let stat = parse(self.stat.read()?)?;
        out.rejected += stat.rejected;
        self.window(tick.at, &stat);
        let shares = self.shares.get().copied().unwrap_or_default();
        out.conditions.cpu_idle = shares.idle;
        push_some(&mut out.points, &UTILIZATION, &[], shares.busy.map(|r| r.0));
        push_some(&mut out.points, &STEAL, &[], shares.stolen.map(|r| r.0));
        push_some(&mut out.points, &LIMIT, &[], self.slow.groups.limit);
        let throttled = self.slow.groups.throttled();
        push_some(&mut out.points, &THROTTLED, &[], throttled.map(|s| s.0));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::rig::Rig;
    use super::*;
    use crate::base::fault::FaultKind;

    /// One CPU: user (guest within), idle, iowait, steal.
    fn stat(rig: &Rig, [user, idle, iowait, steal]: [u64; 4]) {
        let times = format!("{user} 0 0 {idle} {iowait} 0 0 {steal} {user} 0");
        rig.host.file("proc/stat", format!("cpu  {times}\ncpu0 {times}\nintr 1 2 3\n"));
    }

    fn near(found: Option<f64>, expected: f64) -> bool {
        found.is_some_and(|f| (f - expected).abs() < 1e-9)
    }

    #[test]
    fn guests_are_counted_once_and_waiting_for_io_is_not_busy() {
        let mut rig = Rig::new(|rig| stat(rig, [1000, 5000, 100, 0]));
        rig.open(&KIND);
        rig.tick();
        assert_eq!(rig.value(UTILIZATION.name), None, "one sample is no window");
        assert_eq!(rig.out.conditions.cpu_idle, None);
        stat(&rig, [1030, 5050, 110, 10]);
        rig.tick();
        assert!(near(rig.value(UTILIZATION.name), 0.4));
        assert!(near(rig.value(STEAL.name), 0.1));
        assert!(near(rig.out.conditions.cpu_idle.map(|r| r.0), 0.6));
    }

    #[test]
    fn a_steal_that_jumps_takes_only_itself_away() {
        let mut rig = Rig::new(|rig| stat(rig, [0, 0, 0, 500]));
        rig.open(&KIND);
        rig.tick();
        stat(&rig, [20, 80, 0, 83_245_743_300]);
        rig.tick();
        assert_eq!(rig.value(STEAL.name), None);
        assert!(near(rig.value(UTILIZATION.name), 0.2));
        stat(&rig, [40, 150, 0, 510]);
        rig.tick();
        assert!(near(rig.value(STEAL.name), 0.1));
    }

    #[test]
    fn a_suspended_host_has_no_window_over_its_sleep() {
        let mut rig = Rig::new(|rig| stat(rig, [0, 0, 0, 0]));
        rig.open(&KIND);
        rig.tick();
        rig.clock.suspend(Duration::from_secs(3600));
        stat(&rig, [100, 0, 0, 0]);
        rig.tick();
        assert_eq!(rig.value(UTILIZATION.name), None);
    }

    #[test]
    fn throttling_is_absent_without_a_limit_and_rises_with_one() {
        let mut rig = Rig::new(|rig| stat(rig, [0, 0, 0, 0]));
        rig.open(&KIND);
        rig.tick();
        assert_eq!(rig.value(THROTTLED.name), None);
        rig.host.file("proc/self/cgroup", "0::/a.service\n");
        rig.host.file("sys/fs/cgroup/a.service/cpu.stat", "throttled_usec 2500000\n");
        rig.host.file("sys/fs/cgroup/a.service/cpu.max", "50000 100000\n");
        rig.clock.advance(Duration::from_secs(60));
        rig.tick();
        assert_eq!(rig.value(LIMIT.name), Some(0.5));
        assert_eq!(rig.value(THROTTLED.name), Some(2.5), "the group is looked up once a minute");
    }

    #[test]
    fn a_hidden_stat_is_a_fault_and_no_idle_machine() {
        let mut rig = Rig::new(|_| ());
        rig.open(&KIND);
        assert_eq!(rig.try_tick().unwrap_err().kind, FaultKind::Missing);
        assert!(rig.out.points.is_empty());
    }

    #[test]
    fn the_guard_is_told_of_a_battery() {
        let mut rig = Rig::new(|rig| {
            stat(rig, [0, 0, 0, 0]);
            rig.host.file("sys/class/power_supply/AC/type", "Mains\n");
            rig.host.file("sys/class/power_supply/AC/online", "0\n");
            rig.host.file("sys/class/power_supply/BAT0/type", "Battery\n");
        });
        rig.open(&KIND);
        rig.tick();
        assert!(rig.out.conditions.on_battery);
        rig.host.file("sys/class/power_supply/AC/online", "1\n");
        rig.clock.advance(Duration::from_secs(60));
        rig.tick();
        assert!(!rig.out.conditions.on_battery);
    }
}
