//! One run of a storage probe, from the lock on its target to its flags.

use std::time::Duration;

use super::depths::Depths;
use super::evidence::{Around, Bill, Observer, doubt_direct, flags};
use super::knee;
use super::legs::{Found, Legs, Pass, twice};
use crate::base::clock::monotonic;
use crate::base::fault::{Fault, FaultKind};
use crate::base::legs::Saturation;
use crate::base::units::{Bytes, Seconds};
use crate::model::job::{Access, Profile, Run};
use crate::model::outcome::{Done, Outcome};
use crate::workload::devices::Window;
use crate::workload::drive::{Drive, Leg, Moved};
use crate::workload::engine::Chosen;
use crate::workload::ground::{self, Ground};
use crate::workload::{Halt, Watch};

/// Where storage kinds differ.
pub(super) struct Rules {
    /// Whether a run can be too short or unsteady: not where a few operations are the whole of it.
    pub(super) flags_of_length: bool,
    /// What the legs of a run are to each other.
    pub(super) depths: Depths,
}

/// Runs all legs; the target stays locked from before it is opened until the end.
pub(super) fn storage(run: &Run, rules: &Rules, watch: &dyn Watch) -> Outcome {
    let start = || {
        let first = run.legs.first().ok_or_else(no_legs)?;
        let held = ground::hold(&run.target)?;
        let mut ground = Ground::open(&held, run, watch)?;
        let chosen = ground.choose_engine(first, run.engine, watch)?;
        Ok::<_, Halt>((held, ground, chosen))
    };
    let (_held, ground, chosen) = match start() {
        Ok(started) => started,
        Err(halt) => return halt.outcome(None),
    };
    let mut around = Around::begin(run, watch);
    let bill = Bill::open(run);
    let lasts = rules.flags_of_length;
    let mut course = Course { lasts, ..Course::new(run, &ground, &chosen, watch) };
    let found = match (rules.depths, &run.legs[..]) {
        // Sections of a job file have names of their own: they are no legs of one profile.
        (Depths::Twice, [first, second]) if first.name == second.name => {
            twice(&mut course, first, second)
        }
        (Depths::Ladder, rungs) => knee::climb(&mut course, rungs),
        (_, legs) => Found { first: course.pass(legs, 0), ..Found::default() },
    };
    let mut cost = bill.cost(&course.moved);
    cost.written_bytes.0 = cost.written_bytes.0.saturating_add(ground.laid_out.0);
    around.end(run, &course.moved, watch);
    let (halt, done) = found.end(&around);
    let mut flags = flags(&done.evidence, &done.legs, ground.prefilled, rules.flags_of_length);
    doubt_direct(run, &mut flags);
    if done.second_leg.as_ref().is_some_and(|second| second.says == Saturation::Unsteady) {
        flags.steady = Some(false);
    }
    let done = Box::new(Done { flags, cost, ..done });
    match halt {
        None => Outcome::Done(done),
        Some(halt) => halt.outcome(Some(done)),
    }
}

fn no_legs() -> Fault {
    Fault::new(FaultKind::Internal, "a run without legs")
}

/// The ground of one run, and what was done on it so far.
pub(super) struct Course<'a> {
    run: &'a Run,
    ground: &'a Ground,
    chosen: &'a Chosen,
    watch: &'a dyn Watch,
    /// Whether it may last long enough for shares of threads.
    lasts: bool,
    moved: Moved,
    passes: u64,
    begun: Duration,
}

impl<'a> Course<'a> {
    fn new(run: &'a Run, ground: &'a Ground, chosen: &'a Chosen, watch: &'a dyn Watch) -> Self {
        let begun = monotonic();
        let moved = Moved::default();
        Self { run, ground, chosen, watch, lasts: true, moved, passes: 0, begun }
    }

