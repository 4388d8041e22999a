//! The page's part on peers: the mesh in a line, then what is known of the way to each of them.

use super::{VerdictRow, next, verdict};
use crate::base::clock::Moment;
use crate::model::link::LinkFlow;
use crate::model::peer::{LinkDone, LinkResult, LinkView, MeshView};
use crate::model::way::LinkCeiling;
use crate::publish::phrase::ago;

/// One peer.
pub(super) struct LinkRow<'a> {
    pub(super) peer: &'a str,
    pub(super) probe: &'a str,
    pub(super) summary: &'a str,
    pub(super) mood: &'static str,
    pub(super) state: String,
    /// Age of the results.
    pub(super) age: String,
    /// Older than three intervals: shown, but no longer published.
    pub(super) old: bool,
    pub(super) flows: Vec<FlowRow>,
    pub(super) verdicts: Vec<(&'static str, VerdictRow<'a>)>,
    pub(super) weak: Vec<&'static str>,
    /// Why the last run has no result; empty after one that has.
    pub(super) fault: &'a str,
    pub(super) counts: String,
}

/// What went one way.
pub(super) struct FlowRow {
    pub(super) way: &'static str,
    pub(super) rate: String,
    /// Of what the way carries.
    pub(super) share: String,
    pub(super) ceiling: String,
    pub(super) again: String,
    pub(super) round_trip: String,
}

pub(super) fn row(link: &LinkView, now: Moment) -> LinkRow<'_> {
    let last = link.last.as_deref();
    let (failures, skips): (u64, u64) = (link.failures.values().sum(), link.skips.values().sum());
    LinkRow {
        peer: &link.peer,
        probe: &link.probe,
        summary: &link.summary,
        mood: if link.running { "ok" } else { "" },
        state: if link.running { "running".into() } else { next(link.next_due, now) },
        age: link.last_success.map_or_else(String::new, |at| ago(now.since(at))),
        old: link.fresh(now).is_none(),
        flows: last.map(|result| flows(&result.done)).unwrap_or_default(),
        verdicts: last.map(verdicts).unwrap_or_default(),
        weak: weak(link),
        fault: &link.fault,
        counts: format!(
            "{} runs, {failures} failed, {skips} skipped, found busy {} ×",
            link.runs, link.busy
        ),
    }
}

const WAYS: [&str; 2] = ["to it", "from it"];

fn flows(done: &LinkDone) -> Vec<FlowRow> {
    let single = done.single.as_ref().into_iter().flat_map(|leg| leg.flows());
    let single = single.map(|(sends, flow)| {
        (if sends { "to it, one stream" } else { "from it, one stream" }, flow)
    });
    let both = WAYS.into_iter().zip([done.transmit(), done.receive()]);
    let both = both.filter_map(|(way, flow)| Some((way, flow?)));
    both.chain(single).map(|(way, flow)| flow_row(way, flow)).collect()
}

fn flow_row(way: &'static str, flow: &LinkFlow) -> FlowRow {
    let unknown = || "unknown".to_owned();
    let share = |ceiling: &LinkCeiling| match ceiling.share {
        Some(share) => share.to_string(),
        None => "more than that".to_owned(),
    };
    let ceiling = flow.ceiling.as_ref();
    FlowRow {
        way,
        rate: flow.rate().map_or_else(unknown, |rate| rate.bits()),
        share: ceiling.map_or_else(unknown, share),
        ceiling: ceiling.map_or_else(unknown, |c| format!("{} ({})", c.rate.bits(), c.source)),
        again: flow.retransmits.map_or_else(unknown, |n| n.to_string()),
        round_trip: flow.rtt.map_or_else(unknown, |rtt| rtt.median.to_string()),
    }
}

fn verdicts(result: &LinkResult) -> Vec<(&'static str, VerdictRow<'_>)> {
    let both = WAYS.into_iter().zip(&result.verdicts);
    both.filter_map(|(way, of_way)| Some((way, verdict(of_way.as_ref()?)))).collect()
}

fn weak(link: &LinkView) -> Vec<&'static str> {
    let suspected = link.last.as_ref().and_then(|result| result.done.same_host_suspected());
    let suspected =
        (suspected == Some(true)).then_some("faster than the declared line: one machine?");
    let differs = link.list_differs == Some(true);
    suspected
        .into_iter()
        .chain(differs.then_some("goes by another list of peers or times"))
        .collect()
}

/// The mesh in one line; empty where there are neither peers nor anybody who is listened to.
pub(super) fn mesh(mesh: &MeshView) -> String {
    let mut parts = Vec::new();
    if mesh.members > 0 {
        parts.push(format!("{} hosts in the schedule, list {}", mesh.members, mesh.digest));
    }
    let dropped = mesh.dropped.iter().filter(|(reason, n)| **reason != "self" && **n > 0);
    parts.extend(dropped.map(|(reason, n)| format!("left out ({reason}): {n}")));
    let failing = mesh.sources.iter().filter(|source| source.failures > 0);
    parts.extend(failing.map(|source| format!("{} failed {} ×", source.name, source.failures)));
    if let Some(served) = &mesh.served {
        let ended = served.iter().filter(|(_, n)| **n > 0);
        let ended: Vec<String> = ended.map(|(result, n)| format!("{n} {result}")).collect();
        let ended = if ended.is_empty() { "none yet".to_owned() } else { ended.join(", ") };
        parts.push(format!("tests by peers: {ended}"));
    }
    parts.join("; ")
}
