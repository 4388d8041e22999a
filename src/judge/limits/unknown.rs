//! `unknown`: the default, with what would decide it.

use crate::base::legs::Saturation;
use crate::judge::ceilings::{self, Believed};
use crate::judge::doubt;
use crate::judge::facts::{Facts, Subject};
use crate::model::verdict::{Limit, Rival, Verdict};

pub(super) fn without_a_rate(facts: &Facts) -> Verdict {
    let timed = facts.latency_p50_seconds.is_some_and(|latency| latency.0 > 0.0);
    let text = match timed {
        true => "a latency alone names no limit: measure a rate at two depths",
        false => "nothing moved: there is no result to judge",
    };
    verdict_of(text.into(), Vec::new(), Vec::new())
}

pub(super) fn verdict(facts: &Facts, rivals: Vec<Rival>) -> Verdict {
    let text = format!("the evidence doesn't decide: {}", deciding(facts));
    let because = ceilings::dropped(facts).into_iter().chain(doubt::medium(facts));
    verdict_of(text, because.collect(), rivals)
}

fn verdict_of(text: String, because: Vec<String>, rivals: Vec<Rival>) -> Verdict {
    Verdict {
        limit: Limit::Unknown,
        ratio: None,
        confidence: 0.0,
        ceiling: None,
        ceiling_text: None,
        rivals,
        because,
        text,
        advice: None,
    }
}

/// What would decide it, the most telling first.
fn deciding(facts: &Facts) -> &'static str {
    let saturation = facts.saturation();
    if facts.is_link() {
        let believed = ceilings::link(facts);
        if matches!(believed, Believed::Dropped(_)) {
            return "the line rate that is named can't be true: correct it";
        }
        return match (believed.ceiling(), facts.link.round_trip_seconds) {
            (None, _) => "declare the line rate (path: {link: 1Gbit})",
            (_, None) => "measure round trip, window and CPU, or a second leg of more streams",
            _ => "measure the CPUs at both ends, or a second leg of more streams",
        };
    }
    if facts.subject == Subject::Store {
        return match facts.backing.bandwidth {
            None => "declare what its disk moves (backing: {bandwidth: 150MB/s})",
            Some(_) => "hold it against others of its class, and against itself earlier",
        };
    }
    let copies = facts.writes() && facts.replicas() > 1.0 && facts.backing.shared_link.is_none();
    match saturation {
        Some(Saturation::Unsteady) => {
            "the second leg was slower, so something changed: run it longer"
        }
        Some(Saturation::Between) => "twice the depth gave a little more: measure deeper still",
        _ if copies => "declare whether copies share the link (backing: {shared_link: true})",
        None => "add a second leg at twice the depth",
        _ if facts.rotational().is_none() => "declare what is under it (backing: {media: ssd})",
        _ if facts.mean_block().is_none() => "say the block size",
        _ => "measure the device's queue and the CPU meanwhile",
    }
}