    /// Runs `legs`, of which the first has this index in the run. Each pass draws its own offsets.
    fn pass(&mut self, legs: &[Profile], from: usize) -> Pass {
        let mut pass = Pass::default();
        let mut observer = None;
        let mut moved = Moved::default();
        let seed = self.run.seed.wrapping_add(self.passes.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        self.passes += 1;
        for (index, profile) in (from..).zip(legs) {
            if self.watch.stopped() {
                pass.halt = Some(Halt::stopped());
                break;
            }
            self.watch.live().watch_devices(Window::open(&self.run.devices));
            let leg = Leg { index, profile, seed };
            let ready = match Drive::prepare(self.ground, leg, self.chosen, self.watch) {
                Ok(ready) => ready,
                Err(halt) => {
                    pass.halt = Some(halt);
                    break;
                }
            };
            observer.get_or_insert_with(|| Observer::begin(self.run, self.lasts));
            let end = ready.run();
            moved += end.moved;
            pass.measured.push(end.measured);
            if end.halt.is_some() {
                pass.halt = end.halt;
                break;
            }
        }
        self.moved += moved;
        pass.seen = observer.map(|o| o.finish(&pass.measured, &moved)).unwrap_or_default();
        pass
    }
}

impl Legs for Course<'_> {
    fn leg(&mut self, profile: &Profile, index: usize, later: usize) -> Option<Pass> {
        let total: u64 = self.run.legs.iter().map(|leg| leg.bytes_max.0).sum();
        let left = total.saturating_sub(self.moved.read.0.saturating_add(self.moved.written.0));
        let bytes_max = Bytes(left / (later as u64 + 1));
        let profile = Profile { bytes_max, ..profile.clone() };
        (bytes_max >= profile.block).then(|| self.pass(&[profile], index))
    }

    fn spindles(&self, profile: &Profile) -> usize {
        let all = self.run.devices.iter().all(|device| device.rotational == Some(true));
        if all && profile.access != Access::Sequential { self.run.devices.len() } else { 0 }
    }

    fn elapsed(&self) -> Seconds {
        monotonic().saturating_sub(self.begun).into()
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::base::units::MIB;
    use crate::model::job::{Device, EngineKind, Place, Region, What};
    use crate::model::outcome::Skip;
    use crate::probe::disk::{Preset, shape};
    use crate::workload::ballast::{self, Layout};
    use crate::workload::testing::{Ears, disk_directory, done, run_in};

    const RULES: Rules = Rules { flags_of_length: true, depths: Depths::Twice };

    fn run_on(dir: &Path, preset: Preset) -> Run {
        let mut legs = shape(preset).legs;
        legs[0].runtime = Seconds(0.3);
        legs[0].bytes_max = Bytes(8 * MIB);
        run_in(dir, Bytes(8 * MIB), legs)
    }

    #[test]
    fn every_profile_runs_on_every_engine() {
        for preset in Preset::ALL {
            for engine in [None, Some(EngineKind::Threads)] {
                let dir = disk_directory();
                let ears = Ears::default();
                let run = Run { engine, ..run_on(dir.path(), preset) };
                let done = done(storage(&run, &RULES, &ears));
                let leg = &done.legs[0];
                assert!(leg.operations() > 0 && leg.errors == 0, "{preset:?} {leg:?}");
                assert_eq!(leg.flush.is_some(), run.legs[0].writes_anything());
                assert!(engine.is_none_or(|kind| leg.engine == kind));
                assert_eq!(done.flags.prefilled, Some(true));
                assert_eq!(done.flags.short, Some(leg.elapsed.0 < 1.0));
                assert!(done.cost.written_bytes.0 >= 8 * MIB, "the layout is part of the cost");
                assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none(), "nothing left");
                let heard = ears.heard.lock().unwrap();
                assert!(heard.iter().any(|w| matches!(w, What::Opened { .. })));
                assert!(heard.iter().any(|w| matches!(w, What::Leg { index: 0, .. })));
            }
        }
    }

