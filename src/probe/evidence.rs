//! What else was true while a run went on: its devices, the load of others, CPU; and the flags that
//! follow. Device bytes minus the probe's own tell nothing of others: splitting, journals and
//! read-modify-write make a disk move several times what was asked. So others are seen in quiet.

use std::time::Duration;

use super::cpu::{Cpus, Reading, Shares, THROTTLED_SHARE_MAX, is_cpu_limited, own_cpu};
use super::threads::Threads;
use crate::base::stats::variation;
use crate::base::units::{Bytes, Ratio, Seconds};
use crate::host::block;
use crate::host::cgroup_io::IoLimits;
use crate::host::mountinfo::Mounts;
use crate::host::roots::Roots;
use crate::host::sys;
use crate::model::evidence::DEVICES_MAX;
use crate::model::job::{Device, Run};
use crate::model::outcome::{
    Cost, DeviceUse, Evidence, Flags, IoLimit, Limited, Measured, ThreadUse, per_second,
};
use crate::model::spread::ProcessUse;
use crate::workload::Watch;
use crate::workload::devices::Window;
use crate::workload::drive::Moved;

/// Others move more than this share of the run's bytes: the result is theirs too.
const FOREIGN_SHARE_MAX: f64 = 0.1;
/// Less than this share of the probe's bytes reached the disks: something above answered.
const DEVICE_SHARE_MIN: f64 = 0.5;
/// A run shorter than this teaches no ceiling. One of a second ends with its last operation, which may
/// come just before.
pub(super) const SHORT_SECONDS: f64 = 0.99;
/// A variation over fewer intervals is chance.
const INTERVALS_MIN: usize = 10;
/// How soon a quiet window ends when asked to stop.
const SLICE: Duration = Duration::from_millis(50);

/// Open while legs run: from when the first is ready until the last has ended.
pub(super) struct Observer<'a> {
    run: &'a Run,
    leaves: Window,
    top: Window,
    limits: IoLimits,
    cpus: Cpus,
    /// Whether it may last long enough for shares of threads to say something.
    lasts: bool,
    threads: Option<Threads>,
    cpu: Reading,
}

/// What was seen of some legs; of the load of others only what can be seen meanwhile.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) evidence: Evidence,
    /// Bytes a second of the legs themselves.
    own: f64,
    /// Bytes a second that the leaf disks wrote.
    written: f64,
}

impl<'a> Observer<'a> {
    /// `lasts`: not where a few operations are the whole of it.
    pub(super) fn begin(run: &'a Run, lasts: bool) -> Self {
        let mut cpus = Cpus::find();
        Self {
            limits: IoLimits::of_own(&Roots::default()),
            threads: if lasts { Threads::watch() } else { None },
            cpu: cpus.before(&run.procfs, lasts),
            cpus,
            lasts,
            leaves: Window::open(&run.devices),
            top: Window::open(&run.top),
            run,
        }
    }

    /// What was true while `legs` were measured, which moved `moved` with all that isn't counted.
    pub(super) fn finish(mut self, legs: &[Measured], moved: &Moved) -> Seen {
        let elapsed = self.leaves.elapsed();
        let (leaves, top) = (self.leaves.so_far(), self.top.so_far());
        let later = self.cpus.after(&self.run.procfs, self.lasts);
        let shares = self.cpus.shares(&self.cpu, &later, elapsed);
        let threads = self.threads.take();
        let mut evidence = Evidence {
            cpu: Some(per_second(shares.process.0, elapsed)),
            thread: threads.and_then(Threads::busiest).or_else(|| driving(&shares)),
            kernel_thread: shares.kernel_thread,
            interrupts: shares.interrupts,
            host_cpu: shares.host,
            steal: shares.steal,
            throttled: shares.throttled,
            io_limit: self.limit(leaves.iter().chain(&top), elapsed),
            ..Evidence::default()
        };
        regularity(legs, &mut evidence);
        if moved.written.0 > 0 {
            evidence.flush_share = flush_share(legs, [&top, &leaves], elapsed);
            let sum = total(&top, |d| d.written_bytes);
            let all_seen = self.top.sees_all() && top.len() == self.run.top.len() && sum > 0;
            evidence.top_write_amplification =
                all_seen.then(|| sum as f64 / moved.written.0 as f64);
        }
        let written = total(&leaves, |d| d.written_bytes);
        if self.leaves.sees_all() && leaves.len() == self.run.devices.len() {
            at_leaves(&leaves, moved, &mut evidence);
        }
        evidence.devices = self.shown(leaves, &self.run.devices);
        evidence.top = self.shown(top, &self.run.top);
        let own = per_second((moved.read.0 + moved.written.0) as f64, elapsed);
        evidence.slots = evidence.devices.iter().map(|d| d.slots).sum::<Option<u32>>();
        evidence.slots = evidence.slots.filter(|_| !evidence.devices.is_empty());
        Seen { evidence, own, written: per_second(written as f64, elapsed) }
    }

