//! How the page says things: the state in one sentence, times and rates in few digits.

use std::time::{Duration, UNIX_EPOCH};

use crate::base::clock::Moment;
use crate::base::units::Seconds;
use crate::model::snapshot::{Of, ProbeState, Resource, ResourceClass, Snapshot};

/// How the host is, in one sentence, and how bad that is.
pub(super) fn sentence(snapshot: &Snapshot, stale: bool) -> (&'static str, String) {
    if snapshot.at == Moment::default() {
        return ("warn", "Waiting for the first reading".to_owned());
    }
    if stale {
        let text = format!("No reading since {}: what follows is from then", time(snapshot.at));
        return ("bad", text);
    }
    let hung = snapshot.probes.iter().filter_map(|probe| match probe.state {
        ProbeState::Hung { since } => {
            let time = span(snapshot.at.since(since));
            Some(format!("{} has not answered {} for {time}", probe.target, probe.name))
        }
        _ => None,
    });
    let failed = snapshot.probes.iter().filter(|p| p.history.first().is_some_and(|e| !e.ok));
    let peers = snapshot.links.iter().filter(|link| !link.fault.is_empty());
    let peers = peers.map(|link| format!("{} with {}", link.probe, link.peer));
    let failed: Vec<_> = failed.map(|probe| probe.name.to_string()).chain(peers).collect();
    let mut said: Vec<String> = hung.collect();
    let mood = match (said.is_empty(), failed.is_empty()) {
        (false, _) => "bad",
        (true, false) => "warn",
        (true, true) => "ok",
    };
    if !failed.is_empty() {
        said.push(format!("last run without a result: {}", failed.join(", ")));
    }
    said.extend(busiest(&snapshot.resources, ResourceClass::Disk));
    said.extend(busiest(&snapshot.resources, ResourceClass::Link));
    let unknown = snapshot.resources.iter().filter(|r| r.share.is_none() && is_link(r));
    let unknown: Vec<_> = unknown.map(|r| format!("the rate of {} is unknown", r.device)).collect();
    said.extend(unknown);
    if said.is_empty() {
        said.push("Nothing to report yet".to_owned());
    }
    (mood, said.join("; "))
}

fn busiest(all: &[Resource], class: ResourceClass) -> Option<String> {
    let known = all.iter().filter(|r| r.class == class).filter_map(|r| Some((r, r.share?)));
    let (resource, share) = known.max_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
    let (verb, of) = match resource.of {
        Of::Time => ("is busy", "of the time"),
        Of::LineRate => ("carries", "of its line rate"),
        Of::Ceiling => ("gives", "of its ceiling"),
    };
    Some(format!("{} {verb} {share} {of}", resource.device))
}

pub(super) fn is_link(resource: &Resource) -> bool {
    resource.class == ResourceClass::Link
}

/// Operations a second, three digits.
pub(super) fn rate(per_second: f64) -> String {
    match per_second {
        r if r >= 1e6 => format!("{:.1} M/s", r / 1e6),
        r if r >= 1e4 => format!("{:.1} k/s", r / 1e3),
        r if r >= 10.0 => format!("{r:.0}/s"),
        r => format!("{r:.1}/s"),
    }
}

pub(super) fn ago(age: Seconds) -> String {
    if age.0 < 1.0 { "now".to_owned() } else { format!("{} ago", span(age)) }
}

/// A length of time in its largest unit.
pub(super) fn span(time: Seconds) -> String {
    match time.0 {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3600.0),
        s => format!("{:.0} d", s / 86_400.0),
    }
}

/// `2026-11-30 10:02:03 UTC`.
pub(super) fn time(at: Moment) -> String {
    // A clock set beyond the year 9999 has no such text.
    let wall = Duration::from_secs(at.wall.as_secs().min(253_402_300_799));
    let text = humantime::format_rfc3339_seconds(UNIX_EPOCH + wall).to_string();
    text.replace('T', " ").replace('Z', " UTC")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Ratio;
    use crate::model::snapshot::{HistoryEntry, ProbeView};

    fn at(seconds: u64) -> Moment {
        Moment::default().plus(Duration::from_secs(1_700_000_000 + seconds))
    }

    fn sample() -> Snapshot {
        let resource = |device: &str, class, share: Option<f64>| Resource {
            device: device.into(),
            class,
            facts: "".into(),
            load: Vec::new(),
            share: share.map(Ratio),
            of: if class == ResourceClass::Link { Of::LineRate } else { Of::Time },
        };
        let probe = ProbeView { name: "fast".into(), target: "srv".into(), ..ProbeView::default() };
        Snapshot {
            at: at(1000),
            resources: vec![
                resource("sda", ResourceClass::Disk, Some(0.02)),
                resource("sdb", ResourceClass::Disk, Some(0.71)),
                resource("eth0", ResourceClass::Link, None),
                resource("eth1", ResourceClass::Link, Some(0.12)),
            ],
            probes: vec![std::sync::Arc::new(probe)],
            ..Snapshot::default()
        }
    }

    #[test]
    fn one_sentence_names_the_busiest_and_the_unknown() {
        let expected = "sdb is busy 71.0 % of the time; eth1 carries 12.0 % of its line rate; \
                        the rate of eth0 is unknown";
        assert_eq!(sentence(&sample(), false), ("ok", expected.to_owned()));
        let mut measured = sample();
        measured.resources[1].of = Of::Ceiling;
        assert!(sentence(&measured, false).1.starts_with("sdb gives 71.0 % of its ceiling; "));
    }

    #[test]
    fn what_hangs_or_fails_comes_first() {
        let mut hung = sample();
        std::sync::Arc::make_mut(&mut hung.probes[0]).state = ProbeState::Hung { since: at(820) };
        let (mood, text) = sentence(&hung, false);
        assert_eq!(mood, "bad");
        assert!(text.starts_with("srv has not answered fast for 3 min; "), "{text}");
        let mut failed = sample();
        let entry = HistoryEntry { at: at(990), ok: false, text: "timed out".into() };
        std::sync::Arc::make_mut(&mut failed.probes[0]).history = vec![entry];
        let (mood, text) = sentence(&failed, false);
        assert_eq!(mood, "warn");
        assert!(text.starts_with("last run without a result: fast; "), "{text}");
    }

    #[test]
    fn an_old_reading_and_a_missing_one_are_all_there_is_to_say() {
        let (mood, text) = sentence(&sample(), true);
        assert_eq!(mood, "bad");
        assert_eq!(text, "No reading since 2023-11-14 22:30:00 UTC: what follows is from then");
        assert_eq!(sentence(&Snapshot::default(), true).1, "Waiting for the first reading");
    }

    #[test]
    fn times_and_rates_read_in_their_largest_unit() {
        let spans =
            [(0.4, "0 s"), (119.0, "119 s"), (120.0, "2 min"), (7200.0, "2 h"), (2e5, "2 d")];
        for (seconds, text) in spans {
            assert_eq!(span(Seconds(seconds)), text);
        }
        assert_eq!((ago(Seconds(0.2)).as_str(), ago(Seconds(3.0)).as_str()), ("now", "3 s ago"));
        for (n, text) in
            [(0.25, "0.2/s"), (292.0, "292/s"), (45_100.0, "45.1 k/s"), (2e6, "2.0 M/s")]
        {
            assert_eq!(rate(n), text);
        }
    }

    #[test]
    fn a_clock_beyond_all_years_has_a_text() {
        assert_eq!(time(Moment { wall: Duration::MAX, ..at(0) }), "9999-12-31 23:59:59 UTC");
    }
}
