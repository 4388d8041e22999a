//! What a report runs on a target, in which order, within which bounds, and how long that takes.

use crate::base::units::{Bytes, Rate, Seconds};
use crate::config::complaint::Complaint;
use crate::model::job::Profile;
use crate::probe::depths::two_legs;
use crate::probe::disk::{self, Preset};
use crate::probe::{knee, latency};

/// Time to start a worker, open the file and end.
const AROUND: Seconds = Seconds(0.5);
/// What a single operation takes on a disk that turns: for the estimate only.
const OPERATION: Seconds = Seconds(0.01);
/// At which a file is laid out: for the estimate only.
const LAYOUT_BYTES_PER_SECOND: f64 = 150e6;
/// Rungs of a ladder last half as long as a quick profile, and there are a dozen of them.
const LADDER_TIMES: f64 = 6.0;
/// The most that a ladder is for, and the least with two rungs.
const LADDER_SECONDS: (f64, f64) = (2.0, 18.0);
/// Presets that write.
const WRITERS: u64 = 3;

/// One run.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    /// As the report calls it.
    pub(super) name: &'static str,
    /// Name of the probe kind.
    pub(super) kind: &'static str,
    pub(super) profile: String,
    pub(super) legs: Vec<Profile>,
    pub(super) quiet: Seconds,
}

/// How large the runs are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// As a monitor runs them, else as fio would.
    pub(super) quick: bool,
    /// In place of the profiles' own.
    pub(super) runtime: Option<Seconds>,
}

/// What a single operation feels, in numbers that have a 99th percentile where there is time.
const SINGLE_OPERATIONS_QUICK: u64 = 200;
const SINGLE_OPERATIONS_FULL: u64 = 1000;

/// Everything that runs on a target: single operations while it is quiet, then what reads, then what
/// writes, since its writeback would be in the way of others.
///
/// # Errors
/// None, as long as the kinds' own defaults are sound.
pub(super) fn runs(size: Size, write_bytes_max: Bytes) -> Result<Vec<Planned>, Complaint> {
    let mut runs = singles(size)?;
    let preset = |name, preset| profile(name, preset, size, write_bytes_max);
    runs.push(preset("sequential read 1M", Preset::SeqRead));
    runs.push(preset("random read 4K", Preset::RandRead));
    runs.push(ladder(size)?);
    runs.push(preset("sequential write 1M", Preset::SeqWrite));
    runs.push(preset("random 4K 70/30", Preset::RandRw));
    runs.push(preset("random write 4K", Preset::RandWrite));
    Ok(runs)
}

/// One at a time: reads, then commits. Each is judged by itself, so each is a run.
fn singles(size: Size) -> Result<Vec<Planned>, Complaint> {
    let shape = (latency::KIND.read)(None)?;
    let operations = if size.quick { SINGLE_OPERATIONS_QUICK } else { SINGLE_OPERATIONS_FULL };
    let single = |leg: &Profile| Planned {
        name: if leg.writes_anything() { "single commit 4K" } else { "single read 4K" },
        kind: latency::KIND.name,
        profile: leg.name.clone(),
        legs: vec![Profile {
            operations_max: Some(operations),
            bytes_max: Bytes(operations * leg.block.0),
            ..leg.clone()
        }],
        quiet: shape.quiet,
    };
    Ok(shape.legs.iter().map(single).collect())
}

fn profile(name: &'static str, preset: Preset, size: Size, write_bytes_max: Bytes) -> Planned {
    let shape = disk::shape(preset);
    let sized = |leg: &Profile| {
        let leg = if size.quick { leg.clone() } else { disk::full(leg) };
        let most = if leg.writes_anything() { write_bytes_max } else { leg.bytes_max };
        Profile {
            runtime: size.runtime.unwrap_or(leg.runtime),
            bytes_max: leg.bytes_max.min(most),
            ..leg
        }
    };
    Planned {
        name,
        kind: disk::KIND.name,
        profile: preset.name().into(),
        legs: shape.legs.iter().flat_map(|leg| two_legs(&sized(leg), None)).collect(),
        quiet: shape.quiet,
    }
}

fn ladder(size: Size) -> Result<Planned, Complaint> {
    let mut shape = (knee::KIND.read)(None)?;
    let (least, most) = LADDER_SECONDS;
    for leg in &mut shape.legs {
        let asked = size.runtime.map_or(most, |runtime| runtime.0 * LADDER_TIMES);
        leg.runtime = Seconds(asked.clamp(least, most));
    }
    Ok(Planned {
        name: "random read 4K at its knee",
        kind: knee::KIND.name,
        // A ladder finds the end of its queue by what it measures.
        legs: shape.legs_at(Rate(0.0)),
        profile: shape.profile,
        quiet: shape.quiet,
    })
}

