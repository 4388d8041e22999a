//! What is published of probes and their targets.

use std::sync::Arc;

use super::families::*;
pub use super::families::{EVERY, STORAGE, TARGETS};
use crate::base::clock::Moment;
use crate::base::fault::FaultKind;
use crate::model::metric::{Desc, Label, Point, push_some};
use crate::model::outcome::{Direction, Done, Measured, Skip, per_second};
use crate::model::snapshot::{ProbeState, ProbeView, TargetView};

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
        super::PROBES.iter().for_each(|kind| (kind.points)(labels, done, out));
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
    for skip in Skip::ALL.into_iter().filter(|skip| *skip != Skip::Clock) {
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
    let seen = &done.evidence;
    let threads = [&seen.thread, &seen.kernel_thread].into_iter().flatten();
    for (desc, value) in [
        (&DEVICE_BUSY, seen.devices.iter().map(|d| d.busy.0).reduce(f64::max)),
        (&AMPLIFICATION, seen.write_amplification),
        (&READ_SHARE, seen.device_read_share),
        (&FOREIGN, seen.foreign_share),
        (&CPU, seen.cpu),
        (&THREAD, threads.map(|thread| thread.share.0).reduce(f64::max)),
        (&STEAL, seen.steal.map(|share| share.0)),
        (&THROTTLED, seen.throttled.map(|share| share.0)),
        (&IO_LIMIT, seen.io_limit.as_ref().map(|limit| limit.used)),
        (&VARIATION, seen.rate_cv),
    ] {
        push_some(out, desc, &labels, value);
    }
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
    use crate::model::metric::Value;
    use crate::model::outcome::{DURATION_BOUNDS, Flags};
    use crate::model::samples::measured;
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
        let leg = Measured { reads, ..measured(shape(Preset::RandRead).legs.remove(0)) };
        let flags = Flags { direct: Some(true), short: Some(false), ..Flags::default() };
        Done { legs: vec![leg], flags, ..Done::default() }
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
            let count = page.get(&format!("skips_total{{fast,srv,{}}}", skip.label()));
            assert_eq!(count.is_none(), skip == Skip::Clock, "disks go by no clock");
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
