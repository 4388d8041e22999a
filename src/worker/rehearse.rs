//! Runners for tests: the worker's own code on a thread, and one that plays a script on a clock.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::child::{Service, converse};
use super::stuck::{Body, Stuck};
use super::talk::{Patience, Talk};
use super::tasks::{Perform, RealTasks};
use super::{Ended, Runner, Stop, wire};
use crate::base::clock::{ManualClock, SystemClock};
use crate::base::fault::{Fault, FaultKind};
use crate::base::units::Seconds;
use crate::model::job::{Job, Task, What};
use crate::model::outcome::{Outcome, Reply, Skip};

/// Runs each job on a thread, through real pipes and with no confinement.
#[derive(Clone)]
pub struct InThread {
    pub service: Service,
    pub patience: Patience,
}

impl InThread {
    pub fn new(tasks: Arc<dyn Perform>) -> Self {
        let service = Service { tasks, confined: false, ..Service::default() };
        Self { service, patience: Patience::default() }
    }

    fn start<'a>(&self, job: Vec<u8>, stop: &'a Stop) -> std::io::Result<Talk<'a>> {
        let (worker_input, input) = std::io::pipe()?;
        let (output, worker_output) = std::io::pipe()?;
        let (end, alive) = std::io::pipe()?;
        let input = OwnedFd::from(input);
        let output = OwnedFd::from(output);
        [&input, &output].into_iter().try_for_each(wire::dont_wait)?;
        let service = self.service.clone();
        std::thread::Builder::new().name("worker".into()).spawn(move || {
            // Without pipes there is no reply, and the other side sees a worker that died.
            let _ = converse(worker_input.into(), worker_output.into(), &service);
            drop(alive);
        })?;
        let body = Box::new(Thread { end: end.into() });
        let (input, output) = (Some(input), Some(output));
        let (patience, clock) = (self.patience, &SystemClock);
        Ok(Talk { body, input, output, unsent: job, patience, stop, clock })
    }
}

impl Default for InThread {
    fn default() -> Self {
        Self::new(Arc::new(RealTasks))
    }
}

impl Runner for InThread {
    fn run(
        &self,
        job: &Job,
        deadline: Duration,
        stop: &Stop,
        on_event: &mut dyn FnMut(&What),
    ) -> Ended {
        let started = wire::encode_job(job).and_then(|line| {
            self.start(line, stop).map_err(|error| Fault::os("worker: thread", &error))
        });
        match started {
            Ok(talk) => talk.run(deadline, on_event),
            Err(fault) => Ended::Failed(fault),
        }
    }
}

/// A worker on a thread; it can't be killed, so one that doesn't stop counts as hung.
#[derive(Debug)]
struct Thread {
    /// Hung up when the thread is through.
    end: OwnedFd,
}

impl Body for Thread {
    fn pid(&self) -> u32 {
        std::process::id()
    }

    fn end(&self) -> Option<BorrowedFd<'_>> {
        Some(self.end.as_fd())
    }

    fn kill(&mut self) {}

    fn reap(&mut self) -> Option<String> {
        let mut fds = [PollFd::new(&self.end, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&at_once)).is_ok_and(|n| n > 0).then(|| "the thread returned".into())
    }
}

/// What a scripted worker does with one job.
#[derive(Clone, Debug)]
pub enum Scene {
    /// Takes this long, with these events, then says this.
    Reply { takes: Duration, events: Vec<What>, reply: Reply },
    /// Dies after this long.
    Dies { takes: Duration },
    /// Hangs, until `released` is set.
    Hangs { released: Stop },
}

type Script = Box<dyn Fn(&Job) -> Scene + Send + Sync>;

