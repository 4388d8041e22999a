//! Runs the legs of a profile on an open region: all jobs of a leg at once, then the flush, then the
//! sum of what they counted. Latency is total: from submission to completion.

use std::sync::mpsc::channel;
use std::thread;

use super::engine::Chosen;
use super::ground::Ground;
use super::intervals::is_steady;
use super::job::{Course, Job};
pub use super::tally::Moved;
use super::tally::Tally;
use super::{Halt, Watch};
use crate::base::clock::monotonic;
use crate::base::fault::{Fault, FaultKind};
use crate::base::units::Seconds;
use crate::model::job::{Profile, What};
use crate::model::outcome::Measured;

/// One leg of a run.
#[derive(Clone, Copy, Debug)]
pub struct Leg<'a> {
    pub index: usize,
    pub profile: &'a Profile,
    pub seed: u64,
}

/// How a leg ended: `halt` says why it didn't run to its bound; what was measured is kept.
#[derive(Debug)]
pub struct LegEnd {
    pub measured: Measured,
    pub moved: Moved,
    pub halt: Option<Halt>,
}

/// A leg that is ready to start, its first job on this thread.
pub struct Drive<'a> {
    course: Course<'a>,
    first: Job,
}

impl<'a> Drive<'a> {
    /// Gets a leg ready with the engine that was chosen for the run.
    pub fn prepare(
        ground: &'a Ground,
        leg: Leg<'a>,
        chosen: &Chosen,
        watch: &'a dyn Watch,
    ) -> Result<Self, Halt> {
        ground.file.drop_cache();
        let course = Course::new(ground, leg, chosen, watch);
        let first = Job::open(&course, 0)?;
        Ok(Self { course, first })
    }

    /// Runs the leg to its end.
    pub fn run(self) -> LegEnd {
        let Self { course, first } = self;
        let (tally, result) = run_jobs(&course, first);
        let Course { ground, leg, watch, .. } = &course;
        let mut halt = result.err();
        let mut flush = None;
        if halt.is_none() && leg.profile.flush && tally.moved[1].operations > 0 {
            match flush_of(&course) {
                Ok(time) => flush = Some(time),
                Err(fault) => halt = Some(fault.into()),
            }
        }
        if halt.is_none() && tally.short_operations > 0 {
            // In the middle of a file that was filled there is nothing to come short of.
            let (short, name) = (tally.short_operations, &ground.name);
            let text = format!("{name}: {short} operations came back short");
            halt = Some(Fault::new(FaultKind::Io, text).into());
        }
        if halt.is_none() && tally.operations() == 0 {
            let text = format!("{}: no operation completed whole", ground.name);
            halt = Some(Fault::new(FaultKind::Io, text).into());
        }
        watch.live().publish(None);
        let measured = measured(&course, &tally, flush);
        let (index, what) = (leg.index, Box::new(measured.clone()));
        watch.event(What::Leg { index, measured: what });
        LegEnd { measured, moved: tally.moved(), halt }
    }
}

/// All jobs, from one instant on. Those after the first have threads of their own, which end with
/// this call.
fn run_jobs(course: &Course<'_>, first: Job) -> (Tally, Result<(), Halt>) {
    thread::scope(|scope| {
        let (tell, opened) = channel();
        let mut others = Vec::new();
        for number in 1..course.leg.profile.jobs {
            let (go, start) = channel();
            let tell = tell.clone();
            let body = move || {
                let job = Job::open(course, number);
                let _ = tell.send(job.as_ref().map(|_| ()).map_err(Halt::clone));
                drop(tell);
                Some(job.ok()?.run(course, start.recv().ok()?))
            };
            let thread = thread::Builder::new().name(format!("job-{number}"));
            match thread.spawn_scoped(scope, body) {
                Ok(thread) => others.push((go, thread)),
                Err(error) => {
                    let fault = Fault::os(format_args!("a thread for job {number}"), &error);
                    return (Tally::new(monotonic()), Err(fault.into()));
                }
            }
        }
        drop(tell);
        if let Err(halt) = opened.iter().collect::<Result<(), _>>() {
            return (Tally::new(monotonic()), Err(halt));
        }
        let start = monotonic();
        for (go, _) in &others {
            let _ = go.send(start);
        }
        let (mut tally, mut result) = first.run(course, start);
        for (_, thread) in others {
            let died = || Fault::new(FaultKind::Internal, "a job's thread died").into();
            result = match thread.join() {
                Ok(Some((more, other))) => {
                    tally.add(more);
                    result.and(other)
                }
                _ => result.and(Err(died())),
            };
        }
        (tally, result)
    })
}

fn flush_of(course: &Course<'_>) -> Result<Seconds, Fault> {
    let Course { ground, watch, .. } = course;
    let before = monotonic();
    rustix::fs::fdatasync(&ground.file.fd)
        .map_err(|e| Fault::os(format_args!("{}: final flush", ground.name), &e.into()))?;
    let seconds = Seconds::from(monotonic().saturating_sub(before));
    watch.event(What::Flush { seconds });
    Ok(seconds)
}

