//! Outcomes into what is shown: counts, last results, history, bytes spent.

use std::sync::Arc;

use super::board::Board;
use super::judging::Judged;
use super::plan::{Plan, PlannedProbe};
use crate::base::clock::Moment;
use crate::base::fault::{Fault, FaultKind};
use crate::base::legs::Saturation;
use crate::base::stats::Histogram;
use crate::base::units::{Bytes, Rate, Seconds};
use crate::model::ceph::OsdResult;
use crate::model::job::Profile;
use crate::model::outcome::{
    Cost, DURATION_BOUNDS, Done, Inspection, Measured, Outcome, Skip, per_second,
};
use crate::model::snapshot::{HistoryEntry, ProbeState, ProbeView};

/// Entries of history per probe.
const HISTORY_MAX: usize = 12;
/// Before any rate is known a disk is taken for a slow one: 8 x 1 MiB in flight.
const RATE_UNKNOWN: Rate = Rate(8.0 * 1048576.0 / 0.1);

/// Views for every planned probe and target; what is known of those that stay is kept.
pub fn new_views(board: &Board, plan: &Plan) {
    let mut shared = board.lock();
    let old_probes = std::mem::take(&mut shared.probes);
    let old_targets = std::mem::take(&mut shared.targets);
    shared.probes =
        plan.probes
            .iter()
            .map(|probe| {
                let target: Arc<str> = Arc::from(plan.targets[probe.target].name.as_str());
                let old = old_probes.iter().find(|v| v.name == probe.name && v.target == target);
                let empty = || Arc::new(Histogram::new(DURATION_BOUNDS));
                let mut view = old.map(|view| ProbeView::clone(view)).unwrap_or_else(|| {
                    ProbeView { reads: empty(), writes: empty(), ..ProbeView::default() }
                });
                view.name = Arc::clone(&probe.name);
                view.kind = probe.kind.name;
                view.target = target;
                view.summary = probe.shape.summary.clone();
                view.profile = Arc::from(probe.shape.profile.as_str());
                view.every = probe.every;
                Arc::new(view)
            })
            .collect();
    shared.targets = plan
        .targets
        .iter()
        .map(|target| {
            let old = old_targets.iter().find(|v| *v.name == *target.name);
            let mut view = old.cloned().unwrap_or_default();
            view.name = Arc::from(target.name.as_str());
            view.path = target.path.display().to_string();
            view
        })
        .collect();
}

pub fn running(board: &Board, index: usize, now: Moment) {
    if let Some(view) = board.lock().probes.get_mut(index).map(Arc::make_mut) {
        view.state = ProbeState::Running { since: now };
    }
}

/// Takes the outcome of a probe that began at `began` and ended at `now`, and what it was judged to be.
pub fn record(
    board: &Board,
    index: usize,
    (began, now): (Moment, Moment),
    (outcome, judged): (Outcome, Judged),
) {
    let mut shared = board.lock();
    let Some(view) = shared.probes.get_mut(index).map(Arc::make_mut) else { return };
    if matches!(view.state, ProbeState::Running { .. }) {
        view.state = ProbeState::Waiting;
    }
    say(view, &outcome);
    let entry = HistoryEntry { at: now, ok: is_done(&outcome), text: headline(&outcome) };
    let again = matches!(&outcome, Outcome::Skipped { .. })
        && view.history.first().is_some_and(same_skip(&entry));
    if again {
        // A probe that waits for a quiet moment waits in one line.
        view.history.remove(0);
    }
    remember(&mut view.history, entry);
    match outcome {
        Outcome::Skipped { skip, .. } => {
            *view.skips.entry(skip).or_default() += 1;
            return;
        }
        Outcome::Failed { fault, .. } => *view.failures.entry(fault.kind).or_default() += 1,
        Outcome::Hung { .. } => *view.failures.entry(FaultKind::Hung).or_default() += 1,
        Outcome::Done(done) => {
            view.last_success = Some(now);
            merge_durations(view, &done);
            view.last = Some(Arc::new(*done));
            view.ceiling_ratio = judged.ceiling_ratio;
            view.verdict = judged.verdict.map(Arc::new);
            view.osd_verdicts = Arc::new(judged.osds);
        }
    }
    view.runs += 1;
    view.last_run = Some(now);
    view.last_run_seconds = Some(now.since(began));
}

fn is_done(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Done(_))
}

/// Whether an entry tells of the same reason to wait as `entry` does.
fn same_skip(entry: &HistoryEntry) -> impl Fn(&HistoryEntry) -> bool {
    let reason = |text: &str| text.split(':').next().unwrap_or_default().to_owned();
    let mine = reason(&entry.text);
    move |other| !other.ok && reason(&other.text) == mine
}