    /// The limit that was used most.
    fn limit<'d>(
        &self,
        used: impl Iterator<Item = &'d DeviceUse>,
        elapsed: Seconds,
    ) -> Option<IoLimit> {
        let devices = self.run.devices.iter().chain(&self.run.top);
        let of = |used: &DeviceUse| {
            let directory = devices.clone().find(|d| d.name == used.device)?.stat.parent()?;
            let limits = self.limits.on(directory).map(|(limited, limit)| {
                let amount = match limited {
                    Limited::ReadBytes => used.read_bytes.0,
                    Limited::WriteBytes => used.written_bytes.0,
                    Limited::ReadOperations => used.reads.completed,
                    Limited::WriteOperations => used.writes.completed,
                };
                let (device, limit) = (used.device.clone(), limit as f64);
                IoLimit { device, limited, limit, used: per_second(amount as f64, elapsed) / limit }
            });
            limits.max_by(|a, b| a.used.total_cmp(&b.used))
        };
        used.filter_map(of).max_by(|a, b| a.used.total_cmp(&b.used))
    }

    /// The busiest, as many as a line on the wire has room for, with their slots.
    fn shown(&self, mut used: Vec<DeviceUse>, devices: &[Device]) -> Vec<DeviceUse> {
        if used.len() > DEVICES_MAX {
            used.sort_by(|a, b| b.busy.0.total_cmp(&a.busy.0));
            used.truncate(DEVICES_MAX);
        }
        for device in &mut used {
            let known = devices.iter().find(|known| known.name == device.device);
            device.slots = known.and_then(|known| block::slots(known.stat.parent()?));
        }
        used
    }
}

fn total(devices: &[DeviceUse], of: fn(&DeviceUse) -> Bytes) -> u64 {
    devices.iter().map(|d| of(d).0).fold(0, u64::saturating_add)
}

/// What the leaves say, all of them seen.
fn at_leaves(leaves: &[DeviceUse], moved: &Moved, evidence: &mut Evidence) {
    let share = |at_devices: u64, own: Bytes| (own.0 > 0).then(|| at_devices as f64 / own.0 as f64);
    evidence.write_amplification = share(total(leaves, |d| d.written_bytes), moved.written);
    evidence.device_read_share = share(total(leaves, |d| d.read_bytes), moved.read);
    evidence.in_flight = Some(leaves.iter().map(|d| d.queue).sum());
    // A closed loop has requests waiting at any time: what no disk works on waits above the disks.
    let busiest = leaves.iter().map(|d| d.busy.0).fold(0.0, f64::max);
    evidence.idle = Some(Ratio(1.0 - busiest));
}

/// Where threads can't be told apart, the one that drives the I/O.
fn driving(shares: &Shares) -> Option<ThreadUse> {
    shares.thread.map(|share| ThreadUse { name: "task".into(), share })
}

/// How much the rates of a single leg vary.
fn regularity(legs: &[Measured], evidence: &mut Evidence) {
    let [leg] = legs else { return };
    let intervals = leg.rates.len();
    if intervals >= INTERVALS_MIN {
        let rates: Vec<f64> = leg.rates.iter().map(|rate| f64::from(*rate)).collect();
        evidence.rate_cv = variation(&rates);
        evidence.interval_operations = Some(leg.operations() as f64 / intervals as f64);
    }
}

/// Time that the topmost device that tells spent in flushes, without the final one.
fn flush_share(legs: &[Measured], levels: [&[DeviceUse]; 2], elapsed: Seconds) -> Option<Ratio> {
    let longest = |devices: &[DeviceUse]| {
        devices.iter().filter_map(|d| d.flush).map(|time| time.0).reduce(f64::max)
    };
    let flushed = levels.into_iter().find_map(longest)?;
    let last: f64 = legs.iter().filter_map(|leg| leg.flush).map(|time| time.0).sum();
    Ratio::of((flushed - last).max(0.0), elapsed.0 - last)
}

