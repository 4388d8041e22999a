//! Legs of one profile at different depths: what one is, and what two of them find.

use super::evidence::{Around, SHORT_SECONDS, Seen};
use crate::base::legs::{RateLatency, Saturation, classify, rotational_rule};
use crate::base::units::Seconds;
use crate::model::job::Profile;
use crate::model::outcome::{Done, Knee, Measured, SecondLeg};
use crate::workload::Halt;

/// What runs single legs: a course, or a script.
pub(super) trait Legs {
    /// Runs one leg with an equal share, with `later` others, of the bytes that the run has left;
    /// `None` where that isn't a block.
    fn leg(&mut self, profile: &Profile, index: usize, later: usize) -> Option<Pass>;
    /// Disks under the target that turn, where all of them do and the access is random.
    fn spindles(&self, profile: &Profile) -> usize;
    /// Since the first leg.
    fn elapsed(&self) -> Seconds;
}

/// Legs that were run under one observer.
#[derive(Debug, Default)]
pub(super) struct Pass {
    pub(super) measured: Vec<Measured>,
    pub(super) seen: Seen,
    /// Why it didn't come to its end.
    pub(super) halt: Option<Halt>,
}

impl Pass {
    /// Rate and mean latency of its one leg, where that came to its end and was long enough.
    pub(super) fn result(&self) -> Option<RateLatency> {
        let [leg] = &self.measured[..] else { return None };
        let whole = self.halt.is_none() && leg.elapsed.0 >= SHORT_SECONDS;
        whole.then(|| (leg.operations_per_second(), leg.latency_mean()))
    }

    /// It never began: an engine that doesn't go so deep, or no memory.
    pub(super) fn could_not_begin(&self) -> bool {
        self.measured.is_empty() && matches!(self.halt, Some(Halt::Failed(_)))
    }
}

/// What the passes of a run came to.
#[derive(Default)]
pub(super) struct Found {
    pub(super) first: Pass,
    /// What it says, and whether the first was repeated after it.
    pub(super) second: Option<(Pass, Saturation, bool)>,
    pub(super) knee: Option<Knee>,
    /// Of a pass that is neither of them.
    pub(super) halt: Option<Halt>,
}

impl Found {
    pub(super) fn end(self, around: &Around) -> (Option<Halt>, Done) {
        let second_leg = self.second.and_then(|(mut pass, says, first_repeated)| {
            let measured = pass.measured.pop()?;
            let evidence = around.complete(pass.seen);
            Some(Box::new(SecondLeg { measured, evidence, says, first_repeated }))
        });
        let done = Done {
            legs: self.first.measured,
            evidence: around.complete(self.first.seen),
            second_leg,
            knee: self.knee.map(Box::new),
            ..Done::default()
        };
        (self.first.halt.or(self.halt), done)
    }
}