/// A result once; a reason to wait only when it is another than before.
fn say(view: &ProbeView, outcome: &Outcome) {
    let (probe, target, text) = (&view.name, &view.target, headline(outcome));
    match outcome {
        Outcome::Done(_) => tracing::info!(%probe, %target, "{text}"),
        Outcome::Skipped { .. } => {
            let entry = HistoryEntry { at: Moment::default(), ok: false, text };
            if !view.history.first().is_some_and(same_skip(&entry)) {
                tracing::info!(%probe, %target, "{}", entry.text);
            }
        }
        _ => tracing::warn!(%probe, %target, "{text}"),
    }
}

fn merge_durations(view: &mut ProbeView, done: &Done) {
    for leg in &done.legs {
        Arc::make_mut(&mut view.reads).merge(&leg.reads.durations);
        Arc::make_mut(&mut view.writes).merge(&leg.writes.durations);
    }
}

/// Newest first; when it is full the oldest success goes, so that failures outlive successes.
fn remember(history: &mut Vec<HistoryEntry>, entry: HistoryEntry) {
    history.insert(0, entry);
    if history.len() > HISTORY_MAX {
        let oldest_success = history.iter().rposition(|e| e.ok);
        history.remove(oldest_success.unwrap_or(history.len() - 1));
    }
}

/// One line for log and page.
pub fn headline(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done(done) if !done.osds.is_empty() => osds_line(&done.osds),
        Outcome::Done(done) => {
            let legs: Vec<_> = done.legs.iter().map(leg_line).collect();
            format!("{}{}", legs.join("; "), deeper(done))
        }
        Outcome::Failed { fault, .. } => format!("failed ({}): {fault}", fault.kind.label()),
        Outcome::Skipped { skip, text, .. } => format!("skipped ({}): {text}", skip.label()),
        Outcome::Hung { text } => format!("hung: {text}"),
    }
}

/// What more in flight did, where it was tried.
fn deeper(done: &Done) -> String {
    if let Some(search) = done.oltp.as_ref().and_then(|oltp| oltp.search.as_ref()) {
        return match search.highest() {
            Some(_) => format!(", the most under {}", search.limit),
            None => format!(", the most under {} was not found", search.limit),
        };
    }
    let says = match (&done.knee, &done.second_leg) {
        (Some(knee), _) => {
            let text = format!(", knee at depth {}", knee.depth);
            return if knee.says == Some(Saturation::Saturated) { text } else { text + " or more" };
        }
        (None, Some(second)) => second.says,
        (None, None) => return String::new(),
    };
    match says {
        Saturation::Saturated => ", saturated",
        Saturation::Unsaturated => ", faster when deeper",
        Saturation::Unsteady => ", unsteady",
        Saturation::Between => "",
    }
    .to_owned()
}

/// `12 OSDs, 88.1 MB/s to 131 MB/s, slowest osd.3`
fn osds_line(osds: &[OsdResult]) -> String {
    let rate = |result: &OsdResult| Some((result.bench?.rate, result.osd.id));
    let mut rates: Vec<(Rate, u32)> = osds.iter().filter_map(rate).collect();
    rates.sort_by(|a, b| a.0.0.total_cmp(&b.0.0));
    match (rates.first(), rates.last()) {
        (Some((low, id)), Some((high, _))) if rates.len() > 1 => {
            format!("{} OSDs, {low} to {high}, slowest osd.{id}", rates.len())
        }
        (Some((rate, id)), _) => format!("osd.{id} {rate}"),
        _ => "no OSD had a bench".into(),
    }
}

fn leg_line(leg: &Measured) -> String {
    let bytes = (leg.reads.bytes.0 + leg.writes.bytes.0) as f64;
    let rate = Rate(per_second(bytes, leg.elapsed));
    let median = [&leg.reads, &leg.writes]
        .into_iter()
        .max_by_key(|d| d.operations)
        .and_then(|d| d.latency.first().map(|(_, s)| *s).or(d.latency_mean));
    let latency = median.map_or(String::new(), |s: Seconds| format!(", {s}"));
    format!("{} {:.0}/s, {rate}{latency}", leg.profile.name, leg.operations_per_second())
}

/// The legs of a run, none deeper than the target's last rate lets the queue be.
pub fn bounded_legs(board: &Board, index: usize, probe: &PlannedProbe) -> Vec<Profile> {
    let last = board.lock().probes.get(index).and_then(|view| view.last.clone());
    let rate = last.map_or(RATE_UNKNOWN, |done| {
        let moved = |leg: &Measured| (leg.reads.bytes.0 + leg.writes.bytes.0) as f64;
        let bytes: f64 = done.legs.iter().map(moved).sum();
        Rate(per_second(bytes, Seconds(done.legs.iter().map(|leg| leg.elapsed.0).sum())))
    });
    probe.shape.legs_at(rate)
}

