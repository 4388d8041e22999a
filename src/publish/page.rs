//! The page for people: one screen, no script, every number with its unit and age.

use askama::Template;

use super::phrase::{ago, is_link, rate, sentence, span, time};
use crate::base::clock::Moment;
use crate::base::fault::FaultKind;
use crate::base::units::Rate;
use crate::model::outcome::{Direction, Done, Flags, Measured, per_second};
use crate::model::snapshot::{HistoryEntry, HostFacts, ProbeState, ProbeView, Resource, Snapshot};

/// Entries of a probe's history: the newest, and failures among the older.
const HISTORY_NEWEST: usize = 3;
const HISTORY_FAILURES: usize = 5;

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
    notes: &'a [String],
    version: &'static str,
}

struct ResourceRow<'a> {
    device: &'a str,
    class: &'static str,
    facts: &'a str,
    load: &'a [(&'static str, String)],
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
    weak: Vec<&'static str>,
    unknown: String,
    counts: String,
    /// `3 x full: make room ...`
    faults: Vec<String>,
    history: Vec<EntryRow<'a>>,
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
        of: if is_link(resource) { "of line rate" } else { "busy" },
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
        weak: probe.last.as_deref().map(|done| weak(&done.flags)).unwrap_or_default(),
        unknown: probe.last.as_deref().map(|done| unknown(&done.flags)).unwrap_or_default(),
        counts: format!("{} runs, {failures} failed, {skips} skipped", probe.runs),
        faults: probe.failures.iter().map(fault).collect(),
        history: history(&probe.history, now),
    }
}

