//! `throttle`: a limit that somebody set, seen in a counter or in rates that are too even to be a
//! medium's.

use super::{Finding, legs, link, percent};
use crate::base::limits::{FALLEN_SHARE, IO_LIMIT_SHARE};
use crate::base::physics::{is_round, is_round_rate};
use crate::base::units::{Bytes, Frequency, KIB, MIB, Rate};
use crate::judge::ceilings::{self, Believed};
use crate::judge::confidence::Margin;
use crate::judge::facts::Facts;
use crate::model::path::Media;
use crate::model::verdict::{Ceiling, Unit};

const CGROUP: Margin = Margin { x: 0.0, threshold: IO_LIMIT_SHARE, full: 0.99 };
const EVEN: Margin = Margin { x: 0.0, threshold: 0.02, full: 0.01 };
/// Rates of two depths, or of two block sizes, that are one.
const EQUAL: f64 = 0.03;
/// A link whose streams get the same, and whose queue is short.
const POLICED_GAIN: f64 = 0.1;
const POLICED_RETRANSMITS: Margin = Margin { x: 0.0, threshold: 0.005, full: 0.02 };
const POLICED_MOST: f64 = 0.65;
/// In flight without a second leg from which flash would show what it can.
const DEEP: f64 = 8.0;
/// One number in four is round by chance: on a disk of which nothing is known that alone is little.
const ROUND_MOST: f64 = 0.65;
/// Less than this share of what could be in flight is at the device: what holds it is above.
const ROOM: f64 = 0.5;
const ABOVE_MOST: f64 = 0.65;
const ADVICE: &str = "raise the limit, or choose a larger volume type";

pub(super) fn look(facts: &Facts) -> Option<Finding> {
    if facts.is_link() { policed(facts) } else { even(facts) }
}

/// A cgroup's limit, by its own counter.
pub(super) fn counted(facts: &Facts) -> Option<Finding> {
    let used = facts.device.cgroup_ratio?.0;
    let text = "a cgroup's I/O limit holds this run back";
    let mut found = Finding::new(Margin { x: used, ..CGROUP }, used, text)
        .because(format!("{} of the cgroup's limit is used", percent(used)))
        .second(near_set_limit(facts).is_some())
        .advise("raise io.max of the cgroup");
    found.counted = true;
    found.holds.then_some(found)
}

fn policed(facts: &Facts) -> Option<Finding> {
    let (gain, resent) = (facts.gain()?, link::ratio(facts)?);
    let text = "a policer drops what is above its rate";
    let found = Finding::new(Margin { x: resent, ..POLICED_RETRANSMITS }, resent, text)
        .only_if((gain - 1.0).abs() <= POLICED_GAIN)
        .at_most_if(true, POLICED_MOST)
        .because(format!("{:.2} % of segments were sent again", resent * 100.0))
        .because(legs(facts)?)
        .advise("ask who polices this path, or shape below its rate");
    Some(found)
}

