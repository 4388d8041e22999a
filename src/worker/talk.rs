//! The parent's side of one worker: sends the job, listens, asks for an end, then forces it.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::stuck::{Body, Stuck};
use super::wire::{Lines, Moved, decode_event, read_now, write_now};
use super::{Ended, Stop};
use crate::base::clock::Clock;
use crate::base::fault::{Fault, FaultKind};
use crate::base::units::Seconds;
use crate::model::job::What;
use crate::model::outcome::{Outcome, Reply, Skip};

/// A request to stop and the deadline are seen at most this late.
const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
const CHUNK_BYTES: usize = 64 << 10;
/// Chunks read from a worker that is gone: more than the largest pipe (fs.pipe-max-size, 1 MiB) holds.
const LAST_CHUNKS: usize = 32;

/// How long a worker is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// After its input was closed, until SIGKILL.
    pub stop: Duration,
    /// After SIGKILL, until it counts as hung.
    pub kill: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { stop: Duration::from_secs(1), kill: Duration::from_secs(2) }
    }
}

/// Why a worker was asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Finished,
    Stopped,
    Late,
    Broken,
}

/// The ladder; `at` is monotonic time.
#[derive(Clone, Copy, Debug)]
enum Step {
    Working,
    Asked { at: Duration, why: Why },
    Killed { at: Duration, why: Why },
}

pub(super) struct Talk<'a> {
    pub(super) body: Box<dyn Body>,
    /// The worker's standard input; closing it means stop.
    pub(super) input: Option<OwnedFd>,
    /// The worker's standard output, until there is no more to hear.
    pub(super) output: Option<OwnedFd>,
    /// The job, as far as it isn't written yet.
    pub(super) unsent: Vec<u8>,
    pub(super) patience: Patience,
    pub(super) stop: &'a Stop,
    pub(super) clock: &'a dyn Clock,
}

impl Talk<'_> {
    /// Sees the worker through to its end, within `deadline` plus patience.
    pub(super) fn run(self, deadline: Duration, on_event: &mut dyn FnMut(&What)) -> Ended {
        let until = self.now().saturating_add(deadline);
        let mut heard = Heard { lines: Lines::default(), word: None, on_event };
        let mut talk = self;
        let mut step = Step::Working;
        loop {
            talk.wait();
            talk.send();
            // Asked before the last read, so that nothing it wrote before its end is missed.
            let end = talk.body.reap();
            talk.receive(&mut heard, if end.is_some() { LAST_CHUNKS } else { 1 });
            if let Some(end) = end {
                return conclude(&heard, step, (&end, deadline, talk.patience));
            }
            step = talk.press(step, until, &heard);
            if let Step::Killed { at, .. } = step
                && talk.now() >= at.saturating_add(talk.patience.kill)
            {
                return Ended::Hung(Stuck::new(talk.body));
            }
        }
    }

    fn now(&self) -> Duration {
        self.clock.now().mono
    }

    /// Until something can be moved, the worker ends, or the turn is over.
    fn wait(&self) {
        let end = self.body.end();
        let mut fds = Vec::with_capacity(3);
        fds.extend(self.output.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
        fds.extend(end.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
        if let Some(input) = self.input.as_ref().filter(|_| !self.unsent.is_empty()) {
            fds.push(PollFd::new(input, PollFlags::OUT));
        }
        // An interrupted wait is a short turn; nothing else can fail with descriptors of our own.
        let _ = poll(&mut fds, Some(&TURN));
    }

    fn send(&mut self) {
        let Some(input) = self.input.as_ref().filter(|_| !self.unsent.is_empty()) else { return };
        match write_now(input.as_fd(), &self.unsent) {
            Moved::Bytes(n) => drop(self.unsent.drain(..n)),
            Moved::Later => {}
            // It reads no more; its end or the deadline says the rest.
            Moved::Closed => self.unsent.clear(),
        }
    }

    fn receive(&mut self, heard: &mut Heard<'_>, chunks: usize) {
        let mut chunk = vec![0; CHUNK_BYTES];
        for _ in 0..chunks {
            let Some(output) = &self.output else { return };
            match read_now(output.as_fd(), &mut chunk) {
                Moved::Bytes(n) => heard.take(&chunk[..n]),
                Moved::Later => return,
                Moved::Closed => self.output = None,
            }
            if heard.word.is_some() {
                self.output = None; // the last word is said: what comes after it doesn't count
            }
        }
    }

    /// Goes one rung up the ladder when its time has come.
    fn press(&mut self, step: Step, until: Duration, heard: &Heard<'_>) -> Step {
        let at = self.now();
        match (step, &heard.word) {
            (Step::Killed { .. }, _) => step,
            (_, Some(Err(_))) => self.kill(at, Why::Broken),
            (Step::Working, Some(Ok(_))) => self.ask(at, Why::Finished),
            (Step::Working, None) if self.stop.is_set() => self.ask(at, Why::Stopped),
            (Step::Working, None) if at >= until => self.ask(at, Why::Late),
            (Step::Asked { at: asked, why }, _) if at >= asked + self.patience.stop => {
                self.kill(at, why)
            }
            _ => step,
        }
    }

    fn ask(&mut self, at: Duration, why: Why) -> Step {
        self.input = None;
        Step::Asked { at, why }
    }

    fn kill(&mut self, at: Duration, why: Why) -> Step {
        self.input = None;
        self.body.kill();
        Step::Killed { at, why }
    }
}

/// What the worker said so far.
struct Heard<'a> {
    lines: Lines,
    /// Its outcome, or what is wrong with what it said.
    word: Option<Result<Reply, Fault>>,
    on_event: &'a mut dyn FnMut(&What),
}

