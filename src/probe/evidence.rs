//! What else was true while a run went on: its devices, the load of others, CPU; and the flags that
//! follow. Device bytes minus the probe's own tell nothing of others: splitting, journals and
//! read-modify-write make a disk move several times what was asked. So others are seen in quiet.

use std::time::Duration;

use super::cpu::{self, Shares, Throttle};
use crate::base::units::{Bytes, Ratio, Seconds};
use crate::host::sys;
use crate::model::job::Run;
use crate::model::outcome::{Cost, DeviceUse, Evidence, Flags, Measured, per_second};
use crate::model::spread::ProcessUse;
use crate::workload::Watch;
use crate::workload::devices::Window;
use crate::workload::drive::Moved;

/// Others move more than this share of the run's bytes: the result is theirs too.
const FOREIGN_SHARE_MAX: f64 = 0.1;
/// Less than this share of the probe's bytes reached the disks: something above answered.
const DEVICE_SHARE_MIN: f64 = 0.5;
const CPU_SHARE_MAX: f64 = 0.95;
const STEAL_SHARE_MAX: f64 = 0.1;
const THROTTLED_SHARE_MAX: f64 = 0.05;
/// A run shorter than this teaches no ceiling.
const SHORT_SECONDS: f64 = 1.0;
/// How soon a quiet window ends when asked to stop.
const SLICE: Duration = Duration::from_millis(50);

/// Open from before the first leg until after the last.
pub struct Observer<'a> {
    run: &'a Run,
    /// Bytes a second that others moved before the run.
    before: Option<f64>,
    window: Window,
    throttle: Option<Throttle>,
    cpu: cpu::Reading,
    process: ProcessUse,
}

/// What a run moved, and what was seen of it.
#[derive(Debug)]
pub struct Seen {
    pub evidence: Evidence,
    /// Cost of the legs; laying out comes on top.
    pub cost: Cost,
    cpu_limited: bool,
}

impl<'a> Observer<'a> {
    /// Watches the quiet before the run, then starts to count.
    pub fn begin(run: &'a Run, watch: &dyn Watch) -> Self {
        let before = quiet(run, watch);
        let throttle = Throttle::find();
        let cpu = cpu::take(&run.procfs, throttle.as_ref());
        let process = sys::usage();
        Self { run, before, window: Window::open(&run.devices), throttle, cpu, process }
    }

    /// Counts what the legs did, which moved `moved`; then watches the quiet after reads.
    pub fn finish(self, moved: &Moved, watch: &dyn Watch) -> Seen {
        let elapsed = self.window.elapsed();
        let devices = self.window.so_far();
        let later = cpu::take(&self.run.procfs, self.throttle.as_ref());
        let shares = self.cpu.until(&later, elapsed);
        let process = sys::usage().since(&self.process);
        let sum = |of: fn(&DeviceUse) -> Bytes| devices.iter().map(|d| of(d).0).sum::<u64>();
        let (read, written) = (sum(|d| d.read_bytes), sum(|d| d.written_bytes));
        let all_seen = self.window.sees_all() && devices.len() == self.run.devices.len();
        let share = |device: u64, probe: Bytes| {
            (all_seen && probe.0 > 0).then(|| device as f64 / probe.0 as f64)
        };
        let own = per_second((moved.read.0 + moved.written.0) as f64, elapsed);
        let foreign = self.before.map(|before| {
            // What follows writes is the run's own writeback; what is written during reads isn't.
            if moved.written.0 > 0 {
                return before;
            }
            let around = quiet(self.run, watch).map_or(before, |after| (before + after) / 2.0);
            around + per_second(written as f64, elapsed)
        });
        let evidence = Evidence {
            write_amplification: share(written, moved.written),
            device_read_share: share(read, moved.read),
            foreign_share: foreign.filter(|_| own > 0.0).map(|bytes| bytes / own),
            cpu: Some(per_second(shares.process.0, elapsed)),
            steal: shares.steal,
            throttled: shares.throttled,
            devices,
        };
        let at_devices = if moved.written.0 > 0 { written } else { 0 };
        let cost = Cost {
            read_bytes: moved.read,
            written_bytes: Bytes(moved.written.0.max(at_devices)),
            cpu: shares.process,
            process,
        };
        Seen { evidence, cost, cpu_limited: is_cpu_limited(&shares) }
    }
}

fn is_cpu_limited(shares: &Shares) -> bool {
    let above = |share: Option<Ratio>, most: f64| share.is_some_and(|s| s.0 >= most);
    above(shares.thread, CPU_SHARE_MAX)
        || above(shares.host, CPU_SHARE_MAX)
        || above(shares.steal, STEAL_SHARE_MAX)
        || above(shares.throttled, THROTTLED_SHARE_MAX)
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

impl Seen {
    /// Validity of a run by its legs and what was seen; `of_length` where a run may be too short.
    pub fn flags(&self, legs: &[Measured], prefilled: Option<bool>, of_length: bool) -> Flags {
        let shares = [self.evidence.device_read_share, self.evidence.write_amplification];
        let reached = shares.into_iter().flatten().reduce(f64::min);
        let steady: Option<Vec<bool>> = legs.iter().map(|leg| leg.steady).collect();
        Flags {
            direct: (!legs.is_empty()).then(|| legs.iter().all(|leg| leg.direct)),
            prefilled,
            steady: steady
                .filter(|all| of_length && !all.is_empty())
                .map(|all| !all.contains(&false)),
            cached: reached.map(|share| share < DEVICE_SHARE_MIN),
            contended: self.evidence.foreign_share.map(|share| share > FOREIGN_SHARE_MAX),
            cpu_limited: Some(self.cpu_limited),
            throttled: self.evidence.throttled.map(|share| share.0 > THROTTLED_SHARE_MAX),
            short: of_length.then(|| legs.iter().any(|leg| leg.elapsed.0 < SHORT_SECONDS)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(evidence: Evidence) -> Seen {
        Seen { evidence, cost: Cost::default(), cpu_limited: false }
    }

    #[test]
    fn reads_that_no_disk_saw_are_cached() {
        // 584,000/s from ARC while the pool's disks did nothing.
        let arc = Evidence { device_read_share: Some(0.0), ..Evidence::default() };
        assert_eq!(seen(arc).flags(&[], None, true).cached, Some(true));
        let mix = Evidence {
            device_read_share: Some(1.0),
            write_amplification: Some(0.1),
            ..Evidence::default()
        };
        assert_eq!(seen(mix).flags(&[], None, true).cached, Some(true));
        let unseen = seen(Evidence::default()).flags(&[], None, true);
        assert_eq!((unseen.cached, unseen.contended, unseen.direct), (None, None, None));
    }

    #[test]
    fn a_tenth_by_others_is_contention() {
        let of = |share| {
            let evidence = Evidence { foreign_share: Some(share), ..Evidence::default() };
            seen(evidence).flags(&[], None, true).contended
        };
        assert_eq!((of(0.05), of(0.2)), (Some(false), Some(true)));
    }

    #[test]
    fn each_cpu_limit_counts_by_itself() {
        let none = Shares { host: Some(Ratio(0.9)), thread: Some(Ratio(0.9)), ..Shares::default() };
        assert!(!is_cpu_limited(&none));
        for shares in [
            Shares { thread: Some(Ratio(0.96)), ..none },
            Shares { host: Some(Ratio(0.97)), ..none },
            Shares { steal: Some(Ratio(0.11)), ..none },
            Shares { throttled: Some(Ratio(0.06)), ..none },
        ] {
            assert!(is_cpu_limited(&shares), "{shares:?}");
        }
    }
}