/// Bytes a second that others moved before a run, and after it where that can be told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Around {
    before: Option<f64>,
    after: Option<f64>,
}

impl Around {
    pub(super) fn begin(run: &Run, watch: &dyn Watch) -> Self {
        Self { before: quiet(run, watch), after: None }
    }

    /// What follows writes is the run's own writeback: nothing is learned from it.
    pub(super) fn end(&mut self, run: &Run, moved: &Moved, watch: &dyn Watch) {
        if moved.written.0 == 0 && self.before.is_some() {
            self.after = quiet(run, watch);
        }
    }

    /// Completes what was seen of legs by the share of others.
    pub(super) fn complete(&self, mut seen: Seen) -> Evidence {
        let foreign = self.before.map(|before| match self.after {
            // Reads write nothing.
            Some(after) => (before + after) / 2.0 + seen.written,
            None => before,
        });
        let share = foreign.filter(|_| seen.own > 0.0).map(|bytes| bytes / seen.own);
        seen.evidence.foreign_share = share;
        seen.evidence
    }
}

/// Bytes a second on the leaf disks while this run does nothing; `None` where it can't be seen.
fn quiet(run: &Run, watch: &dyn Watch) -> Option<f64> {
    let window = Window::open(&run.devices);
    if run.quiet.0 <= 0.0 || !window.sees_all() {
        return None;
    }
    while window.elapsed() < run.quiet {
        if watch.stopped() {
            return None;
        }
        let rest = Seconds(run.quiet.0 - window.elapsed().0).duration();
        std::thread::sleep(rest.min(SLICE));
    }
    let devices = window.so_far();
    let bytes: u64 = devices.iter().map(|d| d.read_bytes.0 + d.written_bytes.0).sum();
    (devices.len() == run.devices.len()).then(|| per_second(bytes as f64, window.elapsed()))
}

/// What a whole run costs its host, from before the first leg.
pub(super) struct Bill {
    leaves: Window,
    cpu: Seconds,
    process: ProcessUse,
}

impl Bill {
    pub(super) fn open(run: &Run) -> Self {
        Self { leaves: Window::open(&run.devices), cpu: own_cpu(), process: sys::usage() }
    }

    pub(super) fn cost(self, moved: &Moved) -> Cost {
        let written = total(&self.leaves.so_far(), |d| d.written_bytes);
        let at_devices = if moved.written.0 > 0 { written } else { 0 };
        Cost {
            read_bytes: moved.read,
            written_bytes: Bytes(moved.written.0.max(at_devices)),
            cpu: Seconds((own_cpu().0 - self.cpu.0).max(0.0)),
            process: sys::usage().since(&self.process),
        }
    }
}

/// Validity of a run by its legs and what was seen; `of_length` where a run may be too short.
pub(super) fn flags(
    evidence: &Evidence,
    legs: &[Measured],
    prefilled: Option<bool>,
    of_length: bool,
) -> Flags {
    let shares = [evidence.device_read_share, evidence.write_amplification];
    let reached = shares.into_iter().flatten().reduce(f64::min);
    let steady: Option<Vec<bool>> = legs.iter().map(|leg| leg.steady).collect();
    Flags {
        direct: (!legs.is_empty()).then(|| legs.iter().all(|leg| leg.direct)),
        prefilled,
        steady: steady.filter(|all| of_length && !all.is_empty()).map(|all| !all.contains(&false)),
        cached: reached.map(|share| share < DEVICE_SHARE_MIN),
        contended: evidence.foreign_share.map(|share| share > FOREIGN_SHARE_MAX),
        cpu_limited: Some(is_cpu_limited(evidence, legs)),
        throttled: evidence.throttled.map(|share| share.0 > THROTTLED_SHARE_MAX),
        short: of_length.then(|| legs.iter().any(|leg| leg.elapsed.0 < SHORT_SECONDS)),
    }
}