    #[test]
    fn a_ballast_file_is_needed_used_and_kept() {
        let dir = disk_directory();
        let region = Region::Ballast(Bytes(8 * MIB));
        let run = Run { region, ..run_on(dir.path(), Preset::RandRw) };
        let without = storage(&run, &RULES, &Ears::default());
        assert!(
            matches!(&without, Outcome::Failed { fault, .. } if fault.kind == FaultKind::Missing),
            "{without:?}"
        );
        let held = ground::hold(&run.target).unwrap();
        let layout = Layout { bytes: Bytes(8 * MIB), reserve: Bytes(0), seed: 1 };
        ballast::lay_out(&held, &layout, &Ears::default()).unwrap();
        let locked = storage(&run, &RULES, &Ears::default());
        assert!(matches!(locked, Outcome::Skipped { skip: Skip::Locked, .. }), "{locked:?}");
        drop(held);
        let done = done(storage(&run, &RULES, &Ears::default()));
        assert!(done.cost.written_bytes.0 <= 8 * MIB);
        assert_eq!(ballast::size(dir.path()), Some(Bytes(8 * MIB)), "whole after the run");
        let full = Run { reserve: Bytes(u64::MAX), ..run };
        let skipped = storage(&full, &RULES, &Ears::default());
        assert!(matches!(skipped, Outcome::Skipped { skip: Skip::Full, .. }), "{skipped:?}");
    }

    #[test]
    fn a_device_is_never_written() {
        let mut run = run_on(Path::new("/"), Preset::RandRw);
        for (place, region) in [
            (Place::Device("/dev/null".into()), Region::WholeDevice),
            (Place::Directory("/dev/null".into()), Region::Unnamed(Bytes(8 * MIB))),
        ] {
            run.target.place = place;
            run.region = region;
            let outcome = storage(&run, &RULES, &Ears::default());
            let Outcome::Failed { fault, .. } = outcome else { panic!("{outcome:?}") };
            assert_eq!(fault.kind, FaultKind::Refused);
        }
    }

    #[test]
    fn case_090_memory_is_refused_unless_asked_for_and_never_called_direct() {
        let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
        let mut run = run_on(dir.path(), Preset::RandRead);
        let refused = storage(&run, &RULES, &Ears::default());
        let Outcome::Failed { fault, partial: None } = refused else { panic!("{refused:?}") };
        assert_eq!(fault.kind, FaultKind::Unsupported);
        run.legs[0].direct = false;
        let done = done(storage(&run, &RULES, &Ears::default()));
        assert_eq!((done.flags.direct, done.legs[0].direct), (Some(false), false));
    }

    #[test]
    fn a_stop_before_the_first_leg_has_no_result_but_an_end() {
        let dir = disk_directory();
        let ears = Ears::default();
        ears.stop.store(true, Ordering::Relaxed);
        let outcome = storage(&run_on(dir.path(), Preset::SeqRead), &RULES, &ears);
        assert!(matches!(outcome, Outcome::Skipped { skip: Skip::Stopped, .. }), "{outcome:?}");
    }

    /// The whole disk or partition under a directory, with its counters.
    fn device_under(dir: &Path) -> Option<Device> {
        use std::os::unix::fs::MetadataExt;
        let dev = std::fs::metadata(dir).ok()?.dev();
        let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
        let stat = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        stat.exists().then(|| Device { name: "disk".into(), stat, rotational: None })
    }

    #[test]
    fn direct_bytes_are_seen_at_the_device() {
        let dir = disk_directory();
        let Some(device) = device_under(dir.path()) else {
            println!("skipped: no device with counters under {}", dir.path().display());
            return;
        };
        let run = Run {
            devices: vec![device.clone()],
            top: vec![device],
            quiet: Seconds(0.1),
            ..run_on(dir.path(), Preset::SeqWrite)
        };
        let done = done(storage(&run, &RULES, &Ears::default()));
        if done.flags.direct == Some(true) {
            let amplification = done.evidence.write_amplification.unwrap();
            assert!(amplification >= 1.0, "{amplification}");
            assert_eq!(done.flags.cached, Some(false));
        }
        assert!(done.evidence.foreign_share.is_some());
        assert_eq!(done.evidence.devices.len(), 1);
    }
}
