//! Kind `knee`: the depth ladder on one profile. Depth doubles from 1 until twice as much in flight
//! only waits longer: the best rate is the ceiling, the knee the smallest depth that comes near it.

use serde::Deserialize;

use super::depths::{Depths, QUEUE_SECONDS_MAX};
use super::disk::{self, Preset};
use super::legs::{Found, Legs, Pass};
use super::run::{self, Rules};
use super::{Kind, Shape, Wrong, metrics, shape};
use crate::base::legs::{Rung, Saturation, knee_of, top_of};
use crate::base::units::{Bytes, Seconds};
use crate::config::read;
use crate::model::job::Profile;
use crate::model::outcome::Knee;
use crate::workload::Halt;

pub static KIND: Kind = Kind {
    name: "knee",
    help: "the depth ladder on one profile: its ceiling, and the depth that reaches it",
    example: "knee:\n  profile: rand_read\n  block_size: 4KiB\n  runtime: 18s\n  bytes: 16GiB\n",
    descs: metrics::STORAGE,
    points: |_, _, _| {},
    read: |section| shape(section, Options::shape),
    run: |run, watch| {
        run::storage(run, &Rules { flags_of_length: true, depths: Depths::Ladder }, watch)
    },
};

/// With the quiet windows a ladder is over within 20 s.
const RUNTIME: Seconds = Seconds(18.0);
/// At least two rungs of a second.
const RUNTIME_MIN: Seconds = Seconds(2.0);
/// A ladder goes to the device's end: after the first only once nobody else wanted it for a while.
const CALM: Seconds = Seconds(600.0);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    profile: Preset,
    #[serde(deserialize_with = "read::optional")]
    block_size: Option<Bytes>,
    #[serde(deserialize_with = "read::optional")]
    runtime: Option<Seconds>,
    #[serde(deserialize_with = "read::optional")]
    bytes: Option<Bytes>,
}

impl Options {
    fn shape(&self) -> Result<Shape, Wrong> {
        let shape = disk::shape(self.profile);
        let Some(base) = shape.legs.first() else { return Ok(shape) };
        let profile = Profile {
            block: self.block_size.unwrap_or(base.block),
            runtime: self.runtime.unwrap_or(RUNTIME),
            bytes_max: self.bytes.unwrap_or(base.bytes_max),
            depth: 1,
            jobs: 1,
            ..base.clone()
        };
        disk::check(&profile)?;
        if profile.runtime < RUNTIME_MIN || profile.runtime > RUNTIME {
            return Err(("runtime", format!("must be {RUNTIME_MIN} to {RUNTIME}")));
        }
        Ok(Shape {
            depths: Depths::Ladder,
            every: Seconds(86_400.0),
            calm: CALM,
            summary: format!("{} {}, from depth 1 to its knee", profile.name, profile.block),
            legs: vec![profile],
            ..shape
        })
    }
}

/// Climbs until a rung is saturated, or time, bytes or the queue bound end it. The result is the
/// rung at the knee, with the one above it as its second leg.
pub(super) fn climb(course: &mut dyn Legs, rungs: &[Profile]) -> Found {
    let time: f64 = rungs.iter().map(|rung| rung.runtime.0).sum();
    let mut ladder = Ladder::default();
    for (index, profile) in rungs.iter().enumerate() {
        let room = |course: &dyn Legs| course.elapsed().0 + profile.runtime.0 <= time;
        if !room(course) || ladder.would_queue_too_long(profile) {
            break;
        }
        let Some(pass) = course.leg(profile, index, rungs.len() - index - 1) else { break };
        if !ladder.take(profile, pass) {
            break;
        }
        let spindles = course.spindles(profile);
        let below = index.checked_sub(1).and_then(|below| rungs.get(below));
        if let Some(below) = below
            && top_of(&ladder.rungs, spindles) == Some(Saturation::Unsteady)
            && room(course)
            && let Some(pass) = course.leg(below, index - 1, rungs.len() - index)
        {
            ladder.repeat_below(below, pass);
        }
        if ladder.halt.is_some() {
            break;
        }
        let top = top_of(&ladder.rungs, spindles);
        // A knee that is the top has nothing above it yet that shows its end.
        let ended = top == Some(Saturation::Saturated) && !ladder.knee_is_top();
        if ended || top == Some(Saturation::Unsteady) {
            break;
        }
    }
    let spindles = rungs.first().map_or(0, |rung| course.spindles(rung));
    ladder.found(spindles)
}

