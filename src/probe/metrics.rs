//! The metric families of probes and their targets, and the points that fill them.

use std::sync::Arc;

use crate::base::clock::Moment;
use crate::base::fault::FaultKind;
use crate::model::metric::{Desc, Label, Point, push_some};
use crate::model::outcome::{Direction, Done, Measured, Skip, per_second};
use crate::model::snapshot::{ProbeState, ProbeView, TargetView};

const PROBE: &[&str] = &["probe", "target"];
const REASON: &[&str] = &["probe", "target", "reason"];
const QUANTILE: &[&str] = &["probe", "target", "q"];
const FLAG: &[&str] = &["probe", "target", "flag"];
const INFO: &[&str] =
    &["probe", "target", "profile", "engine", "block_size", "depth", "jobs", "direct", "streams"];
const TARGET: &[&str] = &["target"];

/// One family as a static: `family!(NAME, kind, "name", LABELS, "help", "source")`.
macro_rules! family {
    ($($id:ident: $kind:ident $name:literal $labels:ident $help:literal $source:literal;)*) => {
        $(static $id: Desc = Desc::$kind($name, $labels, $help, $source);)*
    };
}

family! {
    RUNS: counter "loadline_probe_runs_total" PROBE
        "Runs that took place, whatever came of them." "probe lane";
    FAILURES: counter "loadline_probe_failures_total" REASON
        "Runs that failed, by kind of fault." "probe lane";
    SKIPS: counter "loadline_probe_skips_total" REASON
        "Runs that did not take place, by reason." "probe lane";
    LAST_RUN: gauge "loadline_probe_last_run_timestamp_seconds" PROBE
        "When the last run ended, as Unix time." "probe lane";
    LAST_SUCCESS: gauge "loadline_probe_last_success_timestamp_seconds" PROBE
        "When the last successful run ended, as Unix time." "probe lane";
    INTERVAL: gauge "loadline_probe_interval_seconds" PROBE
        "Time from one run to the next, as planned." "configuration";
    RUN_TIME: gauge "loadline_probe_run_seconds" PROBE
        "How long the last run took, everything included." "probe lane";
    HUNG: gauge "loadline_probe_hung_seconds" PROBE
        "For how long the worker has been stuck in calls into the target; 0 when it isn't."
        "probe lane";
    PROBE_INFO: gauge "loadline_probe_info" INFO
        "How the last run was done; 1." "worker";
    OPERATIONS: gauge "loadline_probe_operations_per_second" PROBE
        "Operations a second of the last run, reads and writes together." "worker";
    READ_OPERATIONS: gauge "loadline_probe_read_operations_per_second" PROBE
        "Reads a second of the last run." "worker";
    WRITE_OPERATIONS: gauge "loadline_probe_write_operations_per_second" PROBE
        "Writes a second of the last run, the final flush included." "worker";
    READ_BYTES: gauge "loadline_probe_read_bytes_per_second" PROBE
        "Bytes read a second in the last run." "worker";
    WRITE_BYTES: gauge "loadline_probe_write_bytes_per_second" PROBE
        "Bytes written a second in the last run, the final flush included." "worker";
    READ_LATENCY: gauge "loadline_probe_read_latency_seconds" QUANTILE
        "Total latency of reads of the last run at a quantile it had operations enough for."
        "worker";
    WRITE_LATENCY: gauge "loadline_probe_write_latency_seconds" QUANTILE
        "Total latency of writes of the last run at a quantile it had operations enough for."
        "worker";
    READ_DURATION: histogram "loadline_probe_read_duration_seconds" PROBE
        "Total latency of the reads of all runs." "worker";
    WRITE_DURATION: histogram "loadline_probe_write_duration_seconds" PROBE
        "Total latency of the writes of all runs." "worker";
    DEVICE_BUSY: gauge "loadline_probe_device_busy_ratio" PROBE
        "Share of the last run in which the busiest leaf disk had work." "stat file of the disk";
    AMPLIFICATION: gauge "loadline_probe_write_amplification_ratio" PROBE
        "Bytes written at the leaf disks / bytes the last run wrote." "stat file of the disk";
    READ_SHARE: gauge "loadline_probe_device_read_share_ratio" PROBE
        "Bytes read at the leaf disks / bytes the last run read." "stat file of the disk";
    FLAGS: gauge "loadline_probe_flag" FLAG
        "Validity of the last run: 1 where the flag holds; absent where that can't be known."
        "worker";
    TARGET_READ: counter "loadline_probe_read_bytes_total" TARGET
        "Bytes that probes read from the target." "worker";
    TARGET_WRITTEN: counter "loadline_probe_written_bytes_total" TARGET
        "Bytes that probes wrote to the target, as its disks counted them where that is more."
        "worker";
    BUDGET: gauge "loadline_write_budget_remaining_bytes" TARGET
        "Bytes that probes may still write to the target now." "budget";
    SIZE: gauge "loadline_filesystem_size_bytes" TARGET
        "Size of the file system of the target." "statvfs in a worker";
    AVAILABLE: gauge "loadline_filesystem_available_bytes" TARGET
        "Space on the file system of the target that users may take." "statvfs in a worker";
}