/// GlusterFS takes direct I/O and gives it to its caches all the same, unless the volume has
/// `performance.strict-o-direct`, which a client can't see.
pub(super) fn doubt_direct(run: &Run, flags: &mut Flags) {
    let roots = Roots { procfs: run.procfs.clone(), ..Roots::default() };
    let on_gluster = || {
        let path = run.target.place.path().canonicalize().ok()?;
        let mounts = Mounts::read(&roots).ok()?;
        Some(mounts.covering(&path)?.filesystem == "fuse.glusterfs")
    };
    if flags.direct == Some(true) && on_gluster() == Some(true) {
        flags.direct = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::outcome::Direction;
    use crate::model::samples::measured;
    use crate::probe::disk::{Preset, shape};
    use crate::workload::testing::run_in;

    fn flags_of(evidence: &Evidence) -> Flags {
        flags(evidence, &[], None, true)
    }

    #[test]
    fn direct_io_on_gluster_is_neither_true_nor_false() {
        let procfs = tempfile::tempdir().unwrap();
        std::fs::create_dir(procfs.path().join("self")).unwrap();
        let run = Run { procfs: procfs.path().into(), ..run_in(procfs.path(), Bytes(0), vec![]) };
        for (filesystem, direct) in [("fuse.glusterfs", None), ("xfs", Some(true))] {
            let line = format!("1 0 0:9 / / rw - {filesystem} a:/v rw\n");
            std::fs::write(procfs.path().join("self/mountinfo"), line).unwrap();
            let mut flags = Flags { direct: Some(true), ..Flags::default() };
            doubt_direct(&run, &mut flags);
            assert_eq!(flags.direct, direct, "{filesystem}");
        }
    }

    #[test]
    fn reads_that_no_disk_saw_are_cached() {
        // 584,000/s from ARC while the pool's disks did nothing.
        let arc = Evidence { device_read_share: Some(0.0), ..Evidence::default() };
        assert_eq!(flags_of(&arc).cached, Some(true));
        let mix = Evidence {
            device_read_share: Some(1.0),
            write_amplification: Some(0.1),
            ..Evidence::default()
        };
        assert_eq!(flags_of(&mix).cached, Some(true));
        let unseen = flags_of(&Evidence::default());
        assert_eq!((unseen.cached, unseen.contended, unseen.direct), (None, None, None));
    }

    #[test]
    fn a_tenth_by_others_is_contention() {
        let of = |share| {
            let evidence = Evidence { foreign_share: Some(share), ..Evidence::default() };
            flags_of(&evidence).contended
        };
        assert_eq!((of(0.05), of(0.2)), (Some(false), Some(true)));
    }

    #[test]
    fn reads_are_judged_by_the_quiet_on_both_sides_and_writes_by_that_before() {
        let seen = || Seen { own: 100.0, written: 3.0, ..Seen::default() };
        let share = |before, after| Around { before, after }.complete(seen()).foreign_share;
        assert_eq!(share(Some(4.0), Some(10.0)), Some(0.1));
        assert_eq!(share(Some(4.0), None), Some(0.04), "what is written is the run's own");
        assert_eq!(share(None, None), None);
    }

    fn leg(rates: &[f32], flush: Option<f64>) -> Measured {
        let operations = (rates.iter().sum::<f32>() / 10.0) as u64;
        Measured {
            elapsed: Seconds(rates.len() as f64 / 10.0),
            writes: Direction { operations, ..Direction::default() },
            flush: flush.map(Seconds),
            rates: rates.to_vec(),
            ..measured(shape(Preset::RandWrite).legs.remove(0))
        }
    }

    #[test]
    fn the_rates_of_one_leg_tell_how_regular_it_was() {
        let mut evidence = Evidence::default();
        regularity(&[leg(&[1000.0; 20], None)], &mut evidence);
        assert_eq!((evidence.rate_cv, evidence.interval_operations), (Some(0.0), Some(100.0)));
        let mut evidence = Evidence::default();
        regularity(&[leg(&[1000.0; 5], None)], &mut evidence);
        assert_eq!((evidence.rate_cv, evidence.interval_operations), (None, None));
    }

    #[test]
    fn the_final_flush_is_no_part_of_the_share_of_flushes() {
        let device = |flush| DeviceUse { flush: Some(Seconds(flush)), ..DeviceUse::default() };
        let share = |final_flush, top: &[DeviceUse], leaves: &[DeviceUse]| {
            flush_share(&[leg(&[1.0], final_flush)], [top, leaves], Seconds(2.0))
        };
        assert_eq!(share(Some(1.0), &[device(1.0)], &[device(2.0)]), Some(Ratio(0.0)));
        assert_eq!(share(Some(1.0), &[], &[device(0.1), device(1.5)]), Some(Ratio(0.5)));
        assert_eq!(share(None, &[device(1.0)], &[]), Some(Ratio(0.5)));
        assert_eq!(share(None, &[DeviceUse::default()], &[]), None, "the kernel doesn't tell");
    }
}
