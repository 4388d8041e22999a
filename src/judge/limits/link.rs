//! `link`: of link runs and network-backed targets, a link on the path is full.

use super::{Finding, legs, percent};
use crate::base::limits::{LINK_FULL_SHARE, LINK_SHARE};
use crate::base::units::Rate;
use crate::judge::ceilings::{self, Believed};
use crate::judge::confidence::Margin;
use crate::judge::facts::Facts;
use crate::model::verdict::{Ceiling, Trust, Unit};

const NEAR: Margin = Margin { x: 0.0, threshold: LINK_SHARE, full: LINK_FULL_SHARE };
/// From here on the CPUs may be what holds a run whose line is unknown.
const CPU_NEAR: f64 = 0.7;
/// A measured rate that stands for the ceiling is no more than a guess.
const BY_ITS_OWN_RATE: f64 = 0.5;

/// First look: full beyond doubt, whatever the CPU does.
pub(super) fn full(facts: &Facts) -> Option<Finding> {
    let mut found = near(facts)?;
    let share = found.margin.x;
    found.counted = true;
    Some(found.only_if(share >= LINK_FULL_SHARE))
}

pub(super) fn near(facts: &Facts) -> Option<Finding> {
    let Believed::Yes(ceiling) = ceilings::link(facts) else { return None };
    let (bytes, _) = ceilings::link_load(facts)?;
    let share = bytes / ceiling.value;
    let text = format!("the link is full: {} of what {} carries", percent(share), ceiling.source);
    let resent = facts.link.retransmits.filter(|count| *count > 0);
    let mut found = Finding::new(Margin { x: share, ..NEAR }, share, text)
        .because(format!("{} of {}", Rate(bytes).bits(), Rate(ceiling.value).bits()))
        .second(resent.is_some() || facts.is_saturated())
        .advise("a faster link, or less on it");
    if let Some(resent) = resent {
        found = found.because(retransmits(facts, resent));
    }
    found.because.extend(legs(facts));
    Some(found.under(Some(ceiling)))
}

/// What was sent again, against all that was sent.
fn retransmits(facts: &Facts, count: u64) -> String {
    let again = format!("{count} segments were sent again");
    let Some(share) = ratio(facts) else { return again };
    let of_all = match share * 100.0 {
        percent if percent < 0.01 => "less than 0.01 %".to_owned(),
        percent => format!("{percent:.2} %"),
    };
    let meaning = if share < 0.001 { ": a full queue, no fault" } else { "" };
    format!("{again}, {of_all}{meaning}")
}

/// Retransmitted share of all segments.
pub(super) fn ratio(facts: &Facts) -> Option<f64> {
    let segments = facts.bytes()? * facts.duration_seconds?.0 / ceilings::segment(facts)?.0 as f64;
    let share = facts.link.retransmits? as f64 / segments;
    share.is_finite().then_some(share)
}

