//! `cache`: something above the medium answered. Not a result of the disk; nothing is learned.

use super::{Finding, percent};
use crate::base::limits::DEVICE_SHARE;
use crate::base::units::{Frequency, Rate, Seconds};
use crate::judge::ceilings;
use crate::judge::confidence::Margin;
use crate::judge::facts::Facts;

/// Less of the run's bytes reached the leaf disks.
const REACHED: Margin = Margin { x: 0.0, threshold: DEVICE_SHARE, full: 0.3 };
/// Times what the medium moves at most.
const FASTER: Margin = Margin { x: 0.0, threshold: 1.5, full: 2.0 };
/// Times the spindles' best, or the shortest answer that medium and round trip allow / the answer.
const BEYOND: Margin = Margin { x: 0.0, threshold: 1.0, full: 2.0 };

/// Where only a declaration says so, which may be wrong.
const GUESS: f64 = 0.5;

struct Test {
    margin: Margin,
    fact: String,
    guess: bool,
}

pub(super) fn look(facts: &Facts) -> Option<Finding> {
    if facts.is_link() {
        return None;
    }
    let tests = [reached, faster, above_the_band, too_soon, never_crossed];
    let tests: Vec<Test> = tests.into_iter().filter_map(|test| test(facts)).collect();
    let passed: Vec<&Test> = tests.iter().filter(|test| test.holds()).collect();
    let strength = |test: &&Test| (test.margin.share(), test.margin.nearness());
    let best = passed
        .iter()
        .copied()
        .max_by(|a, b| strength(a).partial_cmp(&strength(b)).unwrap_or(std::cmp::Ordering::Equal));
    let nearest =
        || tests.iter().max_by(|a, b| a.margin.nearness().total_cmp(&b.margin.nearness()));
    let best = best.or_else(nearest)?;
    let text = "something above the medium answered: this is a cache, not a disk";
    let mut found = Finding::new(best.margin, best.margin.x, text)
        .second(passed.len() >= 2)
        .at_most_if(passed.iter().all(|test| test.guess), GUESS)
        .advise("measure with more data than the cache holds, and direct");
    found.holds = !passed.is_empty();
    found.counted = found.holds;
    found.because = passed.iter().map(|test| test.fact.clone()).collect();
    Some(found)
}

impl Test {
    /// At the threshold itself nothing is beyond it.
    fn holds(&self) -> bool {
        self.margin.reached() && self.margin.x != self.margin.threshold
    }
}

/// Local disks only: behind a network the leaves are elsewhere.
fn reached(facts: &Facts) -> Option<Test> {
    if facts.network_backed() {
        return None;
    }
    let share = facts.device_share()?;
    let fact = format!("{} of the bytes reached the disks", percent(share));
    Some(Test { margin: Margin { x: share, ..REACHED }, fact, guess: false })
}

fn faster(facts: &Facts) -> Option<Test> {
    let all = facts.medium_bandwidth()?.0 * facts.devices()?;
    let bytes = facts.bytes()?;
    let fact = format!("{} is more than its {} can move", Rate(bytes), Rate(all));
    Some(Test { margin: Margin { x: bytes / all, ..FASTER }, fact, guess: false })
}

fn above_the_band(facts: &Facts) -> Option<Test> {
    let (band, rate) = (facts.band()?, facts.operations()?);
    let fact = format!(
        "{} is above the {} that these spindles give at best",
        Frequency(rate),
        Frequency(band.high)
    );
    Some(Test { margin: Margin { x: rate / band.high, ..BEYOND }, fact, guess: false })
}

/// An answer sooner than a head can be there, or than a packet can come back.
fn too_soon(facts: &Facts) -> Option<Test> {
    let latency = facts.latency_p50_seconds.filter(|latency| latency.0 > 0.0)?;
    let spindle = facts.spindle().map(|band| 1.0 / band.high);
    let wire = facts.link.round_trip_seconds.filter(|_| facts.network_backed()).map(|rtt| rtt.0);
    let least = [spindle, wire].into_iter().flatten().reduce(f64::max)?;
    let fact = format!("answers came in {latency}, sooner than the {} of its path", Seconds(least));
    Some(Test { margin: Margin { x: least / latency.0, ..BEYOND }, fact, guess: false })
}

/// More than the link to the servers carries: this host's own memory answered, if the link is what it
/// is said to be.
fn never_crossed(facts: &Facts) -> Option<Test> {
    let times = ceilings::named_link_share(facts).filter(|times| *times > ceilings::BEYOND)?;
    if facts.flags.direct == Some(true) {
        return None;
    }
    let fact = format!(
        "{times:.1} x what the link is declared to carry: it stayed on this host, or that isn't so"
    );
    Some(Test { margin: Margin { x: times, ..FASTER }, fact, guess: true })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::facts::{DeviceFacts, SecondLeg};
    use crate::judge::limits::judge;
    use crate::model::job::Access;
    use crate::model::outcome::Flags;
    use crate::model::path::{DeclaredBacking, DeclaredPath, Media};
    use crate::model::verdict::Limit;

    #[test]
    fn case_092_reads_that_no_disk_saw_are_a_cache() {
        let device = DeviceFacts { read_share: Some(0.0), ..DeviceFacts::default() };
        let facts = Facts {
            access: Some(Access::Random),
            read_operations_per_second: Some(Frequency(584_000.0)),
            read_bytes_per_second: Some(Rate(584_000.0 * 4096.0)),
            device,
            ..Facts::default()
        };
        let verdict = judge(&facts);
        assert_eq!((verdict.limit, verdict.confidence), (Limit::Cache, 0.75));
    }

    #[test]
    fn what_can_not_have_crossed_the_link_is_probably_a_cache_unless_it_was_direct() {
        let of = |bytes: f64, direct| {
            let second_leg =
                SecondLeg { rate_per_second: bytes / 1e6 * 1.01, ..Default::default() };
            let verdict = judge(&Facts {
                access: Some(Access::Sequential),
                depth: Some(8.0),
                write_operations_per_second: Some(Frequency(bytes / 1e6)),
                write_bytes_per_second: Some(Rate(bytes)),
                second_leg: Some(second_leg),
                flags: Flags { direct, ..Flags::default() },
                backing: DeclaredBacking {
                    wire: DeclaredPath { link: Some(Rate(125e6)), ..DeclaredPath::default() },
                    ..DeclaredBacking::default()
                },
                ..Facts::default()
            });
            (verdict.limit, verdict.confidence)
        };
        assert_eq!(of(480e6, None), (Limit::Cache, 0.5));
        assert_eq!(of(150e6, None).0, Limit::Backend, "a link that is a little more than declared");
        assert_eq!(of(480e6, Some(true)), (Limit::Backend, 0.5), "the declaration is wrong");
    }

    #[test]
    fn a_spindle_at_its_best_is_no_cache() {
        let media = Some(Media::Hdd);
        let facts = |rate| Facts {
            access: Some(Access::Random),
            read_operations_per_second: Some(Frequency(rate)),
            read_bytes_per_second: Some(Rate(rate * 4096.0)),
            depth: Some(32.0),
            backing: DeclaredBacking { media, ..DeclaredBacking::default() },
            ..Facts::default()
        };
        assert_ne!(judge(&facts(480.0)).limit, Limit::Cache);
        assert_eq!(judge(&facts(500.0)).limit, Limit::Cache);
    }
}