/// Plays scenes, and moves its clock by what they take.
pub struct Scripted {
    clock: ManualClock,
    script: Script,
    patience: Patience,
    seen: Mutex<Vec<Job>>,
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl Scripted {
    pub fn new(clock: ManualClock, script: impl Fn(&Job) -> Scene + Send + Sync + 'static) -> Self {
        let patience = Patience::default();
        Self { clock, script: Box::new(script), patience, seen: Mutex::default() }
    }

    /// All jobs so far, oldest first.
    pub fn seen(&self) -> Vec<Job> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Moves the clock by what is taken; false where the deadline comes first.
    fn pass(&self, takes: Duration, deadline: Duration) -> bool {
        self.clock.advance(takes.min(deadline));
        takes <= deadline
    }
}

impl Runner for Scripted {
    fn run(
        &self,
        job: &Job,
        deadline: Duration,
        stop: &Stop,
        on_event: &mut dyn FnMut(&What),
    ) -> Ended {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(job.clone());
        if stop.is_set() {
            return Ended::Replied(stopped(&job.task));
        }
        let late = || {
            let text = format!("worker: no outcome within {}", Seconds::from(deadline));
            Ended::Failed(Fault::new(FaultKind::TimedOut, text))
        };
        match (self.script)(job) {
            Scene::Reply { takes, events, reply } => {
                events.iter().for_each(on_event);
                if self.pass(takes, deadline) { Ended::Replied(reply) } else { late() }
            }
            Scene::Dies { takes } if self.pass(takes, deadline) => {
                let text = "worker: ended without an outcome: signal 9";
                Ended::Failed(Fault::new(FaultKind::WorkerDied, text))
            }
            Scene::Dies { .. } => late(),
            Scene::Hangs { released } => {
                self.clock.advance(deadline + self.patience.stop + self.patience.kill);
                Ended::Hung(Stuck::new(Box::new(Actor { released })))
            }
        }
    }
}

fn stopped(task: &Task) -> Reply {
    let text = "asked to stop";
    match task {
        Task::Run(_) => Reply::Ran(Outcome::skipped(Skip::Stopped, text)),
        _ => Reply::Skipped { skip: Skip::Stopped, text: text.into() },
    }
}

#[derive(Debug)]
struct Actor {
    released: Stop,
}

impl Body for Actor {
    fn pid(&self) -> u32 {
        std::process::id()
    }