fn state(probe: &ProbeView, now: Moment) -> (&'static str, String) {
    match (probe.state, probe.next_due) {
        (ProbeState::Hung { since }, _) => ("bad", format!("hung for {}", span(now.since(since)))),
        (ProbeState::Running { since }, _) => {
            ("ok", format!("running for {}", span(now.since(since))))
        }
        (ProbeState::Waiting, Some(due)) if due.mono > now.mono => {
            ("", format!("next in {}", span(due.since(now))))
        }
        (ProbeState::Waiting, Some(_)) => ("", "due now".to_owned()),
        (ProbeState::Waiting, None) => ("", "not planned".to_owned()),
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
        .collect()
}

/// A quantile that the run had too few operations for isn't there.
fn quantile(direction: &Direction, q: f64) -> String {
    let found = direction.latency.iter().find(|(at, _)| (at - q).abs() < 1e-9);
    found.map_or_else(|| "too few".to_owned(), |(_, latency)| latency.to_string())
}

/// What weakens a result, in words.
fn weak(flags: &Flags) -> Vec<&'static str> {
    let weak = flags.each().into_iter().filter_map(|(name, value)| match (name, value?) {
        ("direct", false) => Some("through the page cache"),
        ("prefilled", false) => Some("read blocks never written"),
        ("steady", false) => Some("not steady"),
        ("cached", true) => Some("answered by a cache"),
        ("contended", true) => Some("others used the device"),
        ("cpu_limited", true) => Some("limited by CPU"),
        ("throttled", true) => Some("throttled"),
        ("short", true) => Some("too short to teach"),
        _ => None,
    });
    weak.collect()
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
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::base::units::{Bytes, Ratio, Seconds};
    use crate::model::job::{Access, EngineKind, Profile};
    use crate::model::outcome::Skip;
    use crate::model::snapshot::ResourceClass;

    fn at(seconds: u64) -> Moment {
        Moment::default().plus(Duration::from_secs(1_700_000_000 + seconds))
    }

    fn leg() -> Measured {
        let direction = |operations: u64, latency: Vec<(f64, Seconds)>| Direction {
            operations,
            bytes: Bytes(operations * 4096),
            latency,
            ..Direction::default()
        };
        let both = vec![(0.5, Seconds(0.021)), (0.99, Seconds(0.088))];
        Measured {
            profile: Profile {
                name: "rand_rw".into(),
                access: Access::Random,
                reads: Ratio(0.7),
                block: Bytes(4096),
                depth: 4,
                jobs: 2,
                runtime: Seconds(10.0),
                ramp: Seconds(0.0),
                bytes_max: Bytes(1 << 30),
                operations_max: None,
                sync: false,
                flush: false,
                direct: true,
            },
            engine: EngineKind::IoUring,
            engine_reason: String::new(),
            direct: true,
            elapsed: Seconds(10.0),
            reads: direction(2040, both),
            writes: direction(880, vec![(0.5, Seconds(0.009))]),
            flush: None,
            seed: 1,
            rates: Vec::new(),
            steady: Some(true),
            errors: 0,
            short_operations: 0,
        }
    }

    fn probe() -> ProbeView {
        let done = Done {
            legs: vec![leg()],
            flags: Flags { direct: Some(true), contended: Some(true), ..Flags::default() },
            ..Done::default()
        };
        let entry = |ago: u64, ok, text: &str| HistoryEntry {
            at: at(100_000 - ago),
            ok,
            text: text.into(),
        };
        ProbeView {
            name: "fast".into(),
            kind: "disk",
            target: "srv".into(),
            summary: "rand_rw 4 KiB, 70/30, 2 jobs x depth 4".into(),
            every: Seconds(3600.0),
            next_due: Some(at(100_240)),
            runs: 12,
            failures: [(FaultKind::Full, 1)].into(),
            skips: [(Skip::Busy, 3)].into(),
            last_success: Some(at(99_988)),
            last: Some(Arc::new(done)),
            history: vec![
                entry(12, true, "292/s, p50 21 ms"),
                entry(3612, true, "290/s, p50 21 ms"),
                entry(7212, true, "291/s, p50 21 ms"),
                entry(10_812, true, "fourth, a success"),
                entry(14_412, false, "full: 4 MiB of 64 MiB written"),
            ],
            ..ProbeView::default()
        }
    }

    fn sample() -> Snapshot {
        let resource = |device: &str, class, facts: &str, share| Resource {
            device: device.into(),
            class,
            facts: facts.into(),
            load: vec![
                ("read", "204/s, 816 KiB/s, 9.1 ms".into()),
                ("write", "88/s, 352 KiB/s, 21 ms".into()),
            ],
            share,
        };
        Snapshot {
            at: at(100_000),
            host: HostFacts {
                name: "storage1".into(),
                system: "Debian 12".into(),
                kernel: "6.1.0".into(),
                cpus: 8,
                ..HostFacts::default()
            },
            resources: vec![
                resource("sdb", ResourceClass::Disk, "hdd, mq-deadline", Some(Ratio(0.71))),
                resource("eth0", ResourceClass::Link, "speed unknown", None),
                resource("eth1", ResourceClass::Link, "1 Gbit/s", Some(Ratio(0.12))),
            ],
            probes: [probe(), ProbeView { name: "new".into(), ..ProbeView::default() }]
                .map(Arc::new)
                .to_vec(),
            notes: vec!["eth0: speed unknown, link alert off: set links.eth0.rate".into()],
            ..Snapshot::default()
        }
    }

    #[test]
    fn numbers_have_units_and_ages() {
        let page = render(&sample(), false);
        for text in [
            "204/s</td><td>816 KiB/s</td><td>21 ms</td><td>88 ms</td>",
            "88/s</td><td>352 KiB/s</td><td>9.0 ms</td><td>too few</td>",
            "<th>12 s ago</th>",
            "next in 4 min",
            "12 runs, 1 failed, 3 skipped",
            "others used the device",
            "unknown: prefilled, steady, cached, cpu limited, throttled, short",
            "width:71%",
            "As of 2023-11-16 02:00:00 UTC",
        ] {
            assert!(page.contains(text), "{text} in\n{page}");
        }
    }

    #[test]
    fn a_failure_outlives_successes_and_has_advice() {
        let page = render(&sample(), false);
        assert!(page.contains("full: 4 MiB of 64 MiB written"));
        assert!(!page.contains("fourth, a success"));
        assert!(page.contains(FaultKind::Full.advice()));
    }

    #[test]
    fn a_result_too_old_to_publish_says_so() {
        let mut old = sample();
        Arc::make_mut(&mut old.probes[0]).every = Seconds(3.0);
        assert!(render(&old, false).contains("12 s ago: too old to publish"));
    }

    #[test]
    fn whatever_a_host_calls_its_things_is_text_and_no_markup() {
        let evil = "<script>alert(1)</script>\" onload='x'&amp;\u{0}\u{202e}";
        let mut snapshot = sample();
        snapshot.host.name = evil.into();
        snapshot.resources[0].device = evil.into();
        snapshot.resources[0].facts = evil.into();
        snapshot.resources[0].load[0].1 = evil.into();
        let probe = Arc::make_mut(&mut snapshot.probes[0]);
        (probe.name, probe.target, probe.summary) = (evil.into(), evil.into(), evil.into());
        probe.history[0].text = evil.into();
        snapshot.notes.push(evil.into());
        let page = render(&snapshot, false);
        assert!(!page.contains("<script") && !page.contains("onload='"), "{page}");
    }

    #[test]
    fn nothing_known_is_still_a_page() {
        let page = render(&Snapshot::default(), true);
        assert!(page.contains("Waiting for the first reading.") && page.ends_with("</html>"));
    }
}
