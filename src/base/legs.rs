//! Two depths of one workload, compared: whether twice as much in flight went faster or only waited
//! longer. A closed loop keeps its device busy at any depth, so nothing else shows saturation.

use serde::{Deserialize, Serialize};

use super::units::Seconds;

/// Twice the depth gives less than this times the rate where nothing is left to give ...
const SATURATED_RATE: f64 = 1.15;
/// ... and at least this times the latency.
const SATURATED_LATENCY: f64 = 1.5;
/// A spindle that orders its queue goes on getting a little faster: less than this is saturated,
const ROTATIONAL_RATE: f64 = 1.35;
/// with at least this times the latency.
const ROTATIONAL_LATENCY: f64 = 1.35;
/// From here on more depth clearly goes faster.
const UNSATURATED_RATE: f64 = 1.5;
/// Below, something else changed: a burst ended, flash collects garbage, heat.
const UNSTEADY_RATE: f64 = 0.85;
/// The knee is the smallest depth whose rate is within this share of the best.
const KNEE_SHARE: f64 = 0.05;

/// Share of what was asked for that is in flight at the device, from which time is spent there and
/// not on the way to it: by Little's law it is the share of an operation's life.
const AT_DEVICE_SHARE: f64 = 0.9;

/// Whether operations of a closed loop of `depth` spent their time at the device, where `in_flight`
/// were seen. Then nothing above it was waited for, however busy that was.
pub fn waits_at_device(in_flight: f64, depth: f64) -> bool {
    depth > 0.0 && in_flight >= AT_DEVICE_SHARE * depth
}

/// Operations a second, and their mean latency.
pub type RateLatency = (f64, Seconds);

/// What a second leg at twice the depth says of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Saturation {
    /// More depth only waits longer.
    Saturated,
    /// More depth goes faster.
    Unsaturated,
    /// The rate fell: the two legs didn't see the same device.
    Unsteady,
    /// Neither can be claimed.
    Between,
}

/// Compares a leg with one of twice its depth; `rotational` as [`rotational_rule`] says.
pub fn classify(first: RateLatency, second: RateLatency, rotational: bool) -> Saturation {
    let (rate, latency) = (second.0 / first.0, second.1.0 / first.1.0);
    let usable = [first.0, first.1.0, second.0, second.1.0].into_iter().all(|n| n > 0.0);
    if !usable || !rate.is_finite() || !latency.is_finite() {
        return Saturation::Between;
    }
    let flat = rate < SATURATED_RATE && latency >= SATURATED_LATENCY;
    let flat_spindle = rotational && rate < ROTATIONAL_RATE && latency >= ROTATIONAL_LATENCY;
    match rate {
        _ if rate < UNSTEADY_RATE => Saturation::Unsteady,
        _ if flat || flat_spindle => Saturation::Saturated,
        _ if rate >= UNSATURATED_RATE => Saturation::Unsaturated,
        _ => Saturation::Between,
    }
}

/// Whether random operations on `spindles` rotational disks were outstanding at least twice over,
/// each weighed by what it costs the array (1 for a read): then the weaker rule holds.
pub fn rotational_rule(outstanding: u32, penalty: f64, spindles: usize) -> bool {
    spindles > 0 && f64::from(outstanding) * penalty >= 2.0 * spindles as f64
}

/// One depth of a ladder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rung {
    /// Operations in flight, of all jobs.
    pub depth: u32,
    pub operations_per_second: f64,
    pub latency_mean: Seconds,
}

impl Rung {
    fn pair(&self) -> RateLatency {
        (self.operations_per_second, self.latency_mean)
    }
}

/// What the last two rungs of a ladder say; `None` before there are two.
pub fn top_of(rungs: &[Rung], spindles: usize) -> Option<Saturation> {
    let [.., first, second] = rungs else { return None };
    let rotational = rotational_rule(first.depth, 1.0, spindles);
    Some(classify(first.pair(), second.pair(), rotational))
}

/// The smallest depth within 5 % of the best rate, by its index; `None` of no rungs.
pub fn knee_of(rungs: &[Rung]) -> Option<usize> {
    let best = rungs.iter().map(|rung| rung.operations_per_second).fold(0.0, f64::max);
    let near = |rung: &Rung| rung.operations_per_second >= best * (1.0 - KNEE_SHARE);
    rungs.iter().position(near).filter(|_| best > 0.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(rate: f64, latency: f64, rotational: bool) -> Saturation {
        classify((100.0, Seconds(0.01)), (100.0 * rate, Seconds(0.01 * latency)), rotational)
    }

    #[test]
    fn twice_the_depth_either_goes_faster_or_waits_longer() {
        use Saturation::{Between, Saturated, Unsaturated, Unsteady};
        for (rate, latency, rotational, said) in [
            (1.0, 2.0, false, Saturated),
            (1.14, 1.75, false, Saturated),
            (1.16, 1.72, false, Between),
            (1.0, 1.4, false, Between),
            (1.49, 1.34, false, Between),
            (1.5, 1.33, false, Unsaturated),
            (2.0, 1.0, false, Unsaturated),
            (0.86, 2.3, false, Saturated),
            (0.84, 2.4, false, Unsteady),
            (1.3, 1.54, false, Between),
            (1.3, 1.54, true, Saturated),
            (1.36, 1.47, true, Between),
            (0.8, 2.5, true, Unsteady),
        ] {
            assert_eq!(of(rate, latency, rotational), said, "{rate} {latency} {rotational}");
        }
    }

    #[test]
    fn the_weaker_rule_wants_every_spindle_busy_twice_over() {
        assert!(rotational_rule(8, 1.0, 3) && !rotational_rule(4, 1.0, 3));
        assert!(rotational_rule(4, 2.0, 3), "each write goes to two of them");
        assert!(!rotational_rule(8, 1.0, 0), "nothing turns");
    }

    /// A device that serves up to `ways` at once, each in 10 ms.
    fn rungs(ways: u32, depths: &[u32]) -> Vec<Rung> {
        let rung = |depth: u32| {
            let rate = f64::from(depth.min(ways)) * 100.0;
            let latency_mean = Seconds(f64::from(depth) / rate);
            Rung { depth, operations_per_second: rate, latency_mean }
        };
        depths.iter().map(|depth| rung(*depth)).collect()
    }

    #[test]
    fn a_ladder_ends_one_rung_above_its_knee() {
        let up_to = |n: u32| (0..=n).map(|i| 1 << i).collect::<Vec<u32>>();
        let whole = rungs(32, &up_to(6));
        assert_eq!(top_of(&whole[..1], 0), None);
        assert_eq!(top_of(&whole[..6], 0), Some(Saturation::Unsaturated));
        assert_eq!(top_of(&whole, 0), Some(Saturation::Saturated));
        assert_eq!(knee_of(&whole).map(|at| whole[at].depth), Some(32));
        assert_eq!(knee_of(&rungs(1, &up_to(1))), Some(0));
        assert_eq!(knee_of(&[]), None);
        assert_eq!(knee_of(&[Rung::default()]), None, "nothing moved");
    }

    proptest! {
        #[test]
        fn no_numbers_make_a_claim_that_is_not_theirs(n in prop::array::uniform4(any::<f64>()), r: bool) {
            let [a, b, c, d] = n;
            let said = classify((a, Seconds(b)), (c, Seconds(d)), r);
            prop_assert!(said == Saturation::Between || (a > 0.0 && b > 0.0 && c > 0.0 && d > 0.0));
            prop_assert!(said != Saturation::Unsaturated || c >= a);
        }
    }
}