impl Heard<'_> {
    fn take(&mut self, bytes: &[u8]) {
        self.lines.push(bytes);
        while self.word.is_none()
            && let Some(line) = self.lines.next()
        {
            match line.and_then(decode_event) {
                Ok(What::Outcome { reply }) => self.word = Some(Ok(*reply)),
                Ok(what) => (self.on_event)(&what),
                Err(fault) => self.word = Some(Err(fault)),
            }
        }
    }
}

/// What to make of a worker that is gone.
fn conclude(heard: &Heard<'_>, step: Step, context: (&str, Duration, Patience)) -> Ended {
    let (end, deadline, patience) = context;
    let (why, killed) = match step {
        Step::Working => (None, false),
        Step::Asked { why, .. } => (Some(why), false),
        Step::Killed { why, .. } => (Some(why), true),
    };
    let late = || {
        let text = format!("worker: no outcome within {}", Seconds::from(deadline));
        Fault::new(FaultKind::TimedOut, text)
    };
    match &heard.word {
        Some(Ok(reply)) if why == Some(Why::Late) => {
            Ended::Replied(stopped_by_deadline(reply.clone(), late()))
        }
        Some(Ok(reply)) => Ended::Replied(reply.clone()),
        Some(Err(fault)) => Ended::Failed(fault.clone()),
        None if why == Some(Why::Late) => Ended::Failed(late()),
        None if killed => Ended::Failed(Fault::new(
            FaultKind::TimedOut,
            format!("worker: no outcome within {} of a stop", Seconds::from(patience.stop)),
        )),
        None => {
            let cut = if heard.lines.is_partial() { " in the middle of a line" } else { "" };
            let text = format!("worker: ended without an outcome{cut}: {end}");
            Ended::Failed(Fault::new(FaultKind::WorkerDied, text))
        }
    }
}

/// A worker that was stopped by its deadline says that it was stopped; the truth is that it was late.
fn stopped_by_deadline(reply: Reply, late: Fault) -> Reply {
    match reply {
        Reply::Ran(Outcome::Skipped { skip: Skip::Stopped, partial, .. }) => {
            Reply::Ran(Outcome::Failed { fault: late, partial })
        }
        Reply::Skipped { skip: Skip::Stopped, .. } => Reply::Failed(late),
        other => other,
    }
}