fn measured(course: &Course<'_>, tally: &Tally, flush: Option<Seconds>) -> Measured {
    let Course { ground, leg, chosen, .. } = course;
    let (reads, writes) = tally.directions();
    let rates = tally.rates();
    Measured {
        profile: leg.profile.clone(),
        engine: chosen.kind,
        engine_reason: chosen.reason.clone(),
        direct: ground.direct(),
        elapsed: Seconds(tally.elapsed().as_secs_f64() + flush.map_or(0.0, |f| f.0)),
        reads,
        writes,
        flush,
        seed: leg.seed,
        steady: is_steady(&rates),
        rates,
        errors: tally.errors,
        short_operations: tally.short_operations,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::os::fd::OwnedFd;
    use std::sync::Mutex;
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::base::units::Bytes;
    use crate::model::job::{Access, EngineKind};
    use crate::model::outcome::Skip;
    use crate::workload::Live;
    use crate::workload::pattern::tests::profile;
    use crate::workload::testing::{Ears, disk_directory, on_disk_directory};

    const KINDS: [EngineKind; 3] = [EngineKind::IoUring, EngineKind::Aio, EngineKind::Threads];

    fn ground(bytes: u64) -> Ground {
        let file = tempfile::tempfile_in(on_disk_directory()).unwrap();
        file.set_len(bytes).unwrap();
        Ground::for_test(file.into(), Bytes(bytes))
    }

    fn drive(ground: &mut Ground, profile: &Profile, kind: EngineKind, ears: &Ears) -> LegEnd {
        let chosen = ground.choose_engine(profile, Some(kind), ears).unwrap();
        let leg = Leg { index: 0, profile, seed: 9 };
        Drive::prepare(ground, leg, &chosen, ears).unwrap().run()
    }

    #[test]
    fn bounds_on_operations_and_bytes_are_never_passed() {
        for kind in KINDS {
            let mut ground = ground(1 << 20);
            let mut mix = profile(Access::Random, 0.5, 4096);
            mix.runtime = Seconds(600.0);
            mix.operations_max = Some(37);
            let end = drive(&mut ground, &mix, kind, &Ears::default());
            assert_eq!((end.halt, end.moved.operations), (None, 37), "{kind:?}");
            assert_eq!(end.measured.operations(), 37);
            mix.operations_max = None;
            mix.bytes_max = Bytes(50 * 4096 + 1);
            let end = drive(&mut ground, &mix, kind, &Ears::default());
            assert_eq!(end.moved.read.0 + end.moved.written.0, 50 * 4096, "{kind:?}");
        }
    }

    #[test]
    fn a_leg_that_wrote_ends_with_a_flush_inside_its_time() {
        let mut ground = ground(1 << 20);
        let mut writes = profile(Access::Sequential, 0.0, 65536);
        writes.bytes_max = Bytes(1 << 20);
        let ears = Ears::default();
        let end = drive(&mut ground, &writes, EngineKind::Threads, &ears);
        let flush = end.measured.flush.unwrap();
        assert!(end.measured.elapsed.0 >= flush.0);
        assert!(ears.heard.lock().unwrap().contains(&What::Flush { seconds: flush }));
        let reads = Profile { reads: crate::base::units::Ratio(1.0), ..writes };
        let end = drive(&mut ground, &reads, EngineKind::Threads, &ears);
        assert_eq!(end.measured.flush, None);
    }

    #[test]
    fn time_ends_a_leg_and_the_ramp_is_left_out_of_it() {
        for kind in KINDS {
            let mut ground = ground(1 << 20);
            let mut reads = profile(Access::Random, 1.0, 4096);
            reads.bytes_max = Bytes(u64::MAX);
            (reads.ramp, reads.runtime) = (Seconds(0.1), Seconds(0.2));
            let end = drive(&mut ground, &reads, kind, &Ears::default());
            assert_eq!(end.halt, None);
            let counted = end.measured.operations();
            assert!(counted > 0 && counted < end.moved.operations, "{kind:?}: {counted}");
            assert!(end.measured.rates.iter().any(|rate| *rate > 0.0));
            assert_eq!(end.measured.reads.durations.count(), counted);
        }
    }

    #[test]
    fn an_error_ends_the_leg_with_its_place_and_what_was_measured() {
        for kind in KINDS {
            let file = tempfile::NamedTempFile::new_in(on_disk_directory()).unwrap();
            file.as_file().set_len(1 << 20).unwrap();
            let read_only = std::fs::File::open(file.path()).unwrap();
            let mut ground = Ground::for_test(OwnedFd::from(read_only), Bytes(1 << 20));
            let mut mix = profile(Access::Random, 0.5, 4096);
            mix.runtime = Seconds(600.0);
            let end = drive(&mut ground, &mix, kind, &Ears::default());
            let Some(Halt::Failed(fault)) = end.halt else { panic!("{:?}", end.halt) };
            assert!(fault.text.starts_with("test: write at offset "), "{fault}");
            assert!(end.measured.errors >= 1);
            assert_eq!(end.measured.writes.operations, 0);
            assert_eq!(end.measured.reads.operations, end.moved.operations);
        }
    }

    #[test]
    fn an_error_of_one_job_ends_all() {
        for kind in KINDS {
            // The second job's part begins where no offset reaches.
            let mut ground = ground(1 << 20);
            ground.bytes = Bytes(u64::MAX);
            let mut reads = profile(Access::Sequential, 1.0, 4096);
            (reads.runtime, reads.bytes_max) = (Seconds(600.0), Bytes(u64::MAX));
            let end = drive(&mut ground, &reads, kind, &Ears::default());
            let Some(Halt::Failed(fault)) = end.halt else { panic!("{:?}", end.halt) };
            assert!(fault.text.ends_with("Invalid argument (os error 22)"), "{kind:?}: {fault}");
        }
    }

    /// Which threads drive a leg: each asks between operations whether it should end.
    #[derive(Default)]
    struct Callers(Ears, Mutex<HashSet<thread::ThreadId>>);

    impl Watch for Callers {
        fn stopped(&self) -> bool {
            self.1.lock().unwrap().insert(thread::current().id());
            false
        }

        fn event(&self, _: What) {}

        fn live(&self) -> &Live {
            self.0.live()
        }
    }

    #[test]
    fn each_job_has_a_thread_and_its_share_of_what_is_counted() {
        for jobs in [1, 2, 5] {
            let mut ground = ground(1 << 20);
            let mut reads = Profile { jobs, ..profile(Access::Random, 1.0, 4096) };
            reads.bytes_max = Bytes(u64::MAX);
            let chosen = ground.choose_engine(&reads, None, &Ears::default()).unwrap();
            let (leg, callers) = (Leg { index: 0, profile: &reads, seed: 9 }, Callers::default());
            let end = Drive::prepare(&ground, leg, &chosen, &callers).unwrap().run();
            assert_eq!((end.halt, callers.1.lock().unwrap().len()), (None, jobs as usize));
            assert_eq!(end.measured.reads.durations.count(), end.moved.operations);
        }
    }

    #[test]
    fn a_file_that_shrank_gives_no_result() {
        let mut ground = ground(1 << 20);
        rustix::fs::ftruncate(&ground.file.fd, 0).unwrap();
        let mut reads = profile(Access::Random, 1.0, 4096);
        reads.operations_max = Some(20);
        let end = drive(&mut ground, &reads, EngineKind::Threads, &Ears::default());
        let Some(Halt::Failed(fault)) = end.halt else { panic!("{:?}", end.halt) };
        assert_eq!((fault.kind, end.measured.short_operations), (FaultKind::Io, 20));
        assert_eq!(end.measured.reads.latency_mean, None);
    }

    #[test]
    fn a_stop_ends_a_running_leg_with_what_it_has() {
        for kind in KINDS {
            let mut ground = ground(1 << 20);
            let mut reads = profile(Access::Random, 1.0, 4096);
            (reads.runtime, reads.bytes_max) = (Seconds(600.0), Bytes(u64::MAX));
            let ears = Ears::default();
            let end = std::thread::scope(|scope| {
                let leg = scope.spawn(|| drive(&mut ground, &reads, kind, &ears));
                while ears.live.progress().is_none_or(|p| p.read_operations == 0) {
                    std::thread::yield_now();
                }
                ears.stop.store(true, Ordering::Relaxed);
                leg.join().unwrap()
            });
            assert!(matches!(end.halt, Some(Halt::Skipped(Skip::Stopped, _))), "{:?}", end.halt);
            assert!(end.measured.operations() > 0);
            assert_eq!(ears.live.progress(), None, "nothing runs any more");
        }
    }

    #[test]
    fn direct_io_asks_for_whole_blocks_by_name() {
        let dir = disk_directory();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![1; 1 << 20]).unwrap();
        let at = rustix::fs::open(dir.path(), rustix::fs::OFlags::DIRECTORY, 0.into()).unwrap();
        let file = crate::workload::file::Handle::open(
            std::os::fd::AsFd::as_fd(&at),
            "file",
            rustix::fs::OFlags::RDWR,
        )
        .unwrap();
        let asks = file.direct && file.alignment().offset.is_some_and(|align| align > 4);
        let mut ground = Ground::for_test(file.fd, Bytes(1 << 20));
        ground.file.direct = file.direct;
        let odd = profile(Access::Random, 1.0, 2300);
        let result = ground.choose_engine(&odd, None, &Ears::default());
        if asks {
            let Err(Halt::Failed(fault)) = result else { panic!("{result:?}") };
            assert_eq!(fault.kind, FaultKind::Unsupported);
            assert!(fault.text.contains("asks for multiples of"), "{fault}");
        }
    }
}
