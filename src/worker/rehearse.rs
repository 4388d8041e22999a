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
use crate::base::clock::ManualClock;
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
        Ok(Talk { body, input, output, unsent: job, patience: self.patience, stop })
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
