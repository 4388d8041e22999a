//! One OLTP run in a worker: a fixed load, or a search, from the lock on the target to the flags.

use std::time::Duration;

use super::super::evidence::{Around, Bill, Observer, Seen, doubt_direct, flags};
use super::search::{Offer, search};
use crate::base::clock::monotonic;
use crate::base::fault::{Fault, FaultKind};
use crate::base::units::{Bytes, Seconds};
use crate::model::job::{Profile, Run, What};
use crate::model::oltp::{Load, Oltp, OltpDone, Search, Step};
use crate::model::outcome::{Done, Outcome};
use crate::workload::devices::Window;
use crate::workload::drive::Moved;
use crate::workload::engine::Chosen;
use crate::workload::ground::{self, Held};
use crate::workload::oltp::{Arrivals, Asus, Bench, Stint, StintEnd};
use crate::workload::{Halt, Watch};

/// A step of a search ends once so much is not done, in limits and at least this time.
const PATIENCE_LIMITS: f64 = 10.0;
const PATIENCE_MIN: Seconds = Seconds(1.0);

/// May block for ever where the target does.
pub(super) fn run(run: &Run, watch: &dyn Watch) -> Outcome {
    match Opened::open(run, watch) {
        Ok(opened) => opened.run(run, watch).unwrap_or_else(|fault| Halt::from(fault).outcome(None)),
        Err(halt) => halt.outcome(None),
    }
}

struct Opened {
    leg: Profile,
    oltp: Oltp,
    /// Locked until the end.
    _held: Held,
    asus: Asus,
    chosen: Chosen,
}

impl Opened {
    fn open(run: &Run, watch: &dyn Watch) -> Result<Self, Halt> {
        let leg = run.legs.first().filter(|leg| leg.oltp.is_some()).cloned();
        let (Some(leg), [_]) = (leg, &run.legs[..]) else {
            let text = "an OLTP run has one leg, with its workload";
            return Err(Fault::new(FaultKind::Internal, text).into());
        };
        let oltp = leg.oltp.clone().ok_or_else(|| Fault::new(FaultKind::Internal, "no workload"))?;
        let held = ground::hold(&run.target)?;
        let mut asus = Asus::open(&held, run, &oltp, watch)?;
        let chosen = asus.choose_engine(&leg, run.engine, watch)?;
        Ok(Self { leg, oltp, _held: held, asus, chosen })
    }

    fn run(&self, run: &Run, watch: &dyn Watch) -> Result<Outcome, Fault> {
        let mut around = Around::begin(run, watch);
        let bill = Bill::open(run);
        let bench = Bench::open(&self.asus, &self.chosen, run.seed, watch)?;
        let mut course = Course {
            run,
            opened: self,
            bench,
            watch,
            ends: Vec::new(),
            moved: Moved::default(),
            halt: None,
            begun: monotonic(),
        };
        let (chosen, search) = match self.oltp.load {
            Load::Bsu(bsus) => (course.fixed(bsus), None),
            Load::Search { limit } => course.search(limit),
        };
        let Course { mut ends, moved, mut halt, .. } = course;
        let mut flushed = None;
        if halt.is_none() && moved.written.0 > 0 {
            match self.asus.flush(watch) {
                Ok(time) => flushed = Some(time),
                Err(fault) => halt = Some(fault.into()),
            }
        }
        self.asus.mark();
        let mut cost = bill.cost(&moved);
        cost.written_bytes.0 = cost.written_bytes.0.saturating_add(self.asus.laid_out.0);
        around.end(run, &moved, watch);
        let chosen = chosen.filter(|index| *index < ends.len()).map(|index| ends.swap_remove(index));
        let Some((mut end, seen)) = chosen else {
            return Ok(halt.unwrap_or_else(Halt::stopped).outcome(None));
        };
        if search.is_none() {
            // Of a search it is that of all steps.
            end.measured.flush = flushed;
            end.measured.elapsed.0 += flushed.unwrap_or_default().0;
        }
        let StintEnd { measured, step, asus, service_mean, .. } = end;
        let (legs, evidence) = (vec![measured], around.complete(seen));
        let mut flags = flags(&evidence, &legs, self.asus.prefilled(), true);
        doubt_direct(run, &mut flags);
        let oltp = Some(Box::new(OltpDone { step, asus, service_mean, search }));
        let done = Box::new(Done { legs, evidence, flags, cost, oltp, ..Done::default() });
        Ok(match halt {
            None if step.operations == 0 => {
                let fault = Fault::new(FaultKind::Io, "no operation completed whole");
                Outcome::Failed { fault, partial: Some(done) }
            }
            None => Outcome::Done(done),
            Some(halt) => halt.outcome(Some(done)),
        })
    }
}

/// Steps on an open target, each with what was seen meanwhile.
struct Course<'a> {
    run: &'a Run,
    opened: &'a Opened,
    bench: Bench<'a>,
    watch: &'a dyn Watch,
    ends: Vec<(StintEnd, Seen)>,
    moved: Moved,
    halt: Option<Halt>,
    begun: Duration,
}

