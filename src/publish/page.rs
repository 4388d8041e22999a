//! The page for people: one screen, no script, every number with its unit and age.

mod links;

use std::collections::BTreeMap;

use askama::Template;

use self::links::LinkRow;
use super::phrase::{ago, is_link, rate, sentence, span, time};
use crate::base::clock::Moment;
use crate::base::fault::FaultKind;
use crate::base::units::Rate;
use crate::model::ceph::{Bench, OsdResult};
use crate::model::outcome::{Direction, Done, Flags, Measured, per_second};
use crate::model::snapshot::{
    Flow, HistoryEntry, HostFacts, Of, ProbeState, ProbeView, Resource, Snapshot,
};
use crate::model::verdict::{Limit, Verdict};

/// Entries of a probe's history: the newest, and failures among the older.
const HISTORY_NEWEST: usize = 3;
const HISTORY_FAILURES: usize = 5;
/// Of one probe.
const OSDS_SHOWN: usize = 8;

#[derive(Template)]
#[template(path = "page.html")]
struct Page<'a> {
    host: &'a str,
    system: String,
    sentence: String,
    /// `ok`, `warn` or `bad`.
    mood: &'static str,
    /// When the snapshot was taken, UTC.
    at: String,
    resources: Vec<ResourceRow<'a>>,
    targets: Vec<TargetRows<'a>>,
    mesh: String,
    links: Vec<LinkRow<'a>>,
    notes: &'a [String],
    version: &'static str,
}

struct ResourceRow<'a> {
    device: &'a str,
    class: &'static str,
    facts: &'a str,
    load: &'a [(&'static str, Flow)],
    /// Text, and the width of the bar in hundredths.
    share: Option<(String, f64)>,
    /// What the share is a share of.
    of: &'static str,
}

struct TargetRows<'a> {
    name: &'a str,
    probes: Vec<ProbeRow<'a>>,
}

struct ProbeRow<'a> {
    name: &'a str,
    summary: &'a str,
    mood: &'static str,
    state: String,
    /// Age of the results.
    age: String,
    /// Older than three intervals: shown, but no longer published.
    old: bool,
    results: Vec<ResultRow>,
    verdicts: Vec<VerdictRow<'a>>,
    weak: Vec<&'static str>,
    unknown: String,
    counts: String,
    /// `3 x full: make room ...`
    faults: Vec<String>,
    history: Vec<EntryRow<'a>>,
}

struct VerdictRow<'a> {
    limit: &'static str,
    /// OSDs; empty where it is of the run.
    of: String,
    text: &'a str,
    because: String,
    /// How sure it is, and what came nearest.
    sure: String,
    advice: Option<&'static str>,
}

struct ResultRow {
    profile: String,
    direction: &'static str,
    rate: String,
    bytes: String,
    p50: String,
    p99: String,
}

struct EntryRow<'a> {
    mood: &'static str,
    age: String,
    text: &'a str,
}

/// HTML. Ages are as of the snapshot; `stale` says that nothing newer has come for too long.
pub fn render(snapshot: &Snapshot, stale: bool) -> String {
    let (mood, sentence) = sentence(snapshot, stale);
    let host = &snapshot.host;
    let page = Page {
        host: if host.name.is_empty() { "this host" } else { &host.name },
        system: system(host),
        sentence,
        mood,
        at: time(snapshot.at),
        resources: snapshot.resources.iter().map(resource).collect(),
        targets: targets(snapshot),
        mesh: links::mesh(&snapshot.mesh),
        links: snapshot.links.iter().map(|link| links::row(link, snapshot.at)).collect(),
        notes: &snapshot.notes,
        version: env!("CARGO_PKG_VERSION"),
    };
    // Rendering to memory fails only where a value's own Display does; none here does.
    page.render().unwrap_or_default()
}

fn system(host: &HostFacts) -> String {
    let mut parts = vec![host.system.clone(), host.kernel.clone(), format!("{} CPU", host.cpus)];
    parts.retain(|part| !part.is_empty() && part != "0 CPU");
    parts.join(", ")
}