impl Planned {
    pub(super) fn written_bytes_max(&self) -> Bytes {
        Bytes(self.legs.iter().map(|leg| leg.written_bytes_max().0).sum())
    }

    pub(super) fn writes_anything(&self) -> bool {
        self.legs.iter().any(Profile::writes_anything)
    }

    /// About how long it takes: legs that end by their bytes, and ladders that find their end, are
    /// over sooner.
    pub(super) fn time(&self) -> Seconds {
        let leg = |leg: &Profile| {
            let counted = leg.operations_max.map_or(f64::MAX, |n| n as f64 * OPERATION.0);
            leg.ramp.0 + leg.runtime.0.min(counted)
        };
        let legs: f64 = self.legs.iter().map(leg).sum();
        Seconds(legs + 2.0 * self.quiet.0 + AROUND.0)
    }
}

/// About how long it takes to lay out a file of `bytes`.
pub(super) fn layout_time(bytes: Bytes) -> Seconds {
    Seconds(bytes.0 as f64 / LAYOUT_BYTES_PER_SECOND)
}

/// What each run that writes may write at most, so that all on `targets` that are written stay
/// within `allowed`, of which laying out their files takes `laid_out`.
pub(super) fn share(allowed: Bytes, laid_out: Bytes, targets: u64) -> Bytes {
    let singles = targets * SINGLE_OPERATIONS_FULL * 4096;
    let left = allowed.0.saturating_sub(laid_out.0).saturating_sub(singles);
    Bytes(left / (WRITERS * targets.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{GIB, MIB};

    const QUICK: Size = Size { quick: true, runtime: None };
    const FULL: Size = Size { quick: false, runtime: None };
    const PLENTY: Bytes = Bytes(16 * GIB);

    fn time(runs: &[Planned]) -> f64 {
        runs.iter().map(|run| run.time().0).sum()
    }

    #[test]
    fn what_feels_comes_first_then_what_reads_and_what_writes_last() {
        let runs = runs(QUICK, PLENTY).unwrap();
        let profiles: Vec<&str> = runs.iter().map(|run| run.profile.as_str()).collect();
        assert_eq!(profiles[..2], ["latency_read", "latency_commit"]);
        assert_eq!(profiles[2..5], ["seq_read", "rand_read", "rand_read"]);
        assert_eq!(profiles[5..], ["seq_write", "rand_rw", "rand_write"]);
        assert!(runs[2..5].iter().all(|run| !run.writes_anything()));
        let legs: Vec<usize> = runs.iter().map(|run| run.legs.len()).collect();
        assert_eq!(legs, [1, 1, 2, 2, 11, 2, 2, 2], "two depths of each profile, and a ladder");
        let names: std::collections::BTreeSet<_> = runs.iter().map(|run| run.name).collect();
        assert_eq!(names.len(), runs.len());
    }

    #[test]
    fn an_estimate_is_of_all_legs_and_the_quiet_around_them() {
        let quick = runs(QUICK, PLENTY).unwrap();
        assert_eq!(quick[2].time().0, 3.0 + 2.0 + AROUND.0);
        assert_eq!(quick[0].time().0, 200.0 * OPERATION.0 + AROUND.0);
        assert!((45.0..75.0).contains(&time(&quick)), "about a minute: {}", time(&quick));
        let full = time(&runs(FULL, PLENTY).unwrap());
        assert!((330.0..390.0).contains(&full), "about six: {full}");
        let short = Size { quick: true, runtime: Some(Seconds(2.0)) };
        assert!(time(&runs(short, PLENTY).unwrap()) < time(&quick));
        assert_eq!(layout_time(Bytes(300_000_000)).0, 2.0);
    }

    #[test]
    fn a_full_report_writes_what_it_may_and_no_more() {
        for (targets, laid_out) in [(1, Bytes(512 * MIB)), (3, Bytes(1536 * MIB)), (1, PLENTY)] {
            let runs = runs(FULL, share(PLENTY, laid_out, targets)).unwrap();
            let one: u64 = runs.iter().map(|run| run.written_bytes_max().0).sum();
            let all = targets * one + laid_out.0;
            assert!(all <= PLENTY.0 + targets * 1000 * 4096, "{targets}: {all}");
        }
        let monitor: u64 =
            runs(QUICK, PLENTY).unwrap().iter().map(|run| run.written_bytes_max().0).sum();
        assert!(monitor < 400 * MIB, "what a monitor writes in one pass: {monitor}");
    }
}
