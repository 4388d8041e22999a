//! Results of tests with peers against what their ways carry: ceilings, and what bound each direction.
//! The way is followed here and not in the worker, which may not ask the kernel for routes.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::base::units::Rate;
use crate::config::settings::Settings;
use crate::host::link_facts::Declared;
use crate::host::roots::Roots;
use crate::host::route::{Overrides, way_of, way_to};
use crate::judge::from_link::{self, LinkRun};
use crate::judge::limits;
use crate::model::link::LinkMeasured;
use crate::model::metric::Label;
use crate::model::outcome::LineUse;
use crate::model::peer::{LinkDone, LinkResult};
use crate::model::verdict::Verdict;
use crate::model::way::{EndLine, PeerWay};
use crate::probe::cpu::Shares;

/// All that is known around a run.
pub(super) struct Around<'a> {
    pub settings: &'a Settings,
    /// Of this host's CPUs meanwhile.
    pub cpus: &'a Shares,
    /// What others moved on this host's lines before it; `None` where nobody can tell.
    pub lines: Option<&'a BTreeMap<Label, LineUse>>,
}

/// Rates of this host's interfaces, as the operator says them.
pub fn line_rates(settings: &Settings) -> Declared {
    let rates = settings.sample.links.iter();
    rates.filter_map(|(name, link)| Some((name.clone(), link.rate?))).collect()
}

/// This host's end of the way to a peer.
pub(in crate::daemon) fn end(peer: SocketAddr, roots: &Roots, settings: &Settings) -> EndLine {
    let links = line_rates(settings);
    let peer_end = EndLine::default();
    way_to(peer, roots, &Overrides { path: &settings.path, links: &links, peer: peer_end }).end()
}

/// Sets a result against its way as it is now, and judges it.
pub(super) fn judge(done: LinkDone, roots: &Roots, around: &Around<'_>) -> LinkResult {
    let links = line_rates(around.settings);
    let path = &around.settings.path;
    let way = |leg: &LinkMeasured| {
        way_of(&leg.peer, roots, &Overrides { path, links: &links, peer: peers_end(leg) })
    };
    judge_by(done, &way, around)
}

fn peers_end(leg: &LinkMeasured) -> EndLine {
    leg.identity.as_ref().map_or_else(EndLine::default, |identity| identity.line)
}

/// A name may have several addresses: each leg went to the one that it says.
fn judge_by(
    mut done: LinkDone,
    way: &dyn Fn(&LinkMeasured) -> PeerWay,
    around: &Around<'_>,
) -> LinkResult {
    if let Some(single) = &mut done.single {
        single.set_against(&way(single));
    }
    let ways: Vec<PeerWay> = done.legs.iter().map(way).collect();
    for (leg, way) in done.legs.iter_mut().zip(&ways) {
        leg.set_against(way);
    }
    let verdict = |reverse| {
        let has_flow = |leg: &LinkMeasured| leg.flows().any(|(sends, _)| sends != reverse);
        let (leg, way) = done.legs.iter().zip(&ways).find(|(leg, _)| has_flow(leg))?;
        verdict((leg, reverse), way, around)
    };
    let verdicts = [false, true].map(verdict);
    LinkResult { done, verdicts }
}

fn verdict(
    (measured, reverse): (&LinkMeasured, bool),
    way: &PeerWay,
    around: &Around<'_>,
) -> Option<Verdict> {
    let facts = from_link::link(&LinkRun {
        measured,
        reverse,
        // A run has legs of another number of streams, but none of twice as many.
        second: None,
        way,
        path: &around.settings.path,
        cpus: Some(around.cpus),
        foreign: foreign((way, reverse), around),
    })?;
    Some(limits::judge(&facts))
}

/// What others moved on the line in this direction; `None` where nobody can tell.
fn foreign((way, reverse): (&PeerWay, bool), around: &Around<'_>) -> Option<Rate> {
    let used = around.lines?.get(way.devices.last()?.as_str())?;
    if reverse { used.receive } else { used.transmit }
}