fn resource(resource: &Resource) -> ResourceRow<'_> {
    ResourceRow {
        device: &resource.device,
        class: if is_link(resource) { "link" } else { "disk" },
        facts: &resource.facts,
        load: &resource.load,
        share: resource.share.map(|s| (s.to_string(), (s.0 * 100.0).clamp(0.0, 100.0))),
        of: match resource.of {
            Of::Time => "busy",
            Of::LineRate => "of line rate",
            Of::Ceiling => "of its ceiling",
        },
    }
}

fn targets(snapshot: &Snapshot) -> Vec<TargetRows<'_>> {
    let mut targets: Vec<TargetRows<'_>> = Vec::new();
    for probe in &snapshot.probes {
        let row = probe_row(probe, snapshot.at);
        match targets.iter_mut().find(|target| *target.name == *probe.target) {
            Some(target) => target.probes.push(row),
            None => targets.push(TargetRows { name: &probe.target, probes: vec![row] }),
        }
    }
    targets
}

fn probe_row(probe: &ProbeView, now: Moment) -> ProbeRow<'_> {
    let (mood, state) = state(probe, now);
    let failures: u64 = probe.failures.values().sum();
    let skips: u64 = probe.skips.values().sum();
    let fault = |(kind, n): (&FaultKind, &u64)| {
        format!("{} ({n} ×): {}", kind.label().replace('_', " "), kind.advice())
    };
    let age = probe.last_success.map_or_else(String::new, |at| ago(now.since(at)));
    ProbeRow {
        name: &probe.name,
        summary: &probe.summary,
        mood,
        state,
        age,
        old: probe.fresh(now).is_none(),
        results: probe.last.as_deref().map(results).unwrap_or_default(),
        verdicts: probe.verdict.as_deref().map(verdict).into_iter().chain(of_osds(probe)).collect(),
        weak: probe.last.as_deref().map(|done| weak(&done.flags)).unwrap_or_default(),
        unknown: probe.last.as_deref().map(|done| unknown(&done.flags)).unwrap_or_default(),
        counts: format!("{} runs, {failures} failed, {skips} skipped", probe.runs),
        faults: probe.failures.iter().map(fault).collect(),
        history: history(&probe.history, now),
    }
}

fn state(probe: &ProbeView, now: Moment) -> (&'static str, String) {
    match probe.state {
        ProbeState::Hung { since } => ("bad", format!("hung for {}", span(now.since(since)))),
        ProbeState::Running { since } => ("ok", format!("running for {}", span(now.since(since)))),
        ProbeState::Waiting => ("", next(probe.next_due, now)),
    }
}

fn next(due: Option<Moment>, now: Moment) -> String {
    match due {
        Some(due) if due.mono > now.mono => format!("next in {}", span(due.since(now))),
        Some(_) => "due now".to_owned(),
        None => "not planned".to_owned(),
    }
}

fn results(done: &Done) -> Vec<ResultRow> {
    let row = |leg: &Measured, direction: &Direction, name| {
        (direction.operations > 0).then(|| ResultRow {
            profile: leg.profile.name.clone(),
            direction: name,
            rate: rate(per_second(direction.operations as f64, leg.elapsed)),
            bytes: Rate(per_second(direction.bytes.0 as f64, leg.elapsed)).to_string(),
            p50: quantile(direction, 0.5),
            p99: quantile(direction, 0.99),
        })
    };
    let legs = done.legs.iter();
    legs.flat_map(|leg| [row(leg, &leg.reads, "read"), row(leg, &leg.writes, "write")])
        .flatten()
        .chain(slowest(&done.osds))
        .collect()
}