/// Rungs that were whole, and what ended the climb.
#[derive(Default)]
struct Ladder {
    rungs: Vec<Rung>,
    passes: Vec<Pass>,
    /// The first one was cut short: it is all there is.
    only: Option<Pass>,
    repeated: bool,
    halt: Option<Halt>,
}

impl Ladder {
    /// Whether a rung would make others wait for more than 0.1 s, at the last rung's rate.
    fn would_queue_too_long(&self, next: &Profile) -> bool {
        self.rungs.last().is_some_and(|last| {
            let in_flight = f64::from(next.in_flight_max());
            in_flight > last.operations_per_second * QUEUE_SECONDS_MAX
        })
    }

    /// False where the rung gave no result: the climb is over.
    fn take(&mut self, profile: &Profile, mut pass: Pass) -> bool {
        let Some((operations_per_second, latency_mean)) = pass.result() else {
            if self.passes.is_empty() {
                self.only = Some(pass);
            } else if !pass.could_not_begin() {
                self.halt = pass.halt.take();
            }
            return false;
        };
        let depth = profile.in_flight_max();
        self.rungs.push(Rung { depth, operations_per_second, latency_mean });
        self.passes.push(pass);
        true
    }

    fn knee_is_top(&self) -> bool {
        knee_of(&self.rungs).is_some_and(|at| at + 1 == self.rungs.len())
    }

    /// Takes the rung below the top once more in place of what it was.
    fn repeat_below(&mut self, profile: &Profile, mut pass: Pass) {
        let Some(below) = self.rungs.len().checked_sub(2) else { return };
        let Some((operations_per_second, latency_mean)) = pass.result() else {
            if !pass.could_not_begin() {
                self.halt = pass.halt.take();
            }
            return;
        };
        let depth = profile.in_flight_max();
        self.rungs[below] = Rung { depth, operations_per_second, latency_mean };
        self.passes[below] = pass;
        self.repeated = true;
    }