/// Rates equal at both depths, hardly varying, and one more fact.
fn even(facts: &Facts) -> Option<Finding> {
    let cv = facts.rate_cv?;
    let flat = match facts.saturation() {
        Some(_) => facts.is_saturated() && (facts.gain()? - 1.0).abs() <= EQUAL,
        None => true,
    };
    let set = near_set_limit(facts);
    let same_operations = same_operations(facts);
    let facts_of_it: Vec<String> =
        [set.as_ref().map(|ceiling| format!("{} is set", show(ceiling))), same_operations.clone()]
            .into_iter()
            .chain([under_the_medium(facts)])
            .chain(opaque(facts))
            .flatten()
            .collect();
    // An even rate alone is no sign of a limit, and what more depth speeds up is under none.
    if !flat || facts_of_it.is_empty() {
        return None;
    }
    let by_one = set.is_none() && same_operations.is_none() && facts_of_it.len() == 1;
    let by_number_alone = by_one && only_undeclared(facts);
    // One in four is round by chance, and what a limiter lets through hardly varies. Of small blocks
    // operations are limited: that their bytes are round as well is chance more often.
    let by_chance = only_undeclared(facts) || round_operations(facts).is_none();
    let by_round = by_one && by_chance && round(facts).is_some();
    let cv_max = if by_round { EVEN.full } else { EVEN.threshold };
    // A lock in software above an idle disk is as even.
    let has_room = facts.in_flight_share().is_some_and(|share| share < ROOM);
    let text = "a limit that somebody set holds the rate: too even for a medium";
    let mut found = Finding::new(Margin { x: cv, ..EVEN }, cv, text)
        .only_if(cv < cv_max)
        .second(set.is_some() || same_operations.is_some() || facts_of_it.len() >= 2)
        .at_most_if(by_number_alone, ROUND_MOST)
        .at_most_if(has_room && set.is_none(), ABOVE_MOST)
        .because(format!("the rate varied by {:.1} %", cv * 100.0))
        .advise(ADVICE);
    found.because.extend(facts_of_it);
    found.because.extend(legs(facts));
    Some(found.under(set))
}

fn show(ceiling: &Ceiling) -> String {
    ceiling.unit.show(ceiling.value)
}

/// A declared limit within 3 %.
fn near_set_limit(facts: &Facts) -> Option<Ceiling> {
    let Believed::Yes(ceiling) = ceilings::set_limit(facts) else { return None };
    let rate = match ceiling.unit {
        Unit::OperationsPerSecond => facts.operations(),
        Unit::BytesPerSecond => facts.bytes(),
    }?;
    ((rate / ceiling.value - 1.0).abs() <= EQUAL).then_some(ceiling)
}

/// Less than the medium can do: spindles below their band, flash below what any flash does.
fn under_the_medium(facts: &Facts) -> Option<String> {
    if let (Some(band), Some(rate)) = (facts.band(), facts.operations()) {
        return (rate < band.low).then(|| {
            format!("{} is below the {} of its spindles", Frequency(rate), Frequency(band.low))
        });
    }
    let few_in_flight = facts.gain().is_none() && facts.depth.is_none_or(|depth| depth < DEEP);
    let (operations_min, bytes_min) = match facts.backing.media? {
        _ if few_in_flight => return None,
        Media::Hdd => return None,
        Media::Ssd => (5_000.0, 100e6),
        Media::Nvme => (20_000.0, 500e6),
    };
    if facts.mean_block()? > (64 * KIB) as f64 {
        let bytes = facts.bytes()?;
        return (bytes < bytes_min).then(|| format!("{} is little for flash", Rate(bytes)));
    }
    let rate = facts.operations()?;
    (rate < operations_min).then(|| format!("{} is little for flash", Frequency(rate)))
}

/// Operations a second are the same at 4 and at 16 KiB: spindles do that by nature, in their band.
fn same_operations(facts: &Facts) -> Option<String> {
    let small = |block: f64| (3.9..=16.1).contains(&(block / KIB as f64));
    let (block, rate) = (facts.mean_block()?, facts.operations()?);
    let below_band = facts.band().is_some_and(|band| rate < band.low);
    if facts.rotational() == Some(true) && !below_band {
        return None;
    }
    let (other, _) = other_block(facts, |other, theirs| {
        let apart = other.0 as f64 / block;
        small(block)
            && small(other.0 as f64)
            && !(0.3..=3.0).contains(&apart)
            && (theirs / rate - 1.0).abs() <= EQUAL
    })?;
    Some(format!("{other} operations come at the same rate"))
}

/// It may be a disk like any other: nobody says that it is virtual or behind a network.
fn only_undeclared(facts: &Facts) -> bool {
    facts.is_opaque() && !facts.network_backed() && facts.device.is_virtual != Some(true)
}