/// OSDs that had a bench, the slowest first.
fn slowest(osds: &[OsdResult]) -> impl Iterator<Item = ResultRow> {
    let mut benched: Vec<(u32, &Bench)> =
        osds.iter().filter_map(|result| Some((result.osd.id, result.bench.as_ref()?))).collect();
    benched.sort_by(|a, b| a.1.rate.0.total_cmp(&b.1.rate.0));
    let none = || "-".to_owned();
    benched.into_iter().take(OSDS_SHOWN).map(move |(id, bench)| ResultRow {
        profile: format!("osd.{id}"),
        direction: "write",
        rate: bench.operations_per_second().map_or_else(none, |frequency| rate(frequency.0)),
        bytes: bench.rate.to_string(),
        p50: none(),
        p99: none(),
    })
}

fn verdict(verdict: &Verdict) -> VerdictRow<'_> {
    let rivals = verdict.rivals.iter().map(|rival| rival.limit.words());
    let rivals = rivals.collect::<Vec<_>>().join(", ");
    let sure = match (verdict.limit, rivals.is_empty()) {
        (Limit::Unknown, _) => String::new(),
        (_, true) => format!("confidence {:.2}", verdict.confidence),
        (_, false) => format!("confidence {:.2}; next {rivals}", verdict.confidence),
    };
    VerdictRow {
        limit: verdict.limit.words(),
        of: String::new(),
        text: &verdict.text,
        because: verdict.because.join("; "),
        sure,
        advice: verdict.advice,
    }
}

/// One row for each limit, in the words of the surest; what speaks for one of several OSDs alone
/// stays out.
fn of_osds(probe: &ProbeView) -> Vec<VerdictRow<'_>> {
    let mut limits: BTreeMap<Limit, Vec<(u32, &Verdict)>> = BTreeMap::new();
    for (id, verdict) in probe.osd_verdicts.iter() {
        limits.entry(verdict.limit).or_default().push((*id, verdict));
    }
    limits.into_values().filter_map(together).collect()
}

fn together(osds: Vec<(u32, &Verdict)>) -> Option<VerdictRow<'_>> {
    let (_, surest) = *osds.iter().max_by(|a, b| a.1.confidence.total_cmp(&b.1.confidence))?;
    let names = osds.iter().take(OSDS_SHOWN).map(|(id, _)| format!("osd.{id}"));
    let mut of = names.collect::<Vec<_>>().join(", ");
    if osds.len() > OSDS_SHOWN {
        of.push_str(&format!(" and {} more", osds.len() - OSDS_SHOWN));
    }
    let row = verdict(surest);
    let because = if osds.len() == 1 { row.because } else { String::new() };
    Some(VerdictRow { of, because, ..row })
}

/// A quantile that the run had too few operations for isn't there.
fn quantile(direction: &Direction, q: f64) -> String {
    let found = direction.latency.iter().find(|(at, _)| (at - q).abs() < 1e-9);
    found.map_or_else(|| "too few".to_owned(), |(_, latency)| latency.to_string())
}

/// What weakens a result, in words.
fn weak(flags: &Flags) -> Vec<&'static str> {
    let words = |name| match name {
        "direct" => "through the page cache",
        "prefilled" => "read blocks never written",
        "steady" => "not steady",
        "cached" => "answered by a cache",
        "contended" => "others used the device",
        "cpu_limited" => "limited by CPU",
        "short" => "too short to teach",
        other => other,
    };
    flags.against().map(words).collect()
}

/// Flags that can't be known here: `steady, cached`.
fn unknown(flags: &Flags) -> String {
    let unknown = flags.each().into_iter().filter(|(_, value)| value.is_none());
    unknown.map(|(name, _)| name.replace('_', " ")).collect::<Vec<_>>().join(", ")
}

/// Newest first; failures stay in sight longer than successes.
fn history<'a>(entries: &'a [HistoryEntry], now: Moment) -> Vec<EntryRow<'a>> {
    let older = entries.iter().skip(HISTORY_NEWEST).filter(|e| !e.ok).take(HISTORY_FAILURES);
    let row = |entry: &'a HistoryEntry| EntryRow {
        mood: if entry.ok { "" } else { "warn" },
        age: ago(now.since(entry.at)),
        text: &entry.text,
    };
    entries.iter().take(HISTORY_NEWEST).chain(older).map(row).collect()
}

#[cfg(test)]
mod tests;