/// Families of every probe, of whatever kind.
pub static EVERY: &[&Desc] = &[
    &RUNS,
    &FAILURES,
    &SKIPS,
    &LAST_RUN,
    &LAST_SUCCESS,
    &INTERVAL,
    &RUN_TIME,
    &HUNG,
    &PROBE_INFO,
    &FLAGS,
];

/// Families of probes on storage.
pub static STORAGE: &[&Desc] = &[
    &OPERATIONS,
    &READ_OPERATIONS,
    &WRITE_OPERATIONS,
    &READ_BYTES,
    &WRITE_BYTES,
    &READ_LATENCY,
    &WRITE_LATENCY,
    &READ_DURATION,
    &WRITE_DURATION,
    &DEVICE_BUSY,
    &AMPLIFICATION,
    &READ_SHARE,
];

/// Families of targets.
pub static TARGETS: &[&Desc] = &[&TARGET_READ, &TARGET_WRITTEN, &BUDGET, &SIZE, &AVAILABLE];

/// All that is published of a probe now; results only while they are fresh.
pub fn points(view: &ProbeView, now: Moment, out: &mut Vec<Point>) {
    let labels: [&Label; 2] = [&view.name, &view.target];
    lane(view, now, out);
    let histograms = [(&READ_DURATION, &view.reads), (&WRITE_DURATION, &view.writes)];
    for (desc, histogram) in histograms.into_iter().filter(|(_, h)| h.count() > 0) {
        out.push(Point::histogram(desc, &labels, Arc::clone(histogram)));
    }
    if let Some(done) = view.fresh(now) {
        info(view, done, out);
        rates(labels, done, out);
        evidence(labels, done, out);
    }
}

/// Counts and times of the lane itself.
fn lane(view: &ProbeView, now: Moment, out: &mut Vec<Point>) {
    let labels: [&Label; 2] = [&view.name, &view.target];
    out.push(Point::number(&RUNS, &labels, view.runs as f64));
    for kind in FaultKind::ALL {
        let n = view.failures.get(&kind).copied().unwrap_or(0);
        out.push(Point::number(&FAILURES, &with(labels, &kind.label().into()), n as f64));
    }
    for skip in Skip::ALL {
        let n = view.skips.get(&skip).copied().unwrap_or(0);
        out.push(Point::number(&SKIPS, &with(labels, &skip.label().into()), n as f64));
    }
    push_some(out, &LAST_RUN, &labels, view.last_run.map(|at| at.unix_seconds()));
    push_some(out, &LAST_SUCCESS, &labels, view.last_success.map(|at| at.unix_seconds()));
    out.push(Point::number(&INTERVAL, &labels, view.every.0));
    push_some(out, &RUN_TIME, &labels, view.last_run_seconds.map(|s| s.0));
    let hung = match view.state {
        ProbeState::Hung { since } => now.since(since).0,
        ProbeState::Waiting | ProbeState::Running { .. } => 0.0,
    };
    out.push(Point::number(&HUNG, &labels, hung));
}

fn with<'a>([probe, target]: [&'a Label; 2], third: &'a Label) -> [&'a Label; 3] {
    [probe, target, third]
}

fn info(view: &ProbeView, done: &Done, out: &mut Vec<Point>) {
    let Some(leg) = done.legs.first() else { return };
    let number = |n: u64| Label::from(n.to_string());
    let profile = &leg.profile;
    let labels: [&Label; 9] = [
        &view.name,
        &view.target,
        &view.profile,
        &leg.engine.label().into(),
        &number(profile.block.0),
        &number(profile.depth.into()),
        &number(profile.jobs.into()),
        &number(leg.direct.into()),
        &"".into(), // Only link probes have streams.
    ];
    out.push(Point::number(&PROBE_INFO, &labels, 1.0));
}