/// What only says something where nobody knows the medium.
fn opaque(facts: &Facts) -> Vec<Option<String>> {
    if !facts.is_opaque() {
        return Vec::new();
    }
    vec![same_bytes(facts), round(facts), fallen(facts)]
}

/// Bytes a second are the same at 16 KiB and at 1 MiB.
fn same_bytes(facts: &Facts) -> Option<String> {
    let (block, bytes) = (facts.mean_block()?, facts.bytes()?);
    let near = |block: f64, size: u64| (block / size as f64 - 1.0).abs() < 0.05;
    let (other, _) = other_block(facts, |other, rate| {
        let theirs = other.0 as f64;
        let pair = (near(block, 16 * KIB) && near(theirs, MIB))
            || (near(block, MIB) && near(theirs, 16 * KIB));
        pair && (theirs * rate / bytes - 1.0).abs() <= EQUAL
    })?;
    Some(format!("{other} blocks give the same bytes a second"))
}

fn other_block(facts: &Facts, is: impl Fn(Bytes, f64) -> bool) -> Option<(Bytes, Frequency)> {
    facts.known.other_blocks.iter().copied().find(|(block, rate)| is(*block, rate.0))
}

fn round_operations(facts: &Facts) -> Option<f64> {
    let counts = facts.is_large() == Some(false);
    facts.operations().filter(|rate| counts && is_round(*rate))
}

fn round(facts: &Facts) -> Option<String> {
    if let Some(operations) = round_operations(facts) {
        return Some(format!("{} is a round number", Frequency(operations)));
    }
    let bytes = facts.bytes().filter(|bytes| is_round_rate(Rate(*bytes)))?;
    Some(format!("{} is a round number", Rate(bytes)))
}