/// The profile as named, then at twice its depth. A rate that fell says that something else changed,
/// and the first is run again: what it gives then is its result.
pub(super) fn twice(course: &mut dyn Legs, first: &Profile, second: &Profile) -> Found {
    let Some(mut one) = course.leg(first, 0, 1) else { return Found::default() };
    let Some(result) = one.result() else { return Found { first: one, ..Found::default() } };
    let Some(two) = course.leg(second, 1, 0) else {
        return Found { first: one, ..Found::default() };
    };
    let Some(deeper) = two.result() else {
        let halt = if two.could_not_begin() { None } else { two.halt };
        return Found { first: one, halt, ..Found::default() };
    };
    let spindles = course.spindles(first);
    let rotational = rotational_rule(first.in_flight_max(), 1.0, spindles);
    let mut says = classify(result, deeper, rotational);
    let mut repeated = false;
    if says == Saturation::Unsteady {
        let again = Profile { runtime: second.runtime, ramp: second.ramp, ..first.clone() };
        let again = course.leg(&again, 0, 0);
        match again.map(|pass| (pass.result(), pass)) {
            Some((Some(result), pass)) => {
                says = classify(result, deeper, rotational);
                (one, repeated) = (pass, true);
            }
            Some((None, Pass { halt: Some(halt), .. })) => {
                return Found { first: one, halt: Some(halt), ..Found::default() };
            }
            _ => {}
        }
    }
    Found { first: one, second: Some((two, says, repeated)), ..Found::default() }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::model::outcome::Direction;
    use crate::model::samples::measured;
    use crate::probe::depths::two_legs;
    use crate::probe::disk::{Preset, shape};

    /// Legs on a device of so many ways, each of which serves `rate` a second.
    pub(crate) struct Script {
        ways: u32,
        rate: f64,
        pub(crate) depths: Vec<u32>,
        pub(crate) seconds_per_leg: f64,
        /// From this leg on, every rate is so much of what it was.
        pub(crate) slow_from: Option<(usize, f64)>,
        pub(crate) stops_at: Option<usize>,
        bytes_left: u64,
    }

    impl Script {
        pub(crate) fn ways(ways: u32, rate: f64) -> Self {
            let (depths, bytes_left) = (Vec::new(), u64::MAX);
            let (slow_from, stops_at, seconds_per_leg) = (None, None, 1.5);
            Self { ways, rate, depths, seconds_per_leg, slow_from, stops_at, bytes_left }
        }
    }

    impl Legs for Script {
        fn leg(&mut self, profile: &Profile, _: usize, _: usize) -> Option<Pass> {
            let number = self.depths.len();
            let depth = profile.in_flight_max();
            self.depths.push(depth);
            let slow = self.slow_from.filter(|(from, _)| *from <= number).map_or(1.0, |s| s.1);
            let rate = f64::from(depth.min(self.ways)) * self.rate * slow;
            let seconds = self.seconds_per_leg.min(self.bytes_left as f64 / rate / 4096.0);
            let operations = (rate * seconds).round() as u64;
            self.bytes_left -= (operations * 4096).min(self.bytes_left);
            let latency_mean = Some(Seconds(f64::from(depth) / rate));
            let measured = Measured {
                elapsed: Seconds(seconds),
                reads: Direction { operations, latency_mean, ..Direction::default() },
                ..measured(profile.clone())
            };
            let halt = self.stops_at.filter(|at| *at <= number).map(|_| Halt::stopped());
            Some(Pass { measured: vec![measured], halt, ..Pass::default() })
        }

        fn spindles(&self, _: &Profile) -> usize {
            0
        }

        fn elapsed(&self) -> Seconds {
            Seconds(self.seconds_per_leg * self.depths.len() as f64)
        }
    }

    /// What two legs of 4 and 8 in flight find on a script.
    fn found(mut script: Script) -> (Vec<u32>, Found) {
        let base = shape(Preset::RandRead).legs.remove(0);
        let legs = two_legs(&Profile { jobs: 1, ..base }, None);
        let found = twice(&mut script, &legs[0], &legs[1]);
        (script.depths, found)
    }

    #[test]
    fn the_result_is_that_of_the_first_leg_and_the_second_says_what_it_is_worth() {
        for (ways, says) in [(1, Saturation::Saturated), (8, Saturation::Unsaturated)] {
            let (depths, found) = found(Script::ways(ways, 100.0));
            assert_eq!(depths, [4, 8]);
            let (second, said, repeated) = found.second.unwrap();
            assert_eq!((said, repeated), (says, false));
            assert_eq!(found.first.measured[0].profile.depth, 4);
            assert_eq!(second.measured[0].profile.depth, 8);
        }
    }

    #[test]
    fn a_first_leg_that_a_burst_flattered_is_repeated() {
        let mut script = Script::ways(1, 1000.0);
        script.slow_from = Some((1, 0.1));
        let (depths, found) = found(script);
        assert_eq!(depths, [4, 8, 4]);
        let first = &found.first.measured[0];
        assert_eq!(first.operations_per_second().round(), 100.0, "what it does after the burst");
        let (_, said, repeated) = found.second.unwrap();
        assert_eq!((said, repeated), (Saturation::Saturated, true));
    }

    #[test]
    fn a_first_leg_that_is_too_short_has_no_second() {
        let mut script = Script::ways(1, 1000.0);
        script.seconds_per_leg = 0.5;
        let (depths, found) = found(script);
        assert_eq!(depths, [4]);
        assert!(found.second.is_none() && found.first.measured.len() == 1);
    }

    #[test]
    fn a_stop_in_the_second_leg_halts_the_run() {
        let mut script = Script::ways(1, 1000.0);
        script.stops_at = Some(1);
        let (_, found) = found(script);
        assert!(found.halt.is_some() && found.second.is_none());
        assert_eq!(found.first.measured.len(), 1, "what was measured is kept");
    }
}