/// One line for the log: `sent 907.5 Mbit/s (99.8 % of 908.97 Mbit/s, limit: link)`.
pub(super) fn headline(result: &LinkResult) -> String {
    let done = &result.done;
    let flows = [("sent", done.transmit()), ("received", done.receive())];
    let parts = flows.into_iter().zip(&result.verdicts).filter_map(|((word, flow), verdict)| {
        let flow = flow?;
        let share = flow
            .ceiling
            .as_ref()
            .and_then(|ceiling| Some(format!("{} of {}", ceiling.share?, ceiling.rate.bits())));
        let limit = verdict.as_ref().map(|verdict| format!("limit: {}", verdict.limit.words()));
        let again = flow.retransmits.map(|n| format!("{n} segments again"));
        let more: Vec<String> = [share, limit, again].into_iter().flatten().collect();
        let more = if more.is_empty() { String::new() } else { format!(" ({})", more.join(", ")) };
        Some(format!("{word} {}{more}", flow.rate()?.bits()))
    });
    parts.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{Bytes, Seconds};
    use crate::model::link::{LinkCpu, LinkDirection, LinkFlow, LinkIdentity, LinkProfile};
    use crate::model::samples::vxlan;
    use crate::model::verdict::Limit;

    fn leg(direction: LinkDirection, streams: u32, mbit: f64) -> LinkMeasured {
        let flow = |there: bool| {
            there.then(|| LinkFlow {
                received: Bytes((mbit * 125e3 * 10.0) as u64),
                receiver_time: Seconds(10.0),
                mss: Some(Bytes(1398)),
                retransmits: Some(12),
                ..LinkFlow::default()
            })
        };
        LinkMeasured {
            peer: "10.98.0.2:5201".into(),
            profile: LinkProfile { direction, ..LinkProfile::plain(streams, Seconds(10.0)) },
            forward: flow(direction.forward()),
            reverse: flow(direction.reverse()),
            own_cpu: LinkCpu::default(),
            peer_cpu: LinkCpu::default(),
            identity: None,
        }
    }

    fn done(to: f64, from: f64) -> LinkDone {
        LinkDone {
            single: Some(leg(LinkDirection::Forward, 1, 800.0)),
            legs: vec![leg(LinkDirection::Forward, 4, to), leg(LinkDirection::Reverse, 4, from)],
        }
    }

    /// As judged beside others who moved so many Mbit/s on the line: received, sent.
    fn judged(done: LinkDone, way: &PeerWay, used: Option<[f64; 2]>) -> LinkResult {
        let lines = used.map(|used| {
            let [receive, transmit] = used.map(|mbit| Some(Rate(mbit * 125e3)));
            BTreeMap::from([(Label::from("eth0"), LineUse { share: None, receive, transmit })])
        });
        let (settings, cpus) = (Settings::default(), Shares::default());
        let around = Around { settings: &settings, cpus: &cpus, lines: lines.as_ref() };
        judge_by(done, &|_| way.clone(), &around)
    }

    fn limits(result: &LinkResult) -> [Limit; 2] {
        [0, 1].map(|at| result.verdicts[at].as_ref().unwrap().limit)
    }

    #[test]
    fn each_direction_has_its_own_share_and_its_own_limit() {
        let result = judged(done(908.0, 500.0), &vxlan(), None);
        assert_eq!(limits(&result), [Limit::Link, Limit::Unknown]);
        let share = |flow: Option<&LinkFlow>| flow.unwrap().ceiling.as_ref().unwrap().share;
        assert!((share(result.done.transmit()).unwrap().0 - 0.9989).abs() < 1e-4);
        assert!((share(result.done.receive()).unwrap().0 - 0.5501).abs() < 1e-4);
        let single = result.done.single.as_ref().unwrap().forward.as_ref();
        assert!(share(single).is_some());
        assert_eq!(
            headline(&result),
            "sent 908 Mbit/s (99.9 % of 908.97 Mbit/s, limit: link, 12 segments again); \
             received 500 Mbit/s (55.0 % of 908.97 Mbit/s, limit: unknown, 12 segments again)"
        );
    }

    #[test]
    fn where_no_line_rate_is_known_there_is_no_share_and_still_a_verdict() {
        let result = judged(done(908.0, 500.0), &PeerWay::default(), None);
        assert!(result.done.legs.iter().all(|leg| leg.flows().all(|(_, f)| f.ceiling.is_none())));
        assert_eq!(limits(&result), [Limit::Unknown; 2]);
        assert!(headline(&result).starts_with("sent 908 Mbit/s (limit: unknown, 12 "));
    }

    #[test]
    fn what_the_peer_says_of_its_end_is_part_of_the_way() {
        let mut told = leg(LinkDirection::Forward, 4, 908.0);
        assert_eq!(peers_end(&told), EndLine::default());
        let line = EndLine { sends: Some(Rate(125e6)), receives: Some(Rate(12.5e6)) };
        told.identity = Some(LinkIdentity { line, ..LinkIdentity::default() });
        assert_eq!(peers_end(&told), line);
    }

    #[test]
    fn others_spoil_the_direction_that_they_use() {
        let both = judged(done(700.0, 700.0), &vxlan(), Some([150.0, 10.0]));
        assert_eq!(limits(&both), [Limit::Unknown, Limit::Contended]);
        let unseen = judged(done(700.0, 700.0), &vxlan(), None);
        assert_eq!(limits(&unseen), [Limit::Unknown; 2]);
    }

    #[test]
    fn a_direction_that_was_not_measured_has_no_verdict() {
        let one_way = LinkDone { single: None, legs: vec![leg(LinkDirection::Reverse, 4, 908.0)] };
        let result = judged(one_way, &vxlan(), None);
        assert!(result.verdicts[0].is_none() && result.verdicts[1].is_some());
        let both = LinkDone { single: None, legs: vec![leg(LinkDirection::Both, 4, 908.0)] };
        assert_eq!(limits(&judged(both, &vxlan(), None)), [Limit::Link; 2]);
    }
}
