//! At which depths a profile runs: as named, at twice that as well, or up a ladder. What several
//! depths move and how long they take together is what the one profile may.

use super::disk;
use crate::base::units::{Bytes, MIB, Rate, Seconds};
use crate::model::job::Profile;

/// At which depths a shape's profiles run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depths {
    AsNamed,
    /// Then at twice the depth: whether the profile is saturated there shows in nothing else.
    Twice,
    /// From one in flight, doubling until that is saturated.
    Ladder,
}

/// A queue longer than this much time at the last known rate delays everybody else's I/O.
pub(super) const QUEUE_SECONDS_MAX: f64 = 0.1;
/// A leg of less teaches nothing.
const LEG_SECONDS_MIN: f64 = 1.0;
/// Longer than this a second leg tells no more.
const SECOND_LEG_SECONDS_MAX: f64 = 10.0;
/// Share of the time that the second leg gets of a longer run: the first is the result.
const SECOND_LEG_SHARE: f64 = 0.25;
/// What two legs move at least, in seconds at the last known rate: less ends one of them too soon.
const TWO_LEGS_SECONDS_MIN: f64 = 2.4 * LEG_SECONDS_MIN;
/// Most that a ladder has in flight: it is memory of the worker.
const LADDER_BYTES_MAX: u64 = 32 * MIB;
/// Rungs from 1 to the most that may be in flight, and one that is done again.
const LADDER_RUNGS: f64 = 12.0;

/// A profile no deeper than 0.1 s of `rate` at the target.
pub(super) fn as_named(profile: &Profile, rate: Rate) -> Profile {
    if profile.oltp.is_some() {
        // An open loop is as deep as its load makes it.
        return profile.clone();
    }
    let depth = profile.depth.min(depth_max(profile, rate)).max(1);
    Profile { depth, ..profile.clone() }
}

/// Depth of each job whose operations wait for 0.1 s at `rate`.
fn depth_max(profile: &Profile, rate: Rate) -> u32 {
    let bytes_per_depth = profile.block.0 as f64 * f64::from(profile.jobs);
    // `as` saturates, and takes what is no number for nothing.
    (rate.0 * QUEUE_SECONDS_MAX / bytes_per_depth) as u32
}

/// The profile, and the same at twice its depth, both within 0.1 s of `rate` where one is known; the
/// profile alone where there is no room for two: in time, bytes or depth.
pub fn two_legs(profile: &Profile, rate: Option<Rate>) -> Vec<Profile> {
    let alone = || vec![rate.map_or_else(|| profile.clone(), |rate| as_named(profile, rate))];
    let seconds = profile.runtime.0;
    let second_seconds =
        (seconds * SECOND_LEG_SHARE).clamp(LEG_SECONDS_MIN, SECOND_LEG_SECONDS_MAX);
    let depth = rate.map_or(profile.depth, |r| profile.depth.min(depth_max(profile, r) / 2));
    let too_little = |rate: Rate| (profile.bytes_max.0 as f64) < rate.0 * TWO_LEGS_SECONDS_MIN;
    let bounded = profile.operations_max.is_some() || rate.is_some_and(too_little);
    if bounded || depth == 0 || seconds - second_seconds < LEG_SECONDS_MIN {
        return alone();
    }
    let half = Bytes(profile.bytes_max.0 / 2);
    let runtime = Seconds(seconds - second_seconds);
    let first = Profile { depth, runtime, bytes_max: half, ..profile.clone() };
    let second = Profile {
        depth: depth.saturating_mul(2),
        runtime: Seconds(second_seconds),
        bytes_max: Bytes(profile.bytes_max.0 - half.0),
        // The device is warm from the first leg.
        ramp: Seconds(0.0),
        ..profile.clone()
    };
    if disk::check(&second).is_err() || disk::check(&first).is_err() {
        return alone();
    }
    vec![first, second]
}