    fn end(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn kill(&mut self) {}

    fn reap(&mut self) -> Option<String> {
        self.released.is_set().then(|| "released".into())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::base::clock::Clock;
    use crate::base::units::Bytes;
    use crate::model::job::{Progress, WIRE_VERSION};
    use crate::worker::Desk;
    use crate::workload::Watch;

    const AMPLE: Duration = Duration::from_secs(60);
    const PATIENCE: Patience = Patience { stop: Duration::ZERO, kill: AMPLE };

    struct Act<F>(F);

    impl<F: Fn(&Desk) -> Reply + Send + Sync> Perform for Act<F> {
        fn perform(&self, _: &Task, desk: &Desk) -> Reply {
            (self.0)(desk)
        }
    }

    fn thread(act: impl Fn(&Desk) -> Reply + Send + Sync + 'static) -> InThread {
        let mut runner = InThread::new(Arc::new(Act(act)));
        runner.patience = PATIENCE;
        runner.service.every = Duration::from_millis(1);
        runner
    }

    fn job() -> Job {
        let task = Task::Save { directory: "/".into(), name: "s".into(), content: "".into() };
        Job { v: WIRE_VERSION, polite: true, task }
    }

    fn layout(done: u64) -> What {
        What::Layout { done: Bytes(done), total: Bytes(u64::MAX) }
    }

    #[test]
    fn a_reader_that_stands_still_does_not_delay_the_task() {
        let (done, is_done) = mpsc::channel();
        let runner = thread(move |desk| {
            // Far more than a pipe holds.
            (0..100_000).for_each(|i| desk.event(layout(i)));
            done.send(()).unwrap();
            Reply::Saved
        });
        let mut heard = 0;
        let ended = runner.run(&job(), AMPLE, &Stop::default(), &mut |_| {
            if heard == 0 {
                is_done.recv_timeout(AMPLE).expect("the task waits for its reader");
            }
            heard += 1;
        });
        assert!(matches!(ended, Ended::Replied(Reply::Saved)), "{ended:?}");
    }

    #[test]
    fn progress_comes_by_itself_while_a_task_is_at_work() {
        let shown = Progress { leg: 3, ..Progress::default() };
        let expected = shown.clone();
        let runner = thread(move |desk| {
            desk.live().publish(Some(shown.clone()));
            while !desk.stopped() {
                std::thread::yield_now();
            }
            Reply::Saved
        });
        let stop = Stop::default();
        let mut heard = Vec::new();
        let runner = InThread { patience: Patience { stop: AMPLE, kill: AMPLE }, ..runner };
        let ended = runner.run(&job(), AMPLE, &stop, &mut |what| {
            heard.push(what.clone());
            if heard.len() == 2 {
                stop.set();
            }
        });
        assert!(matches!(ended, Ended::Replied(Reply::Saved)), "{ended:?}");
        assert!(heard.iter().all(|what| *what == What::Progress(expected.clone())), "{heard:?}");
    }

    #[test]
    fn an_outcome_that_does_not_fit_says_so_instead() {
        let runner = thread(|_| {
            Reply::Failed(Fault::new(FaultKind::Io, "x".repeat(crate::model::job::LINE_BYTES_MAX)))
        });
        let ended = runner.run(&job(), AMPLE, &Stop::default(), &mut |_| {});
        let Ended::Replied(Reply::Failed(fault)) = ended else { panic!("{ended:?}") };
        assert_eq!(fault.kind, FaultKind::Internal);
    }

    #[test]
    fn a_job_of_another_version_is_refused_by_the_worker() {
        let runner = thread(|_| Reply::Saved);
        let job = Job { v: WIRE_VERSION + 1, ..job() };
        let ended = runner.run(&job, AMPLE, &Stop::default(), &mut |_| {});
        let Ended::Replied(Reply::Failed(fault)) = ended else { panic!("{ended:?}") };
        assert_eq!(fault.kind, FaultKind::Unsupported);
    }

    #[test]
    fn a_blocked_thread_is_hung_until_it_returns() {
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        let mut runner = thread(move |_| {
            let _ = released.lock().unwrap().recv();
            Reply::Saved
        });
        runner.patience.kill = Duration::ZERO;
        let ended = runner.run(&job(), Duration::ZERO, &Stop::default(), &mut |_| {});
        let Ended::Hung(mut stuck) = ended else { panic!("{ended:?}") };
        assert!(!stuck.reap());
        drop(release);
        while !stuck.reap() {
            std::thread::yield_now();
        }
        assert!(stuck.reap(), "once gone, always gone");
    }

    #[test]
    fn a_script_moves_its_clock_by_what_its_scenes_take() {
        let clock = ManualClock::starting_at(1_000_000);
        let begin = clock.now();
        let released = Stop::default();
        let hangs = released.clone();
        let runner = Scripted::new(clock.clone(), move |job| match job.polite {
            true => Scene::Reply {
                takes: Duration::from_secs(3),
                events: vec![layout(1)],
                reply: Reply::Saved,
            },
            false => Scene::Hangs { released: hangs.clone() },
        });
        let play = |job: &Job, deadline| {
            runner.run(job, Duration::from_secs(deadline), &Stop::default(), &mut |_| {})
        };
        assert!(matches!(play(&job(), 5), Ended::Replied(Reply::Saved)));
        assert_eq!(clock.now().since(begin), Seconds(3.0));
        let late = play(&job(), 2);
        assert!(matches!(&late, Ended::Failed(f) if f.kind == FaultKind::TimedOut), "{late:?}");
        let hung = play(&Job { polite: false, ..job() }, 5);
        assert_eq!(clock.now().since(begin), Seconds(3.0 + 2.0 + 5.0 + 3.0));
        let Ended::Hung(mut stuck) = hung else { panic!("{hung:?}") };
        assert!(!stuck.reap());
        released.set();
        assert!(stuck.reap());
        assert_eq!(runner.seen().len(), 3);
    }
}