fn fallen(facts: &Facts) -> Option<String> {
    let large = facts.is_large()?;
    let unit = if large { Unit::BytesPerSecond } else { Unit::OperationsPerSecond };
    let ceiling = ceilings::learned(facts, unit)?;
    let rate = if large { facts.bytes()? } else { facts.operations()? };
    (rate < FALLEN_SHARE * ceiling.value).then(|| format!("it once gave {}", show(ceiling)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Ratio;
    use crate::judge::facts::{CpuFacts, DeviceFacts, SecondLeg};
    use crate::judge::limits::judge;
    use crate::model::job::Access;
    use crate::model::path::DeclaredBacking;
    use crate::model::verdict::Limit;

    fn even_run(rate: f64, gain: f64) -> Facts {
        let rate_per_second = rate * gain;
        Facts {
            access: Some(Access::Random),
            depth: Some(32.0),
            read_operations_per_second: Some(Frequency(rate)),
            read_bytes_per_second: Some(Rate(rate * 4096.0)),
            second_leg: Some(SecondLeg { rate_per_second, ..SecondLeg::default() }),
            rate_cv: Some(0.004),
            ..Facts::default()
        }
    }

    #[test]
    fn an_even_round_number_under_an_unknown_medium_is_a_limit() {
        let verdict = judge(&even_run(500.0, 1.001));
        assert_eq!((verdict.limit, verdict.confidence), (Limit::Throttle, 0.65));
        assert_ne!(judge(&even_run(504.0, 1.001)).limit, Limit::Throttle, "not round");
        assert_ne!(judge(&even_run(500.0, 1.05)).limit, Limit::Throttle, "not equal");
        let noisy = Facts { rate_cv: Some(0.03), ..even_run(500.0, 1.0) };
        assert_ne!(judge(&noisy).limit, Limit::Throttle);
    }

    #[test]
    fn an_even_rate_alone_is_not_near_a_limit() {
        let rivals = |rate, gain| {
            let rivals = judge(&even_run(rate, gain)).rivals;
            rivals.into_iter().map(|rival| rival.limit).collect::<Vec<_>>()
        };
        assert!(!rivals(504.0, 1.0).contains(&Limit::Throttle), "no other sign of one");
        assert!(!rivals(500.0, 1.9).contains(&Limit::Throttle), "more depth goes faster");
        let uneven = judge(&Facts { rate_cv: Some(0.025), ..even_run(500.0, 1.0) });
        let throttle = uneven.rivals.iter().find(|rival| rival.limit == Limit::Throttle);
        assert!(throttle.is_some_and(|rival| (rival.ratio - 0.8).abs() < 0.01), "{uneven:?}");
    }

    #[test]
    fn bytes_of_small_blocks_are_round_by_chance_unless_the_rate_hardly_varies() {
        let of = |rate_cv| {
            let device = DeviceFacts { is_virtual: Some(true), ..DeviceFacts::default() };
            let facts = Facts { device, rate_cv: Some(rate_cv), ..even_run(6359.8, 1.0) };
            judge(&facts).limit
        };
        assert_eq!(of(0.004), Limit::Throttle, "26.05 MB/s is 26 MB/s");
        assert_ne!(of(0.016), Limit::Throttle);
    }

    #[test]
    fn flash_that_is_slow_and_even_is_held_back() {
        let of = |rate, media| {
            let backing = DeclaredBacking { media: Some(media), ..DeclaredBacking::default() };
            judge(&Facts { backing, ..even_run(rate, 1.0) }).limit
        };
        assert_eq!(of(4_321.0, Media::Ssd), Limit::Throttle);
        assert_eq!(of(6_321.0, Media::Ssd), Limit::Operations);
        assert_eq!(of(16_021.0, Media::Nvme), Limit::Throttle);
    }

    #[test]
    fn a_declared_limit_is_a_second_fact() {
        let operations_limit = Some(Frequency(730.0));
        let backing = DeclaredBacking { operations_limit, ..DeclaredBacking::default() };
        let verdict = judge(&Facts { backing, ..even_run(733.0, 1.0) });
        assert_eq!((verdict.limit, verdict.confidence), (Limit::Throttle, 1.0));
    }

    #[test]
    fn a_cgroups_own_counter_needs_no_second_leg() {
        let cgroup_ratio = Some(Ratio(0.995));
        let device = DeviceFacts { cgroup_ratio, ..DeviceFacts::default() };
        let verdict = judge(&Facts { second_leg: None, device, ..even_run(300.0, 1.0) });
        assert_eq!((verdict.limit, verdict.confidence), (Limit::Throttle, 0.75));
    }

    #[test]
    fn an_even_rate_above_an_idle_disk_is_a_guess() {
        let of = |in_flight| {
            let device = DeviceFacts { in_flight: Some(in_flight), ..DeviceFacts::default() };
            let backing = DeclaredBacking { media: Some(Media::Ssd), ..DeclaredBacking::default() };
            judge(&Facts { device, backing, depth: Some(16.0), ..even_run(300.0, 1.0) }).confidence
        };
        assert_eq!((of(15.9) > 0.7, of(1.0)), (true, ABOVE_MOST));
    }

    #[test]
    fn a_used_up_limit_of_a_cgroup_needs_no_idle_cpu() {
        let cgroup_ratio = Some(Ratio(0.995));
        let device = DeviceFacts { cgroup_ratio, ..DeviceFacts::default() };
        let cpu = CpuFacts { steal_ratio: Some(Ratio(0.25)), ..CpuFacts::default() };
        assert_eq!(judge(&Facts { device, cpu, ..even_run(300.0, 1.0) }).limit, Limit::Throttle);
    }

    #[test]
    fn four_and_sixteen_kibibytes_at_one_rate_are_counted_operations() {
        let mut facts = even_run(7_130.0, 1.0);
        assert_ne!(judge(&facts).limit, Limit::Throttle);
        facts.known.other_blocks = vec![(Bytes(16 * KIB), Frequency(7_080.0))];
        let verdict = judge(&facts);
        assert_eq!((verdict.limit, verdict.confidence), (Limit::Throttle, 1.0));
    }
}