/// The rungs of a ladder on a profile, from one in flight to the most that may be.
pub(super) fn ladder(profile: &Profile) -> Vec<Profile> {
    let runtime = Seconds((profile.runtime.0 / LADDER_RUNGS).max(LEG_SECONDS_MIN));
    let rung = |depth: u32| Profile { depth, runtime, ..profile.clone() };
    let fits = |rung: &Profile| {
        let bytes = u64::from(rung.in_flight_max()).saturating_mul(rung.block.0);
        bytes <= LADDER_BYTES_MAX && disk::check(rung).is_ok()
    };
    let depths = std::iter::successors(Some(1), |depth: &u32| depth.checked_mul(2));
    let mut rungs: Vec<_> = depths.map(rung).take_while(fits).collect();
    let share = profile.bytes_max.0 / rungs.len().max(1) as u64;
    rungs.iter_mut().for_each(|rung| rung.bytes_max = Bytes(share));
    rungs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::units::GIB;
    use crate::probe::disk::{Preset, full, shape};

    fn profile(preset: Preset) -> Profile {
        shape(preset).legs.remove(0)
    }

    fn depths(legs: &[Profile]) -> Vec<(u32, f64)> {
        legs.iter().map(|leg| (leg.depth, leg.runtime.0)).collect()
    }

    #[test]
    fn two_legs_are_at_the_depth_and_twice_that_within_the_one_profiles_time() {
        let reads = profile(Preset::RandRead);
        assert_eq!(depths(&two_legs(&reads, None)), [(4, 2.0), (8, 1.0)]);
        let minute = full(&reads);
        assert_eq!(depths(&two_legs(&minute, None)), [(4, 50.0), (8, 10.0)]);
        let short = Profile { runtime: Seconds(1.9), ..reads.clone() };
        assert_eq!(depths(&two_legs(&short, None)), [(4, 1.9)]);
        let counted = Profile { operations_max: Some(100), ..reads };
        assert_eq!(two_legs(&counted, None).len(), 1);
    }

    #[test]
    fn a_slow_disk_gets_a_short_queue_at_both_depths() {
        let reads = profile(Preset::SeqRead);
        let on = |rate| depths(&two_legs(&reads, Some(Rate(rate))));
        assert_eq!(on(80e6), [(3, 2.0), (6, 1.0)], "7.6 MiB are 0.1 s");
        assert_eq!(on(20e6), [(1, 3.0)], "one in flight, and no room for two");
        assert_eq!(on(0.0), [(1, 3.0)]);
        assert_eq!(on(f64::NAN), [(1, 3.0)]);
        assert_eq!(on(4e9), [(32, 2.0), (64, 1.0)]);
        let spindle = profile(Preset::RandRead);
        let legs = two_legs(&spindle, Some(Rate(100.0 * 4096.0)));
        assert_eq!(depths(&legs), [(2, 2.0), (4, 1.0)], "10 in flight are 0.1 s");
    }

    #[test]
    fn writes_that_could_not_last_for_two_legs_get_one() {
        let writes = profile(Preset::SeqWrite);
        assert_eq!(two_legs(&writes, Some(Rate(100e6))).len(), 2);
        assert_eq!(two_legs(&writes, Some(Rate(200e6))).len(), 1);
    }

    #[test]
    fn a_ladder_doubles_from_one_and_ends_at_its_bounds() {
        let reads = Profile { jobs: 1, runtime: Seconds(18.0), ..profile(Preset::RandRead) };
        let rungs = ladder(&reads);
        let depths: Vec<u32> = rungs.iter().map(|rung| rung.depth).collect();
        assert_eq!(depths, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]);
        assert!(rungs.iter().all(|rung| rung.runtime == Seconds(1.5)));
        assert!(rungs.iter().map(|rung| rung.bytes_max.0).sum::<u64>() <= 16 * GIB);
        let large = Profile { block: Bytes(MIB), ..reads };
        assert_eq!(ladder(&large).last().map(|rung| rung.depth), Some(32));
    }

    proptest! {
        #[test]
        fn no_profile_and_no_rate_passes_the_bounds(
            preset in prop::sample::select(Preset::ALL.to_vec()), rate in any::<f64>(),
            depth in 1..300_u32, jobs in 1..5_u32, bytes in (2 * MIB)..(1 << 36),
            seconds in 0.1..100.0, warm in 0.0..30.0,
        ) {
            let named = profile(preset);
            let (bytes_max, runtime) = (Bytes(bytes), Seconds(seconds));
            let named = Profile { depth, jobs, bytes_max, runtime, ramp: Seconds(warm), ..named };
            prop_assume!(disk::check(&named).is_ok());
            for legs in [two_legs(&named, Some(Rate(rate))), two_legs(&named, None)] {
                prop_assert!(legs.iter().all(|leg| disk::check(leg).is_ok()));
                prop_assert!(legs.iter().map(|leg| leg.bytes_max.0).sum::<u64>() <= bytes);
                let time: f64 = legs.iter().map(|leg| leg.runtime.0 + leg.ramp.0).sum();
                prop_assert!(time <= seconds + warm + 1e-9);
                prop_assert!(legs[0].depth <= depth);
                prop_assert!(legs.len() == 1 || legs[1].depth == 2 * legs[0].depth);
            }
        }
    }
}