impl Course<'_> {
    fn fixed(&mut self, bsus: u32) -> Option<usize> {
        let (leg, oltp) = (&self.opened.leg, &self.opened.oltp);
        let stint = Stint {
            index: 0,
            arrivals: Arrivals::bsus(oltp.variant, bsus, oltp.contexts),
            ramp: leg.ramp,
            window: leg.runtime,
            bytes_max: leg.bytes_max,
            patience: None,
            counts_every: oltp.counts_every,
        };
        self.stint(&stint);
        self.ends.len().checked_sub(1)
    }

    fn search(&mut self, limit: Seconds) -> (Option<usize>, Option<Search>) {
        let total = self.opened.leg.runtime;
        let found = search(self, limit, total);
        (found.chosen, Some(found.search))
    }

    fn stint(&mut self, stint: &Stint) -> Step {
        self.watch.live().watch_devices(Window::open(&self.run.devices));
        let observer = Observer::begin(self.run, true);
        let mut end = self.bench.run(&self.opened.leg, stint);
        let seen = observer.finish(std::slice::from_ref(&end.measured), &end.moved);
        self.moved += end.moved;
        self.halt = end.halt.take();
        let step = end.step;
        self.ends.push((end, seen));
        step
    }
}

impl Offer for Course<'_> {
    fn offer(&mut self, rate: f64, ramp: Seconds, window: Seconds) -> Option<Step> {
        let oltp = &self.opened.oltp;
        let Load::Search { limit } = oltp.load else { return None };
        let stint = Stint {
            index: self.ends.len(),
            arrivals: Arrivals::at_rate(oltp.variant, rate, oltp.contexts),
            ramp,
            window,
            bytes_max: self.bytes_left(),
            patience: Some(Seconds((PATIENCE_LIMITS * limit.0).max(PATIENCE_MIN.0))),
            counts_every: None,
        };
        let step = self.stint(&stint);
        if self.halt.is_none() {
            self.watch.event(What::Step { step });
        }
        self.halt.is_none().then_some(step)
    }

    fn time_left(&self) -> Seconds {
        let elapsed = Seconds::from(monotonic().saturating_sub(self.begun));
        Seconds(self.opened.leg.runtime.0 - elapsed.0)
    }

    fn bytes_left(&self) -> Bytes {
        let moved = self.moved.read.0.saturating_add(self.moved.written.0);
        Bytes(self.opened.leg.bytes_max.0.saturating_sub(moved))
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::base::units::MIB;
    use crate::model::job::EngineKind;
    use crate::model::oltp::Variant;
    use crate::model::outcome::Skip;
    use crate::probe::oltp::profile;
    use crate::workload::testing::{Ears, disk_directory, done, run_in};

    fn run_on(dir: &Path, oltp: Oltp) -> Run {
        let leg = Profile {
            runtime: Seconds(0.5),
            bytes_max: Bytes(256 * MIB),
            direct: false,
            ..profile(oltp)
        };
        run_in(dir, Bytes(24 * MIB), vec![leg])
    }

    fn bsus(bsus: u32) -> Oltp {
        Oltp::of_region(Variant::Pblio, Load::Bsu(bsus))
    }

    #[test]
    fn a_fixed_load_is_told_by_storage_unit_and_direction_on_every_engine() {
        for engine in [None, Some(EngineKind::Aio), Some(EngineKind::Threads)] {
            let dir = disk_directory();
            let oltp = Oltp { counts_every: Some(Seconds(0.1)), ..bsus(40) };
            let ears = Ears::default();
            let done = done(run(&Run { engine, ..run_on(dir.path(), oltp) }, &ears));
            let (leg, oltp) = (&done.legs[0], done.oltp.unwrap());
            assert_eq!((leg.errors, leg.short_operations), (0, 0));
            assert!(engine.is_none_or(|kind| leg.engine == kind));
            assert_eq!((oltp.step.offered, oltp.step.operations), (2000.0, leg.operations()));
            let [one, two, three] = &oltp.asus[..] else { panic!("{oltp:?}") };
            let each = [&one.reads, &one.writes, &two.reads, &two.writes, &three.writes];
            assert!(each.iter().all(|direction| direction.operations > 0), "{oltp:?}");
            assert_eq!(three.reads.operations, 0, "a log is only written");
            let sum: u64 = each.iter().map(|direction| direction.operations).sum();
            assert_eq!(sum, leg.operations());
            let bytes: u64 = each.iter().map(|direction| direction.bytes.0).sum();
            assert_eq!(bytes, leg.reads.bytes.0 + leg.writes.bytes.0);
            assert!(oltp.service_mean.unwrap() <= oltp.step.latency_mean);
            assert!(leg.flush.is_some() && done.flags.prefilled == Some(true));
            let heard = ears.heard.lock().unwrap();
            assert!(heard.iter().any(|what| matches!(what, What::Counts { .. })));
            assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none(), "nothing left");
        }
    }

    /// Empty files of so many MiB.
    fn files(dir: &Path, sizes: [&[u64]; 3]) -> [Vec<PathBuf>; 3] {
        let mut number = 0;
        sizes.map(|sizes| {
            let file = |mib: &u64| {
                number += 1;
                let path = dir.join(format!("asu-{number}"));
                std::fs::File::create(&path).unwrap().set_len(mib * MIB).unwrap();
                path
            };
            sizes.iter().map(file).collect()
        })
    }

    #[test]
    fn named_files_are_laid_out_once_and_used_again() {
        let dir = disk_directory();
        let asus = files(dir.path(), [&[6, 7], &[13], &[3]]);
        let oltp = Oltp { asus, ..bsus(20) };
        let first = done(run(&run_on(dir.path(), oltp.clone()), &Ears::default()));
        let sizes: Vec<u64> = first.oltp.unwrap().asus.iter().map(|a| a.size.0).collect();
        assert_eq!(sizes, [12 * MIB, 12 * MIB, 12 * MIB / 4096 * 2 / 9 * 4096]);
        assert!(first.cost.written_bytes.0 >= 26 * MIB, "the layout is part of the cost");
        for path in oltp.files() {
            use std::os::unix::fs::MetadataExt;
            let stat = std::fs::metadata(path).unwrap();
            assert_eq!(stat.len() % MIB, 0, "no longer than it was");
            assert!(stat.blocks() > 0);
        }
        let again = done(run(&run_on(dir.path(), oltp.clone()), &Ears::default()));
        assert!(again.cost.written_bytes.0 < 26 * MIB);
        // Since then somebody has put something there.
        std::fs::write(&oltp.asus[0][1], vec![7; 7 << 20]).unwrap();
        let (kind, text) = fault(oltp, dir.path());
        assert_eq!(kind, FaultKind::Refused, "{text}");
    }

    fn fault(oltp: Oltp, dir: &Path) -> (FaultKind, String) {
        match run(&run_on(dir, oltp), &Ears::default()) {
            Outcome::Failed { fault, partial: None } => (fault.kind, fault.text),
            Outcome::Skipped { skip: Skip::Locked, text, .. } => (FaultKind::Refused, text),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn case_098_data_of_somebody_and_devices_are_never_written() {
        let dir = disk_directory();
        let mut asus = files(dir.path(), [&[12], &[12], &[3]]);
        let precious = dir.path().join("precious");
        let content = "precious".repeat(12 << 17);
        std::fs::write(&precious, &content).unwrap();
        asus[1] = vec![precious.clone()];
        let (kind, text) = fault(Oltp { asus: asus.clone(), ..bsus(1) }, dir.path());
        assert_eq!(kind, FaultKind::Refused, "{text}");
        assert!(text.contains("--yes"), "{text}");
        let still = std::fs::File::open(&precious).and_then(std::io::read_to_string);
        assert!(still.is_ok_and(|still| still == content));
        // Little in a large hole, at neither of its ends.
        let sparse = dir.path().join("sparse");
        let file = std::fs::File::create(&sparse).unwrap();
        file.set_len(64 * MIB).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"precious", 4096 * 5).unwrap();
        asus[1] = vec![sparse];
        let (kind, text) = fault(Oltp { asus: asus.clone(), ..bsus(1) }, dir.path());
        assert_eq!(kind, FaultKind::Refused, "{text}");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&precious, &link).unwrap();
        for path in [Path::new("/dev/null"), dir.path(), &link, &asus[0][0].clone()] {
            asus[1] = vec![path.to_path_buf()];
            let oltp = Oltp { asus: asus.clone(), overwrite: true, ..bsus(1) };
            let (kind, text) = fault(oltp, dir.path());
            assert_eq!(kind, FaultKind::Refused, "{}: {text}", path.display());
        }
    }

    #[test]
    fn bytes_end_a_run_and_a_stop_has_what_was_done() {
        let dir = disk_directory();
        let mut bounded = run_on(dir.path(), bsus(200));
        bounded.legs[0].runtime = Seconds(600.0);
        bounded.legs[0].bytes_max = Bytes(4 * MIB);
        let done = done(run(&bounded, &Ears::default()));
        let moved = done.legs[0].reads.bytes.0 + done.legs[0].writes.bytes.0;
        assert!(moved <= 4 * MIB && moved > 3 * MIB, "{moved}");
        assert!(done.oltp.unwrap().step.achieved > 1000.0, "over the time that it took");

        let mut long = run_on(dir.path(), bsus(20));
        long.legs[0].runtime = Seconds(600.0);
        let ears = Ears::default();
        let outcome = std::thread::scope(|scope| {
            let working = scope.spawn(|| run(&long, &ears));
            while ears.live.progress().is_none_or(|p| p.read_operations == 0) {
                std::thread::yield_now();
            }
            ears.stop.store(true, Ordering::Relaxed);
            working.join().unwrap()
        });
        let Outcome::Skipped { skip: Skip::Stopped, partial: Some(partial), .. } = outcome else {
            panic!("{outcome:?}");
        };
        assert!(partial.legs[0].operations() > 0);
    }
}