    fn found(mut self, spindles: usize) -> Found {
        let Some(at) = knee_of(&self.rungs) else {
            let first = self.only.unwrap_or_default();
            return Found { first, halt: self.halt, ..Found::default() };
        };
        let says = top_of(&self.rungs, spindles);
        let rate = |rung: &Rung| rung.operations_per_second;
        let knee = Knee {
            depth: self.rungs[at].depth,
            operations_per_second: self.rungs.iter().map(rate).fold(0.0, f64::max),
            says,
            rungs: self.rungs.clone(),
        };
        let above = top_of(self.rungs.get(..at + 2).unwrap_or_default(), spindles);
        let second = above.map(|says| (self.passes.remove(at + 1), says, self.repeated));
        let first = self.passes.swap_remove(at);
        Found { first, second, knee: Some(knee), halt: self.halt }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::document::Document;
    use crate::probe::legs::tests::Script;

    fn read(text: &str) -> Result<Shape, String> {
        let document = Document::parse("test", text).unwrap();
        (KIND.read)(document.root().get("knee").as_ref()).map_err(|complaint| complaint.text)
    }

    /// Climbs on a script; its depths, and what was found.
    fn climbed(mut script: Script) -> (Vec<u32>, Found) {
        let rungs = super::super::depths::ladder(&read("knee: {}").unwrap().legs[0]);
        let found = climb(&mut script, &rungs);
        (script.depths, found)
    }

    #[test]
    fn a_ladder_ends_when_twice_as_much_only_waits_longer() {
        let (depths, found) = climbed(Script::ways(32, 120.0));
        assert_eq!(depths, [1, 2, 4, 8, 16, 32, 64]);
        let knee = found.knee.unwrap();
        assert_eq!((knee.depth, knee.says), (32, Some(Saturation::Saturated)));
        assert_eq!(knee.operations_per_second, 32.0 * 120.0);
        assert_eq!(found.first.measured[0].profile.depth, 32, "the result is at the knee");
        let (second, says, _) = found.second.unwrap();
        assert_eq!((second.measured[0].profile.depth, says), (64, Saturation::Saturated));
        assert_eq!(climbed(Script::ways(1, 120.0)).0, [1, 2]);
    }

    #[test]
    fn a_knee_at_the_top_has_one_rung_more_that_shows_its_end() {
        let (depths, found) = climbed(Script::ways(34, 120.0));
        assert_eq!(depths.last(), Some(&128), "64 gave 6 % more than 32, and that is saturated");
        assert_eq!(found.knee.unwrap().depth, 64);
        assert_eq!(found.second.unwrap().1, Saturation::Saturated);
    }

    #[test]
    fn a_rung_that_others_would_wait_for_is_not_climbed() {
        let (depths, found) = climbed(Script::ways(1000, 15.0));
        assert_eq!(depths, [1], "two at 15/s are 0.13 s");
        assert_eq!(found.knee.unwrap().says, None);
        assert!(found.second.is_none() && found.halt.is_none());
    }

    #[test]
    fn time_ends_a_ladder_that_nothing_saturates() {
        let mut script = Script::ways(100_000, 1000.0);
        script.seconds_per_leg = 5.1;
        let (depths, found) = climbed(script);
        assert_eq!(depths, [1, 2, 4], "a fourth would pass 16.5 s");
        let knee = found.knee.unwrap();
        assert_eq!((knee.depth, knee.says), (4, Some(Saturation::Unsaturated)));
    }

    #[test]
    fn a_rung_slower_than_the_one_below_has_that_repeated() {
        let mut script = Script::ways(4, 1000.0);
        script.slow_from = Some((3, 0.5));
        let (depths, found) = climbed(script);
        assert_eq!(depths, [1, 2, 4, 8, 4], "at 8 it had become slower: so is 4 now");
        let knee = found.knee.unwrap();
        assert_eq!(knee.rungs[2].operations_per_second, 2000.0);
        assert!(found.second.unwrap().2, "said");
    }

    #[test]
    fn a_stop_on_the_way_halts_and_keeps_what_was_measured() {
        let mut script = Script::ways(32, 120.0);
        script.stops_at = Some(3);
        let (_, found) = climbed(script);
        assert!(matches!(found.halt, Some(Halt::Skipped(..))));
        assert_eq!(found.knee.unwrap().rungs.len(), 3);
    }

    #[test]
    fn a_stop_while_the_lowest_rung_is_repeated_is_no_result() {
        let mut script = Script::ways(1, 1000.0);
        (script.slow_from, script.stops_at) = (Some((1, 0.5)), Some(2));
        let (depths, found) = climbed(script);
        assert_eq!(depths, [1, 2, 1]);
        assert!(matches!(found.halt, Some(Halt::Skipped(..))));
    }

    #[test]
    fn a_ladder_lasts_for_20_s_at_most_and_only_reads_by_default() {
        let shape = read("knee: {}").unwrap();
        assert_eq!((shape.every.0, shape.calm.0), (86_400.0, 600.0));
        assert!(shape.legs[0].runtime.0 + 2.0 * shape.quiet.0 <= 20.0);
        assert!(!shape.writes_anything());
        assert!(read("knee: {profile: rand_write}").unwrap().writes_anything());
        for (options, key) in [("runtime: 60s", "runtime"), ("block_size: 5", "block_size")] {
            let text = read(&format!("knee: {{{options}}}")).unwrap_err();
            assert!(text.contains(&format!("`{key}`")), "{text}");
        }
    }
}