/// Each direction is told by the first leg that moved bytes in it.
fn rates(labels: [&Label; 2], done: &Done, out: &mut Vec<Point>) {
    let total: u64 = done.legs.iter().map(Measured::operations).sum();
    let time = done.legs.iter().map(|leg| leg.elapsed.0).sum::<f64>();
    let rate = (time > 0.0).then(|| total as f64 / time);
    push_some(out, &OPERATIONS, &labels, rate);
    type Of = fn(&Measured) -> &Direction;
    let directions: [(Of, [&'static Desc; 3]); 2] = [
        (|leg| &leg.reads, [&READ_OPERATIONS, &READ_BYTES, &READ_LATENCY]),
        (|leg| &leg.writes, [&WRITE_OPERATIONS, &WRITE_BYTES, &WRITE_LATENCY]),
    ];
    for (of, [operations, bytes, latency]) in directions {
        let Some(leg) = done.legs.iter().find(|leg| of(leg).operations > 0) else { continue };
        let direction = of(leg);
        let rate = |amount: u64| per_second(amount as f64, leg.elapsed);
        out.push(Point::number(operations, &labels, rate(direction.operations)));
        out.push(Point::number(bytes, &labels, rate(direction.bytes.0)));
        for (q, seconds) in &direction.latency {
            out.push(Point::number(latency, &with(labels, &q.to_string().into()), seconds.0));
        }
    }
}

fn evidence(labels: [&Label; 2], done: &Done, out: &mut Vec<Point>) {
    let busiest = done.evidence.devices.iter().map(|d| d.busy.0).reduce(f64::max);
    push_some(out, &DEVICE_BUSY, &labels, busiest);
    push_some(out, &AMPLIFICATION, &labels, done.evidence.write_amplification);
    push_some(out, &READ_SHARE, &labels, done.evidence.device_read_share);
    for (flag, holds) in done.flags.each() {
        let value = holds.map(|holds| f64::from(u8::from(holds)));
        push_some(out, &FLAGS, &with(labels, &flag.into()), value);
    }
}

/// What is published of a target.
pub fn target_points(view: &TargetView, out: &mut Vec<Point>) {
    let labels: [&Label; 1] = [&view.name];
    out.push(Point::number(&TARGET_READ, &labels, view.read_bytes as f64));
    out.push(Point::number(&TARGET_WRITTEN, &labels, view.written_bytes as f64));
    push_some(out, &BUDGET, &labels, view.budget_remaining.map(|b| b.0 as f64));
    push_some(out, &SIZE, &labels, view.size.map(|b| b.0 as f64));
    push_some(out, &AVAILABLE, &labels, view.available.map(|b| b.0 as f64));
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::Duration;

    use super::*;
    use crate::base::stats::Histogram;
    use crate::base::units::{Bytes, Seconds};
    use crate::model::job::EngineKind;
    use crate::model::metric::Value;
    use crate::model::outcome::{Cost, DURATION_BOUNDS, Evidence, Flags};
    use crate::probe::disk::{Preset, shape};

    fn at(seconds: u64) -> Moment {
        let d = Duration::from_secs(seconds);
        Moment { mono: d, boot: d, wall: d }
    }

    fn done() -> Done {
        let reads = Direction {
            operations: 300,
            bytes: Bytes(300 * 4096),
            latency_mean: Some(Seconds(0.01)),
            latency: vec![(0.5, Seconds(0.009)), (0.95, Seconds(0.02))],
            durations: Histogram::new(DURATION_BOUNDS),
            spread: None,
        };
        let leg = Measured {
            profile: shape(Preset::RandRead).legs.remove(0),
            engine: EngineKind::IoUring,
            engine_reason: String::new(),
            direct: true,
            elapsed: Seconds(3.0),
            reads,
            writes: Direction::default(),
            flush: None,
            seed: 1,
            rates: Vec::new(),
            steady: None,
            errors: 0,
            short_operations: 0,
        };
        let flags = Flags { direct: Some(true), short: Some(false), ..Flags::default() };
        Done { legs: vec![leg], evidence: Evidence::default(), flags, cost: Cost::default() }
    }

    fn view() -> ProbeView {
        ProbeView {
            name: "fast".into(),
            target: "srv".into(),
            profile: "rand_read".into(),
            every: Seconds(10.0),
            runs: 4,
            failures: BTreeMap::from([(FaultKind::Io, 2)]),
            last_success: Some(at(100)),
            last: Some(Arc::new(done())),
            ..ProbeView::default()
        }
    }

    fn page(view: &ProbeView, now: Moment) -> BTreeMap<String, f64> {
        let mut out = Vec::new();
        points(view, now, &mut out);
        let mut page = BTreeMap::new();
        for point in out {
            let Value::Number(value) = point.value else { continue };
            let labels: Vec<&str> = point.labels.iter().map(|l| &**l).collect();
            let name = point.desc.name.trim_start_matches("loadline_probe_");
            let series = format!("{name}{{{}}}", labels.join(","));
            assert!(page.insert(series, value).is_none(), "a series came twice");
        }
        page
    }

    #[test]
    fn a_result_is_published_with_its_labels() {
        let page = page(&view(), at(105));
        assert_eq!(page["operations_per_second{fast,srv}"], 100.0);
        assert_eq!(page["read_bytes_per_second{fast,srv}"], 409_600.0);
        assert_eq!(page["read_latency_seconds{fast,srv,0.95}"], 0.02);
        assert_eq!(page["info{fast,srv,rand_read,io_uring,4096,4,2,1,}"], 1.0);
        assert_eq!(page["flag{fast,srv,direct}"], 1.0);
        assert_eq!(page["flag{fast,srv,short}"], 0.0);
        assert!(!page.contains_key("flag{fast,srv,cached}"), "what isn't known is absent");
        assert!(!page.keys().any(|key| key.starts_with("write_")), "{page:?}");
    }

    #[test]
    fn after_three_intervals_a_result_is_absent_and_the_counts_stay() {
        let page = page(&view(), at(131));
        assert!(!page.contains_key("operations_per_second{fast,srv}"));
        assert!(!page.keys().any(|key| key.starts_with("flag") || key.starts_with("info")));
        assert_eq!(page["runs_total{fast,srv}"], 4.0);
        assert_eq!(page["last_success_timestamp_seconds{fast,srv}"], 100.0);
    }

    #[test]
    fn every_reason_is_there_from_the_start() {
        let page = page(&view(), at(105));
        assert_eq!(page["failures_total{fast,srv,io}"], 2.0);
        assert_eq!(page["failures_total{fast,srv,worker_died}"], 0.0);
        for skip in Skip::ALL {
            assert_eq!(page[&format!("skips_total{{fast,srv,{}}}", skip.label())], 0.0);
        }
    }

    #[test]
    fn a_stuck_worker_is_told_in_seconds() {
        let stuck = ProbeView { state: ProbeState::Hung { since: at(40) }, ..view() };
        assert_eq!(page(&stuck, at(105))["hung_seconds{fast,srv}"], 65.0);
        assert_eq!(page(&view(), at(105))["hung_seconds{fast,srv}"], 0.0);
    }

    #[test]
    fn durations_of_all_runs_outlive_the_last() {
        let mut reads = Histogram::new(DURATION_BOUNDS);
        reads.observe(0.01, 3);
        let view = ProbeView { reads: Arc::new(reads), ..view() };
        let mut out = Vec::new();
        points(&view, at(1000), &mut out);
        let histograms: Vec<_> =
            out.iter().filter(|p| matches!(p.value, Value::Histogram(_))).collect();
        assert_eq!(histograms.len(), 1, "none of writes that never were");
        assert_eq!(histograms[0].desc.name, "loadline_probe_read_duration_seconds");
    }

    #[test]
    fn families_are_described_once_in_base_units() {
        let all: Vec<&Desc> = [EVERY, STORAGE, TARGETS].concat();
        let names: BTreeSet<_> = all.iter().map(|desc| desc.name).collect();
        assert_eq!(names.len(), all.len());
        assert!(all.iter().all(|d| d.help.ends_with('.') && !d.source.is_empty()));
    }

    #[test]
    fn what_a_target_has_left_is_absent_until_known() {
        let mut out = Vec::new();
        let mut view = TargetView { name: "srv".into(), written_bytes: 7, ..TargetView::default() };
        target_points(&view, &mut out);
        assert_eq!(out.len(), 2);
        view.budget_remaining = Some(Bytes(5));
        out.clear();
        target_points(&view, &mut out);
        assert_eq!(out[2].value, Value::Number(5.0));
    }
}