/// Last look, where no line rate is known: more streams got no more out of it.
pub(super) fn flat(facts: &Facts) -> Option<Finding> {
    let known = matches!(ceilings::link(facts), Believed::Yes(_));
    // CPUs that are nearly full are as good a reason.
    let crowded = facts.cpu().is_some_and(|share| share >= CPU_NEAR);
    if !facts.is_link() || known || crowded || !facts.is_saturated() {
        return None;
    }
    let bytes = facts.bytes()?;
    let what = ("link", ceilings::direction(facts));
    let source = (Trust::Computed, "the measured rate".to_owned());
    let ceiling = Ceiling::lasting((bytes, Unit::BytesPerSecond), what, source);
    let text = "more streams got no more: a link, a shaper or a peer is full; its rate is unknown";
    let mut found = Finding::new(Margin { x: 1.0, ..NEAR }, 1.0, text)
        .at_most_if(true, BY_ITS_OWN_RATE)
        .advise("declare the line rate: path: {link: 1Gbit}");
    found.because.extend(legs(facts));
    Some(found.under(Some(ceiling)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{Bytes, Ratio};
    use crate::judge::facts::{CpuFacts, LinkFacts, SecondLeg, Subject};
    use crate::judge::limits::judge;
    use crate::model::path::{DeclaredBacking, DeclaredPath, Encapsulation};
    use crate::model::verdict::Limit;

    fn run(bytes: f64, link: Option<f64>) -> Facts {
        Facts {
            subject: Subject::Link,
            depth: Some(4.0),
            goodput_bytes_per_second: Some(Rate(bytes)),
            path: DeclaredPath { link: link.map(Rate), ..DeclaredPath::default() },
            ..Facts::default()
        }
    }

    #[test]
    fn an_unknown_line_is_no_limit_beside_cpus_that_are_nearly_full() {
        let of = |busy| {
            let cpu = CpuFacts { busiest_ratio: Some(Ratio(busy)), ..CpuFacts::default() };
            let second_leg = SecondLeg { rate_per_second: 2.4e9, ..SecondLeg::default() };
            judge(&Facts { cpu, second_leg: Some(second_leg), ..run(2.5e9, None) }).limit
        };
        assert_eq!((of(0.3), of(0.82)), (Limit::Link, Limit::Unknown));
    }

    #[test]
    fn nine_tenths_of_a_link_is_the_link() {
        let of = |share: f64| judge(&run(share * 1.25e9 * 1448.0 / 1538.0, Some(1.25e9)));
        assert_eq!(of(0.89).limit, Limit::Unknown);
        let near = of(0.901);
        assert!(near.limit == Limit::Link && near.confidence < 0.51, "{near:?}");
        assert_eq!(of(0.96).confidence, 0.75);
    }

    #[test]
    fn a_gigabit_that_carried_three_is_dropped_and_that_is_said() {
        let verdict = judge(&run(375e6, Some(125e6)));
        assert_eq!((verdict.limit, verdict.confidence), (Limit::Unknown, 0.0));
        assert!(verdict.because.iter().any(|fact| fact.contains("dropped")), "{verdict:?}");
    }

    #[test]
    fn jumbo_frames_that_nobody_declared_are_seen_by_what_they_carry() {
        let verdict = judge(&run(1.25e9 * 0.985, Some(1.25e9)));
        assert_eq!(verdict.limit, Limit::Link);
        assert!(verdict.ceiling.unwrap().source.ends_with("MTU 9000"));
    }

    #[test]
    fn the_segments_that_tcp_sent_tell_the_packets_whatever_is_declared() {
        let of = |mtu, segment: u64, encapsulation| {
            let segment_payload_bytes = Some(Bytes(segment));
            let link = LinkFacts { segment_payload_bytes, ..LinkFacts::default() };
            let line = run(113.6e6, Some(125e6));
            let path = DeclaredPath { mtu, encapsulation, ..line.path.clone() };
            let verdict = judge(&Facts { link, path, ..line });
            let ceiling = verdict.ceiling.unwrap();
            (format!("{:.2}", ceiling.value * 8.0 / 1e6), ceiling.source)
        };
        let plain = || ("941.48".to_owned(), "1 Gbit/s, MTU 1500".to_owned());
        assert_eq!(of(None, 1448, None), plain());
        assert_eq!(of(Some(9000), 1448, None), plain(), "a router on the way has a smaller one");
        let (most, source) = of(None, 1398, Some(Encapsulation::Vxlan));
        assert_eq!((most.as_str(), source.as_str()), ("908.97", "1 Gbit/s VXLAN, MTU 1500"));
    }

    #[test]
    fn a_flat_rate_on_an_unknown_line_is_at_most_a_guess() {
        let rate_per_second = 1.02 * 1e8;
        let second_leg = Some(SecondLeg { rate_per_second, ..SecondLeg::default() });
        let verdict = judge(&Facts { second_leg, ..run(1e8, None) });
        assert_eq!((verdict.limit, verdict.confidence), (Limit::Link, 0.5));
    }

    #[test]
    fn one_flow_goes_over_one_member_of_a_bond() {
        let bond = |streams, bytes| {
            let path = DeclaredPath {
                link: Some(Rate(1.25e9)),
                members: Some(2),
                ..DeclaredPath::default()
            };
            judge(&Facts { depth: Some(streams), path, ..run(bytes, None) })
        };
        assert_eq!(bond(1.0, 1.17e9).limit, Limit::Link);
        assert_eq!(bond(8.0, 1.17e9).limit, Limit::Unknown, "half of what two carry");
        assert_eq!(bond(8.0, 2.33e9).limit, Limit::Link);
    }

    #[test]
    fn copies_on_the_same_link_halve_what_clients_write() {
        let written = |shared_link| {
            let wire = DeclaredPath { link: Some(Rate(125e6)), ..DeclaredPath::default() };
            let backing =
                DeclaredBacking { wire, replicas: Some(3), shared_link, ..Default::default() };
            judge(&Facts {
                write_bytes_per_second: Some(Rate(57.9e6)),
                block_bytes: Some(Bytes(1 << 20)),
                backing,
                ..Facts::default()
            })
        };
        assert_eq!(written(Some(true)).limit, Limit::Link);
        assert_eq!(written(None).limit, Limit::Unknown);
    }

    #[test]
    fn few_retransmits_on_a_full_link_are_its_queue() {
        let link = LinkFacts { retransmits: Some(1989), ..LinkFacts::default() };
        let duration_seconds = Some(crate::base::units::Seconds(30.0));
        let facts = Facts { link, duration_seconds, ..run(113.5e6, Some(125e6)) };
        let verdict = judge(&facts);
        assert_eq!(verdict.confidence, 1.0);
        assert!((ratio(&facts).unwrap() - 0.00085).abs() < 0.0001, "{:?}", ratio(&facts));
        let said = |count: u64| {
            let link = LinkFacts { retransmits: Some(count), ..LinkFacts::default() };
            judge(&Facts { link, ..facts.clone() }).because.swap_remove(1)
        };
        let again = "segments were sent again";
        assert_eq!(said(1989), format!("1989 {again}, 0.08 %: a full queue, no fault"));
        assert_eq!(said(10), format!("10 {again}, less than 0.01 %: a full queue, no fault"));
        assert_eq!(said(90_000), format!("90000 {again}, 3.83 %"));
        let untimed = Facts { duration_seconds: None, ..facts.clone() };
        assert_eq!(judge(&untimed).because[1], format!("1989 {again}"));
    }
}