/// What a run cost: what it says, or its worst case when it can't say.
pub fn cost(outcome: &Outcome, worst: Bytes) -> Cost {
    match outcome {
        Outcome::Done(done) => done.cost,
        Outcome::Failed { partial: Some(done), .. }
        | Outcome::Skipped { partial: Some(done), .. } => done.cost,
        Outcome::Skipped { partial: None, .. } => Cost::default(),
        Outcome::Failed { partial: None, .. } | Outcome::Hung { .. } => {
            Cost { written_bytes: worst, ..Cost::default() }
        }
    }
}

pub fn charge(board: &Board, target: usize, cost: Cost, remaining: Option<Bytes>) {
    if let Some(view) = board.lock().targets.get_mut(target) {
        view.read_bytes += cost.read_bytes.0;
        view.written_bytes += cost.written_bytes.0;
        view.budget_remaining = remaining.or(view.budget_remaining);
    }
}

pub fn charge_layout(board: &Board, target: usize, written: Bytes) {
    if let Some(view) = board.lock().targets.get_mut(target) {
        view.written_bytes += written.0;
    }
}

/// Space of a target: absent while it doesn't answer.
pub fn show_target(
    board: &Board,
    target: usize,
    inspection: Option<&Inspection>,
    remaining: Option<Bytes>,
) {
    if let Some(view) = board.lock().targets.get_mut(target) {
        // A cluster isn't asked for it.
        let inspection = inspection.filter(|inspection| inspection.size.0 > 0);
        view.size = inspection.map(|i| i.size);
        view.available = inspection.map(|i| i.available);
        view.budget_remaining = remaining.or(view.budget_remaining);
    }
}

/// A fault of the worker as the outcome of its probe.
pub fn fault_outcome(fault: Fault) -> Outcome {
    match fault.kind {
        FaultKind::Hung => Outcome::Hung { text: fault.text },
        FaultKind::Full => Outcome::skipped(Skip::Full, fault.text),
        _ => Outcome::Failed { fault, partial: None },
    }
}

pub fn foreign_reply() -> Fault {
    Fault::new(FaultKind::Internal, "the worker answered another question")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::outcome::Direction;

    #[test]
    fn failures_outlive_successes_in_the_history() {
        let mut history = Vec::new();
        let entry = |ok, n: usize| HistoryEntry { at: Moment::default(), ok, text: n.to_string() };
        remember(&mut history, entry(false, 0));
        for n in 1..40 {
            remember(&mut history, entry(true, n));
        }
        assert_eq!(history.len(), HISTORY_MAX);
        assert_eq!(history.last().unwrap().text, "0", "the failure is still there");
        assert_eq!(history[0].text, "39");
    }

    #[test]
    fn each_target_is_bounded_by_its_own_last_rate() {
        let shape = crate::probe::disk::shape(crate::probe::disk::Preset::SeqRead);
        let probe = |target| PlannedProbe {
            name: "seq_read".into(),
            kind: &crate::probe::disk::KIND,
            every: shape.every,
            shape: shape.clone(),
            target,
            engine: None,
        };
        let measured = |mib: u64| Measured {
            elapsed: Seconds(1.0),
            reads: Direction { bytes: Bytes(mib << 20), ..Direction::default() },
            ..crate::model::samples::measured(shape.legs[0].clone())
        };
        let view = |mib| ProbeView {
            name: "seq_read".into(),
            last: Some(Arc::new(Done { legs: vec![measured(mib)], ..Done::default() })),
            ..ProbeView::default()
        };
        let board = Board::default();
        let depths = |index| {
            let legs = bounded_legs(&board, index, &probe(index));
            legs.iter().map(|leg| leg.depth).collect::<Vec<_>>()
        };
        assert_eq!(depths(0), [4, 8], "nothing known yet");
        board.lock().probes = vec![Arc::new(view(1000)), Arc::new(view(40))];
        assert_eq!((depths(0), depths(1)), (vec![32, 64], vec![2, 4]));
    }

    #[test]
    fn a_run_that_can_not_say_what_it_wrote_costs_its_worst_case() {
        let worst = Bytes(7);
        let hung = Outcome::Hung { text: String::new() };
        assert_eq!(cost(&hung, worst).written_bytes, worst);
        assert_eq!(cost(&Outcome::skipped(Skip::Busy, ""), worst).written_bytes, Bytes(0));
    }
}
