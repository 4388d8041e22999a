//! `seek`: heads that move. Random operations on spindles, as many as those spindles give.

use super::{Finding, legs, percent};
use crate::base::physics::Band;
use crate::base::units::Frequency;
use crate::judge::ceilings::direction;
use crate::judge::confidence::Margin;
use crate::judge::facts::{Facts, LARGE_BLOCK};
use crate::model::verdict::{Ceiling, Trust, Unit};

/// Distance from the nearer edge of the band, as a share of that edge.
const INSIDE: Margin = Margin { x: 0.0, threshold: 0.0, full: 0.1 };
/// Of the sequential rate: above it large random blocks are no longer about seeks.
const OF_SEQUENTIAL: f64 = 0.5;
/// Below the band nobody knows why.
const DEGRADED_MOST: f64 = 0.5;

pub(super) fn look(facts: &Facts) -> Option<Finding> {
    let (one, band) = (facts.spindle()?, facts.band()?);
    let (rate, spindles) = (facts.operations()?, facts.spindles()?);
    let inside = (rate / band.low - 1.0).min(1.0 - rate / band.high);
    let degraded = rate < band.low;
    let margin =
        if degraded { Margin { x: 0.0, ..INSIDE } } else { Margin { x: inside, ..INSIDE } };
    let text = if degraded {
        format!("heads that move, and only {} from {}: degraded", Frequency(rate), count(spindles))
    } else {
        format!("heads that move: {} from {}", Frequency(rate), count(spindles))
    };
    let busy = facts.busy_spindles();
    let claimed = match facts.saturation() {
        Some(_) => facts.is_saturated(),
        // Without any word of saturation: each spindle has at least one request to seek for.
        None => busy || facts.depth.is_none_or(|depth| facts.devices().is_some_and(|n| depth >= n)),
    };
    let mut found = Finding::new(margin, rate / band.high, text)
        .only_if(rate <= band.high && is_about_seeks(facts) && claimed)
        .second(busy)
        .at_most_if(degraded, DEGRADED_MOST)
        .advise(if degraded { DEGRADED } else { MORE })
        .because(format!("a spindle gives {}", show(one)));
    if let Some(share) = facts.device.busy_ratio {
        found = found.because(format!("the device was busy {}", percent(share.0)));
    }
    found.because.extend(legs(facts));
    found.ceiling_text = Some(match spindles {
        n if (n - 1.0).abs() < 0.01 => show(one),
        n => format!("{} a spindle, x{}", show(one), trim(n)),
    });
    Some(found.under(Some(ceiling(facts, band, spindles))))
}

const MORE: &str = "more spindles, or flash";
const DEGRADED: &str = "look at the disk's health and at what else it does";

fn ceiling(facts: &Facts, band: Band, spindles: f64) -> Ceiling {
    let what = ("spindles", direction(facts));
    let source = (Trust::Computed, format!("the best of {}", count(spindles)));
    Ceiling::lasting((band.high, Unit::OperationsPerSecond), what, source)
}

fn is_about_seeks(facts: &Facts) -> bool {
    let small = facts.mean_block().is_some_and(|block| block < LARGE_BLOCK.0 as f64);
    let sequential = facts.known.sequential_read_bytes_per_second;
    let slow = sequential.zip(facts.bytes()).is_some_and(|(s, bytes)| bytes < OF_SEQUENTIAL * s.0);
    small || slow
}

fn show(band: Band) -> String {
    format!("{:.0}-{:.0}/s", band.low, band.high)
}

fn trim(n: f64) -> String {
    let text = format!("{n:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

fn count(spindles: f64) -> String {
    match spindles {
        n if (n - 1.0).abs() < 0.01 => "one spindle".into(),
        n if n.fract() == 0.0 => format!("{n} spindles"),
        n => format!("{} spindles' worth", trim(n)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{Rate, Ratio};
    use crate::judge::facts::{DeviceFacts, SecondLeg};
    use crate::judge::limits::judge;
    use crate::model::job::Access;
    use crate::model::path::{DeclaredBacking, Media};
    use crate::model::verdict::Limit;

    fn spindle(rate: f64) -> Facts {
        Facts {
            access: Some(Access::Random),
            depth: Some(8.0),
            read_operations_per_second: Some(Frequency(rate)),
            read_bytes_per_second: Some(Rate(rate * 4096.0)),
            backing: DeclaredBacking { media: Some(Media::Hdd), ..DeclaredBacking::default() },
            device: DeviceFacts { busy_ratio: Some(Ratio(0.99)), ..DeviceFacts::default() },
            ..Facts::default()
        }
    }

    #[test]
    fn busy_spindles_that_give_what_spindles_give_seek() {
        let verdict = judge(&spindle(118.0));
        assert_eq!((verdict.limit, verdict.confidence), (Limit::Seek, 0.75));
        let rate_per_second = 118.0 * 1.2;
        let second_leg = Some(SecondLeg { rate_per_second, ..SecondLeg::default() });
        assert_eq!(judge(&Facts { second_leg, ..spindle(118.0) }).confidence, 1.0);
    }

    #[test]
    fn random_blocks_that_come_once_each_seek_too() {
        let mapped = Facts { access: Some(Access::RandomMap), ..spindle(118.0) };
        assert_eq!(judge(&mapped), judge(&spindle(118.0)));
    }

    #[test]
    fn below_the_band_it_is_degraded_and_never_sure() {
        let verdict = judge(&spindle(40.0));
        assert_eq!((verdict.limit, verdict.confidence), (Limit::Seek, 0.5));
        assert!(verdict.text.contains("degraded"));
    }

    #[test]
    fn spindles_that_would_go_faster_with_more_depth_do_not_seek_yet() {
        let rate_per_second = 118.0 * 1.9;
        let second_leg = Some(SecondLeg { rate_per_second, ..SecondLeg::default() });
        assert_eq!(judge(&Facts { second_leg, ..spindle(118.0) }).limit, Limit::Latency);
    }
}
